//! What an exact search is asked for.

use std::time::Instant;

use crate::config::GenerationConfig;
use crate::plan::Clock;
use crate::processors::Chain;

/// What to search for.
pub(crate) struct Request<'a> {
    /// Of the knobs: `max_new_tokens`, `num_return_sequences`, `max_nodes`, `end_tokens`,
    /// `max_time_s`, `overflow`, `logprobs`.
    pub(crate) config: &'a GenerationConfig,
    /// Works on log-probabilities and may lower them at will, but not lift one above 0.
    pub(crate) chain: &'a Chain,
    /// Whether the text of some new tokens contains a stop string.
    pub(crate) stops: &'a dyn Fn(&[u32]) -> bool,
    /// When the time of `max_time_s` began.
    pub(crate) started: Instant,
    /// What says that it is over; its steps are the prefixes looked at.
    pub(crate) clock: Clock,
}

impl Request<'_> {
    /// Whether time is over after looking at so many prefixes.
    pub(super) fn is_out_of_time(&self, nodes: usize) -> bool {
        self.clock.is_over(self.config.max_time_s, self.started.elapsed().as_secs_f64(), nodes)
    }
}
