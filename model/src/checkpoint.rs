//! A model to and from a Hugging Face folder.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use burn::tensor::Device;

use crate::folder::{self, NamedTensor};
use crate::init::{Init, ParameterSource};
use crate::{Gpt, GptConfig};

/// Reads the model in `dir`: one of ours, or a Hugging Face folder of a GPT-2, a Llama or a Qwen3.
///
/// # Errors
/// When a file is missing, damaged, or describes something that this model does not compute; the line names the file.
pub fn load(dir: &Path, device: &Device) -> Result<Gpt> {
    load_changed(dir, |_| (), device)
}

/// As [`load`], with what `change` changes: the dropout, or the context, which can only become shorter. Of learned positions
/// the first are kept.
///
/// # Errors
/// As [`load`].
pub fn load_changed(dir: &Path, change: impl FnOnce(&mut GptConfig), device: &Device) -> Result<Gpt> {
    let mut config = folder::read_config(dir)?;
    let mut stored = Stored { tensors: HashMap::new() };
    folder::read_weights(dir, &config, |tensor| {
        stored.tensors.insert(tensor.name, tensor.values);
        Ok(())
    })?;
    change(&mut config);
    if let Some(positions) = stored.tensors.get_mut("wpe.weight") {
        positions.truncate(config.position_table());
    }
    Gpt::build(&config, &mut stored, device)
}

/// Writes `config.json`, `model.safetensors` and `generation_config.json` into the existing folder `dir`; the caller makes
/// the folder appear whole. `end_of_text` is the tokenizer's end token, which transformers wants to know.
///
/// # Errors
/// When a file cannot be written; the line names it.
pub fn save(gpt: &Gpt, end_of_text: Option<u32>, dir: &Path) -> Result<()> {
    let mut tensors = Vec::new();
    gpt.for_each_parameter(&mut |name, shape, values| {
        tensors.push(NamedTensor { name: name.to_owned(), shape: shape.to_vec(), values });
    });
    folder::write(dir, gpt.config(), end_of_text, &tensors)
}

/// The tensors of a checkpoint, handed out once each.
struct Stored {
    tensors: HashMap<String, Vec<f32>>,
}

impl ParameterSource for Stored {
    fn values(&mut self, name: &str, _shape: &[usize], _init: Init) -> Result<Vec<f32>> {
        self.tensors.remove(name).with_context(|| format!("the checkpoint has no tensor {name}"))
    }
}
