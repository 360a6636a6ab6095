//! The prefixes of an exact search: those looked at, those still open, and the complete texts among
//! them.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::completion::{ChosenToken, FinishReason};
use crate::error::{Error, Result};
use crate::logprobs::{finite_log_sum_exp, logprob};
use crate::{job::Job, processors::Step};

/// A beginning of a continuation: one that was looked at, and one token more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefix {
    /// The sum of its tokens' log-probabilities: no continuation of it has a higher one.
    pub(super) score: f64,
    /// How many tokens it has.
    len: u32,
    /// The number of the prefix that it adds a token to.
    parent: u32,
    token: u32,
    /// That token's log-probability under the unmodified model.
    logprob: f32,
}

impl Prefix {
    /// The empty one.
    pub(super) const ROOT: Self = Self { score: 0.0, len: 0, parent: 0, token: 0, logprob: 0.0 };
}

/// The best first; of equally probable ones the longer, being nearer its end; then in order of
/// appearance.
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

/// Everything that an exact search knows.
pub(super) struct Tree<'a> {
    pub(super) job: &'a Job<'a>,
    prompt: Vec<u32>,
    /// At this many tokens a continuation is complete.
    pub(super) longest: usize,
    /// Every prefix that was looked at, by its number; the empty one is number 0.
    looked_at: Vec<Prefix>,
    /// Prefixes that may yet be looked at.
    pub(super) open: BinaryHeap<Prefix>,
    /// Prefixes with at most this score are not kept open: they cannot improve the answer, or their
    /// turn cannot come.
    pub(super) floor: f64,
    /// The highest score of a prefix that was not kept.
    dropped: f64,
    /// The best complete continuations and why each is complete, best first, as many as are to be
    /// returned.
    pub(super) found: Vec<(Prefix, FinishReason)>,
}

impl<'a> Tree<'a> {
    /// A tree in which nothing was looked at.
    pub(super) fn new(job: &'a Job<'a>, prompt: Vec<u32>, longest: usize) -> Self {
        Self {
            job,
            prompt,
            longest,
            looked_at: Vec::new(),
            open: BinaryHeap::new(),
            floor: f64::NEG_INFINITY,
            dropped: f64::NEG_INFINITY,
            found: Vec::new(),
        }
    }

    /// How many prefixes were looked at.
    pub(super) fn nodes(&self) -> usize {
        self.looked_at.len()
    }

    /// The ids of the prefix that was looked at last.
    pub(super) fn last_looked_at(&self) -> Vec<u32> {
        self.looked_at.last().map_or_else(Vec::new, |last| self.ids(last))
    }

    /// How many more may be.
    pub(super) fn nodes_left(&self) -> usize {
        self.job.plan.config.max_nodes.saturating_sub(self.nodes())
    }

    /// What a continuation has to be more probable than to be returned.
    pub(super) fn to_beat(&self) -> f64 {
        match self.found.last() {
            Some((worst, _)) if self.found.len() == self.job.plan.config.num_return_sequences => worst.score,
            _ => f64::NEG_INFINITY,
        }
    }

    /// The score of the best prefix that was not looked at, kept or not; minus infinity when there
    /// is none.
    pub(super) fn bound(&self) -> f64 {
        self.open.peek().map_or(f64::NEG_INFINITY, |best| best.score).max(self.dropped)
    }

    /// The ids of a prefix.
    pub(super) fn ids(&self, prefix: &Prefix) -> Vec<u32> {
        self.backwards(prefix, |prefix| prefix.token)
    }

    /// The tokens of a prefix, as far as the search knows them.
    pub(super) fn tokens(&self, prefix: &Prefix) -> Vec<ChosenToken> {
        self.backwards(prefix, |prefix| ChosenToken { id: prefix.token, logprob: prefix.logprob, top: Vec::new() })
    }

    /// What `each` makes of each token of a prefix, in their order.
    fn backwards<T>(&self, prefix: &Prefix, each: impl Fn(&Prefix) -> T) -> Vec<T> {
        let mut all = Vec::with_capacity(prefix.len as usize);
        let mut last = prefix;
        while last.len > 0 {
            all.push(each(last));
            last = &self.looked_at[last.parent as usize];
        }
        all.reverse();
        all
    }

    /// Adds each possible token to a prefix, given the logits `[vocab]` that follow it: what that
    /// completes is an answer, anything else with a score above `least` joins `children`.
    ///
    /// # Errors
    /// When the logits are not finite, or a processor made something more than certain.
    pub(super) fn look_at(
        &mut self,
        prefix: Prefix,
        logits: &mut [f32],
        least: f64,
        children: &mut Vec<Prefix>,
    ) -> Result<()> {
        let log_sum_exp = finite_log_sum_exp(logits)?;
        for logit in logits.iter_mut() {
            *logit = logprob(*logit, log_sum_exp);
        }
        let unmodified = logits.to_vec();
        let Job { plan, chain, .. } = self.job;
        chain.process(&Step { prompt: &self.prompt, generated: &self.ids(&prefix) }, logits);
        let number = self.looked_at.len() as u32;
        self.looked_at.push(prefix);
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
                self.dropped = self.dropped.max(score);
                continue;
            }
            let logprob = unmodified[token as usize];
            let child = Prefix { score, len: prefix.len + 1, parent: number, token, logprob };
            let ended = plan.config.end_tokens.contains(&token);
            if ended || child.len as usize == self.longest {
                self.offer(&child, if ended { FinishReason::Eos } else { FinishReason::Length });
            } else if score > least {
                children.push(child);
            } else {
                self.dropped = self.dropped.max(score);
            }
        }
        Ok(())
    }

    /// Keeps what may yet be looked at, which bounds the memory: of the open prefixes no more than
    /// there are nodes left, since the search takes the best first.
    pub(super) fn keep(&mut self, prefixes: Vec<Prefix>) {
        for prefix in prefixes {
            if prefix.score > self.floor {
                self.open.push(prefix);
            } else {
                self.dropped = self.dropped.max(prefix.score);
            }
        }
        let most = self.nodes_left().max(1);
        if self.open.len() > 2 * most {
            let mut all = std::mem::take(&mut self.open).into_vec();
            let (_, last_kept, rest) = all.select_nth_unstable_by(most - 1, |a, b| b.cmp(a));
            self.floor = self.floor.max(last_kept.score);
            self.dropped = rest.iter().map(|prefix| prefix.score).fold(self.dropped, f64::max);
            all.truncate(most);
            self.open = all.into();
        }
    }

    /// Takes the best open prefixes, at most `count`, that could still improve the answer; a stop
    /// string makes one of them an answer.
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

    /// Takes the best of `children`, at most `count`, as [`Self::take_best`] does, and keeps the
    /// others.
    pub(super) fn take_best_of(&mut self, mut children: Vec<Prefix>, count: usize) -> Vec<Prefix> {
        if count < children.len() {
            children.select_nth_unstable_by(count, |a, b| b.cmp(a));
            self.keep(children.split_off(count));
        }
        children.sort_unstable_by(|a, b| b.cmp(a));
        let (to_beat, mut best) = (self.to_beat(), Vec::new());
        for child in children {
            if child.score <= to_beat {
                self.dropped = self.dropped.max(child.score);
            } else if !self.ends_with_stop(&child) {
                best.push(child);
            }
        }
        best
    }

    /// The longest open prefix, and of several the best.
    pub(super) fn longest_open(&self) -> Option<Prefix> {
        self.open.iter().max_by(|a, b| a.len.cmp(&b.len).then_with(|| a.cmp(b))).copied()
    }

    /// Whether a prefix is complete by a stop string; then it is an answer.
    fn ends_with_stop(&mut self, prefix: &Prefix) -> bool {
        let stops = self.job.plan.ends_text(&self.ids(prefix));
        if stops {
            self.offer(prefix, FinishReason::Stop);
        }
        stops
    }

    /// Puts a complete continuation in its place among the answers, if it has one.
    fn offer(&mut self, complete: &Prefix, finish_reason: FinishReason) {
        if complete.score <= self.to_beat() {
            return;
        }
        let stops = finish_reason == FinishReason::Length && self.job.plan.ends_text(&self.ids(complete));
        let place = self.found.partition_point(|(found, _)| found.score >= complete.score);
        self.found.insert(place, (*complete, if stops { FinishReason::Stop } else { finish_reason }));
        self.found.truncate(self.job.plan.config.num_return_sequences);
        self.floor = self.floor.max(self.to_beat());
    }
}
