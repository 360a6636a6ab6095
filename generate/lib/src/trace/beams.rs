//! What a beam search did at one step, for those who want to see it.

use serde::Serialize;

use super::Candidate;
use crate::completion::FinishReason;

/// One step of one prompt's beams, or of one group of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BeamStep {
    /// The prompt's place in the batch.
    pub prompt: usize,
    /// Tokens generated before this step.
    pub step: usize,
    /// The group of a diverse search, else 0.
    pub group: usize,
    /// For each beam before this step, what the processors did to the tokens that mattered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beams: Vec<Vec<Candidate>>,
    /// Every candidate that was considered, in the order of the ranking (of the draws, in beam
    /// sampling).
    pub candidates: Vec<BeamCandidate>,
    /// The finished texts after this step, best first.
    pub pool: Vec<PoolEntry>,
    /// Why the group stopped after this step, if it did.
    pub stopped: Option<Stopped>,
}

/// A beam and one more token.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BeamCandidate {
    /// The beam that it continues, by its number among the group's beams before this step.
    pub parent: usize,
    /// The token's id.
    pub token: u32,
    /// The token's log-probability after the processors.
    pub logprob: f32,
    /// The token's log-probability under the unmodified model.
    pub model_logprob: f32,
    /// The sum of the processed log-probabilities of all its tokens.
    pub score: f64,
    /// The score and its noise, by which beam sampling ranks; otherwise the score.
    pub rank_key: f64,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "fate")]
#[allow(missing_docs)] // a variant's sentence names its fields
pub enum Fate {
    /// It goes on as the beam with the number `beam` among the group's beams after this step.
    GoesOn { beam: usize },
    /// It ended for a reason, with a final score that is normalised by length; `kept` where the pool
    /// of finished texts took it, being among the best of those that have ended.
    Finished { final_score: f64, reason: FinishReason, kept: bool },
    /// It ended, but was not ranked among the first `num_beams` and does not count.
    Dropped,
    /// There were enough better ones.
    Pruned,
}

/// A finished text in the pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolEntry {
    /// Its token ids behind the prompt.
    pub ids: Vec<u32>,
    /// Its score, normalised by length.
    pub score: f64,
    /// Why it ended.
    pub reason: FinishReason,
}

/// Why a group's search stopped.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "why")]
#[allow(missing_docs)] // a variant's sentence names its fields
pub enum Stopped {
    /// The pool is full, which is enough when `early_stopping` is `true`.
    PoolFull,
    /// The pool is full, and what runs is not expected to better the worst of it: the best score
    /// that a running text was credited with is `attainable`, the worst in the pool `worst`.
    NoImprovement { attainable: f64, worst: f64 },
    /// No candidate is left that could go on.
    NothingRuns,
    /// What ran was ended, `reason` says by which: its length, the time limit or the caller.
    Cut { reason: FinishReason },
}
