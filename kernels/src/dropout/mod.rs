//! Dropout ([Srivastava et al. 2014](https://jmlr.org/papers/v15/srivastava14a.html)) by masks that
//! are computed, not stored.

pub(crate) mod cpu;
pub(crate) mod gpu;
#[cfg(all(test, feature = "autodiff"))]
mod gpu_tests;

use burn::tensor::{Device, Distribution, Tensor};

use crate::operation::apply;

/// One dropout: the probability of dropping a value, and the key from which its mask is computed.
///
/// The mask is a hash of (key, place in the tensor), so that the backward can compute it again
/// instead of storing it.
#[derive(Clone, Copy, Debug)]
pub struct DropoutMask {
    /// Probability with which a value becomes 0; the others are divided by `1 - probability`.
    pub probability: f32,
    /// Names this draw among all others.
    pub key: u64,
}

impl DropoutMask {
    /// Draws a key from the CPU's generator, which training seeds with (seed, step, micro-batch),
    /// whatever the device: one that was drawn on a GPU would have to be waited for. `None` where
    /// nothing is to be dropped: at probability 0, and on a device without automatic
    /// differentiation.
    pub fn draw(probability: f64, device: &Device) -> Option<Self> {
        if probability == 0.0 || !device.is_autodiff() {
            return None;
        }
        // 24 bits are what a float32 in [0, 1) holds exactly.
        let halves = Tensor::<1>::random([2], Distribution::Uniform(0.0, 1.0), &Device::flex()).into_data();
        let key = halves.iter::<f32>().fold(0, |key, half| (key << 24) | (half * (1 << 24) as f32) as u64);
        Some(Self { probability: probability as f32, key })
    }

    /// Seeds the generator that [`Self::draw`] draws from.
    pub fn seed(seed: u64) {
        Device::flex().seed(seed);
    }
}

/// `x` `[batch, time, n_embd]` after dropout, scaled so that the expected value stays. The identity
/// without a mask.
pub fn dropout(x: Tensor<3>, mask: Option<DropoutMask>) -> Tensor<3> {
    let Some(mask) = mask else { return x };
    let [y] = apply(Dropout(mask), [x.into_dispatch()]);
    Tensor::from_dispatch(y)
}

#[derive(Clone, Debug)]
struct Dropout(DropoutMask);

/// Inverted dropout by a mask that the CPU computes; the identity without one.
pub fn plain<const D: usize>(x: Tensor<D>, mask: Option<DropoutMask>) -> Tensor<D> {
    let Some(mask) = mask else { return x };
    let kept = cpu::apply(&vec![1.0; x.shape().num_elements()], mask);
    let kept = Tensor::<1>::from_floats(kept.as_slice(), &x.device()).cast(x.dtype());
    x.clone() * kept.reshape(x.shape())
}
