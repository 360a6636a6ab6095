//! The weights of a GPT-2: which tensors there are, and reading and writing them in transformers' files.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::tensor_file::write_renamed;
use super::{NamedTensor, TensorFile, read_json};
use crate::GptConfig;

const FILE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const PREFIX: &str = "transformer.";
const EMBEDDING: &str = "wte.weight";
const HEAD: &str = "lm_head.weight";

/// Every tensor of the model, without prefix and in model order, with its shape; the head only when it is untied.
pub fn expected_tensors(config: &GptConfig) -> Vec<(String, Vec<usize>)> {
    tensors(config).collect()
}

/// [`expected_tensors`] one by one, so that a `config.json` with an absurd number of layers costs nothing.
fn tensors(config: &GptConfig) -> impl Iterator<Item = (String, Vec<usize>)> {
    let c = config.n_embd;
    let embeddings = [(EMBEDDING, vec![config.vocab_size, c]), ("wpe.weight", vec![config.context_length, c])];
    let end = [("ln_f.weight", vec![c]), ("ln_f.bias", vec![c])];
    let head = (!config.tied_head).then(|| (HEAD, vec![config.vocab_size, c]));
    let named = |(name, shape): (&str, Vec<usize>)| (name.to_owned(), shape);
    let blocks = (0..config.n_layer).flat_map(move |layer| {
        [
            ("ln_1.weight", vec![c]),
            ("ln_1.bias", vec![c]),
            ("attn.c_attn.weight", vec![c, 3 * c]),
            ("attn.c_attn.bias", vec![3 * c]),
            ("attn.c_proj.weight", vec![c, c]),
            ("attn.c_proj.bias", vec![c]),
            ("ln_2.weight", vec![c]),
            ("ln_2.bias", vec![c]),
            ("mlp.c_fc.weight", vec![c, 4 * c]),
            ("mlp.c_fc.bias", vec![4 * c]),
            ("mlp.c_proj.weight", vec![4 * c, c]),
            ("mlp.c_proj.bias", vec![c]),
        ]
        .map(|(name, shape)| (format!("h.{layer}.{name}"), shape))
    });
    embeddings.into_iter().map(named).chain(blocks).chain(end.into_iter().chain(head).map(named))
}

/// Reads the weights in `dir` and hands them to `each`, in the order of [`expected_tensors`]; one tensor at a time is in
/// memory. `config` is what [`super::read_config`] said of the same folder.
///
/// Read are `model.safetensors` or the shards of `model.safetensors.index.json`, in float32, float16, bfloat16 or float64,
/// with or without the prefix `transformer.`. The causal masks that old files store beside the weights are passed over,
/// and so is the head of a tied model.
///
/// # Errors
/// When a file is missing, truncated or no safetensors file, a tensor is missing, has another shape or is not GPT-2's, or
/// `each` fails.
pub fn read_weights(dir: &Path, config: &GptConfig, mut each: impl FnMut(NamedTensor) -> Result<()>) -> Result<()> {
    let stored = StoredWeights::open(dir)?;
    stored.check(config)?;
    for (name, _) in tensors(config) {
        each(stored.read(&name)?)?;
    }
    Ok(())
}

/// Writes `dir/model.safetensors` as `GPT2LMHeadModel.save_pretrained` does.
pub fn write(dir: &Path, config: &GptConfig, tensors: &[NamedTensor]) -> Result<()> {
    let path = dir.join(FILE);
    let mut given: HashMap<_, _> = tensors.iter().map(|tensor| (tensor.name.as_str(), tensor)).collect();
    let mut ordered = Vec::with_capacity(tensors.len());
    for (name, shape) in self::tensors(config) {
        let tensor = given.remove(name.as_str()).filter(|tensor| tensor.shape == shape);
        ordered.push(tensor.with_context(|| format!("{}: tensor {name} {shape:?} was not given", path.display()))?);
    }
    if let Some(extra) = given.keys().min() {
        bail!("{}: tensor {extra} is not one of this model's", path.display());
    }
    write_renamed(&path, ordered, |name| if name == HEAD { name.to_owned() } else { format!("{PREFIX}{name}") })
}

/// Whether the stored weights leave room for a tied head: false when both an embedding and a different head are stored.
/// Then transformers (since version 5) does not tie them, whatever `config.json` says.
pub fn head_can_be_tied(dir: &Path) -> Result<bool> {
    if !dir.join(FILE).exists() && !dir.join(INDEX).exists() {
        return Ok(true); // Reading the weights will say that they are missing.
    }
    let stored = StoredWeights::open(dir)?;
    if !(stored.holds(EMBEDDING) && stored.holds(HEAD)) {
        return Ok(true);
    }
    Ok(stored.read(EMBEDDING)?.values == stored.read(HEAD)?.values)
}

/// The tensors of a folder, wherever in its files they stand.
struct StoredWeights {
    /// The file that a message about the weights as a whole names.
    path: PathBuf,
    files: Vec<TensorFile>,
    /// Name without prefix to the file's place in `files` and the name there.
    places: HashMap<String, (usize, String)>,
}

impl StoredWeights {
    fn open(dir: &Path) -> Result<Self> {
        let (path, names) = weight_files(dir)?;
        let mut files = Vec::with_capacity(names.len());
        let mut places = HashMap::new();
        for (index, name) in names.into_iter().enumerate() {
            let file = TensorFile::open(&dir.join(name))?;
            for stored_name in file.names() {
                let name = stored_name.strip_prefix(PREFIX).unwrap_or(&stored_name);
                if is_causal_mask(name) {
                    continue;
                }
                let before = places.insert(name.to_owned(), (index, stored_name.clone()));
                ensure!(
                    before.is_none(),
                    "{}: tensor {name} is stored a second time; save the model again with transformers",
                    file.path().display()
                );
            }
            files.push(file);
        }
        Ok(Self { path, files, places })
    }

    fn holds(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// The file and the name there of a tensor. Where the head is tied and only the head is stored, it is the embedding.
    fn place(&self, name: &str) -> Option<(&TensorFile, &str)> {
        let only_head = name == EMBEDDING && !self.holds(EMBEDDING);
        let (index, stored_name) = self.places.get(if only_head { HEAD } else { name })?;
        Some((self.files.get(*index)?, stored_name))
    }

    fn read(&self, name: &str) -> Result<NamedTensor> {
        let (file, stored_name) = self.place(name).with_context(|| self.missing(name))?;
        Ok(NamedTensor { name: name.to_owned(), ..file.read(stored_name)? })
    }

    /// Checks all names and shapes before the first value is read.
    fn check(&self, config: &GptConfig) -> Result<()> {
        ensure!(config.tied_head || self.holds(EMBEDDING), self.missing(EMBEDDING));
        let mut found = BTreeSet::from([HEAD.to_owned()]); // A tied model may store its head and need not.
        for (name, shape) in tensors(config) {
            let (file, stored_name) = self.place(&name).with_context(|| self.missing(&name))?;
            let stored_shape = file.shape(stored_name).unwrap_or_default();
            ensure!(
                stored_shape == shape,
                "{}: tensor {name} is {stored_shape:?}, but config.json needs {shape:?}; take both files from the same model",
                file.path().display()
            );
            found.insert(name);
        }
        let unexpected = self.places.keys().filter(|name| !found.contains(*name)).min();
        if let Some(name) = unexpected {
            bail!(
                "{}: tensor {name} belongs to no GPT-2 language model of {} layers; take config.json and the weights from \
                 the same model",
                self.path.display(),
                config.n_layer
            );
        }
        Ok(())
    }

    fn missing(&self, name: &str) -> String {
        format!(
            "{}: tensor {name} is missing; take config.json and the weights from the same model",
            self.path.display()
        )
    }
}

/// The masks that transformers before version 4.31 stored in every block: `h.0.attn.bias` and `h.0.attn.masked_bias`.
fn is_causal_mask(name: &str) -> bool {
    name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")
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
        let shards = shards.with_context(|| format!("{} has no weight_map; download it again", index.display()))?;
        let names = shards.values().map(|shard| shard_name(&index, shard)).collect::<Result<_>>()?;
        return Ok((index, names));
    }
    for pickled in ["pytorch_model.bin", "pytorch_model.bin.index.json"] {
        if dir.join(pickled).exists() {
            bail!(
                "{dir} holds {pickled} and no {FILE}; convert it: python -c \"from transformers import GPT2LMHeadModel as M; \
                 M.from_pretrained('{dir}').save_pretrained('{dir}')\"",
                dir = dir.display()
            );
        }
    }
    bail!("{} holds no {FILE}; give a folder with the weights of a GPT-2 model", dir.display())
}

/// A shard stands beside the index: a path that leads elsewhere is refused.
fn shard_name(index: &Path, shard: &Value) -> Result<String> {
    let name = shard.as_str().filter(|name| Path::new(name).file_name().is_some_and(|file| file == *name));
    let name = name.with_context(|| format!("{}: {shard} is no file name; download it again", index.display()))?;
    Ok(name.to_owned())
}
