//! The pool of finished texts, and whether what still runs can better it.

use super::tree::NodeId;
use crate::completion::FinishReason;
use crate::config::{EarlyStopping, GenerationConfig};

/// A text that has ended.
#[derive(Clone, Debug)]
pub(super) struct Finished {
    pub(super) text: NodeId,
    /// The sum of its log-probabilities over its length to the power of the length penalty.
    pub(super) score: f64,
    pub(super) reason: FinishReason,
    pub(super) seconds: f64,
}

/// The best finished texts, best first; of equal scores the one that finished first.
#[derive(Debug)]
pub(super) struct Pool {
    capacity: usize,
    finished: Vec<Finished>,
}

impl Pool {
    /// An empty pool for `capacity` texts.
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, finished: Vec::new() }
    }

    /// Puts a text where it belongs; says whether it was good enough to stay.
    pub(super) fn add(&mut self, finished: Finished) -> bool {
        let place = self.finished.partition_point(|other| other.score >= finished.score);
        self.finished.insert(place, finished);
        self.finished.truncate(self.capacity);
        place < self.capacity
    }

    /// What has finished, best first.
    pub(super) fn finished(&self) -> &[Finished] {
        &self.finished
    }

    /// The score that a newcomer has to better; `None` while there is room for any.
    pub(super) fn worst(&self) -> Option<f64> {
        let full = self.finished.len() == self.capacity;
        self.finished.last().filter(|_| full).map(|finished| finished.score)
    }
}

/// The score of a text with this sum of log-probabilities: the sum over the length to the power of the length penalty
/// ([Wu et al. 2016, section 7](https://arxiv.org/abs/1609.08144), whose penalty adds a constant to the length).
pub(super) fn normalised(sum: f64, len: usize, length_penalty: f32) -> f64 {
    sum / (len as f64).powf(f64::from(length_penalty))
}

/// The best score that a running text with this sum is credited with, by transformers' rule.
///
/// Without a length penalty no continuation scores higher than the text does now, for log-probabilities only lower the sum.
/// A length penalty above 0 can raise it with the length: `never` credits the text with staying as it is up to the last
/// token allowed, `false` does not, and can therefore end a search too soon.
pub(super) fn attainable(sum: f64, len: usize, limit: usize, config: &GenerationConfig) -> f64 {
    let longest = config.early_stopping == EarlyStopping::Never && config.length_penalty > 0.0;
    normalised(sum, if longest { limit } else { len }, config.length_penalty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_keeps_the_best_and_prefers_the_earlier_of_equals() {
        let mut pool = Pool::new(2);
        let mut add = |text, score| {
            let stays = pool.add(Finished { text, score, reason: FinishReason::Eos, seconds: 0.0 });
            (stays, pool.worst())
        };
        assert_eq!(add(1, -2.0), (true, None));
        assert_eq!(add(2, -3.0), (true, Some(-3.0)));
        assert_eq!(add(3, -3.0), (false, Some(-3.0)));
        assert_eq!(add(4, -1.0), (true, Some(-2.0)));
        assert_eq!(pool.finished().iter().map(|finished| finished.text).collect::<Vec<_>>(), [4, 1]);
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
