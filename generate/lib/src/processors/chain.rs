//! The processors that the knobs switch on, in the order in which they run.

use std::sync::Arc;

use super::{Knob, LogitsProcessor, Processor, Rules, Step, bans, penalties};
use crate::error::{Error, Result};
use crate::{config::GenerationConfig, softmax::highest};

/// Processors in the order in which they run.
#[derive(Clone, Default)]
pub struct Chain(Vec<Arc<dyn LogitsProcessor>>);

impl Chain {
    /// The processors that `config` switches on, in the order and with the rules of its semantics;
    /// `others` (a grammar, a caller's own) run behind what bans and penalises, and before what
    /// truncates.
    pub fn new(config: &GenerationConfig, others: impl IntoIterator<Item = Arc<dyn LogitsProcessor>>) -> Self {
        Self::with_rules(config, &Rules::of(config.semantics), others)
    }

    pub(crate) fn with_rules(
        config: &GenerationConfig,
        rules: &Rules,
        others: impl IntoIterator<Item = Arc<dyn LogitsProcessor>>,
    ) -> Self {
        let mut chain = Self::default();
        chain.push(!config.logit_bias.is_empty(), || bans::logit_bias(&config.logit_bias));
        let penalty = config.repetition_penalty;
        chain.push(penalty != 1.0, || penalties::repetition_penalty(penalty, rules.repetition_history));
        let (penalty, history) = (config.presence_penalty, rules.count_history);
        chain.push(penalty != 0.0, || penalties::presence_penalty(penalty, history));
        let penalty = config.frequency_penalty;
        chain.push(penalty != 0.0, || penalties::frequency_penalty(penalty, history));
        chain.push(config.no_repeat_ngram_size > 0, || bans::no_repeat_ngram(config.no_repeat_ngram_size));
        chain.push(!config.bad_words.is_empty(), || bans::bad_words(&config.bad_words, &config.end_tokens));
        let (count, end_tokens) = (config.min_new_tokens, &config.end_tokens);
        chain.push(count > 0 && !end_tokens.is_empty(), || bans::min_new_tokens(count, end_tokens.clone()));
        chain.push(!config.suppress_tokens.is_empty(), || bans::suppress(config.suppress_tokens.clone()));
        chain.0.extend(others);
        if config.strategy.samples() {
            for knob in Knob::order(rules.order, config) {
                chain.push(true, || knob.processor(config, rules));
            }
        }
        chain
    }

    fn push(&mut self, is_on: bool, processor: impl FnOnce() -> Processor) {
        if is_on {
            self.0.push(Arc::new(processor()));
        }
    }

    /// A chain of the processors given.
    pub fn of(processors: Vec<Arc<dyn LogitsProcessor>>) -> Self {
        Self(processors)
    }

    /// The processors up to and with the one of this name, and those behind it; without one of this
    /// name, all are behind.
    pub fn split_behind(&self, name: &str) -> (Self, Self) {
        let behind = self.0.iter().position(|processor| processor.name() == name).map_or(0, |place| place + 1);
        (Self(self.0[..behind].to_vec()), Self(self.0[behind..].to_vec()))
    }

    /// Whether nothing is processed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The processors' names, in order.
    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|processor| processor.name()).collect()
    }

    /// The highest of the logits that the chain has left behind, `[vocab]`; minus infinity where no
    /// token is possible.
    ///
    /// # Errors
    /// When the knobs have taken a logit out of float32's range: nothing can be compared with it.
    pub(crate) fn highest(&self, processed: &[f32]) -> Result<f32> {
        // No early exit, so that many are compared side by side; what is no number compares with
        // nothing.
        let all_finite = processed.iter().fold(true, |all, &logit| all & (logit < f32::INFINITY));
        match all_finite {
            true => Ok(highest(processed)),
            false => Err(Error::BeyondFloat32 { processors: self.names() }),
        }
    }

    /// Edits the logits of one position, `[vocab]`.
    pub fn process(&self, step: &Step, logits: &mut [f32]) {
        self.process_observed(step, logits, &mut |_, _| {});
    }

    /// As [`Self::process`], showing the logits to `observe` after each processor, with its name.
    pub fn process_observed(&self, step: &Step, logits: &mut [f32], observe: &mut dyn FnMut(&'static str, &[f32])) {
        for processor in &self.0 {
            processor.process(step, logits);
            observe(processor.name(), logits);
        }
    }
}
