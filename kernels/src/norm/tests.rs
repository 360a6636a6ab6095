#![allow(clippy::unwrap_used)]

use burn::tensor::FloatDType;
use proptest::prelude::*;

use crate::{
    Norm,
    testing::{Inputs, same},
};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    // Norms of at least 4 values: normalising two leaves only their order, one nothing, and where
    // they are nearly equal, the gradient is all rounding.
    #[test]
    fn layer_norm(batch in 1usize..4, time in 1usize..60, n_embd in 4usize..100, seed: u64) {
        same!(
            Inputs::new([batch, time, n_embd], [1, 1], [n_embd, n_embd], seed),
            |i: &Inputs| crate::layer_norm(i.x.clone(), i.vectors[0].clone(), Some(i.vectors[1].clone()), Norm::new(1e-5, FloatDType::F32)),
            |i: &Inputs| crate::plain::layer_norm(i.x.clone(), i.vectors[0].clone(), Some(i.vectors[1].clone()), 1e-5)
        );
    }

    #[test]
    fn layer_norm_without_bias(batch in 1usize..4, time in 1usize..60, n_embd in 4usize..100, seed: u64) {
        same!(
            Inputs::new([batch, time, n_embd], [1, 1], [n_embd, 1], seed),
            |i: &Inputs| crate::layer_norm(i.x.clone(), i.vectors[0].clone(), None, Norm::new(1e-5, FloatDType::F32)),
            |i: &Inputs| crate::plain::layer_norm(i.x.clone(), i.vectors[0].clone(), None, 1e-5)
        );
    }

    #[test]
    fn rms_norm(batch in 1usize..4, time in 1usize..60, n_embd in 4usize..100, seed: u64) {
        same!(
            Inputs::new([batch, time, n_embd], [1, 1], [n_embd, 1], seed),
            |i: &Inputs| crate::rms_norm(i.x.clone(), i.vectors[0].clone(), Norm::new(1e-5, FloatDType::F32)),
            |i: &Inputs| crate::plain::rms_norm(i.x.clone(), i.vectors[0].clone(), 1e-5)
        );
    }

    // With a branch: `x` already has the gradient from the sum before the norm's is added.
    #[test]
    fn norms_of_branches(batch in 1usize..4, time in 1usize..60, n_embd in 4usize..100, seed: u64) {
        let norm = Norm::new(1e-5, FloatDType::F32).of_branch();
        same!(
            Inputs::new([batch, time, n_embd], [1, 1], [n_embd, n_embd], seed),
            |i: &Inputs| {
                let [weight, bias] = &i.vectors;
                let x = i.x.clone() * 2.0;
                let x = x.clone() + crate::layer_norm(x, weight.clone(), Some(bias.clone()), norm);
                x.clone() + crate::rms_norm(x, weight.clone(), norm)
            },
            |i: &Inputs| {
                let [weight, bias] = &i.vectors;
                let x = i.x.clone() * 2.0;
                let x = x.clone() + crate::plain::layer_norm(x, weight.clone(), Some(bias.clone()), 1e-5);
                x.clone() + crate::plain::rms_norm(x, weight.clone(), 1e-5)
            }
        );
    }
}
