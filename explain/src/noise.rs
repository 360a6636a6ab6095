//! One knob changed with the noise held fixed: the same random numbers, so that only the knob
//! causes a difference.

use serde::Serialize;

use super::{Recorded, Subject, record};
use ember_decoding::config::{GenerationConfig, Strategy};
use ember_decoding::{error::Result, logprobs::top_k, sampler::shares, softmax::softmax, trace::TracedStep};

/// How much higher the second text's temperature is.
const WARMER_BY: f32 = 0.3;

/// Number of tokens listed for the step at which the texts diverge.
const CANDIDATES: usize = 10;

/// Two texts from the same random numbers.
#[derive(Debug, Serialize)]
pub(super) struct Noise {
    knob: &'static str,
    from: f32,
    to: f32,
    seed: u64,
    a: Text,
    b: Text,
    /// The first step at which they differ.
    parts_at: Option<usize>,
    /// The random number of that step, the same in both.
    draw: Option<f64>,
    /// The intervals of the unit interval in which it fell.
    a_interval: Option<(f64, f64)>,
    b_interval: Option<(f64, f64)>,
    a_chosen: Option<u32>,
    b_chosen: Option<u32>,
    candidates: Vec<Candidate>,
}

#[derive(Debug, Serialize)]
struct Text {
    ids: Vec<u32>,
    text: Option<String>,
}

/// One token's probabilities and intervals at the step at which the texts diverge; intervals lie in
/// id order.
#[derive(Debug, Serialize)]
struct Candidate {
    id: u32,
    a_probability: f32,
    b_probability: f32,
    a_interval: (f64, f64),
    b_interval: (f64, f64),
}

impl Noise {
    /// All ids that occur.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.a.ids.iter().chain(&self.b.ids).copied().chain(self.candidates.iter().map(|candidate| candidate.id))
    }
}

/// Generates the run's text again at a slightly higher temperature. A greedy run has no noise, so
/// then both texts are sampled.
pub(super) fn one_knob(subject: &Subject, run: &Recorded) -> Result<Noise> {
    let sampled = GenerationConfig { strategy: Strategy::Sample, ..subject.config.clone() };
    let written;
    let a = if subject.config.strategy == Strategy::Sample {
        run
    } else {
        written = record(&Subject { config: &sampled, ..*subject })?;
        &written
    };
    // Rounded, so that people can type it, and finite as a temperature must be.
    let temperature = (((sampled.temperature + WARMER_BY) * 1000.0).round() / 1000.0).min(f32::MAX);
    let warmer = GenerationConfig { temperature, ..sampled.clone() };
    let b = record(&Subject { config: &warmer, ..*subject })?;

    let text = |recorded: &Recorded| Text {
        ids: recorded.completion.ids.clone(),
        text: subject.text(&recorded.completion.ids),
    };
    let parts_at = a.steps.iter().zip(&b.steps).position(|(a, b)| a.choice.id != b.choice.id);
    let [at_a, at_b] = [a, &b].map(|recorded| parts_at.map(|step| &recorded.steps[step]));
    let draw = |step: Option<&TracedStep>| step.and_then(|step| step.choice.draw);
    let interval = |step: Option<&TracedStep>| step.and_then(|step| step.choice.interval);
    assert_eq!(draw(at_a), draw(at_b), "two runs of one seed drew different numbers");
    Ok(Noise {
        knob: "temperature",
        from: sampled.temperature,
        to: warmer.temperature,
        seed: sampled.seed,
        a: text(a),
        b: text(&b),
        parts_at,
        draw: draw(at_a),
        a_interval: interval(at_a),
        b_interval: interval(at_b),
        a_chosen: at_a.map(|step| step.choice.id),
        b_chosen: at_b.map(|step| step.choice.id),
        candidates: at_a.zip(at_b).map_or_else(Vec::new, |(a, b)| candidates(a, b)),
    })
}

/// The two chosen tokens, then the most probable ones of both texts until there are enough; sorted
/// by probability in the first text.
fn candidates(a: &TracedStep, b: &TracedStep) -> Vec<Candidate> {
    let mut ids = vec![a.choice.id, b.choice.id];
    let (a, b) = (&a.processed, &b.processed);
    let [a_best, b_best] = [a, b].map(|logits| top_k(CANDIDATES, logits));
    let in_turn = a_best.into_iter().zip(b_best).flat_map(|(a, b)| [a, b]);
    for id in in_turn {
        let possible = a[id as usize] > f32::NEG_INFINITY || b[id as usize] > f32::NEG_INFINITY;
        if ids.len() < CANDIDATES && possible && !ids.contains(&id) {
            ids.push(id);
        }
    }
    let [a_probabilities, b_probabilities] = [a, b].map(|logits| softmax(logits));
    ids.sort_by(|&x, &y| {
        let [x, y] = [x, y].map(|id| (a_probabilities[id as usize], b_probabilities[id as usize]));
        y.0.total_cmp(&x.0).then(y.1.total_cmp(&x.1))
    });
    let [a_shares, b_shares] = [a, b].map(|logits| shares(logits));
    let candidate = |id: u32| {
        let place = id as usize;
        Candidate {
            id,
            a_probability: a_probabilities[place],
            b_probability: b_probabilities[place],
            a_interval: a_shares[place],
            b_interval: b_shares[place],
        }
    };
    ids.into_iter().map(candidate).collect()
}
