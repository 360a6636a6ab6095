//! Calibration: corrects a model's confidence with a temperature.
//!
//! A model that has read its text many times is overconfident: on new text its loss is higher than
//! its own entropy predicts. Dividing all logits by one number, the temperature, corrects that and
//! keeps the order of the predictions ([Guo et al. 2017](https://arxiv.org/abs/1706.04599), section
//! 4.2). The temperature is fitted to the validation split; a single number cannot overfit it much.
//!
//! The loss at the logits' scale `b`, `mean(ln sum exp(b z) - b z_target)`, is convex in `b`. At `b
//! = 1` its first derivative is the loss minus the model's entropy, and its second derivative the
//! variance of `ln p`. So the best temperature is where the loss equals the entropy. Each
//! evaluation takes one Newton step towards it.
//!
//! Training goes on with undivided logits. In a saved model, and in the model that writes samples,
//! the gain and shift of the last norm are divided by the temperature: programs that load it need
//! not know.

use burn::{module::ParamId, tensor::Tensor};
use ember_model::folder::NamedTensor;
use ember_model::{Gpt, ParameterMapper};

/// The largest factor by which one evaluation changes the temperature.
const LARGEST_STEP: f64 = 1.25;
/// The range of plausible temperatures.
const RANGE: [f64; 2] = [0.5, 4.0];
/// Prefix of the names of the last norm's gain and shift.
const LAST_NORM: &str = "ln_f.";

/// A model's loss on the validation split beside its own expectation: means over the targets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confidence {
    /// `-ln p` of the target, in nats.
    pub loss: f64,
    /// The entropy of the model's distribution, in nats: the loss that it expects.
    pub entropy: f64,
    /// The variance of `ln p` under the model's own distribution, in nats squared.
    pub variance: f64,
}

impl Confidence {
    /// The next temperature, when a model with logits divided by `temperature` was evaluated.
    pub fn next_temperature(&self, temperature: f64) -> f64 {
        let scale = 1.0 - (self.loss - self.entropy) / self.variance;
        if !scale.is_finite() {
            return temperature;
        }
        let [least, most] = RANGE;
        (temperature / scale.clamp(1.0 / LARGEST_STEP, LARGEST_STEP)).clamp(least, most)
    }
}

/// The model with its logits divided by `temperature`.
pub fn tempered(gpt: Gpt, temperature: f64) -> Gpt {
    if temperature == 1.0 { gpt } else { gpt.map_parameters(&mut Divide(temperature as f32)) }
}

struct Divide(f32);

impl ParameterMapper for Divide {
    fn map<const D: usize>(&mut self, name: &str, _: ParamId, tensor: Tensor<D>) -> Tensor<D> {
        if name.starts_with(LAST_NORM) { tensor / self.0 } else { tensor }
    }
}

/// The undivided gain and shift of the last norm. They are stored because multiplying back is not
/// exact, and a resumed run must go on with the same bits.
pub fn last_norm(gpt: &Gpt) -> Vec<NamedTensor> {
    let mut tensors = Vec::new();
    gpt.for_each_parameter(&mut |name, shape, values| {
        if name.starts_with(LAST_NORM) {
            tensors.push(NamedTensor { name: name.to_owned(), shape: shape.to_vec(), values });
        }
    });
    tensors
}

/// The model with these tensors as gain and shift of its last norm, which must have as many values.
pub fn with_last_norm(gpt: Gpt, tensors: Vec<NamedTensor>) -> Gpt {
    gpt.map_parameters(&mut Replace(tensors))
}

struct Replace(Vec<NamedTensor>);

impl ParameterMapper for Replace {
    fn map<const D: usize>(&mut self, name: &str, _: ParamId, tensor: Tensor<D>) -> Tensor<D> {
        match self.0.iter().find(|replacement| replacement.name == name) {
            Some(NamedTensor { values, .. }) => {
                Tensor::<1>::from_floats(values.as_slice(), &tensor.device()).reshape(tensor.dims())
            }
            None => tensor,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::{Device, Int, TensorData};
    use ember_model::{GptConfig, NormKind};

    use super::*;
    use ember_decoding::score::{Surprise, token_surprises};

    const TIME: usize = 8;

    fn model() -> Gpt {
        let config = GptConfig { norm: NormKind::LayerNorm, ..GptConfig::new(11, TIME, 1, 2, 8) };
        let gpt = Gpt::new(&config, 5, &Device::flex()).unwrap();
        // Scaled to the logits of a trained model, which differ.
        tempered(gpt, 0.02)
    }

    /// Measured on a text whose tokens are the model's most likely ones in two of three places.
    fn confidence(gpt: &Gpt) -> Confidence {
        let inputs: Vec<u32> = (0..6 * TIME as u32).map(|i| i * 7 % 11).collect();
        let ids: Vec<i32> = inputs.iter().map(|id| *id as i32).collect();
        let rows = Tensor::<2, Int>::from_data(TensorData::new(ids, [6, TIME]), &gpt.device());
        let likely: Vec<u32> = gpt.forward(rows).argmax(2).into_data().iter::<u32>().collect();
        let targets: Vec<u32> = (0..).zip(&likely).map(|(i, id)| if i % 3 == 0 { i % 11 } else { *id }).collect();
        let surprises = token_surprises(gpt, &inputs, &targets, TIME).unwrap();
        let mean = |of: &dyn Fn(&Surprise) -> f32| {
            surprises.iter().map(|at| f64::from(of(at))).sum::<f64>() / surprises.len() as f64
        };
        Confidence { loss: mean(&|at| -at.log_p), entropy: mean(&|at| at.entropy), variance: mean(&|at| at.variance) }
    }

    /// Repeated steps converge to where the loss equals the entropy; other temperatures give a
    /// higher loss.
    #[test]
    fn a_temperature_is_found_and_is_the_best() {
        let (gpt, mut temperature) = (model(), 1.0);
        for _ in 0..20 {
            temperature = confidence(&tempered(gpt.clone(), temperature)).next_temperature(temperature);
        }
        assert!(temperature > 1.05 && temperature < RANGE[1], "{temperature}");
        let found = confidence(&tempered(gpt.clone(), temperature));
        assert!((found.loss - found.entropy).abs() < 1e-4, "{found:?}");
        for other in [temperature * 0.95, temperature * 1.05, 1.0] {
            assert!(confidence(&tempered(gpt.clone(), other)).loss > found.loss, "{other} of {temperature}");
        }
    }

    #[test]
    fn what_cannot_be_believed_changes_nothing() {
        let confidence = |loss, entropy, variance| Confidence { loss, entropy, variance };
        assert_eq!(confidence(3.0, 2.0, 0.0).next_temperature(1.1), 1.1);
        assert_eq!(confidence(f64::NAN, 2.0, 1.0).next_temperature(1.1), 1.1);
        assert_eq!(confidence(30.0, 2.0, 1.0).next_temperature(1.0), LARGEST_STEP);
        assert_eq!(confidence(30.0, 2.0, 1.0).next_temperature(3.9), RANGE[1]);
        assert_eq!(confidence(2.0, 2.0, 1.0).next_temperature(1.1), 1.1);
    }

    #[test]
    fn what_is_learned_comes_back_bit_for_bit() {
        let gpt = model();
        let learned = last_norm(&gpt);
        assert_eq!(learned.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>(), ["ln_f.weight", "ln_f.bias"]);
        let saved = tempered(gpt, 1.3);
        assert_ne!(last_norm(&saved), learned);
        assert_eq!(last_norm(&with_last_norm(saved, learned.clone())), learned);
    }
}
