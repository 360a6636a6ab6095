//! Opens and reads a folder.

use std::{borrow::Cow, collections::BTreeSet, collections::HashMap, fs, path::Path};

use ember_host::file_error::At;
use safetensors::{Dtype, SafeTensors, tensor::TensorInfo};
use serde_json::{Map, Value};

use super::TOP_K_WHERE_SAMPLING;
use crate::error::{FormatError, Result};
use crate::{Model, NumberType, Shape, Tensor, Tokenizer, mapped::Mapped, names, numbers};

/// A Hugging Face folder whose weights are memory-mapped.
#[derive(Debug)]
pub struct Folder {
    shape: Shape,
    files: Vec<Weights>,
    /// Names without prefix, with the index of the file that has each and its name there.
    index: HashMap<String, (usize, String)>,
    tokenizer: Option<Tokenizer>,
    generation: Map<String, Value>,
}

#[derive(Debug)]
struct Weights {
    file: Mapped,
    header: safetensors::tensor::Metadata,
    /// Offset of the values.
    start: usize,
}

impl Folder {
    /// Opens the folder of a model of this shape. `tokenizer` is the content of its
    /// `tokenizer.json`, or an equivalent of it; `end_tokens` are the tokens that end a text.
    ///
    /// # Errors
    /// When a file is missing or is not what it should be.
    pub fn open(dir: &Path, shape: Shape, tokenizer: Option<Value>, end_tokens: Vec<u32>) -> Result<Self> {
        let config = json(&dir.join("config.json"))?;
        let (mut files, mut index) = (Vec::new(), HashMap::new());
        for name in weight_files(dir)? {
            let weights = Weights::open(&dir.join(name))?;
            for stored in weights.header.offset_keys() {
                index.insert(base_name(&stored).to_owned(), (files.len(), stored));
            }
            files.push(weights);
        }
        let generation = generation(&dir.join("generation_config.json"))?;
        // Treated as empty if missing or damaged.
        let settings = json(&dir.join("tokenizer_config.json")).unwrap_or_default();
        let tokenizer = tokenizer.map(|json| {
            let (chat_template, named) = (chat_template(dir, &settings), named_tokens(&settings));
            let tokenizer = Tokenizer { json, end_tokens, begin_token: None, chat_template, named };
            let ids = [generation.get("bos_token_id"), config.get("bos_token_id")];
            let id = ids.into_iter().flatten().find_map(|id| u32::try_from(id.as_u64()?).ok());
            let begin_token = id.or_else(|| tokenizer.id(token_text(&settings["bos_token"])?));
            Tokenizer { begin_token, ..tokenizer }
        });
        Ok(Self { shape, files, index, tokenizer, generation })
    }

    /// The model; its tensors' values stay in the folder's files until they are read.
    ///
    /// # Errors
    /// When a tensor is missing or its shape differs from `config.json`.
    pub fn model(&self) -> Result<Model<'_>> {
        let tensor = |(name, shape): (String, Vec<usize>)| {
            let (file, info) = self.find(&name)?;
            if info.shape != shape {
                let what = format!("tensor {name} is {:?}, but config.json needs {shape:?}", info.shape);
                return Err(FormatError::unsupported(file.file.path(), what));
            }
            let (values, dtype) = (file.bytes(info), info.dtype);
            let decode = move || decode(dtype, values).ok_or_else(|| unknown(dtype).into());
            Ok(Tensor::new(name, shape, stored_type(dtype), decode))
        };
        let tensors = names::tensors(&self.shape).into_iter().map(tensor).collect::<Result<_>>()?;
        let (tokenizer, generation) = (self.tokenizer.clone(), self.generation.clone());
        Ok(Model { shape: self.shape.clone(), tensors, tokenizer, generation })
    }

    /// A stored tensor. If the head is tied and only the head is stored, it is the embedding.
    fn find(&self, name: &str) -> Result<(&Weights, &TensorInfo)> {
        let embedding = ["wte.weight", "embed_tokens.weight"].contains(&base_name(name));
        let entry = self.index.get(base_name(name)).or_else(|| self.index.get("lm_head.weight").filter(|_| embedding));
        let found = entry.and_then(|(file, stored)| Some((&self.files[*file], self.files[*file].header.info(stored)?)));
        found.ok_or_else(|| {
            let path = self.files.first().map_or(Path::new("model.safetensors"), |weights| weights.file.path());
            FormatError::unsupported(path, format!("tensor {name} is missing"))
        })
    }
}

impl Weights {
    fn open(path: &Path) -> Result<Self> {
        let file = Mapped::open(path)?;
        let damaged = |error: safetensors::SafeTensorError| FormatError::damaged(path, error.to_string());
        let (length, header) = SafeTensors::read_metadata(&file).map_err(damaged)?;
        Ok(Self { header, start: 8 + length, file })
    }

    fn bytes(&self, info: &TensorInfo) -> &[u8] {
        let (from, to) = info.data_offsets;
        &self.file[self.start..][from..to]
    }
}

fn decode(dtype: Dtype, bytes: &[u8]) -> Option<Cow<'_, [f32]>> {
    Some(match dtype {
        Dtype::F32 => numbers::f32s(bytes),
        Dtype::F16 => numbers::f16s(bytes),
        Dtype::BF16 => numbers::bf16s(bytes),
        Dtype::F64 => numbers::f64s(bytes),
        _ => return None,
    })
}

fn stored_type(dtype: Dtype) -> NumberType {
    match dtype {
        Dtype::F16 => NumberType::F16,
        Dtype::BF16 => NumberType::Bf16,
        _ => NumberType::F32,
    }
}

fn unknown(dtype: Dtype) -> String {
    format!("it holds {dtype} numbers; only F32, F16, BF16 and F64 are known")
}

/// A tensor's name without its class's prefix, which old files lack.
fn base_name(name: &str) -> &str {
    ["transformer.", "model."].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name)
}

/// The safetensors files of a folder.
fn weight_files(dir: &Path) -> Result<BTreeSet<String>> {
    let index = dir.join("model.safetensors.index.json");
    if dir.join("model.safetensors").exists() || !index.exists() {
        return Ok(BTreeSet::from(["model.safetensors".to_owned()]));
    }
    let map = json(&index)?;
    let shards = map["weight_map"].as_object().into_iter().flatten();
    let name = |shard: &Value| {
        let name = shard.as_str().filter(|name| Path::new(name).file_name().is_some_and(|file| file == *name));
        name.map(str::to_owned).ok_or_else(|| FormatError::damaged(&index, format!("{shard} is not a file name")))
    };
    shards.map(|(_, shard)| name(shard)).collect()
}

fn generation(path: &Path) -> Result<Map<String, Value>> {
    if !path.exists() {
        return Ok(Map::new());
    }
    match json(path)? {
        Value::Object(mut keys) => {
            if keys.get("do_sample") == Some(&Value::Bool(true)) && keys.get("top_k").is_none_or(Value::is_null) {
                keys.insert("top_k".to_owned(), TOP_K_WHERE_SAMPLING.into());
            }
            Ok(keys)
        }
        _ => Err(FormatError::damaged(path, "it is not a JSON object")),
    }
}

/// The special tokens named in `tokenizer_config.json`, except those that begin or end a text.
fn named_tokens(settings: &Value) -> Map<String, Value> {
    let named = |key: &str| Some((key.to_owned(), token_text(&settings[key])?.into()));
    ["unk_token", "pad_token", "cls_token", "sep_token", "mask_token"].into_iter().filter_map(named).collect()
}

fn json(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).at("cannot read", path)?;
    serde_json::from_str(&text).map_err(|error| FormatError::damaged(path, error.to_string()))
}

/// The text of a token in `tokenizer_config.json`, which is stored as a string or as an object.
fn token_text(token: &Value) -> Option<&str> {
    token.as_str().or(token["content"].as_str())
}

/// `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`: if it has several, the one
/// named "default", else the first.
fn chat_template(dir: &Path, settings: &Value) -> Option<String> {
    fs::read_to_string(dir.join("chat_template.jinja")).ok().or_else(|| {
        let template = &settings["chat_template"];
        let named = template.as_array().into_iter().flatten();
        let default = named.clone().find(|one| one["name"] == "default").or_else(|| named.clone().next());
        default.map_or(template, |one| &one["template"]).as_str().map(str::to_owned)
    })
}
