//! `config.json`: its family and its keys; and `generation_config.json`: which tokens open and end
//! a text, and how tokens are chosen, in keys that this crate does not interpret.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::files::{read_json, write_json};
use super::keys::{Keys, Read, require};
use super::{error::FolderError, family::Family, weights};
use crate::GptConfig;

const FILE: &str = "config.json";
pub(super) const GENERATION: &str = "generation_config.json";

/// Reads `dir/config.json`; an absent key has the default of the family's class, as in
/// transformers.
pub fn read(dir: &Path) -> Result<(Family, GptConfig), FolderError> {
    let path = dir.join(FILE);
    if !path.exists() {
        refuse_lost_config(dir)?;
        let what = format!(
            "holds no {FILE}; give a checkpoint folder or a Hugging Face folder of a GPT-2, Llama or Qwen3 model"
        );
        return Err(FolderError::damaged(dir, what));
    }
    let keys = Keys(read_json(&path)?);
    let (family, config) = of_keys(&keys).map_err(|what| FolderError::mismatch(&path, what))?;
    config.validate().map_err(|source| FolderError::Shape { path, source })?;
    Ok((family, config))
}

/// Rejects a folder with the weights of a model and without `config.json`: it was a model's, and
/// lost that file.
///
/// # Errors
/// When it is one.
pub fn refuse_lost_config(dir: &Path) -> Result<(), FolderError> {
    let has = |name: &str| dir.join(name).is_file();
    match !has(FILE) && (has(weights::FILE) || has(weights::INDEX)) {
        true => Err(FolderError::LostConfig(dir.to_owned())),
        false => Ok(()),
    }
}

/// Writes `dir/config.json` so that `AutoModelForCausalLM` builds the same model.
pub fn write(dir: &Path, config: &GptConfig, end_of_text: Option<u32>) -> Result<(), FolderError> {
    write_json(&dir.join(FILE), &(Family::of(config)?.json)(config, end_of_text))
}

/// The family that the keys belong to, and the shape that they describe.
fn of_keys(keys: &Keys) -> Read<(Family, GptConfig)> {
    let missing = "model_type is missing; it must be \"gpt2\", \"llama\" or \"qwen3\"";
    let name = keys.get("model_type").as_str().ok_or(missing)?;
    let family = Family::named(name).ok_or_else(|| {
        format!("model_type is \"{name}\"; only \"gpt2\", \"llama\" and \"qwen3\" models can be opened")
    })?;
    let config = (family.read)(keys)?;
    require(keys.flag("is_causal", true)?, || "is_causal is false; only models where it is true are supported".into())?;
    require(keys.get("quantization_config").is_null(), || {
        "quantization_config is set; only plain float32, float16 or bfloat16 weights can be read: save the model as one"
            .to_owned()
    })?;
    Ok((family, config))
}

/// More keys for the file, by Hugging Face's names: how tokens are chosen when somebody generates
/// from the folder.
pub type Settings = Map<String, Value>;

/// Writes `dir/generation_config.json`; `settings` may name another token than `end_of_text` as
/// `bos_token_id`, which opens a text that has no prompt.
///
/// `top_k` 0 is written explicitly: transformers would otherwise sample from the 50 likeliest
/// tokens only.
pub fn write_generation(dir: &Path, end_of_text: Option<u32>, settings: &Settings) -> Result<(), FolderError> {
    let mut keys = json!({ "bos_token_id": end_of_text, "eos_token_id": end_of_text, "top_k": 0 });
    for (key, value) in settings {
        keys[key] = value.clone();
    }
    write_json(&dir.join(GENERATION), &keys)
}

/// Reads the token ids that end a text: `eos_token_id` of `generation_config.json`, else of
/// `config.json`, else none.
///
/// # Errors
/// When a file that is there is no JSON object, or its `eos_token_id` is neither null, a token id,
/// nor a list of them.
pub fn read_end_tokens(dir: &Path) -> Result<Vec<u32>, FolderError> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    for path in [GENERATION, FILE].map(|name| dir.join(name)) {
        if !path.exists() {
            continue;
        }
        let tokens = match read_json(&path)?.get("eos_token_id") {
            None => continue,
            Some(Value::Null) => Ok(Vec::new()),
            Some(list @ Value::Array(ids)) => ids.iter().map(id).collect::<Option<_>>().ok_or_else(|| list.clone()),
            Some(single) => id(single).map(|id| vec![id]).ok_or_else(|| single.clone()),
        };
        return tokens.map_err(|value| {
            let what = format!("eos_token_id is {value}; it must be a token id, a list of them, or null");
            FolderError::mismatch(&path, what)
        });
    }
    Ok(Vec::new())
}

/// Reads the token that opens a text without a prompt: `bos_token_id` of `generation_config.json`,
/// which is where transformers looks; none if it names no token.
///
/// # Errors
/// When the file is there and is no JSON object.
pub fn read_opening(dir: &Path) -> Result<Option<u32>, FolderError> {
    let path = dir.join(GENERATION);
    if !path.exists() {
        return Ok(None);
    }
    let id = read_json(&path)?.get("bos_token_id").and_then(Value::as_u64);
    Ok(id.and_then(|id| u32::try_from(id).ok()))
}
