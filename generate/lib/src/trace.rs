//! Traces of decoding steps: the candidate tokens, what each processor did to them, and how one of
//! them was chosen.

use serde::{Deserialize, Serialize};

use crate::logprobs::{rank, top_k};
use crate::{completion::FinishReason, sampler::Drawn, softmax::softmax};

/// A token's logit, probability and rank at one point of the processor chain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// Its logit.
    pub logit: f32,
    /// Its softmax probability.
    pub probability: f32,
    /// 1 for the best; ties go to the lower id.
    pub rank: u32,
}

/// What one processor did to a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The processor's name.
    pub by: String,
    /// The token's standing after it; none if it was removed.
    pub after: Option<Standing>,
}

/// A candidate token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its id.
    pub id: u32,
    /// Its text; filled in by callers that have a tokenizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Its standing in the model's own logits.
    pub before: Standing,
    /// The processors that changed its logit, probability or rank, in order.
    pub changes: Vec<Change>,
    /// The processor that removed it.
    pub removed_by: Option<String>,
}

impl Candidate {
    /// Its probability after all processors; none if one of them removed it.
    pub fn final_probability(&self) -> Option<f32> {
        let standing = self.changes.last().map_or(Some(self.before), |change| change.after);
        standing.map(|standing| standing.probability)
    }
}

/// How one token was chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChoiceTrace {
    /// Tokens generated before it.
    pub step: usize,
    /// The traced tokens: the best before the processors, the best after them, and the chosen one;
    /// best first by the model's own logits.
    pub candidates: Vec<Candidate>,
    /// The random number in [0, 1), if one was drawn.
    pub draw: Option<f64>,
    /// The chosen token's share of the unit interval, in which the number lies.
    pub interval: Option<(f64, f64)>,
    /// The chosen token's id.
    pub id: u32,
    /// Its natural log-probability under the unmodified model.
    pub logprob: f32,
}

/// How one token was chosen, with all logits of its step.
#[derive(Clone, Debug)]
pub struct TracedStep {
    /// The trace of the choice.
    pub choice: ChoiceTrace,
    /// The model's logits, `[vocab]`.
    pub unmodified: Vec<f32>,
    /// The processed logits, `[vocab]`; minus infinity for removed tokens.
    pub processed: Vec<f32>,
}

/// Records the logits after each processor that changes them.
pub struct Recorder {
    /// The initial logits `[vocab]`, then those after each processor that changed any, with its
    /// name.
    stages: Vec<(&'static str, Vec<f32>)>,
}

impl Recorder {
    /// Starts from a row of logits `[vocab]`.
    pub fn new(logits: &[f32]) -> Self {
        Self { stages: vec![("", logits.to_vec())] }
    }

    /// Records the logits after the processor with this name.
    pub fn after(&mut self, name: &'static str, logits: &[f32]) {
        if self.stages.last().is_none_or(|(_, before)| before != logits) {
            self.stages.push((name, logits.to_vec()));
        }
    }

    /// The trace of a choice, with the `count` best tokens before and after the processors.
    pub fn finish(self, step: usize, id: u32, logprob: f32, drawn: Option<Drawn>, count: usize) -> ChoiceTrace {
        ChoiceTrace {
            step,
            candidates: self.candidates(count, &[id]),
            draw: drawn.map(|drawn| drawn.uniform),
            interval: drawn.map(|drawn| drawn.interval),
            id,
            logprob,
        }
    }

    /// Traces the `count` best tokens before and after the processors, and `others`; best first by
    /// the model's own logits.
    pub fn candidates(&self, count: usize, others: &[u32]) -> Vec<Candidate> {
        // `new` always adds the first stage.
        let (first, last) = (&self.stages[0].1, &self.stages[self.stages.len() - 1].1);
        let mut ids = top_k(count, first);
        ids.extend(top_k(count, last).into_iter().filter(|&id| last[id as usize] > f32::NEG_INFINITY));
        ids.extend(others);
        ids.sort_unstable();
        ids.dedup();
        ids.sort_by(|&a, &b| first[b as usize].total_cmp(&first[a as usize]).then(a.cmp(&b)));

        let standings: Vec<Vec<Option<Standing>>> =
            self.stages.iter().map(|(_, logits)| standings(&ids, logits)).collect();
        let candidate = |(place, &id): (usize, &u32)| {
            let steps = standings.windows(2).map(|pair| (pair[0][place], pair[1][place]));
            let changed = self.stages[1..].iter().zip(steps).filter(|(_, (before, after))| before != after);
            let changes: Vec<Change> =
                changed.map(|((name, _), (_, after))| Change { by: (*name).to_owned(), after }).collect();
            let removed_by = changes.iter().rfind(|change| change.after.is_none()).map(|change| change.by.clone());
            let before = standings[0][place].unwrap_or(Standing { logit: f32::MIN, probability: 0.0, rank: u32::MAX });
            Candidate { id, token: None, before, changes, removed_by }
        };
        ids.iter().enumerate().map(candidate).collect()
    }
}

/// The standing of each of `ids` in `logits` `[vocab]`; none for removed tokens.
fn standings(ids: &[u32], logits: &[f32]) -> Vec<Option<Standing>> {
    let probabilities = softmax(logits);
    let stand = |&id: &u32| {
        let logit = logits[id as usize];
        (logit > f32::NEG_INFINITY).then(|| Standing {
            logit,
            probability: probabilities[id as usize],
            rank: rank(id, logits) as u32,
        })
    };
    ids.iter().map(stand).collect()
}

/// One step of one prompt's beams, or of one group of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BeamStep {
    /// The prompt's index in the batch.
    pub prompt: usize,
    /// Tokens generated before this step.
    pub step: usize,
    /// The group of a diverse search, else 0.
    pub group: usize,
    /// For each beam before this step, what the processors did to the traced tokens.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beams: Vec<Vec<Candidate>>,
    /// Every candidate considered, by rank (in beam sampling, in the order of the draws).
    pub candidates: Vec<BeamCandidate>,
    /// The finished texts after this step, best first.
    pub pool: Vec<PoolEntry>,
    /// Why the group stopped after this step, if it did.
    pub stopped: Option<Stopped>,
}

/// A candidate: a beam plus one token.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BeamCandidate {
    /// Index of its parent among the group's beams before this step.
    pub parent: usize,
    /// The token's id.
    pub token: u32,
    /// The token's log-probability after the processors.
    pub logprob: f32,
    /// The token's log-probability under the unmodified model.
    pub model_logprob: f32,
    /// The sum of the processed log-probabilities of all its tokens.
    pub score: f64,
    /// What candidates are ranked by: the score, in beam sampling plus noise.
    pub rank_key: f64,
    /// What happened to it.
    pub fate: Fate,
}

/// What happened to a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "fate")]
#[allow(missing_docs)] // a variant's sentence names its fields
pub enum Fate {
    /// It became the beam with index `beam` among the group's beams after this step.
    GoesOn { beam: usize },
    /// It ended for `reason`, with the length-normalised `final_score`; `kept` if it was good
    /// enough for the pool of finished texts.
    Finished { final_score: f64, reason: FinishReason, kept: bool },
    /// It ended, but was not ranked among the first `num_beams` and does not count.
    Dropped,
    /// There were enough better candidates.
    Pruned,
}

/// A finished text in the pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PoolEntry {
    /// Its token ids after the prompt.
    pub ids: Vec<u32>,
    /// Its length-normalised score.
    pub score: f64,
    /// Why it ended.
    pub reason: FinishReason,
}

/// Why a group's search stopped.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "why")]
#[allow(missing_docs)] // a variant's sentence names its fields
pub enum Stopped {
    /// The pool is full, which is enough if `early_stopping` is `true`.
    PoolFull,
    /// The pool is full, and the best score estimated for a running text, `attainable`, does not
    /// exceed the `worst` in the pool.
    NoImprovement { attainable: f64, worst: f64 },
    /// No candidate is left that could continue.
    NothingRuns,
    /// The running beams were ended by `reason`: the length, the time limit or the caller.
    Cut { reason: FinishReason },
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::processors::{Chain, Step, temperature, top_k};
    use std::sync::Arc;

    #[test]
    fn each_change_is_told_and_who_removed_what() {
        let mut logits = [0.4_f32, 0.3, 0.2, 0.1].map(f32::ln);
        let mut recorder = Recorder::new(&logits);
        let chain = Chain::of(vec![Arc::new(temperature(0.5)), Arc::new(top_k(9)), Arc::new(top_k(2))]);
        let step = Step { prompt: &[], generated: &[] };
        chain.process_observed(&step, &mut logits, &mut |name, logits| recorder.after(name, logits));
        let trace = recorder.finish(0, 1, -1.2, Some(Drawn { id: 1, uniform: 0.7, interval: (0.64, 1.0) }), 3);
        assert_eq!(trace.candidates.iter().map(|c| c.id).collect::<Vec<_>>(), [0, 1, 2]);
        let second = &trace.candidates[1];
        assert!((second.before.probability - 0.3).abs() < 1e-6 && second.before.rank == 2);
        // The temperature squares them: 0.16, 0.09, 0.04, 0.01 of 0.30; then 0.16 and 0.09 of 0.25.
        // A top-k that keeps all is not listed.
        let effects: Vec<(&str, f32)> =
            second.changes.iter().map(|c| (c.by.as_str(), c.after.unwrap().probability)).collect();
        assert_eq!(effects.iter().map(|t| t.0).collect::<Vec<_>>(), ["temperature", "top-k"]);
        assert!((effects[0].1 - 0.30).abs() < 1e-6 && (effects[1].1 - 0.36).abs() < 1e-6, "{effects:?}");
        let third = &trace.candidates[2];
        assert_eq!(third.removed_by.as_deref(), Some("top-k"));
        assert_eq!(third.changes.last().unwrap().after, None);
        let json = serde_json::to_string(&trace).unwrap();
        assert_eq!(serde_json::from_str::<ChoiceTrace>(&json).unwrap(), trace);
    }
}
