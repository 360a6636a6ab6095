//! One group of beams, and how it selects among a step's candidates. A plain search has one group,
//! a diverse search several.
//!
//! The selection follows transformers; see [`TransformersVersion`] for how 4 and 5 differ.

use super::candidates::NextTokens;
use super::tree::{NodeId, ROOT, Tree};
use crate::completion::{ChosenToken, FinishReason};
use crate::config::{EarlyStopping, GenerationConfig};
use crate::trace::{BeamCandidate, Fate, PoolEntry, Stopped};

/// The version whose rules apply at the length limit and to early stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransformersVersion {
    /// `_beam_search`. At the last token every candidate ends, and the first `size` of them count.
    /// Early stopping compares the pool with what the best running beam can attain.
    V5,
    /// `BeamSearchScorer`. At the last token the running beams are cut off and count, unless the
    /// group is done. Early stopping compares the pool with what the best candidate can attain, even
    /// if that candidate has just ended.
    V4,
}

/// A running hypothesis.
#[derive(Clone, Debug)]
pub(super) struct Beam {
    /// Its row among the sequences; its parent's row until the rows are reordered.
    pub(super) row: usize,
    pub(super) text: NodeId,
    /// The sum of its processed log-probabilities.
    pub(super) score: f64,
}

/// What is the same for all candidates of a step.
pub(super) struct StepInfo<'a> {
    pub(super) config: &'a GenerationConfig,
    pub(super) version: TransformersVersion,
    /// Length of a text after this step, in tokens.
    pub(super) len: usize,
    /// Most tokens of a text.
    pub(super) limit: usize,
    /// Why all beams must end with this step, if they must.
    pub(super) cut: Option<FinishReason>,
    /// Whether a row's text and one more token contain a stop string.
    pub(super) stops: &'a dyn Fn(usize, u32) -> bool,
    pub(super) seconds: f64,
}

/// Beams that compete with one another, and their finished texts.
pub(super) struct Group {
    pub(super) size: usize,
    /// The running beams, best first. Fewer than `size` at the start, where there is only the empty
    /// text, and where not so many different texts exist. (transformers fills up with beams that
    /// score -1e9.)
    pub(super) beams: Vec<Beam>,
    /// The pool: the best finished texts, at most `size`, best first; ties go to the one that
    /// finished first.
    pub(super) finished: Vec<Finished>,
    pub(super) stopped: Option<Stopped>,
}

impl Group {
    /// A group of up to `size` beams that starts from the empty text in `row`.
    pub(super) fn new(size: usize, row: usize) -> Self {
        let first = Beam { row, text: ROOT, score: 0.0 };
        Self { size, beams: vec![first], finished: Vec::new(), stopped: None }
    }

    /// One step: ranks the candidates, finishes those that end, makes the best others the new
    /// beams, and decides whether to stop. Returns every candidate with its fate.
    pub(super) fn advance(
        &mut self,
        next_tokens: &[NextTokens],
        tree: &mut Tree,
        info: &StepInfo,
    ) -> Vec<BeamCandidate> {
        let mut ranked = self.rank(next_tokens, info.config);
        let best_candidate = ranked.first().map_or(f64::NEG_INFINITY, |candidate| candidate.score);
        let others = self.finish_ended(&mut ranked, next_tokens, tree, info);
        self.select_beams(others, &mut ranked, next_tokens, tree);

        let best = match info.version {
            TransformersVersion::V5 => self.beams.first().map_or(f64::NEG_INFINITY, |beam| beam.score),
            TransformersVersion::V4 => best_candidate,
        };
        self.stopped = self.reason_to_stop(best, info);
        if let (None, Some(reason)) = (self.stopped, info.cut) {
            self.cut(reason, info);
        }
        ranked
    }

    /// Puts the candidates that end into the pool if they rank among the first `size`. Returns the
    /// ranks of those that do not end.
    fn finish_ended(
        &mut self,
        ranked: &mut [BeamCandidate],
        next_tokens: &[NextTokens],
        tree: &mut Tree,
        info: &StepInfo,
    ) -> Vec<usize> {
        let mut others = Vec::new();
        for (rank, candidate) in ranked.iter_mut().enumerate() {
            match self.ends(candidate, info) {
                None => others.push(rank),
                Some(_) if rank >= self.size => candidate.fate = Fate::Dropped,
                Some(reason) => {
                    let text = self.grow(candidate, next_tokens, tree);
                    let final_score = normalised(candidate.score, info.len, info.config.length_penalty);
                    let kept = self.finish(Finished { text, score: final_score, reason, seconds: info.seconds });
                    candidate.fate = Fate::Finished { final_score, reason, kept };
                }
            }
        }
        others
    }

    /// Makes the best `size` of these candidates the new beams.
    fn select_beams(
        &mut self,
        mut ranks: Vec<usize>,
        ranked: &mut [BeamCandidate],
        next_tokens: &[NextTokens],
        tree: &mut Tree,
    ) {
        // Beam sampling ranks candidates by their draws; the best by score become the beams.
        ranks.sort_by(|&a, &b| ranked[b].score.total_cmp(&ranked[a].score));
        ranks.truncate(self.size);
        let mut beams = Vec::with_capacity(ranks.len());
        for (beam, &rank) in ranks.iter().enumerate() {
            let candidate = &mut ranked[rank];
            candidate.fate = Fate::GoesOn { beam };
            let text = self.grow(candidate, next_tokens, tree);
            beams.push(Beam { row: self.beams[candidate.parent].row, text, score: candidate.score });
        }
        self.beams = beams;
    }

    /// Ends the running beams: each finishes as it is.
    pub(super) fn cut(&mut self, reason: FinishReason, info: &StepInfo) {
        for Beam { text, score, .. } in self.beams.clone() {
            let score = normalised(score, info.len, info.config.length_penalty);
            self.finish(Finished { text, score, reason, seconds: info.seconds });
        }
        self.stopped = Some(Stopped::Cut { reason });
    }

    /// The best candidates of all beams: enough that `size` can continue even if every end token
    /// ranks first.
    fn rank(&self, next_tokens: &[NextTokens], config: &GenerationConfig) -> Vec<BeamCandidate> {
        let mut ranked: Vec<BeamCandidate> = next_tokens.iter().flat_map(|row| &row.best).cloned().collect();
        // A stable sort: ties go to the better beam, then to the lower id.
        ranked.sort_by(|a, b| b.rank_key.total_cmp(&a.rank_key));
        ranked.truncate(candidate_count(self.size, config));
        ranked
    }

    /// Why a candidate ends its text, if it does.
    fn ends(&self, candidate: &BeamCandidate, info: &StepInfo) -> Option<FinishReason> {
        if info.config.end_tokens.contains(&candidate.token) {
            Some(FinishReason::Eos)
        } else if (info.stops)(self.beams[candidate.parent].row, candidate.token) {
            Some(FinishReason::Stop)
        } else {
            info.cut.filter(|_| info.version == TransformersVersion::V5)
        }
    }

    /// Adds a candidate's text to the tree.
    fn grow(&self, candidate: &BeamCandidate, next_tokens: &[NextTokens], tree: &mut Tree) -> NodeId {
        let top = next_tokens[candidate.parent].top.clone();
        let token = ChosenToken { id: candidate.token, logprob: candidate.model_logprob, top };
        tree.grow(self.beams[candidate.parent].text, token)
    }

    /// Why the search stops by itself, if it does. `best` is the highest sum of log-probabilities.
    fn reason_to_stop(&self, best: f64, info: &StepInfo) -> Option<Stopped> {
        let attainable = attainable(best, info.len, info.limit, info.config);
        match self.worst() {
            _ if self.beams.is_empty() => Some(Stopped::NothingRuns),
            Some(_) if info.config.early_stopping == EarlyStopping::True => Some(Stopped::PoolFull),
            Some(worst) if attainable <= worst => Some(Stopped::NoImprovement { attainable, worst }),
            _ => None,
        }
    }

    /// Inserts a text into the pool by rank. Returns whether it was good enough to stay.
    fn finish(&mut self, finished: Finished) -> bool {
        let place = self.finished.partition_point(|other| other.score >= finished.score);
        self.finished.insert(place, finished);
        self.finished.truncate(self.size);
        place < self.size
    }

    /// The worst score of a full pool, which a new text has to beat; `None` while there is room.
    fn worst(&self) -> Option<f64> {
        let full = self.finished.len() == self.size;
        self.finished.last().filter(|_| full).map(|finished| finished.score)
    }

    /// The pool, for a trace.
    pub(super) fn pool_entries(&self, tree: &Tree) -> Vec<PoolEntry> {
        let entry = |finished: &Finished| PoolEntry {
            ids: tree.tokens(finished.text, 0).iter().map(|token| token.id).collect(),
            score: finished.score,
            reason: finished.reason,
        };
        self.finished.iter().map(entry).collect()
    }
}

/// How many candidates a group of `size` beams considers. Each beam has at most one candidate per
/// end token, so `size` others always remain to continue with.
pub(super) fn candidate_count(size: usize, config: &GenerationConfig) -> usize {
    size * config.tokens_for_a_beam()
}

/// A finished text.
#[derive(Clone, Debug)]
pub(super) struct Finished {
    pub(super) text: NodeId,
    /// The score with length penalty; see [`normalised`].
    pub(super) score: f64,
    pub(super) reason: FinishReason,
    pub(super) seconds: f64,
}

/// The score of a text: its sum of log-probabilities divided by its length to the power of the
/// length penalty ([Wu et al. 2016, section 7](https://arxiv.org/abs/1609.08144), whose penalty
/// adds a constant to the length).
pub(super) fn normalised(sum: f64, len: usize, length_penalty: f32) -> f64 {
    sum / (len as f64).powf(f64::from(length_penalty))
}

/// An estimate of the best score that a running text with this sum can still attain, by
/// transformers' rule.
///
/// Without a length penalty no continuation scores higher than the text does now, because
/// log-probabilities only lower the sum. With a length penalty above 0 the score can rise with the
/// length. `never` assumes that the text reaches the limit with its present sum; `false` ignores
/// the rise, and can therefore end a search too soon.
pub(super) fn attainable(sum: f64, len: usize, limit: usize, config: &GenerationConfig) -> f64 {
    let longest = config.early_stopping == EarlyStopping::Never && config.length_penalty > 0.0;
    normalised(sum, if longest { limit } else { len }, config.length_penalty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_keeps_the_best_and_prefers_the_earlier_of_equals() {
        let mut group = Group::new(2, 0);
        let mut add = |text, score| {
            let stays = group.finish(Finished { text, score, reason: FinishReason::Eos, seconds: 0.0 });
            (stays, group.worst())
        };
        assert_eq!(add(1, -2.0), (true, None));
        assert_eq!(add(2, -3.0), (true, Some(-3.0)));
        assert_eq!(add(3, -3.0), (false, Some(-3.0)));
        assert_eq!(add(4, -1.0), (true, Some(-2.0)));
        assert_eq!(group.finished.iter().map(|finished| finished.text).collect::<Vec<_>>(), [4, 1]);
    }

    #[test]
    fn the_length_penalty_by_hand() {
        assert_eq!(normalised(-6.0, 3, 0.0), -6.0);
        assert_eq!(normalised(-6.0, 3, 1.0), -2.0);
        assert_eq!(normalised(-6.0, 4, 0.5), -3.0);
        assert_eq!(normalised(-6.0, 3, -1.0), -18.0);
        let config = |early_stopping, length_penalty| GenerationConfig {
            early_stopping,
            length_penalty,
            ..GenerationConfig::default()
        };
        assert_eq!(attainable(-6.0, 3, 6, &config(EarlyStopping::False, 1.0)), -2.0);
        assert_eq!(attainable(-6.0, 3, 6, &config(EarlyStopping::Never, 1.0)), -1.0);
        assert_eq!(attainable(-6.0, 3, 6, &config(EarlyStopping::Never, -1.0)), -18.0);
    }
}
