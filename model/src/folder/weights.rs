//! The weights: which tensors there are, and reading and writing them in transformers' files; and
//! the shape of a folder's model (`read_config`), in which the weights can override `config.json`.

use std::{borrow::Cow, collections::BTreeSet, collections::HashMap, path::Path, path::PathBuf};

use serde_json::Value;

use super::error::{FolderError, Result};
use super::tensor_file::{Entry, NamedTensor, TensorFile, write_entries};
use super::{config, family::Family, files::read_json, layout::TensorLayout};
use crate::GptConfig;

pub(super) const FILE: &str = "model.safetensors";
pub(super) const INDEX: &str = "model.safetensors.index.json";
const EMBEDDING: &str = "wte.weight";
const HEAD: &str = "lm_head.weight";

/// Every tensor of the model, by our name and in model order, with its shape.
pub fn expected_tensors(config: &GptConfig) -> Vec<(String, Vec<usize>)> {
    config.operations().tensors().collect()
}

/// Writes `dir/model.safetensors` as `save_pretrained` of the model's family does.
pub fn write(dir: &Path, config: &GptConfig, tensors: &[NamedTensor]) -> Result<()> {
    let path = dir.join(FILE);
    let family = Family::of(config)?;
    let mut given: HashMap<_, _> = tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
    let no_bias = |name: &str| !config.bias && name.ends_with(".bias");
    let mut entries = Vec::with_capacity(tensors.len());
    for (name, shape) in family.shape_on_disk(config).operations().tensors() {
        let tensor = given.remove(name.as_str()).filter(|tensor| tensor.shape == shape);
        let count = shape.iter().product();
        match tensor {
            None if no_bias(&name) => {
                let zeros = Box::new(move || Cow::Owned(vec![0.0; count]));
                entries.push(Entry { name: format!("{}{name}", family.prefix), shape, values: zeros });
            }
            None => return Err(FolderError::mismatch(&path, format!("tensor {name} {shape:?} was not given"))),
            Some(tensor) => {
                let found = tensor.values.len();
                if found != count {
                    return Err(FolderError::mismatch(&path, format!("tensor {name} {shape:?} has {found} values")));
                }
                entries.extend(parts_to_write(family, config, tensor));
            }
        }
    }
    if let Some(extra) = given.keys().min() {
        return Err(FolderError::mismatch(&path, format!("tensor {extra} is not one of this model's")));
    }
    write_entries(&path, entries)
}

/// The entries by which a file of the family stores one of our tensors.
fn parts_to_write<'a>(
    family: Family,
    config: &GptConfig,
    tensor: &'a NamedTensor,
) -> impl Iterator<Item = Entry<'a>> + use<'a> {
    let TensorLayout { parts, transposed } = (family.layout)(config, &tensor.name, tensor.shape.clone());
    let mut first = 0;
    parts.into_iter().map(move |(name, shape)| {
        let (width, row) = (shape[0], shape[1..].iter().product::<usize>());
        let from = first;
        first += width;
        let values: Box<dyn Fn() -> Cow<'a, [f32]>> = match transposed {
            true => Box::new(move || Cow::Owned(columns(tensor, from, width))),
            false => Box::new(move || Cow::Borrowed(&tensor.values[from * row..(from + width) * row])),
        };
        let prefix = if name == HEAD { "" } else { family.prefix };
        Entry { name: format!("{prefix}{name}"), shape, values }
    })
}

/// Rows transposed together: as many as values in a cache line.
const TOGETHER: usize = 16;

/// The `width` columns from `from` on of a matrix `[in, out]`, transposed: `[width, in]`.
fn columns(tensor: &NamedTensor, from: usize, width: usize) -> Vec<f32> {
    let (n_in, out) = (tensor.shape[0], tensor.shape[1]);
    let mut values = vec![0.0; width * n_in];
    for (block, rows) in values.chunks_mut(TOGETHER * n_in).enumerate() {
        for i in 0..n_in {
            let line = &tensor.values[i * out + from + block * TOGETHER..];
            for (row, value) in rows.chunks_exact_mut(n_in).zip(line) {
                row[i] = *value;
            }
        }
    }
    values
}

/// Transposes a stored matrix `[width, n_in]` into columns from `first` on of `[n_in, out]`.
fn put_columns(values: &mut [f32], out: usize, first: usize, stored: &[f32], n_in: usize) {
    for (block, rows) in stored.chunks(TOGETHER * n_in).enumerate() {
        for i in 0..n_in {
            let line = &mut values[i * out + first + block * TOGETHER..];
            for (row, value) in rows.chunks_exact(n_in).zip(line) {
                *value = row[i];
            }
        }
    }
}

/// Reads the shape of the model in `dir`.
///
/// A head is tied by transformers' rule: `tie_word_embeddings` is true, and the folder does not
/// store both the embedding and a different head.
///
/// # Errors
/// When `config.json` is missing or malformed, belongs to another kind of model, or asks for
/// something that this model does not compute.
pub fn read_config(dir: &Path) -> Result<GptConfig> {
    Ok(family_and_shape(dir)?.1)
}

/// The family and shape of the model; its weights can override `config.json`.
fn family_and_shape(dir: &Path) -> Result<(Family, GptConfig)> {
    let (family, mut config) = config::read(dir)?;
    let says_no_bias = family.always_has_biases && !config.bias;
    let is_there = dir.join(FILE).exists() || dir.join(INDEX).exists();
    if is_there && (config.tied_head || says_no_bias) {
        let stored = StoredWeights::open(dir, family, config.clone())?;
        config.tied_head = config.tied_head && stored.head_can_be_tied()?;
        config.bias = config.bias || says_no_bias && !stored.biases_are_zeros()?;
    }
    Ok((family, config))
}

/// The tensors of a folder, in whichever of its files: `model.safetensors` or the shards of
/// `model.safetensors.index.json`, in float32, float16, bfloat16 or float64, with or without the
/// family's prefix. Tensors in old files that are no weights are skipped, and so is the head of a
/// tied model.
#[derive(Debug)]
pub struct StoredWeights {
    /// The shape of the stored model.
    pub config: GptConfig,
    /// The file that errors about the weights as a whole name.
    path: PathBuf,
    family: Family,
    files: Vec<TensorFile>,
    /// From a name without prefix to the file's index in `files` and the name there.
    places: HashMap<String, (usize, String)>,
}

impl StoredWeights {
    /// The weights in `dir`.
    ///
    /// # Errors
    /// Those of [`read_config`]; when a file is missing, truncated or no safetensors file, or a
    /// tensor is missing, has another shape or is not the model's.
    pub fn of(dir: &Path) -> Result<Self> {
        let (family, config) = family_and_shape(dir)?;
        let stored = Self::open(dir, family, config)?;
        stored.check()?;
        Ok(stored)
    }

    /// Opens the files, without comparing them with `config`.
    fn open(dir: &Path, family: Family, config: GptConfig) -> Result<Self> {
        let (path, names) = weight_files(dir)?;
        let mut files = Vec::with_capacity(names.len());
        let mut places = HashMap::new();
        for (index, name) in names.into_iter().enumerate() {
            let file = TensorFile::open(&dir.join(name))?;
            for stored_name in file.names() {
                let name = stored_name.strip_prefix(family.prefix).unwrap_or(&stored_name);
                if (family.is_no_weight)(name) {
                    continue;
                }
                if places.insert(name.to_owned(), (index, stored_name.clone())).is_some() {
                    let what = format!("tensor {name} is stored twice; save the model again with transformers");
                    return Err(FolderError::mismatch(file.path(), what));
                }
            }
            files.push(file);
        }
        Ok(Self { config, path, family, files, places })
    }

    /// Whether the stored weights allow a tied head: false when both an embedding and a different
    /// head are stored. Then transformers (since version 5) does not tie them, whatever
    /// `config.json` says.
    fn head_can_be_tied(&self) -> Result<bool> {
        match (self.part(&self.name_of_table(EMBEDDING)), self.part(&self.name_of_table(HEAD))) {
            (Some((file, embedding)), Some((other, head))) => Ok(file.values(embedding)? == other.values(head)?),
            _ => Ok(true),
        }
    }

    /// Whether all stored biases are zero. In a model that claims to have none, another tool may
    /// have trained them.
    fn biases_are_zeros(&self) -> Result<bool> {
        for (name, (index, stored_name)) in &self.places {
            if name.ends_with(".bias") && self.files[*index].values(stored_name)?.iter().any(|value| *value != 0.0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The file that holds a stored tensor, and the tensor's name there.
    fn part(&self, name: &str) -> Option<(&TensorFile, &str)> {
        let (index, stored_name) = self.places.get(name)?;
        Some((&self.files[*index], stored_name))
    }

    /// The stored name of the embedding or of the head, both tables with a row for every token.
    fn name_of_table(&self, name: &str) -> String {
        let shape = vec![self.config.vocab_size, self.config.n_embd];
        (self.family.layout)(&self.config, name, shape).parts.swap_remove(0).0
    }

    /// How one of our tensors is stored. If the head is tied and only it is stored, it is the
    /// embedding.
    fn layout(&self, name: &str, shape: Vec<usize>) -> TensorLayout {
        let only_head =
            name == EMBEDDING && self.config.tied_head && !self.places.contains_key(&self.name_of_table(name));
        (self.family.layout)(&self.config, if only_head { HEAD } else { name }, shape)
    }

    /// The values of one of [`expected_tensors`], assembled from its stored parts; borrowed from
    /// the file if it is stored unchanged.
    ///
    /// # Errors
    /// When there is no such tensor, or it does not hold floating-point numbers.
    pub fn values(&self, name: &str, shape: &[usize]) -> Result<Cow<'_, [f32]>> {
        let TensorLayout { parts, transposed } = self.layout(name, shape.to_vec());
        let read = |part: &str| {
            let (file, stored_name) = self.part(part).ok_or_else(|| self.missing(part))?;
            file.values(stored_name)
        };
        if let ([(part, _)], false) = (parts.as_slice(), transposed) {
            return read(part);
        }
        let mut values = if transposed { vec![0.0; shape.iter().product()] } else { Vec::new() };
        let mut first = 0;
        for (part, part_shape) in parts {
            let stored = read(&part)?;
            if transposed {
                put_columns(&mut values, shape[1], first, &stored, part_shape[1]);
            } else {
                values.extend_from_slice(&stored);
            }
            first += part_shape[0];
        }
        Ok(values.into())
    }

    /// Checks all names and shapes before the first value is read.
    fn check(&self) -> Result<()> {
        // A tied model may or may not store its head.
        let mut found = BTreeSet::from([self.name_of_table(HEAD)]);
        for (name, shape) in self.family.shape_on_disk(&self.config).operations().tensors() {
            for (part, shape) in self.layout(&name, shape).parts {
                let (file, stored_name) = self.part(&part).ok_or_else(|| self.missing(&part))?;
                let stored_shape = file.shape(stored_name).unwrap_or_default();
                if stored_shape != shape {
                    let what = format!(
                        "tensor {part} is {stored_shape:?}, but config.json needs {shape:?}; take both files from the same model"
                    );
                    return Err(FolderError::mismatch(file.path(), what));
                }
                found.insert(part);
            }
        }
        if let Some(name) = self.places.keys().filter(|name| !found.contains(*name)).min() {
            let what = format!(
                "tensor {name} is not part of a {} language model of {} layers; take config.json and the weights from the same model",
                self.family.title, self.config.n_layer
            );
            return Err(FolderError::mismatch(&self.path, what));
        }
        Ok(())
    }

    fn missing(&self, name: &str) -> FolderError {
        let what = format!("tensor {name} is missing; take config.json and the weights from the same model");
        FolderError::mismatch(&self.path, what)
    }
}

/// The file that names the weights, and the names of the safetensors files that hold them.
fn weight_files(dir: &Path) -> Result<(PathBuf, BTreeSet<String>)> {
    let single = dir.join(FILE);
    if single.exists() {
        return Ok((single, BTreeSet::from([FILE.to_owned()])));
    }
    let index = dir.join(INDEX);
    if index.exists() {
        let map = read_json(&index)?;
        let shards = map.get("weight_map").and_then(Value::as_object);
        let shards = shards.ok_or_else(|| FolderError::damaged(&index, "has no weight_map; download it again"))?;
        let names = shards.values().map(|shard| shard_name(&index, shard)).collect::<Result<_>>()?;
        return Ok((index, names));
    }
    for pickled in ["pytorch_model.bin", "pytorch_model.bin.index.json"] {
        if dir.join(pickled).exists() {
            let name = dir.display();
            let what = format!(
                "holds {pickled} and no {FILE}; convert it: python -c \"from transformers import AutoModelForCausalLM as M; \
                 M.from_pretrained('{name}').save_pretrained('{name}')\""
            );
            return Err(FolderError::damaged(dir, what));
        }
    }
    Err(FolderError::damaged(dir, format!("holds no {FILE}; give a folder with the weights of a model")))
}

/// A shard lies beside the index: a path that leads elsewhere is refused.
fn shard_name(index: &Path, shard: &Value) -> Result<String> {
    let name = shard.as_str().filter(|name| Path::new(name).file_name().is_some_and(|file| file == *name));
    let wrong = || FolderError::mismatch(index, format!("{shard} is not a file name; download it again"));
    Ok(name.ok_or_else(wrong)?.to_owned())
}
