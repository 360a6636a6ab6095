//! The same prompt, continued in several ways.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::beams::{self, Beams, Scored};
use super::flags::flags;
use super::{Request, repetition::Repetition};
use ember_decoding::config::{GenerationConfig, Strategy};
use ember_decoding::error::{Error, Result};

/// The knobs that a page can turn.
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

/// The prompt, continued in one way.
#[derive(Debug, Serialize)]
pub(super) struct Way {
    name: String,
    /// What makes it differ from sampling by the model's own distribution.
    config: BTreeMap<&'static str, Value>,
    /// What makes `ember-generate text` write it.
    flags: Vec<String>,
    pub(super) ids: Vec<u32>,
    text: Option<String>,
    /// In nats, under the unmodified model.
    logprob_sum: f64,
    tokens: usize,
    repetition: Repetition,
}

impl Way {
    /// `knobs` make it what it is, `config` is all that it was written by.
    fn new(
        request: &Request,
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
            flags: flags(config, request.folder, &named),
            text: request.text(&ids),
            logprob_sum,
            tokens: ids.len(),
            repetition: Repetition::of(&ids),
            ids,
        }
    }
}

/// Greedy, three temperatures, top-k, top-p and the best of the beams: all with the run's seed,
/// length and repetition penalty, and no other knob.
pub(super) fn all(request: &Request, beams: &Beams) -> Result<Vec<Way>> {
    // Sampling from the model's own distribution.
    let (strategy, config) = (Strategy::Sample, request.config.clone());
    let plain = GenerationConfig { strategy, temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..config };
    let greedy = GenerationConfig { strategy: Strategy::Greedy, ..request.config.clone() };
    let knobs = [("strategy", json!("greedy"))];
    let mut ways = vec![Way::new(request, "greedy".into(), &knobs, &greedy, beams.greedy.clone())];
    let sampled = |knob: &'static str, value: Value, config: GenerationConfig| {
        let name = format!("{} {value}", knob.replace('_', "-"));
        let knobs = [("strategy", json!("sample")), (knob, value)];
        let found = Scored::of(request.write(&config)?);
        Ok::<_, Error>(Way::new(request, name, &knobs, &config, found))
    };
    for temperature in [0.5_f32, 1.0, 1.5] {
        ways.push(sampled("temperature", json!(temperature), GenerationConfig { temperature, ..plain.clone() })?);
    }
    ways.push(sampled("top_k", json!(40), GenerationConfig { top_k: 40, ..plain.clone() })?);
    ways.push(sampled("top_p", json!(0.9), GenerationConfig { top_p: 0.9, ..plain.clone() })?);
    if let Some(best) = beams.best() {
        let knobs = [("strategy", json!("beam")), ("num_beams", json!(request.num_beams))];
        // Of several texts the best is told.
        let config = GenerationConfig { num_return_sequences: 1, ..beams::knobs(request) };
        ways.push(Way::new(request, format!("{} beams", request.num_beams), &knobs, &config, best.clone()));
    }
    Ok(ways)
}
