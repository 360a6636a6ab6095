//! What happened at a step of decoding, in numbers: which tokens were in the running, what each
//! processor did to them, and how one of them was chosen.

use serde::{Deserialize, Serialize};

use crate::logprobs::{rank, top_k};
use crate::{completion::FinishReason, sampler::Drawn, softmax::softmax};

/// Where a token stands among all at some point of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// Its logit.
    pub logit: f32,
    /// Its share of the softmax.
    pub probability: f32,
    /// 1 for the best; of equal ones the lower id is better.
    pub rank: u32,
}

/// What one processor made of a token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The processor's name.
    pub by: String,
    /// Where the token stands after it; none once it is removed.
    pub after: Option<Standing>,
}

/// A token that was in the running.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its id.
    pub id: u32,
    /// Its text, where there is a tokenizer; filled in by whoever has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Where the model put it.
    pub before: Standing,
    /// The processors that moved it, in order: its logit, its probability or its rank.
    pub changes: Vec<Change>,
    /// The processor that removed it.
    pub removed_by: Option<String>,
}

impl Candidate {
    /// Its probability after all processors; none where one of them removed it.
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
    /// The tokens that mattered: the best before the processors, the best after them, and the
    /// chosen one; best first by the model's own word.
    pub candidates: Vec<Candidate>,
    /// The random number in [0, 1), where one was drawn.
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
    /// The account.
    pub choice: ChoiceTrace,
    /// The model's logits, `[vocab]`.
    pub unmodified: Vec<f32>,
    /// What the processors made of them, `[vocab]`; minus infinity where a token was removed.
    pub processed: Vec<f32>,
}

/// Takes down the logits after each processor that changes them.
pub struct Recorder {
    /// The logits `[vocab]` at first, and after each processor that changed any, with its name.
    stages: Vec<(&'static str, Vec<f32>)>,
}

impl Recorder {
    /// Begins with a row of logits `[vocab]`.
    pub fn new(logits: &[f32]) -> Self {
        Self { stages: vec![("", logits.to_vec())] }
    }

    /// Takes down what the processor of this name made of them.
    pub fn after(&mut self, name: &'static str, logits: &[f32]) {
        if self.stages.last().is_none_or(|(_, before)| before != logits) {
            self.stages.push((name, logits.to_vec()));
        }
    }

    /// The account of a choice among the `count` best before and after.
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

    /// What became of the `count` best before and after, and of `others`; best first by the model's
    /// own word.
    pub fn candidates(&self, count: usize, others: &[u32]) -> Vec<Candidate> {
        // There is always the stage that `new` puts in.
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

/// Where each of `ids` stands among `logits` `[vocab]`; none for those removed.
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
    /// It ended for a reason, with a final score that is normalised by length; `kept` where the
    /// pool of finished texts took it, being among the best of those that have ended.
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
        // Squared by the temperature: 0.16, 0.09, 0.04, 0.01 of 0.30; then 0.16 and 0.09 of 0.25. A
        // top-k that keeps all is no change.
        let told: Vec<(&str, f32)> =
            second.changes.iter().map(|c| (c.by.as_str(), c.after.unwrap().probability)).collect();
        assert_eq!(told.iter().map(|t| t.0).collect::<Vec<_>>(), ["temperature", "top-k"]);
        assert!((told[0].1 - 0.30).abs() < 1e-6 && (told[1].1 - 0.36).abs() < 1e-6, "{told:?}");
        let third = &trace.candidates[2];
        assert_eq!(third.removed_by.as_deref(), Some("top-k"));
        assert_eq!(third.changes.last().unwrap().after, None);
        let json = serde_json::to_string(&trace).unwrap();
        assert_eq!(serde_json::from_str::<ChoiceTrace>(&json).unwrap(), trace);
    }
}
