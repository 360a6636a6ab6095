//! `config.json`: whose it is, and its keys.

use std::path::Path;

use serde_json::{Map, Value};

use super::error::FolderError;
use super::family::Family;
use super::{read_json, write_json};
use crate::GptConfig;

const FILE: &str = "config.json";

/// Reads `dir/config.json`; an absent key has the default of the family's class, as in transformers.
pub fn read(dir: &Path) -> Result<(Family, GptConfig), FolderError> {
    let path = dir.join(FILE);
    if !path.exists() {
        let what = format!(
            "holds no {FILE}; give a checkpoint folder or a Hugging Face folder of a GPT-2, Llama or Qwen3 model"
        );
        return Err(FolderError::no_model(dir, what));
    }
    let keys = Keys { map: read_json(&path)? };
    let (family, config) = keys.config().map_err(|what| FolderError::Unsupported { path: path.clone(), what })?;
    config.validate().map_err(|source| FolderError::Shape { path, source })?;
    Ok((family, config))
}

/// Writes `dir/config.json` so that `AutoModelForCausalLM` builds the same model.
pub fn write(dir: &Path, config: &GptConfig, end_of_text: Option<u32>) -> Result<(), FolderError> {
    write_json(&dir.join(FILE), &Family::of(config)?.json(config, end_of_text))
}

/// What is read from a key, or what is wrong with it.
pub type Read<T> = Result<T, String>;

/// What is wrong, unless `holds`.
pub fn require(holds: bool, wrong: impl FnOnce() -> String) -> Read<()> {
    if holds { Ok(()) } else { Err(wrong()) }
}

/// The keys of a `config.json`.
pub struct Keys {
    map: Map<String, Value>,
}

impl Keys {
    fn config(&self) -> Read<(Family, GptConfig)> {
        let family = match self.map.get("model_type").and_then(Value::as_str) {
            Some(name) => Family::named(name).ok_or_else(|| {
                format!("model_type is \"{name}\"; only \"gpt2\", \"llama\" and \"qwen3\" models can be opened")
            })?,
            None => {
                let missing =
                    "model_type is missing; a model that can be opened has \"gpt2\", \"llama\" or \"qwen3\" there";
                return Err(missing.to_owned());
            }
        };
        let config = family.read(self)?;
        let quantization = self.get("quantization_config");
        require(quantization.is_null(), || {
            "quantization_config is set; only plain float32, float16 or bfloat16 weights can be read, save the model as one"
                .to_owned()
        })?;
        Ok((family, config))
    }

    /// The value of a key; null where it is absent.
    pub fn get(&self, key: &str) -> &Value {
        self.map.get(key).unwrap_or(&Value::Null)
    }

    /// The keys of an object inside, none where it is absent or null.
    pub fn inside(&self, key: &str) -> Read<Self> {
        let map = match self.get(key) {
            Value::Null => Map::new(),
            Value::Object(map) => map.clone(),
            other => return Err(format!("{key} is {other}; it must be an object")),
        };
        Ok(Self { map })
    }

    pub fn size(&self, key: &str, default: usize) -> Read<usize> {
        let Some(value) = self.map.get(key) else { return Ok(default) };
        let size = value.as_u64().and_then(|n| usize::try_from(n).ok());
        size.ok_or_else(|| format!("{key} is {value}; it must be a whole number of at least 1"))
    }

    /// As [`Self::size`], where null too stands for the default.
    pub fn size_or_null(&self, key: &str, default: usize) -> Read<usize> {
        if self.get(key).is_null() { Ok(default) } else { self.size(key, default) }
    }

    pub fn number(&self, key: &str, default: f64) -> Read<f64> {
        let Some(value) = self.map.get(key) else { return Ok(default) };
        value.as_f64().ok_or_else(|| format!("{key} is {value}; it must be a number"))
    }

    pub fn flag(&self, key: &str, default: bool) -> Read<bool> {
        let Some(value) = self.map.get(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| format!("{key} is {value}; it must be true or false"))
    }
}
