//! `generation_config.json`: which tokens open and end a text, and how tokens are chosen, in words
//! that mean nothing here.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::error::FolderError;
use super::files::{read_json, write_json};

const FILE: &str = "generation_config.json";

/// What else the file is to say, by Hugging Face's keys: how whoever writes with the folder chooses
/// tokens.
pub type Settings = Map<String, Value>;

/// Writes `dir/generation_config.json`.
///
/// `top_k` 0 is said aloud: transformers would otherwise sample from the 50 likeliest tokens only.
pub fn write(dir: &Path, end_of_text: Option<u32>, settings: &Settings) -> Result<(), FolderError> {
    let mut keys = json!({ "bos_token_id": end_of_text, "eos_token_id": end_of_text, "top_k": 0 });
    for (key, value) in settings {
        keys[key] = value.clone();
    }
    write_json(&dir.join(FILE), &keys)
}

/// Reads the token ids that end a text: `eos_token_id` of `generation_config.json`, else of
/// `config.json`, else none.
///
/// # Errors
/// When a file that is there is no JSON object, or its `eos_token_id` is neither null, a token id,
/// nor a list of them.
pub fn read_end_tokens(dir: &Path) -> Result<Vec<u32>, FolderError> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    for path in [FILE, "config.json"].map(|name| dir.join(name)) {
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
