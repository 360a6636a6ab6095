//! Dropout ([Srivastava et al. 2014](https://jmlr.org/papers/v15/srivastava14a.html)) by masks that
//! are computed, not stored.

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod gpu;
#[cfg(all(test, feature = "autodiff", feature = "gpu"))]
mod gpu_tests;
pub(crate) mod mask;

use burn::tensor::Tensor;

use crate::operation::apply;
pub use mask::DropoutMask;

/// Dropout of `x` `[batch, time, n_embd]`, scaled to keep the expected value. The identity without
/// a mask.
pub fn dropout(x: Tensor<3>, mask: Option<DropoutMask>) -> Tensor<3> {
    let Some(mask) = mask else { return x };
    apply(mask, [x.into_dispatch()])
}

/// Inverted dropout by a mask that the CPU computes; the identity without one.
pub fn plain<const D: usize>(x: Tensor<D>, mask: Option<DropoutMask>) -> Tensor<D> {
    let Some(mask) = mask else { return x };
    let kept = cpu::masked(&vec![1.0; x.shape().num_elements()], mask);
    let kept = Tensor::<1>::from_floats(kept.as_slice(), &x.device()).cast(x.dtype());
    x.clone() * kept.reshape(x.shape())
}
