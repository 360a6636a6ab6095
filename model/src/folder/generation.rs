//! `generation_config.json`: which tokens open and end a text, and how tokens are chosen, in words that mean nothing here.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::error::FolderError;
use super::json::{read_json, write_json};

const FILE: &str = "generation_config.json";

/// What else the file is to say, by Hugging Face's keys: how whoever writes with the folder chooses tokens.
pub type Settings = Map<String, Value>;

/// Writes `dir/generation_config.json`.
///
/// `top_k` 0 is said aloud: transformers would otherwise sample from the 50 likeliest tokens only.
pub fn write(dir: &Path, end_of_text: Option<u32>, settings: &Settings) -> Result<(), FolderError> {
    let mut keys = Map::new();
    for (key, value) in
        [("bos_token_id", json!(end_of_text)), ("eos_token_id", json!(end_of_text)), ("top_k", json!(0))]
    {
        keys.insert(key.to_owned(), value);
    }
    keys.extend(settings.clone());
    write_json(&dir.join(FILE), &keys)
}

/// Reads the token ids that end a text: `eos_token_id` of `generation_config.json`, else of `config.json`, else none.
///
/// # Errors
/// When a file that is there is no JSON object, or its `eos_token_id` is neither null, a token id, nor a list of them.
pub fn read_end_tokens(dir: &Path) -> Result<Vec<u32>, FolderError> {
    for name in [FILE, "config.json"] {
        let path = dir.join(name);
        if !path.exists() {
            continue;
        }
        match end_tokens(&read_json(&path)?) {
            None => continue,
            Some(Ok(tokens)) => return Ok(tokens),
            Some(Err(value)) => {
                let what = format!("eos_token_id is {value}; it must be a token id, a list of them, or null");
                return Err(FolderError::Unsupported { path, what });
            }
        }
    }
    Ok(Vec::new())
}

/// The end tokens if the key is there; as an error the value that is no such thing.
fn end_tokens(map: &Map<String, Value>) -> Option<Result<Vec<u32>, Value>> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    let value = map.get("eos_token_id")?;
    let tokens = match value {
        Value::Null => Some(Vec::new()),
        Value::Array(list) => list.iter().map(id).collect(),
        single => id(single).map(|id| vec![id]),
    };
    Some(tokens.ok_or_else(|| value.clone()))
}
