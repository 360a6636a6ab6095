//! Logits processors: small named steps that reshape the next token's distribution, applied in a fixed order.
//!
//! Each one edits the float32 logits of the last position on the host; a removed token's logit is minus infinity. The
//! meaning of each knob is that of Hugging Face transformers' processor of the same name, ties and boundary cases
//! included (presence and frequency penalties, which transformers lacks, are OpenAI's). The order is transformers' too: what
//! judges by the ids so far comes first, then a constraint's mask, and when sampling what reshapes the distribution.
//! [`crate::semantics`] puts the same knobs into the order of other programs, with their rules.

use std::sync::Arc;

use crate::config::{GenerationConfig, Strategy};
use crate::error::{Error, Place, Result};
use crate::softmax::highest;

mod bans;
mod penalties;
mod rules;
mod survivors;
mod temperature;
mod thresholds;
mod top_k;
mod top_p;
mod typical_p;

#[cfg(test)]
mod parity;
#[cfg(test)]
mod properties;

pub use bans::{BadWords, LogitBias, MinNewTokens, NoRepeatNgram, Suppress};
pub use penalties::{FrequencyPenalty, History, PresencePenalty, RepetitionPenalty};
pub(crate) use rules::{Knob, Rules};
pub use temperature::Temperature;
pub use thresholds::{EpsilonCutoff, EtaCutoff, MinP};
pub use top_k::{TopK, TopKExactly};
pub use top_p::{TopP, TopPFromTheTop};
pub use typical_p::{TypicalP, TypicalPExactly};

/// What a processor may look at beside the logits: the tokens so far.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The prompt's token ids.
    pub prompt: &'a [u32],
    /// The token ids generated so far; its length is the step's number.
    pub generated: &'a [u32],
}

impl Step<'_> {
    /// How many tokens there are so far.
    fn len(&self) -> usize {
        self.prompt.len() + self.generated.len()
    }

    /// The last `count` tokens, in order; all where there are fewer.
    fn last(&self, count: usize) -> impl Iterator<Item = u32> {
        self.prompt.iter().chain(self.generated).skip(self.len().saturating_sub(count)).copied()
    }
}

/// One step of the chain between the model's logits and the choice of a token.
pub trait LogitsProcessor: Send + Sync {
    /// The knob's name, as in `--top-k` without the dashes.
    fn name(&self) -> &'static str;

    /// Edits the logits of one position, or its log-probabilities, `[vocab]`: finite or minus infinity in, the same out. A
    /// ban may remove the last token there is; what truncates by probability keeps at least one of those that it gets.
    fn process(&self, step: &Step, logits: &mut [f32]);
}

/// Processors in the order in which they run.
#[derive(Clone, Default)]
pub struct Chain(Vec<Arc<dyn LogitsProcessor>>);

impl Chain {
    /// The processors that `config` switches on, in the order and with the rules of its semantics, and `constraint` in its
    /// place among them.
    pub fn new(config: &GenerationConfig, constraint: Option<Arc<dyn LogitsProcessor>>) -> Self {
        Self::with_rules(config, &Rules::of(config.semantics), constraint)
    }

    pub(crate) fn with_rules(
        config: &GenerationConfig,
        rules: &Rules,
        constraint: Option<Arc<dyn LogitsProcessor>>,
    ) -> Self {
        let mut chain = Self::default();
        if !config.logit_bias.is_empty() {
            chain.push(LogitBias::new(&config.logit_bias));
        }
        if config.repetition_penalty != 1.0 {
            chain.push(RepetitionPenalty { penalty: config.repetition_penalty, history: rules.repetition_history });
        }
        if config.presence_penalty != 0.0 {
            chain.push(PresencePenalty { penalty: config.presence_penalty, history: rules.count_history });
        }
        if config.frequency_penalty != 0.0 {
            chain.push(FrequencyPenalty { penalty: config.frequency_penalty, history: rules.count_history });
        }
        if config.no_repeat_ngram_size > 0 {
            chain.push(NoRepeatNgram(config.no_repeat_ngram_size));
        }
        if !config.bad_words.is_empty() {
            chain.push(BadWords::new(&config.bad_words, &config.end_tokens));
        }
        if config.min_new_tokens > 0 && !config.end_tokens.is_empty() {
            chain.push(MinNewTokens { count: config.min_new_tokens, end_tokens: config.end_tokens.clone() });
        }
        if !config.suppress_tokens.is_empty() {
            chain.push(Suppress(config.suppress_tokens.clone()));
        }
        chain.0.extend(constraint);
        if matches!(config.strategy, Strategy::Sample | Strategy::BeamSample) {
            for knob in rules.order {
                chain.push_sampling(knob, config, rules);
            }
        }
        chain
    }

    /// Appends the processor of a sampling knob that is on.
    fn push_sampling(&mut self, knob: Knob, config: &GenerationConfig, rules: &Rules) {
        // A beam that can only end cannot go on: transformers leaves it a token beside the end tokens.
        let keep = match config.strategy {
            Strategy::BeamSample => 1 + config.end_tokens.len().max(1),
            _ => 1,
        };
        match knob {
            _ if !knob.is_on(config) => {}
            Knob::Temperature => self.push(Temperature(config.temperature)),
            Knob::TopK if rules.ties_survive_top_k => self.push(TopK(config.top_k.max(keep))),
            Knob::TopK => self.push(TopKExactly(config.top_k.max(keep))),
            Knob::TopP if rules.top_p_from_the_top => self.push(TopPFromTheTop { p: config.top_p, keep }),
            Knob::TopP => self.push(TopP { p: config.top_p, keep }),
            Knob::MinP => self.push(MinP { share: config.min_p, keep }),
            Knob::TypicalP if rules.ties_survive_typical_p => self.push(TypicalP { mass: config.typical_p, keep }),
            Knob::TypicalP => self.push(TypicalPExactly { mass: config.typical_p, keep }),
            Knob::EpsilonCutoff => self.push(EpsilonCutoff { epsilon: config.epsilon_cutoff, keep }),
            Knob::EtaCutoff => self.push(EtaCutoff { epsilon: config.eta_cutoff, keep }),
        }
    }

    fn push(&mut self, processor: impl LogitsProcessor + 'static) {
        self.0.push(Arc::new(processor));
    }

    /// A chain of the processors given.
    pub fn of(processors: Vec<Arc<dyn LogitsProcessor>>) -> Self {
        Self(processors)
    }

    /// The processors up to and with the one of this name, and those behind it; without one of this name, all are behind.
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

    /// The error where the processors leave nothing to choose.
    pub(crate) fn nothing_left(&self, place: Place) -> Error {
        Error::NothingLeft { place, processors: self.names() }
    }

    /// The highest of the logits that the chain has left behind, `[vocab]`; minus infinity where no token is possible.
    ///
    /// # Errors
    /// When the knobs have taken a logit out of float32's range: nothing can be compared with it.
    pub(crate) fn highest(&self, processed: &[f32]) -> Result<f32> {
        // No early exit, so that many are compared side by side; what is no number compares with nothing.
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

#[cfg(test)]
const START: Step = Step { prompt: &[], generated: &[] };

/// What becomes of the logits.
#[cfg(test)]
fn processed(processor: &dyn LogitsProcessor, step: &Step, logits: &[f32]) -> Vec<f32> {
    let mut logits = logits.to_vec();
    processor.process(step, &mut logits);
    logits
}

/// The ids that are left.
#[cfg(test)]
fn kept_after(processor: &dyn LogitsProcessor, step: &Step, logits: &[f32]) -> Vec<usize> {
    let processed = processed(processor, step, logits);
    (0..logits.len()).filter(|&id| processed[id] > f32::NEG_INFINITY).collect()
}

#[cfg(test)]
fn kept(processor: &dyn LogitsProcessor, logits: &[f32]) -> Vec<usize> {
    kept_after(processor, &START, logits)
}

/// The logits of the six probabilities of the example that tutorials work by hand.
#[cfg(test)]
fn six() -> Vec<f32> {
    [0.40_f32, 0.30, 0.20, 0.05, 0.03, 0.02].iter().map(|p| p.ln()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::named::Named;
    use crate::semantics::Semantics;

    /// Every knob on.
    fn all() -> GenerationConfig {
        GenerationConfig {
            strategy: Strategy::Sample,
            min_new_tokens: 3,
            temperature: 0.8,
            top_k: 5,
            top_p: 0.9,
            min_p: 0.1,
            typical_p: 0.9,
            epsilon_cutoff: 0.01,
            eta_cutoff: 0.01,
            repetition_penalty: 1.2,
            presence_penalty: 0.1,
            frequency_penalty: 0.1,
            no_repeat_ngram_size: 3,
            bad_words: vec![vec![1]],
            suppress_tokens: vec![2],
            logit_bias: vec![(vec![3], 1.0)],
            end_tokens: vec![4],
            ..Default::default()
        }
    }

    /// Where the constraint goes, whatever it is.
    fn constraint() -> Option<Arc<dyn LogitsProcessor>> {
        struct Constraint;
        impl LogitsProcessor for Constraint {
            fn name(&self) -> &'static str {
                "constraint"
            }
            fn process(&self, _: &Step, _: &mut [f32]) {}
        }
        Some(Arc::new(Constraint))
    }

    const BY_THE_IDS: [&str; 9] = [
        "logit-bias",
        "repetition-penalty",
        "presence-penalty",
        "frequency-penalty",
        "no-repeat-ngram-size",
        "bad-words",
        "min-new-tokens",
        "suppress-tokens",
        "constraint",
    ];

    #[test]
    fn the_chain_has_one_order_and_samplings_part_only_when_sampling() {
        let names = Chain::new(&all(), constraint()).names();
        assert_eq!(names[..9], BY_THE_IDS);
        let sampling = ["temperature", "top-k", "top-p", "min-p", "typical-p", "epsilon-cutoff", "eta-cutoff"];
        assert_eq!(names[9..], sampling);
        for strategy in [Strategy::Greedy, Strategy::Beam, Strategy::DiverseBeam, Strategy::Exact] {
            let chain = Chain::new(&GenerationConfig { strategy, ..all() }, constraint());
            assert_eq!(chain.names(), BY_THE_IDS, "{strategy:?}");
        }
    }

    #[test]
    fn other_stacks_have_orders_of_their_own() {
        let sampling =
            |semantics| Chain::new(&GenerationConfig { semantics, ..all() }, constraint()).names().split_off(9);
        let llamacpp = ["top-k", "typical-p", "top-p", "min-p", "epsilon-cutoff", "eta-cutoff", "temperature"];
        assert_eq!(sampling(Semantics::Llamacpp), llamacpp);
        let mlx = ["top-p", "min-p", "top-k", "typical-p", "epsilon-cutoff", "eta-cutoff", "temperature"];
        assert_eq!(sampling(Semantics::Mlx), mlx);
        for &semantics in Semantics::ALL {
            assert_eq!(sampling(semantics), Rules::of(semantics).order.map(Knob::name));
        }
    }

    #[test]
    fn a_score_beyond_float32_is_refused_and_none_left_is_not() {
        let of = |processor: Arc<dyn LogitsProcessor>, logits: &[f32]| {
            let (chain, mut logits) = (Chain::of(vec![processor]), logits.to_vec());
            chain.process(&Step { prompt: &[1], generated: &[] }, &mut logits);
            chain.highest(&logits).map_err(|error| error.to_string())
        };
        let penalty = |penalty| Arc::new(RepetitionPenalty { penalty, history: History::All });
        assert_eq!(of(penalty(2.0), &[1.0, 8.0, f32::NEG_INFINITY]), Ok(4.0));
        let error = of(penalty(1e-40), &[1.0, 8.0, 2.0]).unwrap_err();
        assert!(
            error.starts_with("the knobs take a token's score beyond what float32 holds (repetition-penalty)"),
            "{error}"
        );
        assert!(of(Arc::new(Temperature(1e-6)), &[1.0, 1e33]).unwrap_err().contains("(temperature)"));
        // A small temperature alone is no such thing.
        assert_eq!(of(Arc::new(Temperature(1e-5)), &[10.0, 20.0]), Ok(20.0 / 1e-5));
        assert!(of(Arc::new(LogitBias::new(&[(vec![0], f32::NAN)])), &[1.0, 2.0]).is_err());
        assert_eq!(of(Arc::new(Suppress(vec![0, 1])), &[1.0, 2.0]), Ok(f32::NEG_INFINITY));
    }

    #[test]
    fn what_is_off_is_not_in_the_chain() {
        for strategy in [Strategy::Greedy, Strategy::Sample, Strategy::BeamSample] {
            assert!(Chain::new(&GenerationConfig { strategy, ..Default::default() }, None).is_empty());
        }
        // No end token, none to wait for.
        assert!(Chain::new(&GenerationConfig { min_new_tokens: 3, ..Default::default() }, None).is_empty());
    }

    #[test]
    fn a_sampled_beam_always_has_a_way_to_go_on() {
        let kept = |end_tokens: Vec<u32>| {
            let sharp = GenerationConfig {
                strategy: Strategy::BeamSample,
                top_k: 1,
                top_p: 0.1,
                end_tokens,
                ..Default::default()
            };
            let mut logits = six();
            Chain::new(&sharp, None).process(&START, &mut logits);
            logits.iter().filter(|logit| logit.is_finite()).count()
        };
        assert_eq!((kept(vec![]), kept(vec![0]), kept(vec![0, 1, 2])), (2, 2, 4));
    }

    #[test]
    fn an_observer_sees_each_step() {
        let config = GenerationConfig { suppress_tokens: vec![0], bad_words: vec![vec![1]], ..Default::default() };
        let chain = Chain::new(&config, None);
        let mut seen = Vec::new();
        let mut logits = [1.0, 2.0];
        chain.process_observed(&START, &mut logits, &mut |name, logits| seen.push((name, logits.to_vec())));
        let gone = f32::NEG_INFINITY;
        assert_eq!(seen, [("bad-words", vec![1.0, gone]), ("suppress-tokens", vec![gone, gone])]);
    }
}
