//! The prefixes of an exact search (expanded and open), and the complete texts found.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::completion::{ChosenToken, FinishReason};
use crate::error::{Error, Result};
use crate::logprobs::{finite_log_sum_exp, logprob};
use crate::{job::Job, processors::Step};

/// A prefix of a continuation: an expanded prefix plus one token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefix {
    /// The sum of its tokens' log-probabilities, an upper bound for its continuations.
    pub(super) score: f64,
    /// Length in tokens.
    len: u32,
    /// Index of the expanded prefix that it extends.
    parent: u32,
    token: u32,
    /// That token's log-probability under the unmodified model.
    logprob: f32,
}

impl Prefix {
    /// The empty prefix.
    pub(super) const ROOT: Self = Self { score: 0.0, len: 0, parent: 0, token: 0, logprob: 0.0 };
}

/// The best is the greatest. Ties go to the longer prefix, which is nearer its end, then to the one
/// found first.
impl Ord for Prefix {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |prefix: &Self| (prefix.len, Reverse((prefix.parent, prefix.token)));
        self.score.total_cmp(&other.score).then_with(|| rank(self).cmp(&rank(other)))
    }
}

impl PartialOrd for Prefix {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Prefix {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Prefix {}

/// The state of an exact search.
///
/// A prefix is dropped for one of two reasons. It scores no more than the worst answer, once there
/// are `num_return_sequences` of them ([`Self::to_beat`]), and its continuations score no more than
/// it does. Or enough prefixes that are at least as good were open at the last pruning to use up the
/// nodes left (`out_of_reach`).
///
/// For example one text is asked for, and the best complete one so far scores -2.0: prefixes at
/// -2.0 or below are dropped. Three nodes are left, and of more than six open prefixes the third
/// best scores -1.4: the others are dropped, and later prefixes at -1.4 or below too. If the best of
/// all those scored -1.7, and nothing above that is open in the end, the answer is the text at -2.0
/// with a bound of -1.7. There may be a better text, but by at most 0.3.
pub(super) struct Tree<'a> {
    pub(super) job: &'a Job<'a>,
    prompt: Vec<u32>,
    /// The length at which a text is complete whatever its last token.
    pub(super) max_text_len: usize,
    /// The expanded prefixes; the empty one is at index 0.
    expanded: Vec<Prefix>,
    /// Prefixes that may still be expanded.
    open: BinaryHeap<Prefix>,
    /// The score of the last prefix kept at the last pruning; minus infinity before. Later prefixes
    /// that do not exceed it are dropped to bound the memory, and count in the bound.
    pub(super) out_of_reach: f64,
    /// The highest score of a dropped prefix.
    best_dropped: f64,
    /// The best complete continuations so far and why each is complete, best first; at most
    /// `num_return_sequences`.
    pub(super) found: Vec<(Prefix, FinishReason)>,
}

impl<'a> Tree<'a> {
    /// A tree without expanded prefixes.
    pub(super) fn new(job: &'a Job<'a>, prompt: Vec<u32>, max_text_len: usize) -> Self {
        Self {
            job,
            prompt,
            max_text_len,
            expanded: Vec::new(),
            open: BinaryHeap::new(),
            out_of_reach: f64::NEG_INFINITY,
            best_dropped: f64::NEG_INFINITY,
            found: Vec::new(),
        }
    }

    /// Number of expanded prefixes.
    pub(super) fn nodes(&self) -> usize {
        self.expanded.len()
    }

    /// The ids of the prefix expanded last.
    pub(super) fn last_expanded(&self) -> Vec<u32> {
        self.expanded.last().map_or_else(Vec::new, |last| self.ids(last))
    }

    /// How many more prefixes may be expanded.
    pub(super) fn nodes_left(&self) -> usize {
        self.job.plan.config.max_nodes.saturating_sub(self.nodes())
    }

    /// The score that a continuation has to exceed to be returned.
    pub(super) fn to_beat(&self) -> f64 {
        match self.found.last() {
            Some((worst, _)) if self.found.len() == self.job.plan.config.num_return_sequences => worst.score,
            _ => f64::NEG_INFINITY,
        }
    }

    /// The score of the best prefix that was not expanded, open or dropped; minus infinity if there
    /// is none.
    pub(super) fn bound(&self) -> f64 {
        self.open.peek().map_or(f64::NEG_INFINITY, |best| best.score).max(self.best_dropped)
    }

    /// Records the score of a dropped prefix, for the bound.
    fn record_dropped(&mut self, score: f64) {
        self.best_dropped = self.best_dropped.max(score);
    }

    /// The ids of a prefix.
    pub(super) fn ids(&self, prefix: &Prefix) -> Vec<u32> {
        self.backwards(prefix, |prefix| prefix.token)
    }

    /// The tokens of a prefix, without alternatives, which the search does not store.
    pub(super) fn tokens(&self, prefix: &Prefix) -> Vec<ChosenToken> {
        self.backwards(prefix, |prefix| ChosenToken { id: prefix.token, logprob: prefix.logprob, top: Vec::new() })
    }

    /// Maps the tokens of a prefix by `each`, from first to last.
    fn backwards<T>(&self, prefix: &Prefix, each: impl Fn(&Prefix) -> T) -> Vec<T> {
        let mut all = Vec::with_capacity(prefix.len as usize);
        let mut last = prefix;
        while last.len > 0 {
            all.push(each(last));
            last = &self.expanded[last.parent as usize];
        }
        all.reverse();
        all
    }

    /// Expands a prefix by every possible token, given the logits `[vocab]` after it. Complete
    /// texts are offered as answers. The other children join `children` if their scores exceed
    /// [`Self::to_beat`] and `limit`, else they are dropped.
    ///
    /// # Errors
    /// If the logits are not finite, or a processor raised a log-probability above 0.
    pub(super) fn expand(
        &mut self,
        prefix: Prefix,
        logits: &mut [f32],
        limit: f64,
        children: &mut Vec<Prefix>,
    ) -> Result<()> {
        let log_sum_exp = finite_log_sum_exp(logits)?;
        for logit in logits.iter_mut() {
            *logit = logprob(*logit, log_sum_exp);
        }
        let unmodified = logits.to_vec();
        let Job { plan, chain, .. } = self.job;
        chain.process(&Step { prompt: &self.prompt, generated: &self.ids(&prefix) }, logits);
        let number = self.expanded.len() as u32;
        self.expanded.push(prefix);
        let to_beat = self.to_beat();
        for (token, &logprob) in (0..).zip(logits.iter()) {
            if logprob == f32::NEG_INFINITY {
                continue;
            }
            if logprob > 0.0 || logprob.is_nan() {
                return Err(Error::MoreThanCertain { processors: chain.names() });
            }
            let score = prefix.score + f64::from(logprob);
            if score <= to_beat {
                self.record_dropped(score);
                continue;
            }
            let logprob = unmodified[token as usize];
            let child = Prefix { score, len: prefix.len + 1, parent: number, token, logprob };
            let ended = plan.config.end_tokens.contains(&token);
            if ended || child.len as usize == self.max_text_len {
                self.offer(&child, if ended { FinishReason::Eos } else { FinishReason::Length });
            } else if score > limit {
                children.push(child);
            } else {
                self.record_dropped(score);
            }
        }
        Ok(())
    }

    /// Adds open prefixes. To bound the memory it keeps at most twice as many as there are nodes
    /// left: the search takes the best first, and would seldom reach the others.
    pub(super) fn keep(&mut self, prefixes: Vec<Prefix>) {
        let least = self.to_beat().max(self.out_of_reach);
        for prefix in prefixes {
            if prefix.score > least {
                self.open.push(prefix);
            } else {
                self.record_dropped(prefix.score);
            }
        }
        let most = self.nodes_left().max(1);
        if self.open.len() > 2 * most {
            let mut all = std::mem::take(&mut self.open).into_vec();
            let (_, last_kept, rest) = all.select_nth_unstable_by(most - 1, |a, b| b.cmp(a));
            self.out_of_reach = self.out_of_reach.max(last_kept.score);
            rest.iter().for_each(|prefix| self.record_dropped(prefix.score));
            all.truncate(most);
            self.open = all.into();
        }
    }

    /// Takes up to `count` of the best open prefixes that could still improve the answer. A prefix
    /// that ends with a stop string becomes an answer instead.
    pub(super) fn take_best(&mut self, count: usize) -> Vec<Prefix> {
        let mut best = Vec::new();
        while best.len() < count
            && self.open.peek().is_some_and(|open| open.score > self.to_beat())
            && let Some(prefix) = self.open.pop()
        {
            if !self.ends_with_stop(&prefix) {
                best.push(prefix);
            }
        }
        best
    }

    /// Takes up to `count` of the best `children` as [`Self::take_best`] does, and keeps the others
    /// open.
    pub(super) fn take_best_of(&mut self, mut children: Vec<Prefix>, count: usize) -> Vec<Prefix> {
        if count < children.len() {
            children.select_nth_unstable_by(count, |a, b| b.cmp(a));
            self.keep(children.split_off(count));
        }
        children.sort_unstable_by(|a, b| b.cmp(a));
        let (to_beat, mut best) = (self.to_beat(), Vec::new());
        for child in children {
            if child.score <= to_beat {
                self.record_dropped(child.score);
            } else if !self.ends_with_stop(&child) {
                best.push(child);
            }
        }
        best
    }

    /// Puts back prefixes that were taken but will not be expanded now, so that they count in the
    /// bound.
    pub(super) fn reopen(&mut self, prefixes: Vec<Prefix>) {
        self.open.extend(prefixes);
    }

    /// The longest open prefix; ties go to the best.
    pub(super) fn longest_open(&self) -> Option<Prefix> {
        self.open.iter().max_by(|a, b| a.len.cmp(&b.len).then_with(|| a.cmp(b))).copied()
    }

    /// Whether a stop string completes a prefix; if so, offers it as an answer.
    fn ends_with_stop(&mut self, prefix: &Prefix) -> bool {
        let stops = self.job.plan.ends_text(&self.ids(prefix));
        if stops {
            self.offer(prefix, FinishReason::Stop);
        }
        stops
    }

    /// Inserts a complete continuation among the answers if it is good enough.
    fn offer(&mut self, complete: &Prefix, finish_reason: FinishReason) {
        if complete.score <= self.to_beat() {
            return;
        }
        let stops = finish_reason == FinishReason::Length && self.job.plan.ends_text(&self.ids(complete));
        let place = self.found.partition_point(|(found, _)| found.score >= complete.score);
        self.found.insert(place, (*complete, if stops { FinishReason::Stop } else { finish_reason }));
        self.found.truncate(self.job.plan.config.num_return_sequences);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::{config::GenerationConfig, plan::Plan, processors::Chain};

    #[test]
    fn prefixes_that_the_nodes_do_not_reach_are_dropped_and_count_in_the_bound() {
        let config = GenerationConfig { max_nodes: 2, ..GenerationConfig::default() };
        let (plan, chain) = (Plan::new(&config), Chain::default());
        let job = Job { plan: &plan, chain: &chain, first_prompt: 0, started: Instant::now() };
        let mut tree = Tree::new(&job, vec![0], 9);
        let prefixes =
            |scores: &[f64]| -> Vec<Prefix> { scores.iter().map(|&score| Prefix { score, ..Prefix::ROOT }).collect() };
        // Up to twice as many as there are nodes left stay open.
        tree.keep(prefixes(&[-3.0, -1.0, -4.0, -2.0]));
        assert_eq!((tree.open.len(), tree.best_dropped), (4, f64::NEG_INFINITY));
        tree.keep(prefixes(&[-5.0]));
        assert_eq!((tree.open.len(), tree.best_dropped), (2, -3.0));
        // Two better ones are open already.
        tree.keep(prefixes(&[-2.5]));
        assert_eq!((tree.open.len(), tree.best_dropped, tree.bound()), (2, -2.5, -1.0));
    }
}
