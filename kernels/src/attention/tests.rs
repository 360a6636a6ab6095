#![allow(clippy::unwrap_used)]

use burn::tensor::{DType, Device, FloatDType, Tensor};
use itertools::Itertools;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::Heads;
use crate::testing::{self, Inputs, device, difference, heads, largest_difference, random, same};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    // Lengths around one and several blocks of query rows.
    #[test]
    fn causal_attention(
        batch in 1usize..3, time in prop_oneof![1usize..10, 60usize..70, 126usize..140], heads in heads(), seed: u64,
    ) {
        same!(
            Inputs::new([batch, time, heads.width()], [1, 1], [1, 1], seed),
            |i: &Inputs| crate::causal_attention(i.x.clone(), heads, None),
            |i: &Inputs| crate::plain::causal_attention(i.x.clone(), heads, None).0
        );
    }

}

proptest! {
    // A row's gradients share the rounding error of y: if they nearly cancel, one case in many
    // thousands exceeds the bound. The seed is fixed.
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(64) })]

    /// Attention in bfloat16, which rounds the softmax's weights and, in the backward pass, the
    /// scores' gradients before multiplying them, compared with float32 on numbers exact in both.
    #[test]
    fn attention_of_bfloat16_sums_in_float32(
        batch in 1usize..3, time in prop_oneof![1usize..10, 60usize..70, 126usize..140], heads in heads(), seed: u64,
    ) {
        let (device, to) = (device(), FloatDType::BF16);
        testing::seed(seed);
        let rounded = |values: Tensor<3>| values.cast(to).cast(DType::F32);
        let qkv = rounded(random([batch, time, heads.width()], &device));
        #[cfg(feature = "autodiff")]
        let weights = rounded(random([batch, time, heads.query_width()], &device));
        let run = |of: FloatDType| {
            #[allow(unused_mut)]
            let mut inputs = Inputs { x: qkv.clone(), matrix: random([1, 1], &device), vectors: [1, 1].map(|n| random([n], &device)) };
            #[cfg(feature = "autodiff")]
            {
                inputs = inputs.tracked();
            }
            let y = crate::causal_attention(crate::cast(inputs.x.clone(), of), heads, None);
            let y = crate::cast(y, FloatDType::F32);
            #[cfg(feature = "autodiff")]
            let gradients = inputs.gradients(&(y.clone() * weights.clone()).sum().backward());
            #[cfg(not(feature = "autodiff"))]
            let gradients: Vec<Tensor<1>> = Vec::new();
            (y.inner(), gradients)
        };
        let ((half, half_gradients), (full, gradients)) = (run(to), run(FloatDType::F32));
        let error = difference(half, full);
        prop_assert!(error < 8e-3, "the value differs by {error}"); // half a unit of 8 bits, for the weights and for the result
        for (half, full) in half_gradients.into_iter().zip_eq(gradients) {
            let error = difference(half, full);
            prop_assert!(error < 1.6e-2, "a gradient differs by {error}"); // the same for y, the weights, the scores and the result
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    // Longer than one block of keys, and than two.
    #[test]
    fn attention_to_a_long_text(
        time in prop_oneof![505usize..520, 540usize..560, 1020usize..1060], heads in heads(), seed: u64,
    ) {
        let heads = Heads { head_size: heads.head_size.min(4), ..heads };
        same!(
            Inputs::new([1, time, heads.width()], [1, 1], [1, 1], seed),
            |i: &Inputs| crate::causal_attention(i.x.clone(), heads, None),
            |i: &Inputs| crate::plain::causal_attention(i.x.clone(), heads, None).0
        );
    }
}

/// The returned weights are those applied to the values, in the kernel and in the formula.
#[test]
fn kernel_and_formula_hand_out_the_same_weights() {
    let heads = Heads { n_head: 2, n_kv_head: 2, head_size: 4 };
    let qkv = random::<3>([2, 70, 3 * 8], &Device::flex()) * 2.0;
    let (y, weights) = crate::causal_attention_and_weights(qkv.clone(), heads);
    assert_eq!(values(y.clone()), values(crate::causal_attention(qkv.clone(), heads, None)));
    let (expected, expected_weights) = crate::plain::causal_attention(qkv, heads, None);
    assert!(largest_difference(&values(weights), &values(expected_weights)) < 1e-5);
    assert!(largest_difference(&values(y), &values(expected)) < 1e-4);
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec::<f32>().unwrap()
}

/// With dropout the gradient must be that of the very function that ran: compared with finite
/// differences.
#[cfg(feature = "autodiff")]
#[test]
fn dropout_in_attention_has_its_own_gradient() {
    // Within a block of keys, and over two of them.
    dropout_has_its_gradient(70);
    dropout_has_its_gradient(530);
}

#[cfg(feature = "autodiff")]
fn dropout_has_its_gradient(time: usize) {
    let device = device();
    testing::seed(3);
    let heads = Heads { n_head: 4, n_kv_head: 2, head_size: 3 };
    let mask = Some(crate::DropoutMask { probability: 0.4, key: 99 });
    let qkv = random::<3>([1, time, heads.width()], &device).require_grad();
    let weights = random::<3>([1, time, heads.query_width()], &device);
    let value = |qkv: Tensor<3>| {
        let y = crate::dropout(crate::causal_attention(qkv, heads, mask), mask);
        (y * weights.clone()).sum()
    };
    let gradient = qkv.grad(&value(qkv.clone()).backward()).unwrap();
    let direction = random::<3>([1, time, heads.width()], &device);
    let step = 1e-2;
    let at = |sign: f64| value(qkv.clone().detach() + direction.clone() * (sign * step)).into_scalar::<f32>() as f64;
    let numeric = (at(1.0) - at(-1.0)) / (2.0 * step);
    let exact = (gradient * direction.inner()).sum().into_scalar::<f32>() as f64;
    assert!((numeric - exact).abs() < 2e-3 * exact.abs().max(1.0), "{numeric} {exact}");
}
