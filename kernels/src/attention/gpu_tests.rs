//! Our GPU kernels' attention equals the textbook formula and the CPU's kernels: outputs and
//! gradients.
#![allow(clippy::unwrap_used)]

use burn::tensor::{DType, Device, Distribution, FloatDType, Tensor, TensorData};
use proptest::prelude::*;

use crate::gpu::testing::{gpus, largest_difference, values};
use crate::limits::{self, Demand, Use};
use crate::{self as kernels, DropoutMask, Heads, plain};

pub fn random<const D: usize>(shape: [usize; D], spread: f64, seed: u64) -> TensorData {
    let device = Device::flex();
    device.seed(seed);
    Tensor::<D>::random(shape, Distribution::Normal(0.0, spread), &device).into_data()
}

/// The attention's output, and the gradient of `qkv` for a weighted sum of the output.
fn output_and_gradient(
    qkv: &TensorData,
    dy: &TensorData,
    device: &Device,
    attention: impl Fn(Tensor<3>) -> Tensor<3>,
) -> [Vec<f32>; 2] {
    let device = device.clone().autodiff();
    let qkv = Tensor::<3>::from_data(qkv.clone(), &device).require_grad();
    let y = attention(qkv.clone());
    let gradients = (y.clone() * Tensor::from_data(dy.clone(), &device)).sum().backward();
    [values(y), values(qkv.grad(&gradients).unwrap())]
}

/// Head sizes in whole vectors of four, and not; each compiles another kernel.
pub fn heads() -> impl Strategy<Value = Heads> {
    (1usize..3, 1usize..3, prop_oneof![Just(16usize), Just(5)]).prop_map(|(n_kv_head, served, head_size)| Heads {
        n_head: n_kv_head * served,
        n_kv_head,
        head_size,
    })
}

/// Input spreads: with the larger one a row's running maximum grows by leaps.
fn spread() -> impl Strategy<Value = f64> {
    prop_oneof![Just(1.0), Just(5.0)]
}

fn agrees(batch: usize, time: usize, heads: Heads, spread: f64, seed: u64, mask: Option<DropoutMask>) {
    let qkv = random([batch, time, heads.width()], spread, seed);
    let dy = random([batch, time, heads.query_width()], 1.0, seed + 1);
    // The formula has no dropout mask: with dropout the CPU's kernel is the reference.
    let expected = output_and_gradient(&qkv, &dy, &Device::flex(), |qkv| match mask {
        None => plain::causal_attention(qkv, heads, None).0,
        Some(_) => kernels::causal_attention(qkv, heads, mask),
    });
    let used = Use::Training(FloatDType::F32);
    let demand = Demand { head_size: heads.head_size, has_head_dim: false, used, largest: 0 };
    for device in gpus().into_iter().filter(|device| limits::check(demand, device).is_ok()) {
        let got = output_and_gradient(&qkv, &dy, &device, |qkv| kernels::causal_attention(qkv, heads, mask));
        for (what, got, expected) in [("outputs", &got[0], &expected[0]), ("gradients", &got[1], &expected[1])] {
            let error = largest_difference(got, expected);
            let largest = expected.iter().fold(1.0f32, |largest, value| largest.max(value.abs()));
            // Scores up to 500 in float32 have errors of 3e-5 in their exponentials.
            assert!(
                error < 1e-4 * largest,
                "{what} differ by {error}: batch {batch}, time {time}, {heads:?}, {mask:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    // Lengths of one, within a tile, around its edge and over several tiles.
    #[test]
    fn is_the_formula(
        batch in 1usize..3, time in prop_oneof![Just(1usize), 2usize..20, 30usize..35, 60usize..100], heads in heads(),
        spread in spread(), seed in 0u64..1 << 32,
    ) {
        agrees(batch, time, heads, spread, seed, None);
    }

    #[test]
    fn drops_what_the_cpu_drops(time in 1usize..80, served in 1usize..3, seed in 0u64..1 << 32, key: u64) {
        let heads = Heads { n_head: 2 * served, n_kv_head: 2, head_size: 16 };
        agrees(2, time, heads, 1.0, seed, Some(DropoutMask { probability: 0.3, key }));
    }

}

/// Wide heads, which have small tiles.
#[test]
fn is_the_formula_for_wide_heads() {
    agrees(1, 40, Heads { n_head: 2, n_kv_head: 1, head_size: 128 }, 2.0, 7, None);
}

/// No sum depends on an order that the device may choose.
#[test]
fn repeats_itself_bit_for_bit() {
    let heads = Heads { n_head: 4, n_kv_head: 2, head_size: 16 };
    let (qkv, dy) = (random([2, 90, heads.width()], 1.5, 5), random([2, 90, heads.query_width()], 1.0, 6));
    for device in gpus() {
        let compute = || output_and_gradient(&qkv, &dy, &device, |qkv| kernels::causal_attention(qkv, heads, None));
        assert_eq!(compute(), compute());
    }
}

/// Float32 sums, rounded once, for any input type.
#[test]
fn half_precision_is_rounded_once() {
    let heads = Heads { n_head: 2, n_kv_head: 1, head_size: 16 };
    let (qkv, dy) = (random([2, 50, heads.width()], 1.5, 3), random([2, 50, heads.query_width()], 1.0, 4));
    for device in gpus().into_iter().filter(|device| device.supports_dtype(DType::F16)) {
        let half = |qkv: Tensor<3>| kernels::causal_attention(qkv.cast(DType::F16), heads, None).cast(DType::F32);
        let rounded = |qkv: Tensor<3>| plain::causal_attention(qkv.cast(DType::F16).cast(DType::F32), heads, None).0;
        let expected = output_and_gradient(&qkv, &dy, &Device::flex(), rounded);
        let got = output_and_gradient(&qkv, &dy, &device, half);
        for (got, expected) in got.iter().zip(&expected) {
            let error = largest_difference(got, expected);
            let largest = expected.iter().fold(0.0f32, |a, b| a.max(b.abs()));
            assert!(error < 3e-3 * largest, "{error} of {largest}");
        }
    }
}

/// Heads whose usual tiles need more than the 32 KiB of shared memory that software Vulkan and many
/// GPUs have: each of these widths takes a smaller tile than the one before.
#[test]
fn wide_heads_go_in_small_tiles() {
    for head_size in [256, 384, 512] {
        agrees(1, 21, Heads { n_head: 2, n_kv_head: 1, head_size }, 0.3, 7, None);
    }
}

/// A launch has at most 65,535 cubes per dimension, on wgpu and on CUDA; dropout makes the rows
/// differ.
#[test]
fn a_batch_may_have_more_rows_than_a_launch() {
    let mask = Some(DropoutMask { probability: 0.3, key: 11 });
    agrees(65_537, 2, Heads { n_head: 1, n_kv_head: 1, head_size: 4 }, 1.0, 3, mask);
}
