//! The next-token loss: cross-entropy of the logits at each position with the next token, and
//! optional regularisation (label smoothing, z-loss).

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(all(test, feature = "autodiff", feature = "gpu"))]
mod gpu_tests;

use burn::backend::Backend;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{FloatDType, Tensor};
#[cfg(test)]
use burn::tensor::{Int, TensorData, activation};

use crate::{cast, is_cpu, operation::outputs_of};

/// Additions to the cross-entropy in the training objective; both are 0 by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Objective {
    /// Adds this times the squared logarithm of the softmax's denominator, which keeps the logits
    /// from drifting ([Chowdhery et al. 2022](https://arxiv.org/abs/2204.02311), section 5).
    pub z_loss: f64,
    /// The share of the target that is spread evenly over all tokens
    /// ([Szegedy et al. 2016](https://arxiv.org/abs/1512.00567), section 7).
    pub label_smoothing: f64,
}

/// The loss over some positions: each field is a mean over them, as a tensor of one value.
#[derive(Clone, Debug)]
pub struct Loss {
    /// The objective that training minimises.
    pub objective: Tensor<1>,
    /// `-ln p(target)` in nats, which is reported for every objective. It has no gradient.
    pub cross_entropy: Tensor<1>,
}

/// Mean of `-ln p(target)` in nats over all positions, as a tensor of one value; see [`loss`].
///
/// # Panics
/// As [`loss`].
pub fn cross_entropy(logits: Tensor<3>, targets: &[u32]) -> Tensor<1> {
    loss(logits, targets, Objective::default()).objective
}

/// The loss of `logits` `[batch, time, vocab]`; `targets` are the next tokens of all positions, row
/// after row.
///
/// # Panics
/// When there is no position, not one target for each, or a target outside the vocabulary.
pub fn loss(logits: Tensor<3>, targets: &[u32], objective: Objective) -> Loss {
    loss_over(logits, targets, objective, 1.0)
}

/// As [`loss`], with the objective divided by `divisor`.
///
/// One kernel computes the loss and its gradient, which overwrites the logits. On a GPU the logits
/// may have the type that the model computes in, and so has their gradient. The kernel divides,
/// which saves another pass; and in float16 a later division would lose the smallest gradients.
///
/// # Panics
/// As [`loss`].
pub fn loss_over(logits: Tensor<3>, targets: &[u32], objective: Objective, divisor: f64) -> Loss {
    let logits = if is_cpu(&logits.device()) { cast(logits, FloatDType::F32) } else { logits };
    let operation = CrossEntropy::new(targets, objective, 1.0 / divisor);
    let [objective, cross_entropy] = outputs_of(operation, [logits.into_dispatch()]).map(Tensor::<1>::from_dispatch);
    Loss { objective, cross_entropy }
}

/// Outputs `factor` times the objective, and the cross-entropy, of logits `[batch, time, vocab]`,
/// each as a mean over the positions.
#[derive(Clone, Debug)]
pub(crate) struct CrossEntropy {
    targets: Vec<u32>,
    objective: Objective,
    factor: f32,
}

impl CrossEntropy {
    pub(crate) fn new(targets: &[u32], objective: Objective, factor: f64) -> Self {
        Self { targets: targets.to_vec(), objective, factor: factor as f32 }
    }

    /// Checks the targets of logits `[rows, vocab]`, by which the kernels find their places.
    fn check_targets(&self, [rows, vocab]: [usize; 2]) {
        assert!(rows > 0, "a loss of no positions");
        assert_eq!(self.targets.len(), rows, "not one target for each position");
        let is_known = |&target: &u32| (target as usize) < vocab;
        assert!(self.targets.iter().all(is_known), "a target outside the vocabulary of {vocab}");
    }
}

/// A backend that scales a gradient kept by a loss's forward.
pub(crate) trait Scaled: Backend {
    /// `gradient` times `dy` `[1]`, which is nearly always 1: then the gradient is returned
    /// unchanged.
    fn scaled(gradient: FloatTensor<Self>, dy: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// The formulas in burn's tensor operations: the reference for our kernels.
#[cfg(test)]
pub fn plain(logits: Tensor<3>, targets: &[u32], objective: Objective) -> Loss {
    let Objective { z_loss, label_smoothing } = objective;
    let [batch, time, vocab] = logits.dims();
    let ids: Vec<i32> = targets.iter().map(|id| *id as i32).collect();
    let targets = Tensor::<2, Int>::from_data(TensorData::new(ids, [batch * time, 1]), &logits.device());
    let logits = logits.reshape([batch * time, vocab]);
    let log_p = activation::log_softmax(logits.clone(), 1); // [batch * time, vocab]
    let log_p_target = log_p.clone().gather(1, targets.clone()); // [batch * time, 1]
    let cross_entropy = log_p_target.clone().mean().neg();
    let mut objective = cross_entropy.clone();
    if label_smoothing > 0.0 {
        objective = objective * (1.0 - label_smoothing) - log_p.mean() * label_smoothing;
    }
    if z_loss > 0.0 {
        let log_denominator = logits.gather(1, targets) - log_p_target;
        objective = objective + log_denominator.powi_scalar(2).mean() * z_loss;
    }
    Loss { objective, cross_entropy: cross_entropy.detach() }
}

#[cfg(all(test, feature = "autodiff"))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use burn::tensor::{Device, Distribution, TensorData};
    use ember_host::panics::quietly;
    use itertools::Itertools;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_kernel_computes_the_formula_and_its_gradient(
            batch in 1usize..4, time in 1usize..9, vocab in 1usize..70, seed in 0u64..1000, scale in 0.1f64..30.0,
            z_loss in prop::sample::select(vec![0.0, 1e-3, 0.1]), label_smoothing in prop::sample::select(vec![0.0, 0.1, 0.7]),
        ) {
            let device = Device::flex().autodiff();
            device.seed(seed);
            let logits = Tensor::<3>::random([batch, time, vocab], Distribution::Normal(0.0, scale), &device).require_grad();
            let targets: Vec<u32> = (0..batch * time).map(|i| ((i as u64 * 31 + seed) % vocab as u64) as u32).collect();
            let run = |f: fn(Tensor<3>, &[u32], Objective) -> Loss| {
                let Loss { objective, cross_entropy } = f(logits.clone(), &targets, Objective { z_loss, label_smoothing });
                let objective = objective * 3.0;
                let gradient = logits.grad(&objective.backward()).unwrap();
                let gradient = gradient.into_data().iter::<f32>().collect::<Vec<_>>();
                ([objective, cross_entropy].map(|loss| loss.into_scalar::<f32>()), gradient)
            };
            let (fused, fused_gradient) = run(loss);
            let (reference, gradient) = run(plain);
            for (a, b) in fused.iter().zip_eq(&reference) {
                prop_assert!((a - b).abs() <= 2e-5 * b.abs().max(1.0), "{fused:?} {reference:?}");
            }
            // With a z-loss the gradient is as large as the logits.
            let allowed = 1e-6 + 1e-6 * z_loss as f32 * scale as f32 * 20.0;
            for (a, b) in fused_gradient.iter().zip_eq(&gradient) {
                prop_assert!((a - b).abs() < allowed, "{a} {b}");
            }
        }
    }

    /// A GPU would read and write elsewhere.
    #[test]
    fn targets_that_do_not_fit_the_logits_are_refused() {
        #[cfg(feature = "gpu")]
        let gpu = crate::gpu::testing::gpu();
        #[cfg(not(feature = "gpu"))]
        let gpu = None;
        for device in [Some(Device::flex()), gpu].into_iter().flatten() {
            for targets in [&[0][..], &[0, 1, 2], &[0, 5]] {
                let logits = Tensor::<3>::zeros([1, 2, 5], &device);
                assert!(quietly(|| cross_entropy(logits, targets)).is_err(), "{targets:?}");
            }
        }
    }

    /// With equal logits every token has probability 1 / vocab.
    #[test]
    fn knowing_nothing_costs_the_logarithm_of_the_vocabulary() {
        let logits = Tensor::<3>::zeros([2, 3, 65], &Device::flex());
        let loss = cross_entropy(logits, &[0, 1, 2, 3, 64, 5]).into_scalar::<f32>();
        assert!((loss - 65f32.ln()).abs() < 1e-6);
    }

    /// PyTorch 2.11, float64: `F.cross_entropy(logits, targets, label_smoothing=0.1) + 0.01 *
    /// logits.logsumexp(-1).pow(2).mean()` of the logits below, its gradient with respect to them,
    /// and the plain `F.cross_entropy`.
    #[test]
    fn smoothing_and_z_loss_are_pytorchs() {
        let logits = vec![1.0f32, -2.0, 0.5, 3.0, 0.0, -1.0, 2.0, 0.25];
        let device = Device::flex().autodiff();
        let logits = Tensor::<3>::from_data(TensorData::new(logits, [1, 2, 4]), &device).require_grad();
        let objective = Objective { z_loss: 0.01, label_smoothing: 0.1 };
        for f in [loss, plain] {
            let Loss { objective, cross_entropy } = f(logits.clone(), &[0, 2], objective);
            let gradient: Vec<f32> = logits.grad(&objective.backward()).unwrap().into_data().iter::<f32>().collect();
            let [objective, cross_entropy] = [objective, cross_entropy].map(|loss| loss.into_scalar::<f32>());
            assert!((objective - TORCH_OBJECTIVE).abs() < 1e-6, "{objective}");
            assert!((cross_entropy - TORCH_CROSS_ENTROPY).abs() < 1e-6, "{cross_entropy}");
            for (a, b) in gradient.iter().zip_eq(&TORCH_GRADIENT) {
                assert!((a - b).abs() < 1e-6, "{gradient:?}");
            }
        }
    }

    const TORCH_OBJECTIVE: f32 = 1.435_464;
    const TORCH_CROSS_ENTROPY: f32 = 1.254_463_1;
    const TORCH_GRADIENT: [f32; 8] = [
        -0.403_682_9,
        -0.009_571_67,
        0.023_174_366,
        0.422_102_75,
        0.039_593_294,
        0.006_664_052,
        -0.077_579_73,
        0.054_389_11,
    ];
}
