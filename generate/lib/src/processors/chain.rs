//! The chain of active processors.

use std::sync::Arc;

use super::{LogitsProcessor, Processor, Rules, SamplingKnob, Step, bans, penalties};
use crate::error::{Error, Result};
use crate::{config::GenerationConfig, softmax::highest};

/// Processors in the order in which they run.
#[derive(Clone, Default)]
pub struct Chain(Vec<Arc<dyn LogitsProcessor>>);

impl Chain {
    /// The processors that `config` switches on, in the order and by the rules of its semantics.
    /// `others` (a grammar, the caller's own) run after those that ban and penalise, and before
    /// those that truncate.
    pub fn new(config: &GenerationConfig, others: impl IntoIterator<Item = Arc<dyn LogitsProcessor>>) -> Self {
        Self::with_rules(config, &Rules::of(config.semantics), others)
    }

    pub(crate) fn with_rules(
        config: &GenerationConfig,
        rules: &Rules,
        others: impl IntoIterator<Item = Arc<dyn LogitsProcessor>>,
    ) -> Self {
        let GenerationConfig { repetition_penalty, presence_penalty, frequency_penalty, .. } = *config;
        let GenerationConfig { no_repeat_ngram_size: n, min_new_tokens: least, ref end_tokens, .. } = *config;
        let (repeated, counted) = (rules.repetition_history, rules.count_history);
        let by_ids = [
            (!config.logit_bias.is_empty()).then(|| bans::logit_bias(&config.logit_bias)),
            (repetition_penalty != 1.0).then(|| penalties::repetition_penalty(repetition_penalty, repeated)),
            (presence_penalty != 0.0).then(|| penalties::presence_penalty(presence_penalty, counted)),
            (frequency_penalty != 0.0).then(|| penalties::frequency_penalty(frequency_penalty, counted)),
            (n > 0).then(|| bans::no_repeat_ngram(n)),
            (!config.bad_words.is_empty()).then(|| bans::bad_words(&config.bad_words, end_tokens)),
            (least > 0 && !end_tokens.is_empty()).then(|| bans::min_new_tokens(least, end_tokens.clone())),
            (!config.suppress_tokens.is_empty()).then(|| bans::suppress(config.suppress_tokens.clone())),
        ];
        let knobs = if config.strategy.samples() { SamplingKnob::order(rules.order, config) } else { Vec::new() };
        let sampling = knobs.into_iter().map(|knob| shared(knob.processor(config, rules)));
        Self(by_ids.into_iter().flatten().map(shared).chain(others).chain(sampling).collect())
    }

    /// A chain of the given processors.
    pub fn of(processors: Vec<Arc<dyn LogitsProcessor>>) -> Self {
        Self(processors)
    }

    /// Splits the chain after the processor with this name; without one, the first part is empty.
    pub(crate) fn split_behind(&self, name: &str) -> (Self, Self) {
        let behind = self.0.iter().position(|processor| processor.name() == name).map_or(0, |place| place + 1);
        (Self(self.0[..behind].to_vec()), Self(self.0[behind..].to_vec()))
    }

    /// Whether there are no processors.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The processors' names, in order.
    pub fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(|processor| processor.name()).collect()
    }

    /// The names of the processors that may have removed the last token, in order.
    pub(crate) fn bans(&self) -> Vec<&'static str> {
        self.0.iter().filter(|processor| processor.may_leave_none()).map(|processor| processor.name()).collect()
    }

    /// The highest of the processed logits `[vocab]`, after a check that all are below infinity and
    /// not NaN; minus infinity if no token is left.
    ///
    /// # Errors
    /// If the knobs have taken a logit out of float32's range, so that it cannot be compared.
    pub(crate) fn checked_highest(&self, processed: &[f32]) -> Result<f32> {
        // No early exit, so that the comparisons are vectorised. NaN fails the comparison, too.
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

    /// As [`Self::process`], and calls `observe` after each processor with its name and the logits.
    pub fn process_observed(&self, step: &Step, logits: &mut [f32], observe: &mut dyn FnMut(&'static str, &[f32])) {
        for processor in &self.0 {
            processor.process(step, logits);
            observe(processor.name(), logits);
        }
    }
}

fn shared(processor: Processor) -> Arc<dyn LogitsProcessor> {
    Arc::new(processor)
}
