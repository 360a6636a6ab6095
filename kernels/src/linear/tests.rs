#![allow(clippy::unwrap_used)]

use burn::tensor::{DType, FloatDType, Tensor};
use itertools::Itertools;
use proptest::prelude::*;

use crate::DropoutMask;
use crate::testing::{self, Inputs, device, difference, random, same};

/// A residual stream `[2, time, n_out]`: the second vector at every position.
fn residual(i: &Inputs, time: usize) -> Tensor<3> {
    let vector = i.vectors[1].clone();
    Tensor::<3>::zeros([2, time, vector.dims()[0]], &device()) + vector.unsqueeze::<3>()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn linear(batch in 1usize..4, time in 1usize..80, n_in in 1usize..70, n_out in 1usize..150, seed: u64) {
        same!(
            Inputs::new([batch, time, n_in], [n_in, n_out], [n_out, 1], seed),
            |i: &Inputs| crate::linear(i.x.clone(), i.matrix.clone(), Some(i.vectors[0].clone())),
            |i: &Inputs| crate::plain::linear(i.x.clone(), i.matrix.clone(), Some(i.vectors[0].clone()))
        );
    }

    #[test]
    fn linear_without_bias(batch in 1usize..4, time in 1usize..80, n_in in 1usize..70, n_out in 1usize..150, seed: u64) {
        same!(
            Inputs::new([batch, time, n_in], [n_in, n_out], [1, 1], seed),
            |i: &Inputs| crate::linear(i.x.clone(), i.matrix.clone(), None),
            |i: &Inputs| crate::plain::linear(i.x.clone(), i.matrix.clone(), None)
        );
    }

    #[test]
    fn linear_gelu(batch in 1usize..4, time in 1usize..80, n_in in 1usize..70, n_out in 1usize..150, seed: u64) {
        same!(
            Inputs::new([batch, time, n_in], [n_in, n_out], [n_out, 1], seed),
            |i: &Inputs| crate::linear_gelu(i.x.clone(), i.matrix.clone(), Some(i.vectors[0].clone())),
            |i: &Inputs| crate::plain::gelu(crate::plain::linear(i.x.clone(), i.matrix.clone(), Some(i.vectors[0].clone())))
        );
    }

    #[test]
    fn linear_onto(time in 1usize..80, n_in in 1usize..70, n_out in 1usize..150, probability in 0.0f32..0.9, seed: u64) {
        let mask = Some(DropoutMask { probability, key: seed });
        same!(
            Inputs::new([2, time, n_in], [n_in, n_out], [n_out, n_out], seed),
            |i: &Inputs| crate::linear_onto(residual(i, time), i.x.clone(), i.matrix.clone(), Some(i.vectors[0].clone()), mask),
            |i: &Inputs| {
                let branch = crate::plain::linear(i.x.clone(), i.matrix.clone(), Some(i.vectors[0].clone()));
                residual(i, time) + crate::plain::dropout(branch, mask)
            }
        );
    }

    #[test]
    fn linear_onto_without_bias(time in 1usize..80, n_in in 1usize..70, n_out in 1usize..150, probability in 0.0f32..0.9, seed: u64) {
        let mask = (seed % 2 == 0).then_some(DropoutMask { probability, key: seed });
        same!(
            Inputs::new([2, time, n_in], [n_in, n_out], [1, n_out], seed),
            |i: &Inputs| crate::linear_onto(residual(i, time), i.x.clone(), i.matrix.clone(), None, mask),
            |i: &Inputs| {
                residual(i, time) + crate::plain::dropout(crate::plain::linear(i.x.clone(), i.matrix.clone(), None), mask)
            }
        );
    }

    #[test]
    fn unembed(batch in 1usize..3, time in 1usize..40, n_embd in 1usize..70, vocab in 1usize..150, seed: u64) {
        same!(
            Inputs::new([batch, time, n_embd], [vocab, n_embd], [1, 1], seed),
            |i: &Inputs| crate::unembed(i.x.clone(), i.matrix.clone()),
            |i: &Inputs| crate::plain::unembed(i.x.clone(), i.matrix.clone())
        );
    }

    /// Products in bfloat16 and their gradients, compared with float32's on numbers exact in both.
    #[test]
    fn bfloat16_is_multiplied_with_float32_sums(
        batch in 1usize..4, time in 1usize..80, n_in in 1usize..70, n_out in 1usize..150, head in prop::bool::ANY, seed: u64,
    ) {
        let (device, to) = (device(), FloatDType::BF16);
        testing::seed(seed);
        let rounded = |values: Tensor<3>| values.cast(to).cast(DType::F32);
        let x = rounded(random([batch, time, n_in], &device));
        let matrix = rounded(random([1, n_in, n_out], &device)).squeeze_dim::<2>(0);
        let matrix = if head { matrix.transpose() } else { matrix };
        let bias = rounded(random([1, 1, n_out], &device)).flatten::<1>(0, 2);
        #[cfg(feature = "autodiff")]
        let weights = rounded(random([batch, time, n_out], &device));
        let run = |half: bool| {
            #[allow(unused_mut)]
            let mut inputs = Inputs { x: x.clone(), matrix: matrix.clone(), vectors: [bias.clone(), bias.clone()] };
            #[cfg(feature = "autodiff")]
            {
                inputs = inputs.tracked();
            }
            let of = if half { to } else { FloatDType::F32 };
            let (x, matrix) = (crate::cast(inputs.x.clone(), of), crate::cast(inputs.matrix.clone(), of));
            let y = if head { crate::unembed(x, matrix) } else { crate::linear(x, matrix, Some(inputs.vectors[0].clone())) };
            let y = crate::cast(y, FloatDType::F32);
            #[cfg(feature = "autodiff")]
            let gradients = inputs.gradients(&(y.clone() * weights.clone()).sum().backward());
            #[cfg(not(feature = "autodiff"))]
            let gradients: Vec<Tensor<1>> = Vec::new();
            (y.inner(), gradients)
        };
        let ((half, half_gradients), (full, gradients)) = (run(true), run(false));
        let error = difference(half, full);
        prop_assert!(error < 4e-3, "the value differs by {error}"); // half a unit of 8 bits
        prop_assert_eq!(half_gradients.len(), gradients.len());
        for (half, full) in half_gradients.into_iter().zip_eq(gradients) {
            let error = difference(half, full);
            prop_assert!(error < 4e-3, "a gradient differs by {error}");
        }
    }
}
