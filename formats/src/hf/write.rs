//! Writes a model as a Hugging Face folder.

use std::{ffi::OsString, fs, io, path::Path};

use ember_host::file_error::At;
use ember_host::files::{UNFINISHED, remove_unfinished, sync_folder, write_atomic, write_text};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::config;
use crate::error::{FormatError, Result};
use crate::{Model, NumberType, Tensor, Tokenizer, numbers};

/// The file with the model's sizes.
const CONFIG: &str = "config.json";

/// Writes a model into the folder `dir`, which is created if needed. Its numbers are written as
/// `kind`, or each tensor's as the smallest plain type that loses nothing.
///
/// # Errors
/// When safetensors has no such `kind`, the folder is not empty, a tensor cannot be read or has a
/// value that its type cannot hold, or a file cannot be written.
pub fn write(model: &Model, kind: Option<NumberType>, dir: &Path) -> Result<()> {
    if let Some(kind) = kind.filter(|kind| *kind != kind.plain()) {
        return Err(FormatError::NumberType { format: "a Hugging Face folder", kind });
    }
    let unfinished = create_unfinished(dir)?;
    write_files(model, kind, unfinished.path())?;
    // `config.json` last: a folder that has it counts as complete.
    let mut files = file_names(unfinished.path())?;
    files.sort_by_key(|name| name == CONFIG);
    files
        .iter()
        .try_for_each(|name| fs::rename(unfinished.path().join(name), dir.join(name)))
        .and_then(|()| sync_folder(dir))
        .at("cannot write into", dir)?;
    Ok(())
}

fn file_names(dir: &Path) -> Result<Vec<OsString>> {
    let names = fs::read_dir(dir).and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
    Ok(names.at("cannot list the folder", dir)?)
}

/// Prepares a folder: files are first written into a temporary folder inside it and moved out when
/// all are complete, so that an interrupted call can be repeated in the same place.
fn create_unfinished(dir: &Path) -> Result<TempDir> {
    fs::create_dir_all(dir).at("cannot create the folder", dir)?;
    if file_names(dir)?.iter().any(|name| !name.to_string_lossy().starts_with(UNFINISHED)) {
        return Err(FormatError::unsupported(dir, "the folder already has files in it; name another"));
    }
    remove_unfinished(dir).at("cannot write into", dir)?;
    Ok(tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(dir).at("cannot write into", dir)?)
}

fn write_files(model: &Model, kind: Option<NumberType>, dir: &Path) -> Result<()> {
    let ends = model.tokenizer.as_ref().map_or(&[][..], |tokenizer| &tokenizer.end_tokens);
    let config = config::json(&model.shape, model.tokenizer.as_ref().and_then(Tokenizer::begin), ends);
    write_weights(&model.tensors, kind, &dir.join("model.safetensors"))?;
    write_json(&dir.join("generation_config.json"), &generation_config(&config, &model.generation))?;
    if let Some(tokenizer) = &model.tokenizer {
        write_tokenizer(tokenizer, dir)?;
    }
    write_json(&dir.join(CONFIG), &config)
}

/// The sampling settings. Missing begin and end tokens are taken from `config`, and a missing top-k
/// is written as off, since transformers would default to fifty.
fn generation_config(config: &Value, generation: &Map<String, Value>) -> Value {
    let mut keys = json!({ "bos_token_id": null, "eos_token_id": null, "top_k": 0 });
    if let Some(keys) = keys.as_object_mut() {
        keys.extend(generation.clone());
    }
    for id in ["bos_token_id", "eos_token_id"] {
        if keys[id].is_null() {
            keys[id] = config[id].clone();
        }
    }
    keys
}

fn write_weights(tensors: &[Tensor], kind: Option<NumberType>, path: &Path) -> Result<()> {
    let stored = |tensor: &Tensor| kind.unwrap_or(tensor.stored).plain();
    write_atomic(path, |out| {
        out.write_all(&header(tensors, stored))?;
        for tensor in tensors {
            let values = tensor.values().map_err(io::Error::other)?;
            numbers::check(&tensor.name, stored(tensor), &values).map_err(io::Error::other)?;
            numbers::write(&values, |part, bytes| numbers::encode(stored(tensor), part, bytes), out)?;
        }
        Ok(())
    })?;
    Ok(())
}

/// The length of the header and the header, padded so that the values are aligned to eight bytes.
fn header(tensors: &[Tensor], stored: impl Fn(&Tensor) -> NumberType) -> Vec<u8> {
    let mut map = Map::new();
    // transformers rejects a file that does not state which framework's conventions it follows.
    map.insert("__metadata__".to_owned(), json!({ "format": "pt" }));
    let mut start = 0;
    for tensor in tensors {
        let (dtype, bytes) = match stored(tensor) {
            NumberType::F16 => ("F16", 2),
            NumberType::Bf16 => ("BF16", 2),
            _ => ("F32", 4),
        };
        let end = start + bytes * tensor.shape.iter().product::<usize>();
        let entry = json!({ "dtype": dtype, "shape": tensor.shape, "data_offsets": [start, end] });
        map.insert(tensor.name.clone(), entry);
        start = end;
    }
    let mut text = Value::Object(map).to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    [&(text.len() as u64).to_le_bytes(), text.as_slice()].concat()
}

fn write_tokenizer(tokenizer: &Tokenizer, dir: &Path) -> Result<()> {
    write_json(&dir.join("tokenizer.json"), &tokenizer.json)?;
    let mut config = json!({ "tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false });
    for (key, id) in [("bos_token", tokenizer.begin()), ("eos_token", tokenizer.end_tokens.first().copied())] {
        if let Some(token) = id.and_then(|id| tokenizer.token(id)) {
            config[key] = token.into();
        }
    }
    for (key, name) in &tokenizer.named {
        config[key] = name.clone();
    }
    write_json(&dir.join("tokenizer_config.json"), &config)?;
    if let Some(template) = &tokenizer.chat_template {
        write_text(&dir.join("chat_template.jinja"), template)?;
    }
    Ok(())
}

fn write_json(path: &Path, value: &Value) -> Result<()> {
    write_atomic(path, |out| Ok(serde_json::to_writer_pretty(out, value)?))?;
    Ok(())
}
