//! Logits processors: small named steps that reshape the next token's distribution, applied in a
//! fixed order.
//!
//! Each one edits the float32 logits of the last position on the host; a removed token's logit is
//! minus infinity. Each knob behaves like Hugging Face transformers' processor of the same name,
//! ties and boundary cases included (presence and frequency penalties, which transformers lacks,
//! are OpenAI's). The order is transformers' too: first the processors that depend on the ids so
//! far, then a constraint's mask, then, when sampling, those that reshape the distribution.
//! [`crate::semantics`] applies the same knobs in the order and by the rules of other programs.

mod bans;
mod chain;
mod penalties;
mod rules;
mod sampling;

#[cfg(test)]
mod parity;
#[cfg(test)]
mod properties;

pub use bans::{bad_words, logit_bias, min_new_tokens, no_repeat_ngram, suppress};
pub use chain::Chain;
pub use penalties::{History, frequency_penalty, presence_penalty, repetition_penalty};
pub(crate) use rules::Rules;
pub use sampling::*;

/// The tokens so far, which a processor sees besides the logits.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The prompt's token ids.
    pub prompt: &'a [u32],
    /// The token ids generated so far; their number is the step's number.
    pub generated: &'a [u32],
}

impl Step<'_> {
    /// Number of tokens so far.
    fn len(&self) -> usize {
        self.prompt.len() + self.generated.len()
    }

    /// The last `count` tokens, in order; all if there are fewer.
    fn last(&self, count: usize) -> impl Iterator<Item = u32> {
        self.prompt.iter().chain(self.generated).skip(self.len().saturating_sub(count)).copied()
    }
}

/// One step of the chain between the model's logits and the choice of a token.
pub trait LogitsProcessor: Send + Sync {
    /// The knob's name, such as "top-k".
    fn name(&self) -> &'static str;

    /// Edits the logits or log-probabilities of one position, `[vocab]`. Values are finite or minus
    /// infinity, before and after. A ban may remove the last token left; a processor that truncates
    /// by probability keeps at least one of the tokens it gets.
    fn process(&self, step: &Step, logits: &mut [f32]);

    /// Whether it may remove the last token left.
    fn may_leave_none(&self) -> bool {
        true
    }
}

type Edit = dyn Fn(&Step, &mut [f32]) + Send + Sync;

/// A knob's processor: its name and the function that edits the logits.
pub struct Processor {
    name: &'static str,
    is_ban: bool,
    edit: Box<Edit>,
}

impl Processor {
    fn new(name: &'static str, edit: impl Fn(&Step, &mut [f32]) + Send + Sync + 'static) -> Self {
        Self { name, is_ban: false, edit: Box::new(edit) }
    }

    /// A processor that may remove all tokens.
    fn ban(name: &'static str, edit: impl Fn(&Step, &mut [f32]) + Send + Sync + 'static) -> Self {
        Self { is_ban: true, ..Self::new(name, edit) }
    }
}

impl LogitsProcessor for Processor {
    fn name(&self) -> &'static str {
        self.name
    }

    fn process(&self, step: &Step, logits: &mut [f32]) {
        (self.edit)(step, logits);
    }

    fn may_leave_none(&self) -> bool {
        self.is_ban
    }
}

#[cfg(test)]
const START: Step = Step { prompt: &[], generated: &[] };

/// The processed logits.
#[cfg(test)]
fn processed(processor: &dyn LogitsProcessor, step: &Step, logits: &[f32]) -> Vec<f32> {
    let mut logits = logits.to_vec();
    processor.process(step, &mut logits);
    logits
}

/// The ids that are not removed.
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
    use std::sync::Arc;

    use super::*;
    use crate::config::Semantics;
    use crate::config::{GenerationConfig, Strategy};
    use crate::named::Named;

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

    /// A placeholder for the constraint.
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
        let bans =
            ["logit-bias", "no-repeat-ngram-size", "bad-words", "min-new-tokens", "suppress-tokens", "constraint"];
        assert_eq!(Chain::new(&all(), constraint()).bans(), bans);
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
            let order = SamplingKnob::order(semantics, &all());
            assert_eq!(sampling(semantics), order.into_iter().map(SamplingKnob::name).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_score_beyond_float32_is_refused_and_none_left_is_not() {
        let of = |processor: Arc<dyn LogitsProcessor>, logits: &[f32]| {
            let (chain, mut logits) = (Chain::of(vec![processor]), logits.to_vec());
            chain.process(&Step { prompt: &[1], generated: &[] }, &mut logits);
            chain.checked_highest(&logits).map_err(|error| error.to_string())
        };
        let penalty = |penalty| Arc::new(repetition_penalty(penalty, History::All));
        assert_eq!(of(penalty(2.0), &[1.0, 8.0, f32::NEG_INFINITY]), Ok(4.0));
        let error = of(penalty(1e-40), &[1.0, 8.0, 2.0]).unwrap_err();
        assert!(
            error.starts_with("the knobs take a token's score out of float32's range (repetition-penalty)"),
            "{error}"
        );
        assert!(of(Arc::new(temperature(1e-6)), &[1.0, 1e33]).unwrap_err().contains("(temperature)"));
        // A small temperature alone is not refused.
        assert_eq!(of(Arc::new(temperature(1e-5)), &[10.0, 20.0]), Ok(20.0 / 1e-5));
        assert!(of(Arc::new(logit_bias(&[(vec![0], f32::NAN)])), &[1.0, 2.0]).is_err());
        assert_eq!(of(Arc::new(suppress(vec![0, 1])), &[1.0, 2.0]), Ok(f32::NEG_INFINITY));
    }

    #[test]
    fn what_is_off_is_not_in_the_chain() {
        for strategy in [Strategy::Greedy, Strategy::Sample, Strategy::BeamSample] {
            assert!(Chain::new(&GenerationConfig { strategy, ..Default::default() }, None).is_empty());
        }
        // Without an end token there is nothing to suppress.
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
