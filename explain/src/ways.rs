//! The same prompt, continued with several settings.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::beams::{self, Beams, Scored};
use super::flags::flags;
use super::{Subject, repetition::Repetition};
use ember_decoding::config::{GenerationConfig, Strategy};
use ember_decoding::error::{Error, Result};

/// The knobs that the page can change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Knobs {
    temperature: f32,
    top_k: usize,
    top_p: f64,
    min_p: f64,
    repetition_penalty: f32,
}

impl Knobs {
    pub(super) fn of(config: &GenerationConfig) -> Self {
        let GenerationConfig { temperature, top_k, top_p, min_p, repetition_penalty, .. } = *config;
        Self { temperature, top_k, top_p, min_p, repetition_penalty }
    }
}

/// One continuation of the prompt.
#[derive(Debug, Serialize)]
pub(super) struct Way {
    name: String,
    /// The knobs that differ from sampling the model's own distribution.
    config: BTreeMap<&'static str, Value>,
    /// The flags with which `ember-generate text` reproduces it.
    flags: Vec<String>,
    pub(super) ids: Vec<u32>,
    text: Option<String>,
    /// In nats, under the unmodified model.
    logprob_sum: f64,
    tokens: usize,
    repetition: Repetition,
}

impl Way {
    /// `knobs` are those that define it, `config` has all that it was generated with.
    fn new(
        subject: &Subject,
        name: String,
        knobs: &[(&'static str, Value)],
        config: &GenerationConfig,
        found: Scored,
    ) -> Self {
        let Scored { ids, logprob_sum } = found;
        let named: Vec<&str> = knobs.iter().map(|&(knob, _)| knob).collect();
        Self {
            name,
            config: knobs.iter().cloned().collect(),
            flags: flags(config, subject.folder, &named),
            text: subject.text(&ids),
            logprob_sum,
            tokens: ids.len(),
            repetition: Repetition::of(&ids),
            ids,
        }
    }
}

/// Greedy, three temperatures, top-k, top-p and the best of the beams: all with the run's seed,
/// length and repetition penalty, and no other knobs.
pub(super) fn all(subject: &Subject, beams: &Beams) -> Result<Vec<Way>> {
    // Sampling from the model's own distribution.
    let (strategy, config) = (Strategy::Sample, subject.config.clone());
    let plain = GenerationConfig { strategy, temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..config };
    let greedy = GenerationConfig { strategy: Strategy::Greedy, ..subject.config.clone() };
    let knobs = [("strategy", json!("greedy"))];
    let mut ways = vec![Way::new(subject, "greedy".into(), &knobs, &greedy, beams.greedy.clone())];
    let sampled = |knob: &'static str, value: Value, config: GenerationConfig| {
        let name = format!("{} {value}", knob.replace('_', "-"));
        let knobs = [("strategy", json!("sample")), (knob, value)];
        let found = Scored::of(subject.write(&config)?);
        Ok::<_, Error>(Way::new(subject, name, &knobs, &config, found))
    };
    for temperature in [0.5_f32, 1.0, 1.5] {
        ways.push(sampled("temperature", json!(temperature), GenerationConfig { temperature, ..plain.clone() })?);
    }
    ways.push(sampled("top_k", json!(40), GenerationConfig { top_k: 40, ..plain.clone() })?);
    ways.push(sampled("top_p", json!(0.9), GenerationConfig { top_p: 0.9, ..plain.clone() })?);
    if let Some(best) = beams.best() {
        let knobs = [("strategy", json!("beam")), ("num_beams", json!(subject.num_beams))];
        // Only the best of the beams is shown.
        let config = GenerationConfig { num_return_sequences: 1, ..beams::knobs(subject) };
        ways.push(Way::new(subject, format!("{} beams", subject.num_beams), &knobs, &config, best.clone()));
    }
    Ok(ways)
}
