//! The same sequences and scores as transformers', over the fixtures of scripts/make_beam_fixtures.py.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use ember_model::Gpt;
use serde::Deserialize;

use super::tests::{found, request};
use crate::config::{EarlyStopping, GenerationConfig, Strategy};
use crate::engine::{Completion, to_tensor};
use crate::processors::Chain;
use crate::sequences::Scripted;
use crate::stop::FinishReason;

#[derive(Deserialize)]
struct Fixture {
    cases: Vec<Case>,
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

#[derive(Deserialize)]
struct Knobs {
    num_beams: usize,
    max_new_tokens: usize,
    early_stopping: serde_json::Value,
    length_penalty: f32,
    num_return_sequences: usize,
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
            strategy: if self.num_beam_groups.is_some() { Strategy::DiverseBeam } else { Strategy::Beam },
            num_beams: self.num_beams,
            max_new_tokens: self.max_new_tokens,
            early_stopping: match self.early_stopping.as_bool() {
                Some(true) => EarlyStopping::True,
                Some(false) => EarlyStopping::False,
                None => EarlyStopping::Never,
            },
            length_penalty: self.length_penalty,
            num_return_sequences: self.num_return_sequences,
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

/// The logits after `ids`, `[vocab]`, by the forward pass of training.
fn logits_after(model: &Gpt, ids: &[u32]) -> Vec<f32> {
    let logits = model.forward(to_tensor(&[ids], &model.device())).into_data().try_into_vec::<f32>().unwrap();
    logits[logits.len() - model.config().vocab_size..].to_vec()
}

/// Says how a prompt's completions differ from what transformers returned. The scorer of diverse beams ends a sequence with
/// the first end token whichever ended it, so there any will do.
fn difference(completions: &[Completion], expected: &[Expected], config: &GenerationConfig) -> Option<String> {
    let show = || {
        let ours: Vec<_> = completions.iter().map(|found| (&found.ids, found.score)).collect();
        let theirs: Vec<_> = expected.iter().map(|found| (&found.ids, found.score)).collect();
        Some(format!("\n   ours {ours:?}\n theirs {theirs:?}"))
    };
    if completions.len() != expected.len() {
        return show();
    }
    for (ours, theirs) in completions.iter().zip(expected) {
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

/// How many cases there are; fails, and shows them, when any differ.
fn compare(file: &str) -> usize {
    let json = std::fs::read_to_string(fixtures().join(file)).unwrap();
    let fixture: Fixture = serde_json::from_str(&json).unwrap();
    let mut models: HashMap<String, Gpt> = HashMap::new();
    let mut differences = Vec::new();
    for (number, case) in fixture.cases.iter().enumerate() {
        let load = || ember_model::checkpoint::load(&fixtures().join(format!("beams-{}", case.model)), &Device::flex());
        let model = &*models.entry(case.model.clone()).or_insert_with(|| load().unwrap());
        let config = case.knobs.config();
        let mut sequences = Scripted {
            vocab_size: model.config().vocab_size,
            rows: case.prompts.clone(),
            logits_after: |ids: &[u32]| logits_after(model, ids),
        };
        let chain = Chain::new(&config, None);
        let results = found(&mut sequences, &request(&config, &chain));
        assert_eq!(results.len(), case.expected.len());
        for (completions, expected) in results.iter().zip(&case.expected) {
            if let Some(difference) = difference(completions, expected, &config) {
                differences.push(format!("case {number}, {config:?}:{difference}"));
            }
        }
    }
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), differences.join("\n"));
    fixture.cases.len()
}

#[test]
fn beams_find_what_transformers_finds() {
    assert_eq!(compare("beams.json"), 120);
}

#[test]
fn diverse_beams_find_what_transformers_found() {
    assert_eq!(compare("beams-diverse.json"), 60);
}
