//! `generation_config.json`: a checkpoint folder's generation settings, under Hugging Face's names.

use std::path::{Path, PathBuf};
use std::{fmt::Display, fs, io::ErrorKind};

use ember_formats::hf::TOP_K_WHERE_SAMPLING;
use ember_host::file_error::FileError;
use ember_host::output::{check_replaces, write_output};
use serde_json::{Map, Value, json};

use super::{FolderError, GenerationConfig, KNOBS, KnobError, KnobValue, Knobs, Semantics, Strategy};
use crate::named::Named;

/// The file's name.
const FILE: &str = "generation_config.json";

/// The settings of a checkpoint folder's `generation_config.json`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FolderSettings {
    /// The knobs that this program has.
    pub knobs: Knobs,
    /// Settings that change the text in transformers but that this program does not have, as "name
    /// value".
    pub not_applied: Vec<String>,
}

/// A model's default sampling settings, which training chooses for its text and stores in the
/// folder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 1 changes nothing.
    pub temperature: f32,
    /// The probability mass of the nucleus; 1 is all.
    pub top_p: f64,
    /// The token that a text without a prompt starts from, if any.
    pub opening: Option<u32>,
}

impl Sampling {
    /// The corresponding keys of a `generation_config.json`. The temperature is written even if it
    /// changes nothing, for readers.
    pub fn to_hugging_face(self) -> Map<String, Value> {
        let mut keys = Map::new();
        keys.insert("do_sample".to_owned(), json!(true));
        keys.insert("temperature".to_owned(), self.temperature.to_json());
        if self.top_p < 1.0 {
            keys.insert("top_p".to_owned(), json!(self.top_p));
        }
        if let Some(opening) = self.opening {
            keys.insert("bos_token_id".to_owned(), json!(opening));
        }
        keys
    }

    /// The configuration that a folder with these keys gives.
    pub fn config(self) -> GenerationConfig {
        let Self { temperature, top_p, .. } = self;
        GenerationConfig { strategy: Strategy::Sample, temperature, top_p, ..GenerationConfig::default() }
    }
}

impl FolderSettings {
    /// Reads `dir/generation_config.json`; a folder without one sets nothing. Its `eos_token_id` is
    /// read together with the model's configuration, its fallback
    /// ([`ember_model::folder::read_end_tokens`]).
    ///
    /// # Errors
    /// If the file is not readable JSON, or sets a knob to a value of the wrong kind or out of
    /// range.
    pub fn read(dir: &Path) -> Result<Self, FolderError> {
        let path = dir.join(FILE);
        match fs::read_to_string(&path) {
            Ok(json) => Self::from_json(path, &json),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(FileError { doing: "cannot read", path, source }.into()),
        }
    }

    /// Parses the contents of the file `path`.
    fn from_json(path: PathBuf, json: &str) -> Result<Self, FolderError> {
        let map: Map<String, Value> = match serde_json::from_str(json) {
            Ok(map) => map,
            Err(source) => return Err(FolderError::NotJson { path, source }),
        };
        let wrong = |key, value: &dyn Display, must_be: String| {
            let (path, value) = (path.clone(), value.to_string());
            FolderError::Value { path, key, value, must_be }
        };
        // transformers writes null for "not set".
        let set = |name: &str| map.get(name).filter(|value| !value.is_null());
        let mut knobs = Knobs::default();
        for knob in KNOBS {
            if let Some(value) = set(knob.name)
                && let Err(kind) = knob.read(&mut knobs, value)
            {
                return Err(wrong(knob.name, value, kind));
            }
        }
        if let Some(value) = set("do_sample") {
            let unknown = || wrong("do_sample", value, "true or false".to_owned());
            knobs.do_sample = Some(value.as_bool().ok_or_else(unknown)?);
        }
        if let Some(value) = set("strategy") {
            let names: Vec<&str> = Strategy::ALL.iter().map(|strategy| strategy.name()).collect();
            let unknown = || wrong("strategy", value, format!("one of {}", names.join(", ")));
            knobs.strategy = Some(value.as_str().and_then(Strategy::from_name).ok_or_else(unknown)?);
        }
        if let Err(KnobError::OutOfRange { knob, value }) = knobs.check_ranges() {
            return Err(wrong(knob.name, &value, knob.range.words()));
        }
        if knobs.do_sample == Some(true) {
            knobs.top_k.get_or_insert(TOP_K_WHERE_SAMPLING as usize);
        }
        // Without sampling a temperature has no effect, and some files then write 0.
        if knobs.do_sample == Some(false) && knobs.strategy.is_none() {
            knobs.temperature = knobs.temperature.filter(|temperature| *temperature != 0.0);
        }
        if knobs.temperature == Some(0.0) {
            return Err(FolderError::ZeroTemperature { path });
        }
        Ok(Self { knobs, not_applied: not_applied(&map) })
    }

    /// Rejects token ids outside a vocabulary of this size.
    ///
    /// # Errors
    /// Names the first such id.
    pub fn check_vocabulary(&self, vocab_size: usize) -> Result<(), FolderError> {
        let Some((knob, id)) = self.knobs.outside_vocabulary(vocab_size) else { return Ok(()) };
        Err(FolderError::Vocabulary(KnobError::OutsideVocabulary { key: knob.name, id, vocab_size }))
    }
}

impl GenerationConfig {
    /// The configuration as a `generation_config.json` that reads back to it, and that transformers
    /// reads to the same knobs.
    ///
    /// Settings that transformers lacks have our own names, which it keeps and ignores: `strategy`
    /// (if `do_sample` and the beams do not imply it), `semantics`, `presence_penalty`,
    /// `frequency_penalty`, `max_nodes`, `overflow`. Exact search, which transformers lacks, reads
    /// as beam search there if several texts are asked for. When generating, transformers rejects a
    /// `sequence_bias` on token 0, because of a bug in its check. Not in the file are `seed`,
    /// `logprobs` and `draft_tokens`, which belong to one run (with a seed in the folder every text
    /// would be the same).
    pub fn to_hugging_face(&self) -> Value {
        let samples = self.strategy.samples();
        let mut map = Map::new();
        map.insert("do_sample".to_owned(), json!(samples));
        if Strategy::of_hugging_face(samples, self.num_beams, self.num_beam_groups) != self.strategy {
            map.insert("strategy".to_owned(), json!(self.strategy));
        }
        if self.strategy == Strategy::Exact && self.num_return_sequences > 1 {
            map.insert("num_beams".to_owned(), json!(self.num_return_sequences));
        }
        // Written even when off: transformers would use its own defaults for the first two (50 and
        // 20), and would not use beam search; other stacks have defaults for the rest.
        let always = ["top_k", "max_new_tokens", "num_beams"];
        let of_stacks = ["temperature", "top_p", "min_p"];
        for knob in KNOBS.iter().filter(|knob| knob.used_by.contains(self.strategy)) {
            let value = knob.of(self);
            let explicit =
                always.contains(&knob.name) || (self.semantics != Semantics::Hf && of_stacks.contains(&knob.name));
            if explicit || !knob.is_off(value) {
                map.insert(knob.name.to_owned(), value.to_json());
            }
        }
        let end_tokens = match self.end_tokens[..] {
            [] => Value::Null,
            [one] => json!(one),
            _ => json!(self.end_tokens),
        };
        map.insert("eos_token_id".to_owned(), end_tokens);
        Value::Object(map)
    }

    /// Writes [`Self::to_hugging_face`] to `path`.
    ///
    /// # Errors
    /// Names the file if it cannot be written. A file that is not a `generation_config.json` is not
    /// overwritten.
    pub fn save(&self, path: &Path) -> Result<(), FolderError> {
        check_replaces(path, "a generation_config.json", is_generation_config)?;
        let json = format!("{:#}\n", self.to_hugging_face());
        Ok(write_output(path, |out| out.write_all(json.as_bytes()))?)
    }
}

/// transformers' settings that change which tokens are chosen but that this program lacks, with the
/// number at which they are off (besides null, false and an empty list).
const NOT_OURS: [(&str, f64); 17] = [
    ("top_h", 0.0),
    ("encoder_repetition_penalty", 1.0),
    ("encoder_no_repeat_ngram_size", 0.0),
    ("penalty_alpha", 0.0),
    ("guidance_scale", 1.0),
    ("begin_suppress_tokens", f64::NAN),
    ("forced_bos_token_id", f64::NAN),
    ("forced_eos_token_id", f64::NAN),
    ("exponential_decay_length_penalty", f64::NAN),
    ("renormalize_logits", f64::NAN),
    ("watermarking_config", f64::NAN),
    ("dola_layers", f64::NAN),
    ("constraints", f64::NAN),
    ("force_words_ids", f64::NAN),
    ("token_healing", f64::NAN),
    ("min_length", 0.0),
    ("max_length", f64::NAN),
];

/// Whether a file is a `generation_config.json`, and not a model's `config.json`.
fn is_generation_config(bytes: &[u8]) -> bool {
    let Ok(map) = serde_json::from_slice::<Map<String, Value>>(bytes) else { return false };
    let own = ["do_sample", "eos_token_id", "transformers_version"];
    let is_one = KNOBS.iter().map(|knob| knob.name).chain(own).any(|name| map.contains_key(name));
    is_one && !map.contains_key("model_type")
}

fn not_applied(map: &Map<String, Value>) -> Vec<String> {
    let is_on = |value: &Value, off: f64| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(list) => !list.is_empty(),
        number => number.as_f64() != Some(off),
    };
    let words = |(name, off): &(&str, f64)| {
        let value = map.get(*name).filter(|value| is_on(value, *off))?;
        // Lengths that include the prompt. In transformers the knobs that exclude it take
        // precedence, if set.
        let ours = name.strip_suffix("_length").filter(|end| ["min", "max"].contains(end));
        match ours.map(|end| format!("{end}_new_tokens")) {
            Some(better) if map.get(&better).is_some_and(|value| !value.is_null()) => None,
            Some(better) => Some(format!("{name} {value} (it includes the prompt; use {better})")),
            None => Some(format!("{name} {value}")),
        }
    };
    NOT_OURS.iter().filter_map(words).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_that_samples_without_top_k_means_fifty_as_for_transformers() {
        let knobs = |json: &str| FolderSettings::from_json(PathBuf::new(), json).unwrap().knobs;
        assert_eq!(knobs(r#"{"do_sample": true, "temperature": 0.6}"#).top_k, Some(50));
        assert_eq!(knobs(r#"{"do_sample": true, "top_k": null}"#).top_k, Some(50));
        assert_eq!(knobs(r#"{"do_sample": true, "top_k": 0}"#).top_k, Some(0));
        assert_eq!((knobs("{}").top_k, knobs(r#"{"do_sample": false, "top_p": 0.9}"#).top_k), (None, None));
    }

    #[test]
    fn a_temperature_of_0_is_nothing_where_nothing_is_drawn() {
        let read = |json: &str| FolderSettings::from_json(PathBuf::new(), json);
        assert_eq!(read(r#"{"do_sample": false, "temperature": 0.0}"#).unwrap().knobs.temperature, None);
        assert!(read(r#"{"do_sample": true, "temperature": 0.0}"#).is_err());
    }
}
