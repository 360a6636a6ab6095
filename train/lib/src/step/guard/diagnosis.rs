//! Finds the first value that is not finite: in the forward pass, repeated layer by layer, else in
//! the gradient.

use burn::{optim::GradientsParams, tensor::Tensor};
use ember_data::windows::{Batch, TrainWindows};
use ember_model::Gpt;
use serde::Serialize;

use crate::{error::Result, step::gradient::inputs};

/// The first tensor with values that are not finite, and their place.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Diagnosis {
    /// `embeddings`, `h.0` and so on for the blocks, `ln_f`, `head`, or `backward` if the forward
    /// pass is finite.
    pub layer: String,
    /// The parameter with these values (in `backward`: with this gradient); `activations` if the
    /// layer's parameters are finite.
    pub tensor: String,
    /// How many of the tensor's values are not finite.
    pub not_finite: usize,
    /// How many values it has.
    #[serde(rename = "of")]
    pub values: usize,
    /// The index of the first of them in the tensor; for activations `[position, channel]` in the
    /// window.
    pub place: Vec<usize>,
    /// The window whose forward pass has them, by its number in the run.
    pub window: Option<u64>,
    /// The position in that window.
    pub position: Option<usize>,
}

/// Finds the first value that is not finite: in the forward pass of the `count` windows from number
/// `first_window` on, one by one and without dropout; then in `gradients`, from the last layer
/// back, in the order of the backward pass. `None` if only dropout caused it.
///
/// # Errors
/// When the tokens cannot be read.
pub fn diagnose(
    gpt: &Gpt,
    gradients: &GradientsParams,
    windows: &TrainWindows,
    first_window: u64,
    count: u64,
) -> Result<Option<Diagnosis>> {
    let inference = burn::module::Module::valid(gpt);
    for window in first_window..first_window + count {
        let found = in_forward(&inference, &windows.batch(window, 1)?, window);
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(in_backward(gpt, gradients))
}

/// The first parameter with a value that is not finite, and the index of that value.
pub fn weight_not_finite(gpt: &Gpt) -> Option<(String, Vec<usize>)> {
    in_parameters(gpt, |_| true).map(|found| (found.tensor, found.place))
}

fn in_forward(gpt: &Gpt, batch: &Batch, window: u64) -> Option<Diagnosis> {
    let activations = first_layer(gpt, batch)?;
    let (layer, position) = (activations.layer.clone(), activations.place.get(1).copied());
    let found = in_parameters(gpt, |name| belongs(gpt, &layer, name)).unwrap_or_else(|| {
        // The batch has one window: drop its index.
        let place = activations.place[1..].to_vec();
        Diagnosis { tensor: "activations".to_owned(), place, ..activations }
    });
    Some(Diagnosis { layer, window: Some(window), position, ..found })
}

/// The first layer whose output is not finite.
fn first_layer(gpt: &Gpt, batch: &Batch) -> Option<Diagnosis> {
    let look = |layer: &str, x: &Tensor<3>| Some(Diagnosis { layer: layer.to_owned(), ..in_tensor(x)? });
    let mut x = gpt.embed(inputs(gpt, batch));
    let mut found = look("embeddings", &x);
    for i in 0..gpt.config().n_layer {
        if found.is_some() {
            return found;
        }
        x = gpt.block(i, x);
        found = look(&format!("h.{i}"), &x);
    }
    found.or_else(|| {
        let hidden = gpt.final_norm(x);
        look("ln_f", &hidden).or_else(|| look("head", &gpt.logits(hidden)))
    })
}

/// Whether the parameter called `name` is one of `layer`.
fn belongs(gpt: &Gpt, layer: &str, name: &str) -> bool {
    match layer {
        "embeddings" => name.starts_with("wte.") || name.starts_with("wpe."),
        "head" if gpt.lm_head.is_none() => name.starts_with("wte."),
        "head" => name.starts_with("lm_head."),
        layer => name.strip_prefix(layer).is_some_and(|rest| rest.starts_with('.')),
    }
}

fn in_parameters(gpt: &Gpt, wanted: impl Fn(&str) -> bool) -> Option<Diagnosis> {
    let mut first = None;
    gpt.for_each_parameter(&mut |name, shape, values| {
        if first.is_none() && wanted(name) {
            first = in_values(&values, shape).map(|found| Diagnosis { tensor: name.to_owned(), ..found });
        }
    });
    first
}

fn in_backward(gpt: &Gpt, gradients: &GradientsParams) -> Option<Diagnosis> {
    gpt.parameters().into_iter().rev().find_map(|parameter| {
        let found = match parameter.shape.len() {
            1 => in_tensor(&gradients.get::<1>(parameter.id)?),
            _ => in_tensor(&gradients.get::<2>(parameter.id)?),
        }?;
        Some(Diagnosis { layer: "backward".to_owned(), tensor: parameter.name, ..found })
    })
}

fn in_tensor<const D: usize>(tensor: &Tensor<D>) -> Option<Diagnosis> {
    let values: Vec<f32> = tensor.clone().into_data().iter::<f32>().collect();
    in_values(&values, &tensor.dims())
}

/// How many values are not finite, and the index of the first; `None` if all are finite.
fn in_values(values: &[f32], shape: &[usize]) -> Option<Diagnosis> {
    let place = place(values.iter().position(|value| !value.is_finite())?, shape);
    let not_finite = values.iter().filter(|value| !value.is_finite()).count();
    Some(Diagnosis { place, not_finite, values: values.len(), ..Diagnosis::default() })
}

/// The multi-dimensional index of value number `index` in a tensor of this shape.
pub fn place(mut index: usize, shape: &[usize]) -> Vec<usize> {
    let mut place = Vec::new();
    for size in shape.iter().rev() {
        place.push(index % size);
        index /= size;
    }
    place.reverse();
    place
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::module::ParamId;
    use burn::tensor::{Device, Int, TensorData};
    use ember_model::{GptConfig, ParameterMapper};

    use super::*;

    /// Sets one entry of one parameter to NaN.
    struct SetNan(&'static str, usize);

    impl ParameterMapper for SetNan {
        fn map<const D: usize>(&mut self, name: &str, _: ParamId, tensor: Tensor<D>) -> Tensor<D> {
            if name != self.0 {
                return tensor;
            }
            let (shape, device) = (tensor.dims(), tensor.device());
            let mut values: Vec<f32> = tensor.into_data().iter::<f32>().collect();
            values[self.1] = f32::NAN;
            Tensor::from_data(TensorData::new(values, shape), &device)
        }
    }

    fn batch() -> Batch {
        Batch { inputs: vec![1, 2, 3, 4], targets: vec![2, 3, 4, 5], batch_size: 1, context_length: 4 }
    }

    #[test]
    fn the_first_layer_and_tensor_are_named() {
        let mut config = GptConfig::new(7, 4, 3, 2, 8);
        config.tied_head = false;
        let gpt = Gpt::new(&config, 1, &Device::flex()).unwrap();
        assert_eq!(in_forward(&gpt, &batch(), 9), None);
        assert_eq!(weight_not_finite(&gpt), None);
        // Position 2 reads row 3 of the token table.
        let cases = [
            ("wte.weight", 3 * 8 + 5, "embeddings", vec![3, 5], 2),
            ("h.1.mlp.c_fc.weight", 32 + 4, "h.1", vec![1, 4], 0),
            ("h.2.ln_1.bias", 6, "h.2", vec![6], 0),
            ("ln_f.weight", 0, "ln_f", vec![0], 0),
            ("lm_head.weight", 8, "head", vec![1, 0], 0),
        ];
        for (name, index, layer, place, position) in cases {
            let broken = gpt.clone().map_parameters(&mut SetNan(name, index));
            let found = in_forward(&broken, &batch(), 9).unwrap();
            assert_eq!((found.layer.as_str(), found.tensor.as_str()), (layer, name));
            assert_eq!((found.place, found.not_finite, found.window), (place.clone(), 1, Some(9)));
            assert_eq!(found.position, Some(position), "{name}");
            assert_eq!(weight_not_finite(&broken), Some((name.to_owned(), place)));
        }
        // A row that no token of the window reads has no effect.
        let elsewhere = gpt.map_parameters(&mut SetNan("wte.weight", 6 * 8));
        assert_eq!(in_forward(&elsewhere, &batch(), 9), None);
    }

    #[test]
    fn finite_weights_that_overflow_are_told_as_activations() {
        struct Large;
        impl ParameterMapper for Large {
            fn map<const D: usize>(&mut self, name: &str, _: ParamId, tensor: Tensor<D>) -> Tensor<D> {
                match name {
                    "h.1.ln_2.weight" => tensor * 1e38,
                    "h.1.mlp.c_fc.weight" => tensor * 1e3,
                    _ => tensor,
                }
            }
        }
        let config = GptConfig::new(7, 4, 2, 2, 8);
        let gpt = Gpt::new(&config, 1, &Device::flex()).unwrap().map_parameters(&mut Large);
        assert_eq!(weight_not_finite(&gpt), None);
        let found = in_forward(&gpt, &batch(), 0).unwrap();
        assert_eq!((found.layer.as_str(), found.tensor.as_str()), ("h.1", "activations"));
        assert_eq!((found.place.len(), found.values), (2, 4 * 8));
    }

    #[test]
    fn a_gradient_that_is_not_finite_after_a_finite_forward_is_told_from_the_last_layer_on() {
        let mut config = GptConfig::new(7, 4, 2, 2, 8);
        config.tied_head = false;
        let device = Device::flex().autodiff();
        let gpt = Gpt::new(&config, 1, &device).unwrap();
        let tokens = Tensor::<2, Int>::from_data(TensorData::new(vec![1, 2, 3, 4], [1, 4]), &device);
        // Two finite factors whose product is not finite.
        let loss = gpt.forward(tokens).sum() * 1e30 * 1e30;
        let gradients = GradientsParams::from_grads(loss.backward(), &gpt);
        let found = in_backward(&gpt, &gradients).unwrap();
        assert_eq!((found.layer.as_str(), found.tensor.as_str()), ("backward", "lm_head.weight"));
        assert_eq!((found.values, found.window), (7 * 8, None));
    }
}
