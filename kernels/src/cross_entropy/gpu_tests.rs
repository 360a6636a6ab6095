//! The GPU's cross-entropy and its gradient, compared with the formulas of `plain` on the CPU.
#![allow(clippy::unwrap_used)]

use burn::tensor::{DType, Device, Distribution, FloatDType, Tensor};

use proptest::prelude::*;

use super::{Loss, Objective, loss_over, plain};
use crate::gpu::testing::{gpu, values};

/// Objective, cross-entropy and the gradient of three times the objective.
fn numbers(loss: Loss, logits: &Tensor<3>) -> ([f32; 2], Vec<f32>) {
    let Loss { objective, cross_entropy } = loss;
    let objective = objective * 3.0;
    let gradient = logits.grad(&objective.backward()).unwrap();
    ([objective, cross_entropy].map(|loss| loss.into_scalar::<f32>()), values(gradient))
}

#[derive(Clone, Debug)]
struct Case {
    size: [usize; 3],
    seed: u64,
    scale: f64,
    objective: Objective,
    divisor: f64,
}

fn cases(vocab: impl Strategy<Value = usize>) -> impl Strategy<Value = Case> {
    let objective = (prop::sample::select(vec![0.0, 1e-3, 0.1]), prop::sample::select(vec![0.0, 0.1, 0.7]))
        .prop_map(|(z_loss, label_smoothing)| Objective { z_loss, label_smoothing });
    let size = (1usize..4, 1usize..9, vocab).prop_map(|(batch, time, vocab)| [batch, time, vocab]);
    (size, 0u64..1000, 0.1f64..30.0, objective, prop::sample::select(vec![1.0, 0.5, 6.0]))
        .prop_map(|(size, seed, scale, objective, divisor)| Case { size, seed, scale, objective, divisor })
}

/// `precision` is the type to which the logits are rounded before both compute; the GPU's gradient
/// is rounded to it, too.
fn same(case: &Case, there: &Device, precision: FloatDType, rounding: f32) -> Result<(), TestCaseError> {
    let Case { size, seed, scale, objective, divisor } = *case;
    let here = Device::flex().autodiff();
    here.seed(seed);
    let logits = Tensor::<3>::random(size, Distribution::Normal(0.0, scale), &Device::flex()).cast(precision);
    let [batch, time, vocab] = size;
    let targets: Vec<u32> = (0..batch * time).map(|i| ((i as u64 * 31 + seed) % vocab as u64) as u32).collect();

    let reference = Tensor::from_inner(logits.clone().cast(FloatDType::F32)).require_grad();
    let Loss { objective: minimised, cross_entropy } = plain(reference.clone(), &targets, objective);
    let (want, _) = numbers(Loss { objective: minimised / divisor, cross_entropy }, &reference);

    let leaf = Tensor::<3>::from_data(logits.into_data(), (there, precision.into())).autodiff().require_grad();
    // The kernel works in place, but not on the leaf, whose buffer is shared.
    let (got, gradient) = numbers(loss_over(leaf.clone(), &targets, objective, divisor), &leaf);
    for (a, b) in got.iter().zip(&want) {
        prop_assert!((a - b).abs() <= 3e-5 * b.abs().max(1.0), "{got:?} {want:?}");
    }
    // With a z-loss the gradient is as large as the logits.
    let weight = 3.0 / (divisor as f32 * (batch * time) as f32);
    let allowed = 3e-6 + 3e-6 * (objective.z_loss * scale) as f32 * 20.0;
    let exact = exact_gradient(&values(leaf.clone().inner().cast(FloatDType::F32)), &targets, case);
    for (&a, b) in gradient.iter().zip(exact) {
        prop_assert!((a - b).abs() < allowed * weight.max(1.0) + (rounding + 4e-6) * b.abs(), "{a} {b}");
    }
    // Without tracking, the value is the same and the logits stay.
    let untracked = leaf.clone().inner();
    let Loss { objective: value, .. } = loss_over(untracked.clone(), &targets, objective, divisor);
    prop_assert!((value.into_scalar::<f32>() * 3.0 - got[0]).abs() <= 1e-5 * got[0].abs().max(1.0));
    prop_assert_eq!(values(untracked.cast(FloatDType::F32)), values(leaf.inner().cast(FloatDType::F32)));
    Ok(())
}

/// The gradient of the sum in [`numbers`] by the formula in float64: in float32 the logarithm of a
/// large sum of exponentials has an error of a few millionths, and so has each probability.
fn exact_gradient(logits: &[f32], targets: &[u32], case: &Case) -> Vec<f32> {
    let Case { size: [batch, time, vocab], objective: Objective { z_loss, label_smoothing }, divisor, .. } = *case;
    let weight = 3.0 / (divisor * (batch * time) as f64);
    let gradient_of = |(row, &target): (&[f32], &u32)| {
        let row: Vec<f64> = row.iter().map(|&logit| f64::from(logit)).collect();
        let largest = row.iter().copied().fold(f64::MIN, f64::max);
        let all = largest + row.iter().map(|logit| (logit - largest).exp()).sum::<f64>().ln();
        let at = move |(id, logit): (usize, f64)| {
            let hit = if id == target as usize { 1.0 - label_smoothing } else { 0.0 };
            let wanted = hit + label_smoothing / vocab as f64;
            (weight * ((logit - all).exp() * (1.0 + 2.0 * z_loss * all) - wanted)) as f32
        };
        row.into_iter().enumerate().map(at).collect::<Vec<_>>()
    };
    logits.chunks(vocab).zip(targets).flat_map(gradient_of).collect()
}

#[test]
fn any_vocabulary_gives_the_formulas_loss_and_gradient() {
    let Some(device) = gpu() else { return };
    let config = ProptestConfig::with_cases(16);
    proptest!(config.clone(), |(case in cases(1usize..70))| same(&case, &device, FloatDType::F32, 0.0)?);
    proptest!(config, |(case in cases(1025usize..20_000))| same(&case, &device, FloatDType::F32, 0.0)?);
    // One logit far above all others: its probability is 1, as exact as the denominator.
    let objective = Objective { z_loss: 0.001, label_smoothing: 0.1 };
    let case = Case { size: [1, 3, 13_200], seed: 410, scale: 11.959_249, objective, divisor: 1.0 };
    same(&case, &device, FloatDType::F32, 0.0).unwrap();
}

/// A launch has at most 65,535 cubes per dimension, and each row has one.
#[test]
fn there_are_more_rows_than_cubes_in_a_direction() {
    let Some(device) = gpu() else { return };
    let objective = Objective { z_loss: 0.0, label_smoothing: 0.1 };
    let case = Case { size: [1, 70_001, 5], seed: 7, scale: 3.0, objective, divisor: 1.0 };
    same(&case, &device, FloatDType::F32, 0.0).unwrap();
}

#[test]
fn halves_are_summed_in_float32() {
    let Some(device) = gpu() else { return };
    if !device.supports_dtype(DType::F16) {
        println!("SKIPPED: no float16 on this device");
        return;
    }
    let config = ProptestConfig::with_cases(8);
    proptest!(config, |(case in cases(1usize..3000))| same(&case, &device, FloatDType::F16, 1e-3)?);
}

/// Non-finite logits must not give a finite loss.
#[test]
fn logits_that_are_not_finite_give_a_loss_that_is_not() {
    let Some(device) = gpu() else { return };
    for bad in [f32::NAN, f32::INFINITY] {
        for (vocab, place) in [(5, 0), (5, 4), (2000, 1999)] {
            let mut logits = vec![0.5; vocab];
            logits[place] = bad;
            let logits = Tensor::<1>::from_floats(logits.as_slice(), &device).reshape([1, 1, vocab]);
            let Loss { cross_entropy, .. } = loss_over(logits, &[1], Objective::default(), 1.0);
            assert!(!cross_entropy.into_scalar::<f32>().is_finite(), "{bad} at {place} of {vocab}");
        }
    }
}
