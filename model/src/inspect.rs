//! A forward pass that keeps its intermediate results: the attention weights, and the residual
//! stream after each block.
//!
//! The layers are those of [`Gpt::forward`]. For inference: on a device with automatic
//! differentiation, dropout is active as it is there, except on the attention weights.

use burn::tensor::{Int, Tensor};

use crate::Gpt;
use ember_kernels as kernels;

/// Intermediate results of a forward pass.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Each block's attention weights, `[batch, n_head, time, time]`: how much the position of the
    /// third dimension takes from that of the fourth. They are 0 for later positions, and a row
    /// sums to 1.
    pub attention: Vec<Tensor<4>>,
    /// The residual stream `[batch, time, n_embd]`: after the embeddings, then after each block.
    pub residuals: Vec<Tensor<3>>,
}

impl Gpt {
    /// Runs `tokens` `[batch, time]` through the model and returns attention weights and residual
    /// stream; time is at most the context.
    pub fn inspect(&self, tokens: Tensor<2, Int>) -> Inspection {
        let mut x = self.embed(tokens);
        let pass = self.pass_from_0(&x);
        let (mut attention, mut residuals) = (Vec::new(), vec![x.clone()]);
        for block in &self.h {
            x = block.forward(x, &pass, |qkv| {
                let (y, weights) = kernels::causal_attention_and_weights(qkv, self.config().heads());
                attention.push(weights);
                y
            });
            residuals.push(x.clone());
        }
        Inspection { attention, residuals }
    }

    /// The logits `[batch, time, vocab_size]` that the model would give if it ended where
    /// `residual` `[batch, time, n_embd]` was taken: `ln_f` and the head applied to it (the logit
    /// lens of [nostalgebraist
    /// 2020](https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens)).
    /// For the last residual these are the logits of [`Self::forward`].
    pub fn lens(&self, residual: Tensor<3>) -> Tensor<3> {
        self.logits(self.final_norm(residual))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::GptConfig;
    use burn::tensor::{Device, TensorData};

    fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_into_vec::<f32>().unwrap()
    }

    #[test]
    fn inspecting_changes_nothing() {
        let device = Device::flex();
        let model = Gpt::new(&GptConfig::new(13, 8, 3, 2, 8), 5, &device).unwrap();
        let tokens: Tensor<2, Int> =
            Tensor::from_data(TensorData::new(vec![3, 1, 4, 1, 5, 9, 2, 6, 5, 3], [2, 5]), &device);
        let inspection = model.inspect(tokens.clone());
        assert_eq!((inspection.attention.len(), inspection.residuals.len()), (3, 4));
        let last = inspection.residuals[3].clone();
        assert_eq!(
            values(model.lens(last)),
            values(model.forward(tokens.clone())),
            "the same bits, by the same layers"
        );
        assert_ne!(values(model.lens(inspection.residuals[2].clone())), values(model.forward(tokens)));
    }

    #[test]
    fn attention_looks_back_only_and_its_rows_sum_to_one() {
        let device = Device::flex();
        let model = Gpt::new(&GptConfig::new(13, 8, 2, 2, 8), 5, &device).unwrap();
        let time = 5;
        let tokens = Tensor::from_data(TensorData::new(vec![3, 1, 4, 1, 5], [1, time]), &device);
        for weights in model.inspect(tokens).attention {
            assert_eq!(weights.dims(), [1, 2, time, time]);
            for (row, weights) in values(weights).chunks(time).enumerate() {
                let (seen, future) = weights.split_at(row % time + 1);
                assert!((seen.iter().sum::<f32>() - 1.0).abs() < 1e-6, "{weights:?}");
                assert!(seen.iter().all(|&w| w > 0.0) && future.iter().all(|&w| w == 0.0), "{weights:?}");
            }
        }
    }
}
