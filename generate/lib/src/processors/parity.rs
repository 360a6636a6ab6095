//! transformers' processors against ours, on `tests/fixtures/processors.json` (made by
//! `tools/make_processor_fixtures.py`).

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use itertools::Itertools;
use serde::Deserialize;

use super::{Chain, Step};
use crate::config::{GenerationConfig, Strategy};

#[derive(Deserialize)]
struct Case {
    name: String,
    knobs: Knobs,
    prompt: Vec<u32>,
    generated: Vec<u32>,
    /// Null is minus infinity.
    logits: Option<Vec<Option<f32>>>,
    seed: Option<u64>,
    ids: Vec<usize>,
    scores: Vec<f32>,
}

/// The knobs of a case; named as in [`GenerationConfig`], off where they are left out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Knobs {
    strategy: String,
    end_tokens: Option<Vec<u32>>,
    logit_bias: Option<Vec<(Vec<u32>, f32)>>,
    repetition_penalty: Option<f32>,
    no_repeat_ngram_size: Option<usize>,
    bad_words: Option<Vec<Vec<u32>>>,
    min_new_tokens: Option<usize>,
    suppress_tokens: Option<Vec<u32>>,
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f64>,
    min_p: Option<f64>,
    typical_p: Option<f64>,
    epsilon_cutoff: Option<f64>,
    eta_cutoff: Option<f64>,
}

impl Knobs {
    fn config(&self) -> GenerationConfig {
        let off = GenerationConfig::default();
        GenerationConfig {
            strategy: match self.strategy.as_str() {
                "greedy" => Strategy::Greedy,
                "sample" => Strategy::Sample,
                "beam" => Strategy::Beam,
                "beam-sample" => Strategy::BeamSample,
                other => panic!("no strategy is called {other}"),
            },
            end_tokens: self.end_tokens.clone().unwrap_or_default(),
            logit_bias: self.logit_bias.clone().unwrap_or_default(),
            repetition_penalty: self.repetition_penalty.unwrap_or(off.repetition_penalty),
            no_repeat_ngram_size: self.no_repeat_ngram_size.unwrap_or(off.no_repeat_ngram_size),
            bad_words: self.bad_words.clone().unwrap_or_default(),
            min_new_tokens: self.min_new_tokens.unwrap_or(off.min_new_tokens),
            suppress_tokens: self.suppress_tokens.clone().unwrap_or_default(),
            temperature: self.temperature.unwrap_or(off.temperature),
            top_k: self.top_k.unwrap_or(off.top_k),
            top_p: self.top_p.unwrap_or(off.top_p),
            min_p: self.min_p.unwrap_or(off.min_p),
            typical_p: self.typical_p.unwrap_or(off.typical_p),
            epsilon_cutoff: self.epsilon_cutoff.unwrap_or(off.epsilon_cutoff),
            eta_cutoff: self.eta_cutoff.unwrap_or(off.eta_cutoff),
            ..off
        }
    }
}

/// The script's function of this name: GPT-2's vocabulary of exact, sharp scores.
fn hashed(seed: u64) -> Vec<f32> {
    const VOCAB: u64 = 50_257;
    let score = |id: u64| {
        let spread = (((id + seed * VOCAB).wrapping_mul(2_654_435_761) & 0xffff_ffff) >> 8) as f32;
        let x = (spread - 8_388_608.0) / 1_048_576.0;
        x * x * x / 16.0
    };
    (0..VOCAB).map(score).collect()
}

fn cases() -> Vec<Case> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/processors.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// What differs between a case and what `config` makes of it.
fn difference(case: &Case, config: &GenerationConfig) -> Option<String> {
    let mut logits: Vec<f32> = match (&case.logits, case.seed) {
        (Some(logits), _) => logits.iter().map(|logit| logit.unwrap_or(f32::NEG_INFINITY)).collect(),
        (None, seed) => hashed(seed.unwrap()),
    };
    let step = Step { prompt: &case.prompt, generated: &case.generated };
    Chain::new(config, None).process(&step, &mut logits);
    let ids: Vec<usize> = (0..logits.len()).filter(|&id| logits[id] > f32::NEG_INFINITY).collect();
    if ids != case.ids {
        return Some(format!("{} leaves {ids:?}, transformers {:?}", case.name, case.ids));
    }
    let widest = ids.iter().zip_eq(&case.scores).map(|(&id, score)| (logits[id] - score).abs()).fold(0.0, f32::max);
    (widest > 1e-5).then(|| format!("{}: a score is off by {widest}", case.name))
}

#[test]
fn processed_scores_are_those_of_transformers() {
    let cases = cases();
    let differences: Vec<String> = cases.iter().filter_map(|case| difference(case, &case.knobs.config())).collect();
    assert!(differences.is_empty(), "{} of {}:\n{}", differences.len(), cases.len(), differences.join("\n"));
}

#[test]
fn the_cases_cover_what_they_should() {
    let cases = cases();
    let combinations: BTreeSet<Vec<&str>> = cases
        .iter()
        .filter(|case| case.name.contains("together"))
        .map(|case| Chain::new(&case.knobs.config(), None).names())
        .collect();
    assert!(combinations.len() >= 30, "{} different combinations", combinations.len());
    for name in combinations.iter().max_by_key(|names| names.len()).unwrap() {
        let alone =
            |case: &&Case| case.name.contains("alone") && Chain::new(&case.knobs.config(), None).names() == [*name];
        assert!(cases.iter().filter(alone).count() >= 8, "{name} alone");
    }
}

/// The comparison must be able to fail: each knob, moved a little, is noticed.
#[test]
fn a_slightly_different_knob_is_noticed() {
    let cases = cases();
    let notices = |change: fn(&mut GenerationConfig)| {
        cases.iter().any(|case| {
            let mut config = case.knobs.config();
            let before = config.clone();
            change(&mut config);
            config != before && difference(case, &config).is_some()
        })
    };
    assert!(notices(|config| config.temperature *= 1.00001));
    assert!(notices(|config| config.repetition_penalty *= 1.00001));
    assert!(notices(|config| config.top_k += usize::from(config.top_k > 0)));
    assert!(notices(|config| config.top_p *= 0.99));
    assert!(notices(|config| config.min_p *= 1.03));
    assert!(notices(|config| config.typical_p *= 0.98));
    assert!(notices(|config| config.epsilon_cutoff *= 1.03));
    assert!(notices(|config| config.eta_cutoff *= 1.05));
    assert!(notices(|config| config.no_repeat_ngram_size += usize::from(config.no_repeat_ngram_size > 0)));
    assert!(notices(|config| config.min_new_tokens = config.min_new_tokens.saturating_sub(3)));
    assert!(notices(|config| config.logit_bias.truncate(4)));
    assert!(notices(|config| config.bad_words.truncate(2)));
    assert!(notices(|config| config.suppress_tokens.truncate(2)));
    assert!(notices(|config| config.end_tokens.truncate(1)));
    assert!(notices(|config| config.semantics = crate::config::Semantics::Llamacpp));
}
