//! What reshapes the distribution to sample from, and in which order: a knob's processor is a file
//! here, and below its lines.

mod survivors;
mod temperature;
mod thresholds;
mod top_k;
mod top_p;
mod typical_p;

use std::sync::Arc;

use super::rules::Rules;
use super::{LogitsProcessor, Step};
use crate::config::{GenerationConfig, KNOBS, Semantics, Strategy};
use crate::named::{Named, named};

pub use temperature::Temperature;
pub use thresholds::{EpsilonCutoff, EtaCutoff, MinP};
pub use top_k::{TopK, TopKExactly};
pub use top_p::{TopP, TopPFromTheTop};
pub use typical_p::{TypicalP, TypicalPExactly};

named! {
    /// The knobs that reshape a distribution to sample from.
    pub(crate) Knob {
        /// Divides the logits.
        Temperature = "temperature",
        /// The best.
        TopK = "top-k",
        /// The best up to a mass.
        TopP = "top-p",
        /// The best down to a share of the best one's probability.
        MinP = "min-p",
        /// Those about as surprising as one expects.
        TypicalP = "typical-p",
        /// The best down to a probability.
        EpsilonCutoff = "epsilon-cutoff",
        /// The same, down to a lower one where the distribution is flat.
        EtaCutoff = "eta-cutoff",
    }
}

impl Knob {
    /// Whether `config` sets it to something that can change a distribution.
    pub(crate) fn is_on(self, config: &GenerationConfig) -> bool {
        KNOBS.iter().any(|knob| knob.label == self.name() && !knob.is_off(knob.of(config)))
    }

    /// The knobs that a stack has, in its order.
    pub(crate) fn of_stack(semantics: Semantics) -> &'static [Self] {
        use Knob::{EpsilonCutoff, EtaCutoff, MinP, Temperature, TopK, TopP, TypicalP};
        match semantics {
            Semantics::Hf => &[Temperature, TopK, TopP, MinP, TypicalP, EpsilonCutoff, EtaCutoff],
            Semantics::Llamacpp => &[TopK, TypicalP, TopP, MinP, Temperature],
            Semantics::Mlx => &[TopP, MinP, TopK, Temperature],
        }
    }

    /// The knobs that are on, in the order of a stack. One that it lacks has the meaning that it
    /// has here, behind what the stack has, but before a temperature that comes last.
    pub(crate) fn order(semantics: Semantics, config: &GenerationConfig) -> Vec<Self> {
        let has = Self::of_stack(semantics);
        let (first, last) = has.split_at(has.len() - usize::from(has.ends_with(&[Self::Temperature])));
        let lacking = Self::ALL.iter().filter(|knob| !has.contains(knob));
        first.iter().chain(lacking).chain(last).copied().filter(|knob| knob.is_on(config)).collect()
    }

    /// Its processor.
    pub(super) fn processor(self, config: &GenerationConfig, rules: &Rules) -> Arc<dyn LogitsProcessor> {
        // A beam that can only end cannot go on: transformers leaves it a token beside the end
        // tokens.
        let keep = match config.strategy {
            Strategy::BeamSample => 1 + config.end_tokens.len().max(1),
            _ => 1,
        };
        match self {
            Self::Temperature => Arc::new(Temperature(config.temperature)),
            Self::TopK if rules.ties_survive_top_k => Arc::new(TopK(config.top_k.max(keep))),
            Self::TopK => Arc::new(TopKExactly(config.top_k.max(keep))),
            Self::TopP if rules.top_p_from_the_top => Arc::new(TopPFromTheTop { p: config.top_p, keep }),
            Self::TopP => Arc::new(TopP { p: config.top_p, keep }),
            Self::MinP => Arc::new(MinP { share: config.min_p, keep }),
            Self::TypicalP if rules.ties_survive_typical_p => Arc::new(TypicalP { mass: config.typical_p, keep }),
            Self::TypicalP => Arc::new(TypicalPExactly { mass: config.typical_p, keep }),
            Self::EpsilonCutoff => Arc::new(EpsilonCutoff { epsilon: config.epsilon_cutoff, keep }),
            Self::EtaCutoff => Arc::new(EtaCutoff { epsilon: config.eta_cutoff, keep }),
        }
    }
}
