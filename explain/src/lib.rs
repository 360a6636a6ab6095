//! One generation explained: collects every number that decided it, for a page or a terminal.
//!
//! Nothing here decodes. [`ember_decoding::generate`](mod@ember_decoding::generate) generates the
//! text, its beams and its alternatives, [`ember_decoding::sampler`] draws and
//! [`ember_decoding::processors`] edits the logits; this module runs them with a trace and records
//! it. The result is one JSON object ([`Explanation`]) inside one HTML file ([`page`]).

mod beams;
mod flags;
mod insight;
mod noise;
pub mod page;
mod record;
mod repetition;
mod stored;
#[cfg(test)]
mod tests;
mod ways;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use beams::Beams;
pub use beams::beam_steps;
use insight::{AttentionStep, LensStep};
use noise::Noise;
use record::Piece;
pub use record::{Recorded, Subject, Words, record};
use stored::Step;
use ways::{Knobs, Way};

use ember_decoding::{FinishReason, error::Result, named::Named};

/// Number of best tokens of each step whose texts are included: those that a page can list, with
/// room for tokens that knobs lift.
const TEXTS_OF_EACH_STEP: usize = 128;

/// Everything that a page shows, as its JSON; docs/json.md names the keys.
#[derive(Debug, Serialize)]
pub struct Explanation {
    version: u32,
    program: String,
    model: Value,
    prompt: Prompt,
    /// The texts of all tokens that occur below.
    tokens: BTreeMap<u32, Piece>,
    end_tokens: Vec<u32>,
    run: Run,
    steps: Vec<Step>,
    ways: Vec<Way>,
    beams: Beams,
    attention: Vec<AttentionStep>,
    lens: Vec<LensStep>,
    noise: Noise,
}

#[derive(Debug, Serialize)]
struct Prompt {
    text: Option<String>,
    ids: Vec<u32>,
}

/// The generation that is explained step by step.
#[derive(Debug, Serialize)]
struct Run {
    strategy: String,
    seed: u64,
    /// The seed as digits, for readers whose numbers have 53 bits, such as JavaScript.
    seed_digits: String,
    knobs: Knobs,
    ids: Vec<u32>,
    finish_reason: FinishReason,
    /// In nats, under the unmodified model.
    logprob_sum: f64,
    text: Option<String>,
}

/// Runs everything that is shown and collects the results; `None` if the user asked to stop.
///
/// # Errors
/// As [`generate_batch`](ember_decoding::generate_batch).
pub fn explain(subject: &Subject) -> Result<Option<Explanation>> {
    let Subject { model, config, prompt, .. } = *subject;
    let recorded = record(subject)?;
    let beams = Beams::search(subject)?;
    let ways = ways::all(subject, &beams)?;
    let noise = noise::one_knob(subject, &recorded)?;
    if !(subject.go_on)() {
        return Ok(None);
    }
    let (attention, lens) = insight::inspect(subject, &recorded)?;

    let shape = model.config();
    let completion = &recorded.completion;
    let mut explanation = Explanation {
        version: 1,
        program: subject.program.to_owned(),
        model: json!({
            "checkpoint": subject.checkpoint,
            "parameters": shape.parameters(),
            "vocab_size": shape.vocab_size,
            "n_layer": shape.n_layer,
            "n_head": shape.n_head,
            "n_embd": shape.n_embd,
            "context_length": shape.context_length,
        }),
        prompt: Prompt { text: subject.prompt_text.map(str::to_owned), ids: prompt.to_vec() },
        tokens: BTreeMap::new(),
        end_tokens: config.end_tokens.clone(),
        run: Run {
            strategy: config.strategy.name().to_owned(),
            seed: config.seed,
            seed_digits: config.seed.to_string(),
            knobs: Knobs::of(config),
            ids: completion.ids.clone(),
            finish_reason: completion.finish_reason,
            logprob_sum: completion.score,
            text: subject.text(&completion.ids),
        },
        steps: recorded.steps(prompt, shape.context_length),
        ways,
        beams,
        attention,
        lens,
        noise,
    };
    explanation.name_tokens(&subject.words);
    Ok(Some(explanation))
}

impl Explanation {
    /// Fills in the tokens' texts.
    fn name_tokens(&mut self, words: &Words) {
        let mut ids = [self.prompt.ids.as_slice(), &self.end_tokens, &self.run.ids].concat();
        for step in &self.steps {
            ids.extend(step.logits.ids.iter().take(TEXTS_OF_EACH_STEP));
            ids.extend(&step.processed.ids);
        }
        ids.extend(self.ways.iter().flat_map(|way| &way.ids));
        ids.extend(self.beams.ids());
        ids.extend(self.lens.iter().flat_map(LensStep::ids));
        ids.extend(self.noise.ids());
        ids.sort_unstable();
        ids.dedup();
        self.tokens = ids.into_iter().filter_map(|id| Some((id, words.piece(id)?))).collect();
    }

    /// Number of tokens in the run.
    pub fn tokens_written(&self) -> usize {
        self.run.ids.len()
    }

    /// The JSON object on one line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers, texts and lists of them are JSON")
    }
}
