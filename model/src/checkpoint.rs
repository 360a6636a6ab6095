//! Loads a model from a Hugging Face folder, and saves it to one.

use std::{borrow::Cow, path::Path};

use burn::tensor::Device;

use crate::folder::{self, NamedTensor, Settings, StoredWeights};
use crate::{Gpt, GptConfig, WeightType, error::Result, init::Init, init::ParameterSource};

/// Reads the model in `dir`: one of ours, or a Hugging Face folder of a GPT-2, a Llama or a Qwen3.
///
/// # Errors
/// When a file is missing, damaged, or describes something that this model does not compute; the
/// line names the file.
pub fn load(dir: &Path, device: &Device) -> Result<Gpt> {
    load_changed(dir, |_| (), device)
}

/// As [`load`], with the config edited by `change`: the dropout, or the context, which can only
/// become shorter. Of learned positions the first are kept.
///
/// # Errors
/// As [`load`].
pub fn load_changed(dir: &Path, change: impl FnOnce(&mut GptConfig), device: &Device) -> Result<Gpt> {
    let stored = StoredWeights::of(dir)?;
    let mut config = stored.config.clone();
    change(&mut config);
    Gpt::build(&config, &stored, device)
}

/// As [`load`] for inference, with the matrices stored as `weights`. On the CPU they are packed and
/// products are computed in float32; on other devices products with bfloat16 are computed in
/// bfloat16.
///
/// # Errors
/// As [`load`], and when the device does not support the type.
pub fn load_for_inference(dir: &Path, weights: WeightType, device: &Device) -> Result<Gpt> {
    let stored = StoredWeights::of(dir)?;
    Gpt::for_inference(&stored.config, &stored, weights, device)
}

/// Writes `config.json`, `model.safetensors` and `generation_config.json` into the existing folder
/// `dir`; making the folder appear atomically is the caller's task. `end_of_text` is the
/// tokenizer's end token, which transformers needs, and `settings` are more keys of
/// `generation_config.json`.
///
/// # Errors
/// When a file cannot be written; the line names it.
pub fn save(gpt: &Gpt, end_of_text: Option<u32>, settings: &Settings, dir: &Path) -> Result<()> {
    let mut tensors = Vec::new();
    gpt.for_each_parameter(&mut |name, shape, values| {
        tensors.push(NamedTensor { name: name.to_owned(), shape: shape.to_vec(), values });
    });
    Ok(folder::write(dir, gpt.config(), end_of_text, settings, &tensors)?)
}

impl ParameterSource for StoredWeights {
    fn values(&self, name: &str, shape: &[usize], _init: Init) -> Result<Cow<'_, [f32]>> {
        if name != "wpe.weight" {
            return Ok(StoredWeights::values(self, name, shape)?);
        }
        // A shortened context keeps the first positions.
        let all = StoredWeights::values(self, name, &[self.config.context_length, self.config.n_embd])?;
        let wanted = shape.iter().product();
        Ok(if all.len() == wanted { all } else { all[..wanted].to_vec().into() })
    }
}
