//! The knobs that reshape the distribution to sample from: their order and their processors.

mod masses;
mod survivors;
mod thresholds;

use super::{Processor, rules::Rules};
use crate::config::{GenerationConfig, KNOBS, Semantics, Strategy};
use crate::named::{Named, named};

pub use masses::{top_p, top_p_from_the_top, typical_p, typical_p_exactly};
pub use thresholds::{epsilon_cutoff, eta_cutoff, min_p, temperature, top_k, top_k_exactly};

named! {
    /// The knobs that reshape a distribution to sample from.
    pub(crate) SamplingKnob {
        /// Divides the logits.
        Temperature = "temperature",
        /// Keeps the k most probable tokens.
        TopK = "top-k",
        /// Keeps the most probable tokens until their sum reaches p.
        TopP = "top-p",
        /// Keeps the tokens whose probability is at least this share of the largest.
        MinP = "min-p",
        /// Keeps the tokens nearest to the expected surprisal until their sum reaches p.
        TypicalP = "typical-p",
        /// Keeps the tokens of at least this probability.
        EpsilonCutoff = "epsilon-cutoff",
        /// The same, with a lower bound where the distribution is flat.
        EtaCutoff = "eta-cutoff",
    }
}

impl SamplingKnob {
    /// Whether `config` sets it to something that can change a distribution.
    pub(crate) fn is_on(self, config: &GenerationConfig) -> bool {
        KNOBS.iter().any(|knob| knob.label == self.name() && !knob.is_off(knob.of(config)))
    }

    /// The knobs that a stack has, in its order.
    pub(crate) fn of_stack(semantics: Semantics) -> &'static [Self] {
        use SamplingKnob::{EpsilonCutoff, EtaCutoff, MinP, Temperature, TopK, TopP, TypicalP};
        match semantics {
            Semantics::Hf => &[Temperature, TopK, TopP, MinP, TypicalP, EpsilonCutoff, EtaCutoff],
            Semantics::Llamacpp => &[TopK, TypicalP, TopP, MinP, Temperature],
            Semantics::Mlx => &[TopP, MinP, TopK, Temperature],
        }
    }

    /// The active knobs in the order of a stack. Knobs that the stack lacks come after its own, but
    /// before its temperature if that is last.
    pub(crate) fn order(semantics: Semantics, config: &GenerationConfig) -> Vec<Self> {
        let has = Self::of_stack(semantics);
        let (first, last) = has.split_at(has.len() - usize::from(has.ends_with(&[Self::Temperature])));
        let lacking = Self::ALL.iter().filter(|knob| !has.contains(knob));
        first.iter().chain(lacking).chain(last).copied().filter(|knob| knob.is_on(config)).collect()
    }

    /// Its processor.
    pub(super) fn processor(self, config: &GenerationConfig, rules: &Rules) -> Processor {
        // A beam left with only end tokens could not continue, so keep one more token, as
        // transformers does.
        let keep = match config.strategy {
            Strategy::BeamSample => config.tokens_for_a_beam(),
            _ => 1,
        };
        match self {
            Self::Temperature => temperature(config.temperature),
            Self::TopK if rules.ties_survive_top_k => top_k(config.top_k.max(keep)),
            Self::TopK => top_k_exactly(config.top_k.max(keep)),
            Self::TopP if rules.top_p_from_the_top => top_p_from_the_top(config.top_p, keep),
            Self::TopP => top_p(config.top_p, keep),
            Self::MinP => min_p(config.min_p, keep),
            Self::TypicalP if rules.ties_survive_typical_p => typical_p(config.typical_p, keep),
            Self::TypicalP => typical_p_exactly(config.typical_p, keep),
            Self::EpsilonCutoff => epsilon_cutoff(config.epsilon_cutoff, keep),
            Self::EtaCutoff => eta_cutoff(config.eta_cutoff, keep),
        }
    }
}
