//! One knob changed with the noise held fixed: the same random numbers, so that what differs is the knob's doing alone.

use serde::Serialize;

use super::{Recorded, Request, record};
use ember_decoding::config::{GenerationConfig, Strategy};
use ember_decoding::error::Result;
use ember_decoding::logprobs::top_k;
use ember_decoding::sampler::shares;
use ember_decoding::softmax::softmax;

/// What the other text's temperature is above the first's.
const WARMER_BY: f32 = 0.3;

/// Tokens told of the step at which the texts part.
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
    /// The shares of the unit interval in which it fell.
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

/// One token's shares at the step at which the texts part; they lie in id order.
#[derive(Debug, Serialize)]
struct Candidate {
    id: u32,
    a_probability: f32,
    b_probability: f32,
    a_interval: (f64, f64),
    b_interval: (f64, f64),
}

impl Noise {
    /// The ids that are named.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.a.ids.iter().chain(&self.b.ids).copied().chain(self.candidates.iter().map(|candidate| candidate.id))
    }
}

/// Writes the run's text again, a little warmer; a greedy run has no noise, so there both texts are sampled.
pub(super) fn one_knob(request: &Request, run: &Recorded) -> Result<Noise> {
    let sampled = GenerationConfig { strategy: Strategy::Sample, ..request.config.clone() };
    let written;
    let a = if request.config.strategy == Strategy::Sample {
        run
    } else {
        written = record(&Request { config: &sampled, ..*request })?;
        &written
    };
    // Rounded, so that it is a number to type again.
    let temperature = ((sampled.temperature + WARMER_BY) * 1000.0).round() / 1000.0;
    let warmer = GenerationConfig { temperature, ..sampled.clone() };
    let b = record(&Request { config: &warmer, ..*request })?;

    let text = |recorded: &Recorded| Text {
        ids: recorded.completion.ids.clone(),
        text: request.text(&recorded.completion.ids),
    };
    let mut noise = Noise {
        knob: "temperature",
        from: sampled.temperature,
        to: warmer.temperature,
        seed: sampled.seed,
        a: text(a),
        b: text(&b),
        parts_at: None,
        draw: None,
        a_interval: None,
        b_interval: None,
        a_chosen: None,
        b_chosen: None,
        candidates: Vec::new(),
    };
    let parting = a.steps.iter().zip(&b.steps).position(|(a, b)| a.choice.id != b.choice.id);
    if let Some(step) = parting {
        let (a, b) = (&a.steps[step], &b.steps[step]);
        assert_eq!(a.choice.draw, b.choice.draw, "two runs of one seed drew different numbers");
        noise.parts_at = parting;
        noise.draw = a.choice.draw;
        (noise.a_interval, noise.b_interval) = (a.choice.interval, b.choice.interval);
        (noise.a_chosen, noise.b_chosen) = (Some(a.choice.id), Some(b.choice.id));
        noise.candidates = candidates(&a.processed, &b.processed, [a.choice.id, b.choice.id]);
    }
    Ok(noise)
}

/// The chosen two, and the most probable of both texts until there are enough; best of the first text first.
fn candidates(a: &[f32], b: &[f32], chosen: [u32; 2]) -> Vec<Candidate> {
    let [a_best, b_best] = [a, b].map(|logits| top_k(CANDIDATES, logits));
    let in_turn = a_best.into_iter().zip(b_best).flat_map(|(a, b)| [a, b]);
    let mut ids = chosen.to_vec();
    for id in in_turn {
        let possible = a[id as usize] > f32::NEG_INFINITY || b[id as usize] > f32::NEG_INFINITY;
        if ids.len() < CANDIDATES && possible && !ids.contains(&id) {
            ids.push(id);
        }
    }
    let [a_probabilities, b_probabilities] = [a, b].map(softmax);
    ids.sort_by(|&x, &y| {
        let [x, y] = [x, y].map(|id| (a_probabilities[id as usize], b_probabilities[id as usize]));
        y.0.total_cmp(&x.0).then(y.1.total_cmp(&x.1))
    });
    let [a_shares, b_shares] = [a, b].map(shares);
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
