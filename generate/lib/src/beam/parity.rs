//! The same sequences and scores as transformers', by the fixtures of tools/make_beam_fixtures.py.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::{cell::RefCell, collections::HashMap};

use burn::tensor::Device;
use ember_model::Gpt;
use itertools::Itertools;
use serde::{Deserialize, de::DeserializeOwned};

use super::tests::found;
use crate::completion::{Completion, FinishReason};
use crate::config::{EarlyStopping, GenerationConfig, Strategy};
use crate::{plan::Plan, processors::Chain, sequences::Scripted, tokens::to_tensor};

#[derive(Deserialize)]
struct Fixture<C> {
    cases: Vec<C>,
}

#[derive(Deserialize)]
struct Case {
    model: String,
    prompts: Vec<Vec<u32>>,
    knobs: Knobs,
    expected: Vec<Vec<Expected>>,
}

#[derive(Deserialize)]
struct Expected {
    ids: Vec<u32>,
    score: f64,
}

/// Runs of beam sampling and the frequent results.
#[derive(Deserialize)]
struct Sampled {
    model: String,
    prompt: Vec<u32>,
    knobs: Knobs,
    runs: usize,
    counts: Vec<(Vec<u32>, usize)>,
}

#[derive(Deserialize)]
struct Knobs {
    num_beams: usize,
    max_new_tokens: usize,
    early_stopping: serde_json::Value,
    length_penalty: f32,
    num_return_sequences: Option<usize>,
    temperature: Option<f32>,
    #[serde(default)]
    end_tokens: Vec<u32>,
    num_beam_groups: Option<usize>,
    #[serde(default)]
    diversity_penalty: f32,
    repetition_penalty: Option<f32>,
    #[serde(default)]
    no_repeat_ngram_size: usize,
    #[serde(default)]
    bad_words: Vec<Vec<u32>>,
    #[serde(default)]
    min_new_tokens: usize,
    #[serde(default)]
    logit_bias: Vec<(Vec<u32>, f32)>,
}

impl Knobs {
    fn config(&self) -> GenerationConfig {
        GenerationConfig {
            strategy: match (self.temperature, self.num_beam_groups) {
                (Some(_), _) => Strategy::BeamSample,
                (None, Some(_)) => Strategy::DiverseBeam,
                (None, None) => Strategy::Beam,
            },
            num_beams: self.num_beams,
            max_new_tokens: self.max_new_tokens,
            early_stopping: match self.early_stopping.as_bool() {
                Some(true) => EarlyStopping::True,
                Some(false) => EarlyStopping::False,
                None => EarlyStopping::Never,
            },
            length_penalty: self.length_penalty,
            num_return_sequences: self.num_return_sequences.unwrap_or(1),
            temperature: self.temperature.unwrap_or(1.0),
            end_tokens: self.end_tokens.clone(),
            num_beam_groups: self.num_beam_groups.unwrap_or(1),
            diversity_penalty: self.diversity_penalty,
            repetition_penalty: self.repetition_penalty.unwrap_or(1.0),
            no_repeat_ngram_size: self.no_repeat_ngram_size,
            bad_words: self.bad_words.clone(),
            min_new_tokens: self.min_new_tokens,
            logit_bias: self.logit_bias.clone(),
            ..GenerationConfig::default()
        }
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn cases<C: DeserializeOwned>(file: &str) -> Vec<C> {
    let json = std::fs::read_to_string(fixtures().join(file)).unwrap();
    serde_json::from_str::<Fixture<C>>(&json).unwrap().cases
}

fn load(model: &str) -> Gpt {
    ember_model::checkpoint::load(&fixtures().join(format!("beams-{model}")), &Device::flex()).unwrap()
}

/// The logits after `ids`, `[vocab]`, by the forward pass of training.
fn logits_after(model: &Gpt, ids: &[u32]) -> Vec<f32> {
    let logits = model.forward(to_tensor(&[ids], &model.device())).into_data().try_into_vec::<f32>().unwrap();
    logits[logits.len() - model.config().vocab_size..].to_vec()
}

/// Describes how a prompt's completions differ from transformers'. The scorer of diverse beam
/// search ends a sequence with the first end token, whichever was generated, so any end token is
/// accepted there.
fn difference(completions: &[Completion], expected: &[Expected], config: &GenerationConfig) -> Option<String> {
    let show = || {
        let ours: Vec<_> = completions.iter().map(|found| (&found.ids, found.score)).collect();
        let theirs: Vec<_> = expected.iter().map(|found| (&found.ids, found.score)).collect();
        Some(format!("\n   ours {ours:?}\n theirs {theirs:?}"))
    };
    if completions.len() != expected.len() {
        return show();
    }
    for (ours, theirs) in completions.iter().zip_eq(expected) {
        let mut ids = ours.ids.clone();
        if ours.finish_reason == FinishReason::Eos && config.strategy == Strategy::DiverseBeam {
            *ids.last_mut().unwrap() = config.end_tokens[0];
        }
        if ids != theirs.ids || (ours.score - theirs.score).abs() > 1e-4 * theirs.score.abs().max(1.0) {
            return show();
        }
    }
    None
}

/// The number of cases; panics with those that differ.
fn compare(file: &str) -> usize {
    let cases: Vec<Case> = cases(file);
    let mut models: HashMap<String, Gpt> = HashMap::new();
    let mut differences = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let model = &*models.entry(case.model.clone()).or_insert_with(|| load(&case.model));
        let config = case.knobs.config();
        let mut sequences = Scripted {
            vocab_size: model.config().vocab_size,
            rows: case.prompts.clone(),
            logits_after: |ids: &[u32]| logits_after(model, ids),
        };
        let chain = Chain::new(&config, None);
        let results = found(&mut sequences, &Plan::new(&config), &chain);
        assert_eq!(results.len(), case.expected.len());
        for (completions, expected) in results.iter().zip_eq(&case.expected) {
            if let Some(difference) = difference(completions, expected, &config) {
                differences.push(format!("case {number}, {config:?}:{difference}"));
            }
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    cases.len()
}

#[test]
fn beams_find_what_transformers_finds() {
    assert_eq!(compare("beams.json"), 120);
}

#[test]
fn diverse_beams_find_what_transformers_found() {
    assert_eq!(compare("beams-diverse.json"), 120);
}

/// Compares the best sequences of beam sampling with transformers': Pearson's statistic of two
/// samples of equal size, and its degrees of freedom.
fn chi_square(case: &Sampled, config: &GenerationConfig) -> (f64, usize) {
    const BATCH: usize = 1000;
    let model = load(&case.model);
    let known: RefCell<HashMap<Vec<u32>, Vec<f32>>> = RefCell::default();
    let chain = Chain::new(config, None);
    let mut counts: HashMap<Vec<u32>, usize> = HashMap::new();
    for first in (0..case.runs).step_by(BATCH) {
        let mut sequences = Scripted {
            vocab_size: model.config().vocab_size,
            rows: vec![case.prompt.clone(); BATCH],
            logits_after: |ids: &[u32]| {
                known.borrow_mut().entry(ids.to_vec()).or_insert_with(|| logits_after(&model, ids)).clone()
            },
        };
        let firsts: Vec<u64> = (first as u64..).take(BATCH).collect();
        let asked = Plan { first_sequences: &firsts, ..Plan::new(config) };
        for mut completions in found(&mut sequences, &asked, &chain) {
            *counts.entry(completions.swap_remove(0).ids).or_default() += 1;
        }
    }
    let mut pairs: Vec<(usize, usize)> =
        case.counts.iter().map(|(ids, theirs)| (counts.get(ids).copied().unwrap_or(0), *theirs)).collect();
    let seen: (usize, usize) = pairs.iter().fold((0, 0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
    pairs.push((case.runs - seen.0, case.runs - seen.1)); // all rare sequences together
    let term = |&(ours, theirs): &(usize, usize)| (ours as f64 - theirs as f64).powi(2) / (ours + theirs) as f64;
    (pairs.iter().map(term).sum(), pairs.len() - 1)
}

/// Whether the statistic is plausible: two samples of one distribution exceed the limit for one
/// seed in about a hundred thousand (Wilson and Hilferty's approximation, 4.3 standard deviations).
fn passes((statistic, degrees): (f64, usize)) -> bool {
    let k = degrees as f64;
    statistic < k * (1.0 - 2.0 / (9.0 * k) + 4.3 * (2.0 / (9.0 * k)).sqrt()).powi(3)
}

#[test]
fn beam_sampling_is_distributed_as_in_transformers() {
    for case in cases::<Sampled>("beams-sampled.json") {
        let config = case.knobs.config();
        let result = chi_square(&case, &config);
        assert!(passes(result), "{config:?}: {result:?}");
        // The test can fail: it detects a temperature that is wrong by a tenth.
        let off = GenerationConfig { temperature: config.temperature * 1.1, ..config };
        let result = chi_square(&case, &off);
        assert!(!passes(result), "{off:?}: {result:?}");
    }
}
