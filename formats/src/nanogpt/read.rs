//! Opens and reads a checkpoint.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json, json};

use super::pair::{self, END_OF_TEXT};
use super::pickle::{Pickle, Value};
use super::torch::{Archive, Record};
use crate::error::{FormatError, Result, shown};
use crate::{Architecture, Model, NumberType, Shape, Tensor, Tokenizer, layout, mapped::Mapped, names, numbers};

/// The file with the characters of a text, beside nanoGPT's data or its checkpoint.
const META: &str = "meta.pkl";

/// A nanoGPT checkpoint, memory-mapped, and the files of its tokenizer.
#[derive(Debug)]
pub struct File {
    checkpoint: Mapped,
    tokenizer: Vec<Mapped>,
}

impl File {
    /// Opens a checkpoint. Its tokenizer is the first that exists of `meta.pkl`, `tokenizer.json`,
    /// and `vocab.json` with `merges.txt` beside it, else the `meta.pkl` in the folder of its data,
    /// where nanoGPT puts it.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        let checkpoint = Mapped::open(path)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let candidates = [&[META][..], &["tokenizer.json"], &["vocab.json", "merges.txt"]];
        let candidates = candidates.map(|names| names.iter().map(|name| folder.join(name)).collect());
        let data = dataset(&checkpoint).map(|name| vec![folder.join("../data").join(name).join(META)]);
        let exist = |files: &Vec<PathBuf>| files.iter().all(|file| file.is_file());
        let found = candidates.into_iter().chain(data).find(exist).unwrap_or_default();
        let tokenizer = found.iter().map(|file| Mapped::open(file)).collect::<Result<_>>()?;
        Ok(Self { checkpoint, tokenizer })
    }

    /// The files that are read.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        [&self.checkpoint].into_iter().chain(&self.tokenizer).map(Mapped::path)
    }

    /// The model; its tensors' values stay in the file until they are read.
    ///
    /// # Errors
    /// When the file is damaged, or its pickle contains something unsupported.
    pub fn model(&self) -> Result<Model<'_>> {
        let damaged = |why: String| FormatError::damaged(self.checkpoint.path(), why);
        let unsupported = |what: String| FormatError::unsupported(self.checkpoint.path(), what);
        let archive = Archive::open(&self.checkpoint).map_err(damaged)?;
        let pickle = archive.pickle().map_err(unsupported)?;
        let weights = weights(&pickle, &archive).map_err(unsupported)?;
        let shape = shape(&pickle, &weights).map_err(unsupported)?;
        refuse_overlaps(&weights, shape.tied_head).map_err(damaged)?;
        let named = names::tensors(&shape);
        refuse_others(&weights, &named).map_err(unsupported)?;
        refuse_missing_biases(&pickle, &weights, &named).map_err(damaged)?;
        let tensor = |(name, sizes)| tensor(&weights, name, sizes);
        let tensors = named.into_iter().map(tensor).collect::<Result<_, String>>().map_err(unsupported)?;
        let tokenizer = self.tokenizer(shape.vocab_size)?;
        Ok(Model { shape, tensors, tokenizer, generation: Map::new() })
    }

    fn tokenizer(&self, rows: usize) -> Result<Option<Tokenizer>> {
        let json = match &self.tokenizer[..] {
            [] => return Ok(None),
            [vocabulary, merges] => pair::tokenizer(vocabulary, merges, rows)?,
            [file, ..] => {
                let wrong = |what: String| FormatError::unsupported(file.path(), what);
                if file.path().ends_with(META) {
                    Pickle::read(file).and_then(|meta| characters(&meta, rows)).map_err(wrong)?
                } else {
                    serde_json::from_slice(file)
                        .map_err(|error| wrong(format!("it is not a tokenizer.json ({error})")))?
                }
            }
        };
        let tokenizer = Tokenizer { json, ..Tokenizer::default() };
        let end = tokenizer.id(END_OF_TEXT).filter(|id| (*id as usize) < rows);
        Ok(Some(Tokenizer { end_tokens: Vec::from_iter(end), ..tokenizer }))
    }
}

/// The name of the data that a checkpoint was trained on, if it is a plain folder name.
fn dataset(file: &[u8]) -> Option<PathBuf> {
    let pickle = Archive::open(file).ok()?.pickle().ok()?;
    let Value::Text(name) = pickle.get(pickle.get(pickle.root(), "config")?, "dataset")? else { return None };
    let name = Path::new(name);
    name.file_name().is_some_and(|file| file == name).then(|| name.to_owned())
}

/// The tensors of a checkpoint by Hugging Face's names.
fn weights<'a>(pickle: &Pickle, archive: &Archive<'a>) -> Result<HashMap<String, Record<'a>>, String> {
    let model = pickle.get(pickle.root(), "model").ok_or("it holds no dictionary \"model\"; give nanoGPT's ckpt.pt")?;
    let mut weights = HashMap::new();
    for (name, record) in pickle.named(model) {
        let name = name.strip_prefix("_orig_mod.").unwrap_or(name);
        if !name.ends_with(".attn.bias") {
            // `attn.bias` is no weight but the mask that nanoGPT stores if PyTorch has no attention.
            let before = weights.insert(name.to_owned(), archive.tensor(pickle, record)?);
            if before.is_some() {
                return Err(format!("tensor {} is stored twice", shown(name)));
            }
        }
    }
    Ok(weights)
}

/// The shape given by `model_args`.
fn shape(pickle: &Pickle, weights: &HashMap<String, Record>) -> Result<Shape, String> {
    let arguments = pickle.get(pickle.root(), "model_args");
    let arguments = arguments.ok_or("it holds no dictionary \"model_args\"; give nanoGPT's ckpt.pt")?;
    let size = |key: &str| match pickle.get(arguments, key) {
        Some(Value::Whole(size)) => usize::try_from(*size).map_err(|_| format!("its {key} is {size}")),
        _ => Err(format!("its model_args lack {key}")),
    };
    let (n_embd, n_head) = (size("n_embd")?, size("n_head")?);
    let table = |name: &str| weights.get(name).map(|record| record.range);
    let shape = Shape {
        architecture: Architecture::Gpt2,
        vocab_size: size("vocab_size")?,
        context_length: size("block_size")?,
        n_layer: size("n_layer")?,
        n_head,
        n_kv_head: n_head,
        head_size: n_embd / n_head.max(1),
        n_embd,
        n_inner: n_embd.saturating_mul(4),
        norm_epsilon: 1e-5,
        rope_theta: 10_000.0,
        bias: true,
        tied_head: table("lm_head.weight").is_none_or(|head| Some(head) == table("transformer.wte.weight")),
        exact_gelu: true,
    };
    if shape.n_layer > weights.len() {
        return Err(format!("it has {} tensors, but its model_args say {} blocks", weights.len(), shape.n_layer));
    }
    shape.check()?;
    Ok(shape)
}

/// Rejects a file whose tensors share bytes, except for a tied head: it could claim far more values
/// than it has.
fn refuse_overlaps(weights: &HashMap<String, Record>, tied_head: bool) -> Result<(), String> {
    let own = weights.iter().filter(|(name, _)| !tied_head || *name != "lm_head.weight");
    let mut ranges: Vec<_> = own.map(|(_, record)| record.range).collect();
    ranges.sort_unstable();
    if ranges.array_windows().any(|[one, next]| one.1 > next.0) {
        return Err("the values of two of its tensors overlap".to_owned());
    }
    Ok(())
}

/// Rejects a file with a tensor that is neither one of `named` nor the head: ignoring it would
/// compute something else.
fn refuse_others(weights: &HashMap<String, Record>, named: &[(String, Vec<usize>)]) -> Result<(), String> {
    let known: HashSet<&str> = named.iter().map(|(name, _)| name.as_str()).chain(["lm_head.weight"]).collect();
    match weights.keys().filter(|name| !known.contains(name.as_str())).min() {
        Some(other) => Err(format!("tensor {} is not part of a supported nanoGPT model", shown(other))),
        None => Ok(()),
    }
}

/// Rejects a file that lacks some of its biases: zeros would replace trained values. If
/// `model_args` does not say whether there are biases, all must exist or none.
fn refuse_missing_biases(
    pickle: &Pickle,
    weights: &HashMap<String, Record>,
    named: &[(String, Vec<usize>)],
) -> Result<(), String> {
    let may_lack = match pickle.get(pickle.root(), "model_args").and_then(|arguments| pickle.get(arguments, "bias")) {
        Some(Value::Flag(has_biases)) => !has_biases,
        _ => !weights.keys().any(|name| name.ends_with(".bias")),
    };
    match named.iter().find(|(name, _)| name.ends_with(".bias") && !weights.contains_key(name)) {
        Some((name, _)) if !may_lack => Err(format!("tensor {name} is missing")),
        _ => Ok(()),
    }
}

/// Hugging Face's tensor `name`, in its layout. A model without biases gets zeros.
fn tensor<'a>(weights: &HashMap<String, Record<'a>>, name: String, sizes: Vec<usize>) -> Result<Tensor<'a>, String> {
    let count = sizes.iter().product();
    let Some(record) = weights.get(&name).cloned() else {
        if name.ends_with(".bias") {
            return Ok(Tensor::new(name, sizes, NumberType::F32, move || Ok(vec![0.0; count].into())));
        }
        return Err(format!("tensor {name} is missing"));
    };
    let is_transposed = sizes.len() == 2 && name.starts_with("transformer.h.");
    let expected: Vec<usize> = if is_transposed { sizes.iter().rev().copied().collect() } else { sizes.clone() };
    if record.sizes != expected {
        return Err(format!("tensor {name} is {:?}, but its model_args need {expected:?}", record.sizes));
    }
    Ok(Tensor::new(name, sizes, record.kind, move || {
        let values = numbers::decode(record.kind, record.bytes);
        Ok(if is_transposed { layout::transposed(&values, expected[1]).into() } else { values })
    }))
}

/// The character tokenizer of `meta.pkl`, from its `stoi`.
fn characters(meta: &Pickle, rows: usize) -> Result<Json, String> {
    let stoi = meta.get(meta.root(), "stoi").ok_or("it holds no dictionary \"stoi\"")?;
    let mut vocabulary = Map::new();
    for (character, id) in meta.named(stoi) {
        match id {
            Value::Whole(id) if character.chars().count() == 1 && usize::try_from(*id).is_ok_and(|id| id < rows) => {
                vocabulary.insert(character.to_owned(), json!(id));
            }
            _ => return Err(format!("its \"stoi\" has {character:?}, not a character with an id below {rows}")),
        }
    }
    if vocabulary.is_empty() {
        return Err("its \"stoi\" has no character".to_owned());
    }
    Ok(Tokenizer::of_characters(vocabulary, Vec::new()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Of several tokenizers beside the model, the character tokenizer takes precedence, as in
    /// nanoGPT.
    #[test]
    fn a_tokenizer_of_gpt2_s_two_files_is_taken_where_both_are_there() {
        let fixture = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/nanogpt").join(name);
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("ckpt.pt");
        std::fs::copy(fixture("ckpt.pt"), &path).unwrap();
        let found = || {
            let file = File::open(&path).unwrap();
            let names = file.paths().skip(1).map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
            (names.collect::<Vec<_>>().join(" "), file.model().unwrap().tokenizer)
        };
        assert_eq!(found(), (String::new(), None));
        std::fs::write(place.path().join("vocab.json"), r#"{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}"#).unwrap();
        assert_eq!(found(), (String::new(), None));
        std::fs::write(place.path().join("merges.txt"), "#version: 0.2\na b\n").unwrap();
        let (names, tokenizer) = found();
        assert_eq!((names.as_str(), tokenizer.unwrap().end_tokens), ("vocab.json merges.txt", vec![3]));
        std::fs::copy(fixture("meta.pkl"), place.path().join(META)).unwrap();
        assert_eq!(found().0, META);
    }

    /// The error after replacing the bytes `place` by `bytes` in nanoGPT's own file.
    fn error_with(place: &[u8], bytes: &[u8]) -> Option<String> {
        let mut file =
            std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/nanogpt/ckpt.pt")).unwrap();
        let at = file.windows(place.len()).position(|part| part == place).unwrap();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ckpt.pt");
        std::fs::write(&path, file).unwrap();
        File::open(&path).unwrap().model().err().map(|error| error.to_string())
    }

    #[test]
    fn a_tensor_that_is_there_twice_is_refused() {
        let error = error_with(b"h.0.ln_2.weight", b"h.0.ln_1.weight").unwrap();
        assert!(error.ends_with("tensor \"transformer.h.0.ln_1.weight\" is stored twice"), "{error}");
    }

    #[test]
    fn biases_are_zeros_only_where_a_model_has_none() {
        let bias_entry = b"biasr)\x01\x00\x00\x89";
        assert_eq!(error_with(bias_entry, bias_entry), None);
        assert_eq!(error_with(bias_entry, b"name"), None); // The bias setting is absent, and there are no biases.
        let error = error_with(bias_entry, b"biasr)\x01\x00\x00\x88").unwrap();
        assert!(error.contains("is truncated or damaged (tensor transformer.h.0.ln_1.bias is missing)"), "{error}");

        let says_nothing = Pickle::read(b"}.").unwrap();
        let record = Record { sizes: vec![1], kind: NumberType::F32, range: (0, 4), bytes: &[0; 4] };
        let weights = HashMap::from([("transformer.ln_f.bias".to_owned(), record)]);
        let of = |name: &str| refuse_missing_biases(&says_nothing, &weights, &[(name.to_owned(), vec![1])]);
        assert_eq!(of("transformer.ln_f.bias"), Ok(()));
        assert_eq!(of("transformer.h.0.ln_1.bias"), Err("tensor transformer.h.0.ln_1.bias is missing".to_owned()));
    }

    #[test]
    fn what_nanogpt_has_not_is_refused() {
        let named = [("transformer.wte.weight".to_owned(), vec![1, 1])];
        let record = Record { sizes: vec![1, 1], kind: NumberType::F32, range: (0, 4), bytes: &[0; 4] };
        let of = |other: &str| {
            let names = ["transformer.wte.weight", other].map(str::to_owned);
            let weights: HashMap<String, Record> = names.into_iter().map(|name| (name, record.clone())).collect();
            refuse_others(&weights, &named)
        };
        assert_eq!(of("lm_head.weight"), Ok(()));
        assert!(of("transformer.h.0.attn.q_norm.weight").unwrap_err().contains("attn.q_norm"));
    }
}
