//! The next-token loss: cross-entropy of the logits at each position with the token that came next.

mod kernel;

use burn::backend::Dispatch;
use burn::tensor::{Int, Tensor, TensorData, activation};
use ember_model::kernels::is_cpu;

use kernel::LossOps;

/// Mean of `-ln p(target)` in nats over all positions, as a tensor of one value.
///
/// `logits` is `[batch, time, vocab]`, `targets` the ids that came next, row after row. On the CPU the loss and its gradient
/// are one pass of ours over the logits, elsewhere [`plain`].
pub fn cross_entropy(logits: Tensor<3>, targets: &[u32]) -> Tensor<1> {
    if is_cpu(&logits.device()) {
        return Tensor::from_dispatch(<Dispatch as LossOps>::cross_entropy(logits.into_dispatch(), targets.to_vec()));
    }
    plain(logits, targets)
}

/// The formula in burn's tensor operations: the reference for our kernel.
pub fn plain(logits: Tensor<3>, targets: &[u32]) -> Tensor<1> {
    let [batch, time, vocab] = logits.dims();
    let ids: Vec<i32> = targets.iter().map(|id| *id as i32).collect();
    let targets = Tensor::<2, Int>::from_data(TensorData::new(ids, [batch * time, 1]), &logits.device());
    let log_p = activation::log_softmax(logits.reshape([batch * time, vocab]), 1); // [batch * time, vocab]
    log_p.gather(1, targets).mean().neg()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use burn::tensor::{Device, Distribution};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn the_kernel_computes_the_formula_and_its_gradient(
            batch in 1usize..4, time in 1usize..9, vocab in 1usize..70, seed in 0u64..1000, scale in 0.1f64..30.0,
        ) {
            let device = Device::flex().autodiff();
            device.seed(seed);
            let logits = Tensor::<3>::random([batch, time, vocab], Distribution::Normal(0.0, scale), &device).require_grad();
            let targets: Vec<u32> = (0..batch * time).map(|i| ((i as u64 * 31 + seed) % vocab as u64) as u32).collect();
            let run = |f: fn(Tensor<3>, &[u32]) -> Tensor<1>| {
                let loss = f(logits.clone(), &targets) * 3.0;
                let gradient = logits.grad(&loss.backward()).unwrap();
                (loss.into_scalar::<f32>(), gradient.into_data().iter::<f32>().collect::<Vec<_>>())
            };
            let (fused, fused_gradient) = run(cross_entropy);
            let (reference, gradient) = run(plain);
            prop_assert!((fused - reference).abs() <= 1e-5 * reference.abs().max(1.0), "{fused} {reference}");
            for (a, b) in fused_gradient.iter().zip(&gradient) {
                prop_assert!((a - b).abs() < 1e-6, "{a} {b}");
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
}
