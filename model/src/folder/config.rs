//! `config.json`: whose it is, and its keys.

use std::path::Path;

use super::files::{read_json, write_json};
use super::keys::{Keys, Read, require};
use super::{error::FolderError, family::Family};
use crate::GptConfig;

const FILE: &str = "config.json";

/// Reads `dir/config.json`; an absent key has the default of the family's class, as in
/// transformers.
pub fn read(dir: &Path) -> Result<(Family, GptConfig), FolderError> {
    let path = dir.join(FILE);
    if !path.exists() {
        let what = format!(
            "holds no {FILE}; give a checkpoint folder or a Hugging Face folder of a GPT-2, Llama or Qwen3 model"
        );
        return Err(FolderError::damaged(dir, what));
    }
    let keys = Keys::new(read_json(&path)?);
    let (family, config) = family_and_shape(&keys).map_err(|what| FolderError::mismatch(&path, what))?;
    config.validate().map_err(|source| FolderError::Shape { path, source })?;
    Ok((family, config))
}

/// Writes `dir/config.json` so that `AutoModelForCausalLM` builds the same model.
pub fn write(dir: &Path, config: &GptConfig, end_of_text: Option<u32>) -> Result<(), FolderError> {
    write_json(&dir.join(FILE), &Family::of(config)?.json(config, end_of_text))
}

/// Whose keys they are, and the shape that they say.
fn family_and_shape(keys: &Keys) -> Read<(Family, GptConfig)> {
    let family = match keys.get("model_type").as_str() {
        Some(name) => Family::named(name).ok_or_else(|| {
            format!("model_type is \"{name}\"; only \"gpt2\", \"llama\" and \"qwen3\" models can be opened")
        })?,
        None => {
            let missing =
                "model_type is missing; a model that can be opened has \"gpt2\", \"llama\" or \"qwen3\" there";
            return Err(missing.to_owned());
        }
    };
    let config = family.read(keys)?;
    let quantization = keys.get("quantization_config");
    require(quantization.is_null(), || {
        "quantization_config is set; only plain float32, float16 or bfloat16 weights can be read, save the model as one"
            .to_owned()
    })?;
    Ok((family, config))
}
