//! Inspects the model at a few steps: what each head attends to, and what each layer predicts.

use burn::tensor::Tensor;
use serde::Serialize;

use super::{Recorded, Subject};
use ember_decoding::logprobs::{rank, top_k};
use ember_decoding::tokens::{from_tensor, to_tensor};
use ember_decoding::{error::Result, softmax::softmax};

/// Maximum number of attention weights stored per step, so that a page stays small: a full context
/// of GPT-2's has 75 million.
const MAX_WEIGHTS: usize = 64_000;

/// Number of tokens listed for each layer's prediction.
const TOP: usize = 5;

/// Attention weights are stored as integers, in units of one thousandth.
const PER_UNIT: f32 = 1000.0;

/// What the heads attended to at one step.
#[derive(Debug, Serialize)]
pub(super) struct AttentionStep {
    step: usize,
    /// The window's ids.
    ids: Vec<u32>,
    /// The first position of the window whose attention is stored; 0 if all are.
    first_query: usize,
    /// In thousandths: by layer, head, attending position (from `first_query` on), attended
    /// position (up to itself).
    layers: Vec<Vec<Vec<Vec<u16>>>>,
}

/// What each layer would have predicted at one step.
#[derive(Debug, Serialize)]
pub(super) struct LensStep {
    step: usize,
    layers: Vec<LensLayer>,
}

#[derive(Debug, Serialize)]
struct LensLayer {
    name: String,
    /// The most probable tokens.
    top: Vec<Likely>,
    /// Where the chosen token ranks.
    chosen: Rank,
}

#[derive(Debug, Serialize)]
struct Likely {
    id: u32,
    probability: f32,
}

#[derive(Debug, Serialize)]
struct Rank {
    probability: f32,
    /// 1 is the most probable.
    rank: usize,
}

impl LensStep {
    /// All ids that occur.
    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.layers.iter().flat_map(|layer| layer.top.iter().map(|likely| likely.id))
    }
}

/// Runs the windows of the chosen steps through the model once more and keeps its intermediate
/// results. Steps beyond the text are left out.
pub(super) fn inspect(subject: &Subject, recorded: &Recorded) -> Result<(Vec<AttentionStep>, Vec<LensStep>)> {
    let last = recorded.steps.len().saturating_sub(1);
    let default = [0, last];
    let mut steps = subject.steps.unwrap_or(&default).to_vec();
    steps.sort_unstable();
    steps.dedup();
    steps.retain(|&step| step < recorded.steps.len());
    steps.into_iter().map(|step| inspect_step(subject, recorded, step)).collect()
}

fn inspect_step(subject: &Subject, recorded: &Recorded, step: usize) -> Result<(AttentionStep, LensStep)> {
    let model = subject.model;
    let before = recorded.before(subject.prompt, step);
    let window = &before[before.len().saturating_sub(model.config().context_length)..];
    let time = window.len();
    let inspection = model.inspect(to_tensor(&[window], &model.device()));

    let shape = model.config();
    let first_query = first_query(time, shape.n_layer * shape.n_head);
    let heads = |weights: Tensor<4>| -> Result<Vec<Vec<Vec<u16>>>> {
        let weights = from_tensor(weights.narrow(2, first_query, time - first_query))?;
        let head =
            |rows: &[f32]| rows.chunks(time).zip(first_query..).map(|(row, query)| scaled(&row[..=query])).collect();
        Ok(weights.chunks((time - first_query) * time).map(head).collect())
    };
    let layers = inspection.attention.into_iter().map(heads).collect::<Result<_>>()?;
    let attention = AttentionStep { step, ids: window.to_vec(), first_query, layers };

    let chosen = recorded.steps[step].choice.id;
    let layer = |(number, residual): (usize, Tensor<3>)| -> Result<LensLayer> {
        let logits = from_tensor(model.lens(residual.narrow(1, time - 1, 1)))?; // [1, 1, vocab]
        let name = if number == 0 { "embedding".to_owned() } else { format!("block {number}") };
        Ok(LensLayer::of(name, &logits, chosen))
    };
    let layers = inspection.residuals.into_iter().enumerate().map(layer).collect::<Result<_>>()?;
    Ok((attention, LensStep { step, layers }))
}

/// The first position whose attention is stored, if `heads` heads of all layers attend over `time`
/// positions: as early as the limit allows, at the latest the last.
fn first_query(time: usize, heads: usize) -> usize {
    let weights_from = |first: usize| heads * (first + 1..=time).sum::<usize>();
    (0..time).find(|&first| weights_from(first) <= MAX_WEIGHTS).unwrap_or(time.saturating_sub(1))
}

fn scaled(weights: &[f32]) -> Vec<u16> {
    weights.iter().map(|weight| (weight * PER_UNIT).round() as u16).collect()
}

impl LensLayer {
    fn of(name: String, logits: &[f32], chosen: u32) -> Self {
        let probabilities = softmax(logits);
        let probability = |id: u32| probabilities[id as usize];
        let top = top_k(TOP, logits).into_iter().map(|id| Likely { id, probability: probability(id) }).collect();
        Self { name, top, chosen: Rank { probability: probability(chosen), rank: rank(chosen, logits) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attention_is_stored_from_as_early_as_there_is_room() {
        assert_eq!(first_query(20, 8), 0);
        // 144 heads over 1024 positions: the last position alone has 147,456 weights, too many, but
        // it is always stored.
        assert_eq!(first_query(1024, 144), 1023);
        // 144 heads over 100: four rows of 100, 99, 98 and 97 weights make 56,736; a fifth would
        // make 70,560.
        assert_eq!(first_query(100, 144), 96);
    }

    #[test]
    fn a_layer_ranks_the_chosen_token() {
        let layer = LensLayer::of("block 1".into(), &[0.1_f32, 0.2, 0.3, 0.4].map(f32::ln), 1);
        assert_eq!(layer.top.iter().map(|likely| likely.id).collect::<Vec<_>>(), [3, 2, 1, 0]);
        assert!((layer.top[0].probability - 0.4).abs() < 1e-6);
        assert!(layer.chosen.rank == 3 && (layer.chosen.probability - 0.2).abs() < 1e-6);
    }
}
