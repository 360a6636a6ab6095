//! What to generate and how: the knobs, their ranges, and whose word counts when several speak.
//!
//! A knob's value comes from the flag, else from the checkpoint folder's `generation_config.json`, else the knob is off.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::program::UsageError;
use crate::semantics::Semantics;

/// New tokens when nobody says how many.
pub const DEFAULT_MAX_NEW_TOKENS: usize = 256;

/// Prefixes that an exact search looks at when nobody says how many.
pub const DEFAULT_MAX_NODES: usize = 100_000;

/// Smaller temperatures would divide logits past what float32 holds.
const LOWEST_TEMPERATURE: f32 = 1e-6;

/// How the next token is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Always the most probable token.
    Greedy,
    /// A draw from the distribution that the sampling knobs leave.
    Sample,
    /// The most probable of several texts that grow side by side.
    Beam,
    /// Beam search whose candidates are drawn.
    BeamSample,
    /// Groups of beams that avoid one another's tokens.
    DiverseBeam,
    /// The most probable continuation there is, by exhaustive search with a bound.
    Exact,
}

/// When a beam search may end before its beams have reached the last token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum EarlyStopping {
    /// As soon as `num_beams` texts have finished.
    True,
    /// When what is running is unlikely to beat what has finished.
    #[default]
    False,
    /// When what is running cannot beat what has finished.
    Never,
}

/// What happens when the text is as long as the model can look back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Overflow {
    /// Go on with the last `context_length` tokens; each further token costs a pass over all of them.
    #[default]
    Slide,
    /// End there, with the finish reason `length`.
    Stop,
    /// Fail there.
    Error,
}

/// Everything that decides which tokens follow a prompt, complete and checked.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GenerationConfig {
    /// How the next token is chosen.
    pub strategy: Strategy,
    /// Whose order and rules the knobs follow.
    pub semantics: Semantics,
    /// Most tokens to generate, at least 1.
    pub max_new_tokens: usize,
    /// End tokens are impossible before so many tokens are generated; 0 is off.
    pub min_new_tokens: usize,
    /// Divides the logits when sampling, above 0; 1 changes nothing.
    pub temperature: f32,
    /// How many of the best tokens to sample from; 0 is all.
    pub top_k: usize,
    /// The probability of the nucleus to sample from, in (0, 1]; 1 is all.
    pub top_p: f64,
    /// Least probability, as a share of the best token's, in [0, 1]; 0 is off.
    pub min_p: f64,
    /// The mass of the tokens whose surprise is nearest to the expected one, in (0, 1]; 1 is all.
    pub typical_p: f64,
    /// Least probability, in [0, 1); 0 is off.
    pub epsilon_cutoff: f64,
    /// Least probability, lowered where the distribution is flat, in [0, 1); 0 is off.
    pub eta_cutoff: f64,
    /// Makes what was said before less probable (above 1) or more (below), above 0; 1 changes nothing.
    pub repetition_penalty: f32,
    /// Subtracted from the logit of every token generated so far; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted from a token's logit for each time that it was generated; 0 is off.
    pub frequency_penalty: f32,
    /// No n tokens in a row occur twice; 0 is off.
    pub no_repeat_ngram_size: usize,
    /// Sequences of token ids that are never completed.
    pub bad_words: Vec<Vec<u32>>,
    /// Token ids that are never chosen.
    pub suppress_tokens: Vec<u32>,
    /// Added to the logit of the last token of a sequence when the others have just been produced.
    pub logit_bias: Vec<(Vec<u32>, f32)>,
    /// Texts that a beam search keeps side by side, at least 1.
    pub num_beams: usize,
    /// The power of the length by which a finished beam's score is divided; above 0 favours long texts.
    pub length_penalty: f32,
    /// When a beam search may end.
    pub early_stopping: EarlyStopping,
    /// Groups that the beams of a diverse search fall into; divides `num_beams`.
    pub num_beam_groups: usize,
    /// Subtracted from a token's log-probability for each earlier group's beam that chose it at the same step.
    pub diversity_penalty: f32,
    /// Texts to return for each prompt, at least 1, and with beams at most `num_beams`.
    pub num_return_sequences: usize,
    /// Most prefixes that an exact search looks at.
    pub max_nodes: usize,
    /// Tokens proposed at a time by speculative decoding; 0 is off.
    pub draft_tokens: usize,
    /// Token ids that end a sequence.
    #[serde(rename = "eos_token_id")]
    pub end_tokens: Vec<u32>,
    /// Seconds after which generation ends, checked after each step.
    pub max_time_s: Option<f64>,
    /// What happens at the context's end.
    pub overflow: Overflow,
    /// Seed of the draws.
    pub seed: u64,
    /// How many of the most probable tokens to report beside each chosen one.
    pub logprobs: usize,
}

impl Default for GenerationConfig {
    /// Greedy, 256 new tokens, everything else off.
    fn default() -> Self {
        Self {
            strategy: Strategy::Greedy,
            semantics: Semantics::Hf,
            max_new_tokens: DEFAULT_MAX_NEW_TOKENS,
            min_new_tokens: 0,
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            epsilon_cutoff: 0.0,
            eta_cutoff: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            no_repeat_ngram_size: 0,
            bad_words: Vec::new(),
            suppress_tokens: Vec::new(),
            logit_bias: Vec::new(),
            num_beams: 1,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::False,
            num_beam_groups: 1,
            diversity_penalty: 0.0,
            num_return_sequences: 1,
            max_nodes: DEFAULT_MAX_NODES,
            draft_tokens: 0,
            end_tokens: Vec::new(),
            max_time_s: None,
            overflow: Overflow::Slide,
            seed: 0,
            logprobs: 0,
        }
    }
}

/// The knobs that one source sets, a flag or a file; `None` where it says nothing.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Knobs {
    /// See [`GenerationConfig::strategy`]; in a file it is called `do_sample`.
    #[serde(default, rename = "do_sample", deserialize_with = "strategy_of_do_sample")]
    pub strategy: Option<Strategy>,
    /// See [`GenerationConfig::max_new_tokens`].
    pub max_new_tokens: Option<usize>,
    /// See [`GenerationConfig::temperature`]; as a flag, 0 means greedy.
    pub temperature: Option<f32>,
    /// See [`GenerationConfig::top_k`].
    pub top_k: Option<usize>,
    /// See [`GenerationConfig::top_p`].
    pub top_p: Option<f64>,
}

impl Knobs {
    /// The sampling knobs that are set, as `(name, value)`.
    fn sampling(&self) -> Vec<(&'static str, String)> {
        let mut set = Vec::new();
        set.extend(self.temperature.map(|value| ("temperature", value.to_string())));
        set.extend(self.top_k.map(|value| ("top_k", value.to_string())));
        set.extend(self.top_p.map(|value| ("top_p", value.to_string())));
        set
    }

    /// The first knob out of its range, in words that follow the knob's name.
    fn out_of_range(&self) -> Option<(&'static str, String)> {
        if let Some(0) = self.max_new_tokens {
            return Some(("max_new_tokens", "is 0; it must be at least 1".to_owned()));
        }
        if let Some(t) = self.temperature
            && !(t == 0.0 || (t.is_finite() && t >= LOWEST_TEMPERATURE))
        {
            return Some((
                "temperature",
                format!("is {t}; it must be 0 (greedy) or a finite number from {LOWEST_TEMPERATURE} up"),
            ));
        }
        if let Some(p) = self.top_p
            && !(p > 0.0 && p <= 1.0)
        {
            return Some(("top_p", format!("is {p}; it must be above 0 and at most 1")));
        }
        None
    }
}

/// What a checkpoint folder's `generation_config.json` sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FolderSettings {
    /// The knobs that this program has.
    pub knobs: Knobs,
    /// Settings that change the text elsewhere but that this program does not have, as "name value".
    pub not_applied: Vec<String>,
}

impl FolderSettings {
    /// Reads `dir/generation_config.json`; a folder without one sets nothing.
    ///
    /// # Errors
    /// When the file is not readable JSON, or sets a knob to something out of its range.
    pub fn read(dir: &Path) -> Result<Self> {
        let path = dir.join("generation_config.json");
        let name = path.display();
        let json = match fs::read_to_string(&path) {
            Ok(json) => json,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {name}")),
        };
        let map: Map<String, Value> =
            serde_json::from_str(&json).with_context(|| format!("{name} is not a JSON object; repair or remove it"))?;
        let knobs = Knobs::deserialize(Value::Object(map.clone()))
            .with_context(|| format!("{name} sets a knob to something of the wrong kind; correct or remove it"))?;
        if let Some((knob, problem)) = knobs.out_of_range() {
            bail!("{name}: {knob} {problem}");
        }
        ensure!(
            knobs.temperature != Some(0.0),
            "{name}: temperature is 0; greedy is written \"do_sample\": false there, so remove temperature"
        );
        Ok(Self { knobs, not_applied: not_applied(&map) })
    }
}

impl GenerationConfig {
    /// Joins what the flags say with what the folder says into one configuration, and gives the notes to show about it.
    ///
    /// Without a strategy, any sampling knob among the flags means sampling, except a temperature of 0. End tokens, overflow,
    /// seed and log-probabilities keep their defaults, for the caller to set.
    ///
    /// # Errors
    /// A [`UsageError`] for a flag out of range, or one that the strategy would ignore.
    pub fn resolve(flags: &Knobs, folder: &FolderSettings) -> Result<(Self, Vec<String>)> {
        if let Some((knob, problem)) = flags.out_of_range() {
            bail!(UsageError::new(format!("{} {problem}", flag(knob))));
        }
        let strategy = strategy(flags, &folder.knobs)?;
        let mut notes = Vec::new();
        let mut config = Self { strategy, ..Self::default() };
        config.max_new_tokens = flags.max_new_tokens.or(folder.knobs.max_new_tokens).unwrap_or(DEFAULT_MAX_NEW_TOKENS);

        let mut from_folder = Vec::new();
        if flags.max_new_tokens.is_none() {
            from_folder.extend(folder.knobs.max_new_tokens.map(|n| format!("max_new_tokens {n}")));
        }
        if flags.strategy.is_none() && flags.sampling().is_empty() && folder.knobs.strategy == Some(Strategy::Sample) {
            from_folder.push("do_sample true".to_owned());
        }
        let overruled: Vec<&str> = flags.sampling().iter().map(|(name, _)| *name).collect();
        let off = Self::default();
        let mut folder_sampling = folder.knobs.sampling();
        folder_sampling.retain(|(name, value)| {
            let neutral = [
                ("temperature", off.temperature.to_string()),
                ("top_k", off.top_k.to_string()),
                ("top_p", off.top_p.to_string()),
            ];
            !overruled.contains(name) && !neutral.contains(&(*name, value.clone()))
        });
        let words = folder_sampling.iter().map(|(name, value)| format!("{name} {value}"));
        match strategy {
            Strategy::Sample => {
                from_folder.extend(words);
                config.temperature = flags.temperature.or(folder.knobs.temperature).unwrap_or(off.temperature);
                config.top_k = flags.top_k.or(folder.knobs.top_k).unwrap_or(off.top_k);
                config.top_p = flags.top_p.or(folder.knobs.top_p).unwrap_or(off.top_p);
            }
            _ => {
                let ignored: Vec<String> = words.collect();
                if !ignored.is_empty() {
                    notes.push(format!("generation_config.json sets {}, which greedy ignores", ignored.join(", ")));
                }
            }
        }
        if !from_folder.is_empty() {
            notes.insert(0, format!("from generation_config.json: {}", from_folder.join(", ")));
        }
        if !folder.not_applied.is_empty() {
            notes.push(format!("generation_config.json also sets {}: not applied", folder.not_applied.join(", ")));
        }
        Ok((config, notes))
    }
}

fn strategy(flags: &Knobs, folder: &Knobs) -> Result<Strategy> {
    let zero = flags.temperature == Some(0.0);
    let asked = match flags.strategy {
        Some(Strategy::Sample) | None if zero => Strategy::Greedy,
        Some(strategy) => strategy,
        None if !flags.sampling().is_empty() => Strategy::Sample,
        None => folder.strategy.unwrap_or(Strategy::Greedy),
    };
    let ignored = flags.sampling().into_iter().find(|(name, _)| !(zero && *name == "temperature"));
    match (asked, ignored) {
        (Strategy::Greedy, Some((knob, _))) => {
            let why = if zero { "--temperature 0 means greedy, which" } else { "--strategy greedy" };
            bail!(UsageError::new(format!("{why} ignores {}; drop one of the two", flag(knob))))
        }
        (strategy, _) => Ok(strategy),
    }
}

/// `top_k` as the command line writes it: `--top-k`.
fn flag(knob: &str) -> String {
    format!("--{}", knob.replace('_', "-"))
}

fn strategy_of_do_sample<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Strategy>, D::Error> {
    let do_sample = Option::<bool>::deserialize(deserializer)?;
    Ok(do_sample.map(|yes| if yes { Strategy::Sample } else { Strategy::Greedy }))
}

/// transformers' settings that change which tokens are chosen and that this program does not have, with the value at which
/// they are off (beside null).
const NOT_OURS: [(&str, f64); 20] = [
    ("min_new_tokens", 0.0),
    ("min_length", 0.0),
    ("min_p", 0.0),
    ("top_h", 0.0),
    ("typical_p", 1.0),
    ("epsilon_cutoff", 0.0),
    ("eta_cutoff", 0.0),
    ("repetition_penalty", 1.0),
    ("encoder_repetition_penalty", 1.0),
    ("no_repeat_ngram_size", 0.0),
    ("num_beams", 1.0),
    ("penalty_alpha", 0.0),
    ("guidance_scale", 1.0),
    ("bad_words_ids", f64::NAN),
    ("sequence_bias", f64::NAN),
    ("suppress_tokens", f64::NAN),
    ("begin_suppress_tokens", f64::NAN),
    ("forced_bos_token_id", f64::NAN),
    ("forced_eos_token_id", f64::NAN),
    ("stop_strings", f64::NAN),
];

fn not_applied(map: &Map<String, Value>) -> Vec<String> {
    let is_on = |value: &Value, off: f64| !value.is_null() && value.as_f64() != Some(off);
    let name_on = |(name, off): &(&str, f64)| map.get(*name).filter(|v| is_on(v, *off)).map(|v| format!("{name} {v}"));
    NOT_OURS.iter().filter_map(name_on).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn folder(json: &str) -> Result<FolderSettings> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("generation_config.json"), json).unwrap();
        FolderSettings::read(dir.path())
    }

    fn resolve(flags: Knobs, json: &str) -> (GenerationConfig, String) {
        let (config, notes) = GenerationConfig::resolve(&flags, &folder(json).unwrap()).unwrap();
        (config, notes.join("\n"))
    }

    fn refused(flags: Knobs) -> String {
        let error = GenerationConfig::resolve(&flags, &FolderSettings::default()).unwrap_err();
        assert!(error.is::<UsageError>(), "{error} must exit with 2");
        error.to_string()
    }

    #[test]
    fn the_strategy_follows_the_knobs() {
        let strategy = |flags: Knobs| GenerationConfig::resolve(&flags, &FolderSettings::default()).unwrap().0.strategy;
        assert_eq!(strategy(Knobs::default()), Strategy::Greedy);
        assert_eq!(strategy(Knobs { top_k: Some(5), ..Knobs::default() }), Strategy::Sample);
        assert_eq!(strategy(Knobs { temperature: Some(1.0), ..Knobs::default() }), Strategy::Sample);
        assert_eq!(strategy(Knobs { temperature: Some(0.0), ..Knobs::default() }), Strategy::Greedy);
        let zero = Knobs { strategy: Some(Strategy::Sample), temperature: Some(0.0), ..Knobs::default() };
        assert_eq!(strategy(zero), Strategy::Greedy);
    }

    #[test]
    fn the_flag_comes_before_the_folder_and_the_folder_before_off() {
        let json = r#"{"do_sample": true, "temperature": 0.7, "top_k": 50, "eos_token_id": [1, 2], "use_cache": true}"#;
        let (config, notes) = resolve(Knobs { top_k: Some(5), ..Knobs::default() }, json);
        assert_eq!((config.temperature, config.top_k, config.top_p), (0.7, 5, 1.0));
        assert_eq!(notes, "from generation_config.json: temperature 0.7");
        let (config, notes) = resolve(Knobs::default(), json);
        assert_eq!((config.strategy, config.top_k), (Strategy::Sample, 50));
        assert_eq!(notes, "from generation_config.json: do_sample true, temperature 0.7, top_k 50");
    }

    #[test]
    fn what_the_strategy_ignores_is_an_error_in_a_flag_and_a_note_in_the_folder() {
        let greedy = Some(Strategy::Greedy);
        let message = refused(Knobs { strategy: greedy, top_p: Some(0.9), ..Knobs::default() });
        assert_eq!(message, "--strategy greedy ignores --top-p; drop one of the two");
        let message = refused(Knobs { temperature: Some(0.0), top_k: Some(3), ..Knobs::default() });
        assert_eq!(message, "--temperature 0 means greedy, which ignores --top-k; drop one of the two");
        let (config, notes) = resolve(Knobs::default(), r#"{"top_p": 0.9, "repetition_penalty": 1.2, "min_p": null}"#);
        assert_eq!(config, GenerationConfig::default());
        assert_eq!(
            notes,
            "generation_config.json sets top_p 0.9, which greedy ignores\n\
             generation_config.json also sets repetition_penalty 1.2: not applied"
        );
    }

    #[test]
    fn what_our_own_folders_say_needs_no_note() {
        let (config, notes) = resolve(Knobs::default(), r#"{"bos_token_id": 0, "eos_token_id": 0, "top_k": 0}"#);
        assert_eq!((config, notes.as_str()), (GenerationConfig::default(), ""));
        assert_eq!(FolderSettings::read(tempfile::tempdir().unwrap().path()).unwrap(), FolderSettings::default());
    }

    #[test]
    fn every_range_is_checked_and_named() {
        let off = Knobs::default;
        assert!(refused(Knobs { max_new_tokens: Some(0), ..off() }).starts_with("--max-new-tokens is 0;"));
        for t in [-1.0, f32::NAN, f32::INFINITY, 1e-9] {
            assert!(refused(Knobs { temperature: Some(t), ..off() }).starts_with("--temperature is"), "{t}");
        }
        for p in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY] {
            assert!(refused(Knobs { top_p: Some(p), ..off() }).starts_with("--top-p is"), "{p}");
        }
    }

    #[test]
    fn a_wrong_folder_file_is_named() {
        for json in
            ["", "[1]", "{\"top_p\": 2}", "{\"top_k\": -1}", "{\"temperature\": \"hot\"}", "{\"temperature\": 0.0}"]
        {
            let error = format!("{:#}", folder(json).unwrap_err());
            assert!(error.contains("generation_config.json"), "{json}: {error}");
        }
    }
}
