//! Shared code of the CPU kernels' tests: compares an operation with its formula, the value and,
//! with the feature `autodiff`, the gradient of every input.

mod differences;

use std::cell::RefCell;

use burn::tensor::{DType, Device, Tensor, TensorData};
use proptest::prelude::*;
use rand_chacha::{ChaCha12Rng, rand_core::Rng, rand_core::SeedableRng};

use crate::{Heads, Rotary, causal_attention, linear, qk_norm, rotate, swiglu};

pub use differences::largest_difference;

thread_local! {
    /// Burn's own generator is global to the process: what a test drew from it would depend on
    /// concurrent tests.
    static GENERATOR: RefCell<ChaCha12Rng> = RefCell::new(ChaCha12Rng::seed_from_u64(0));
}

/// Seeds this thread's generator, from which [`random`] draws.
pub fn seed(seed: u64) {
    GENERATOR.set(ChaCha12Rng::seed_from_u64(seed));
}

/// Normally distributed values.
pub fn random<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    let values: Vec<f32> = GENERATOR.with_borrow_mut(|rng| {
        // Uniform in (0, 1]; two of these make a normal value (Box and Muller 1958).
        let mut even = || (f64::from(rng.next_u32()) + 1.0) / 2f64.powi(32);
        let mut normal = || (-2.0 * even().ln()).sqrt() * (std::f64::consts::TAU * even()).cos();
        (0..shape.iter().product()).map(|_| normal() as f32).collect()
    });
    Tensor::from_data(TensorData::new(values, shape), device)
}

#[cfg(feature = "autodiff")]
pub fn flat<const D: usize>(tensor: Tensor<D>) -> Tensor<1> {
    let n = tensor.shape().num_elements();
    tensor.reshape([n])
}

/// The largest difference, relative to the largest value (at least 1).
pub fn difference<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> f32 {
    let scale = b.clone().abs().max().into_scalar::<f32>().max(1.0);
    (a - b).abs().max().into_scalar::<f32>() / scale
}

/// Compares one operation and its gradients with respect to every input, on the same random values.
///
/// Sums of n float32 products differ by their order: the tolerance is 2e-5 of the largest value for
/// the sizes used here.
macro_rules! same {
    ($inputs:expr, $fused:expr, $plain:expr) => {{
        #[allow(unused_mut)]
        let mut inputs = $inputs;
        #[cfg(feature = "autodiff")]
        {
            inputs = inputs.tracked();
        }
        let (fused, reference) = ($fused(&inputs), $plain(&inputs));
        #[cfg(feature = "autodiff")]
        {
            let weights = $crate::testing::random(fused.dims(), &fused.device());
            let a = inputs.gradients(&(fused.clone() * weights.clone()).sum().backward());
            let b = inputs.gradients(&(reference.clone() * weights).sum().backward());
            for (a, b) in itertools::Itertools::zip_eq(a.into_iter(), b) {
                let error = $crate::testing::difference(a, b);
                proptest::prop_assert!(error < 2e-5, "a gradient differs by {error}");
            }
        }
        let error = $crate::testing::difference(fused.inner(), reference.inner());
        proptest::prop_assert!(error < 2e-5, "the value differs by {error}");
    }};
}
pub(crate) use same;

/// The inputs of an operation: `x` and up to two parameters, flattened to compare gradients.
pub struct Inputs {
    pub x: Tensor<3>,
    pub matrix: Tensor<2>,
    pub vectors: [Tensor<1>; 2],
}

impl Inputs {
    pub fn new(x: [usize; 3], matrix: [usize; 2], vectors: [usize; 2], seed: u64) -> Self {
        let device = device();
        self::seed(seed);
        Self { x: random(x, &device), matrix: random(matrix, &device), vectors: vectors.map(|n| random([n], &device)) }
    }

    #[cfg(feature = "autodiff")]
    pub fn tracked(self) -> Self {
        Self {
            x: self.x.require_grad(),
            matrix: self.matrix.require_grad(),
            vectors: self.vectors.map(Tensor::require_grad),
        }
    }

    #[cfg(feature = "autodiff")]
    pub fn gradients(&self, gradients: &burn::tensor::Gradients) -> Vec<Tensor<1>> {
        let x = self.x.grad(gradients).map(flat);
        let matrix = self.matrix.grad(gradients).map(flat);
        let vectors = self.vectors.iter().map(|vector| vector.grad(gradients));
        [x, matrix].into_iter().chain(vectors).flatten().collect()
    }
}

#[cfg(feature = "autodiff")]
pub fn device() -> Device {
    Device::flex().autodiff()
}
#[cfg(not(feature = "autodiff"))]
pub fn device() -> Device {
    Device::flex()
}

/// A few key/value heads, each of which serves a few query heads.
pub fn heads() -> impl Strategy<Value = Heads> {
    (1usize..4, 1usize..5, 1usize..20).prop_map(|(n_kv_head, served, head_size)| Heads {
        n_head: n_kv_head * served,
        n_kv_head,
        head_size,
    })
}

/// As [`heads`], with an even width.
pub fn even_heads() -> impl Strategy<Value = Heads> {
    heads().prop_map(|heads| Heads { head_size: 2 * heads.head_size, ..heads })
}

#[test]
fn nan_differs_from_every_number() {
    assert_eq!(largest_difference(&[1.0, 2.0], &[1.5, 2.0]), 0.5);
    for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN), (f32::INFINITY, f32::INFINITY)] {
        assert_eq!(largest_difference(&[0.0, a, 0.0], &[0.0, b, 0.0]), f32::INFINITY);
    }
}

/// Kernels accept and return the half precision of a branch, rounded once from float32.
#[test]
fn half_precision_passes_through_the_kernels() {
    let device = Device::flex();
    seed(5);
    let heads = Heads { n_head: 4, n_kv_head: 2, head_size: 6 };
    let rotary = Rotary::new(3..20, heads.head_size, 1e4, &device);
    let [scale, matrix] = [[6, 1], [heads.width(), 10]].map(|shape| random(shape, &device).cast(DType::BF16));
    let scale = scale.flatten::<1>(0, 1);
    let half = random::<3>([2, 17, heads.width()], &device).cast(DType::BF16);
    let same = |name: &str, kernel: &dyn Fn(Tensor<3>, DType) -> Tensor<3>| {
        let got = kernel(half.clone(), DType::BF16);
        assert_eq!(got.dtype(), DType::BF16, "{name}");
        let error = difference(got.cast(DType::F32), kernel(half.clone().cast(DType::F32), DType::F32));
        assert!(error < 4e-3, "{name} differs by {error}"); // half a unit of 8 bits, of the largest value
    };
    same("linear", &|x, to| linear(x, matrix.clone().cast(to), None));
    same("qk_norm", &|x, to| qk_norm(x, scale.clone().cast(to), scale.clone().cast(to), 1e-6, heads));
    same("rotate", &|x, _| rotate(x, &rotary, heads));
    same("swiglu", &|x, _| swiglu(x));
    same("attention", &|x, _| causal_attention(x, heads, None));
}
