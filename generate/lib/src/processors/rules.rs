//! What a stack does with the knobs: a table of the points on which the stacks differ.

use super::History;
use crate::config::{GenerationConfig, Semantics};

/// The knobs that reshape a distribution to sample from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knob {
    Temperature,
    TopK,
    TopP,
    MinP,
    TypicalP,
    EpsilonCutoff,
    EtaCutoff,
}

impl Knob {
    /// Whether `config` sets it to something that can change a distribution.
    pub(crate) fn is_on(self, config: &GenerationConfig) -> bool {
        match self {
            Self::Temperature => config.temperature != 1.0,
            Self::TopK => config.top_k > 0,
            Self::TopP => config.top_p < 1.0,
            Self::MinP => config.min_p > 0.0,
            Self::TypicalP => config.typical_p < 1.0,
            Self::EpsilonCutoff => config.epsilon_cutoff > 0.0,
            Self::EtaCutoff => config.eta_cutoff > 0.0,
        }
    }

    /// Its name, such as "top-k".
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Temperature => "temperature",
            Self::TopK => "top-k",
            Self::TopP => "top-p",
            Self::MinP => "min-p",
            Self::TypicalP => "typical-p",
            Self::EpsilonCutoff => "epsilon-cutoff",
            Self::EtaCutoff => "eta-cutoff",
        }
    }
}

/// How one stack understands the knobs. A knob that it lacks has the meaning that it has here, before its temperature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The sampling knobs' order.
    pub(crate) order: [Knob; 7],
    /// What the repetition penalty looks at.
    pub(crate) repetition_history: History,
    /// What the presence and frequency penalties count.
    pub(crate) count_history: History,
    /// Whether top-k keeps what ties with the k-th.
    pub(crate) ties_survive_top_k: bool,
    /// Whether typical-p keeps what ties with the last it keeps.
    pub(crate) ties_survive_typical_p: bool,
    /// Whether top-p sums from the most probable token down.
    pub(crate) top_p_from_the_top: bool,
}

impl Rules {
    /// The rules of a stack: transformers' `GenerationMixin._get_logits_processor`, llama.cpp's `common_params_sampling` and
    /// `llama-sampling.cpp`, mlx-lm's `sample_utils.py`.
    ///
    /// Two differences in those sources make none in the result and have no entry: llama.cpp multiplies a score of exactly 0
    /// by the repetition penalty where transformers divides it, and MLX works on log-probabilities.
    pub(crate) fn of(semantics: Semantics) -> Self {
        use Knob::{EpsilonCutoff, EtaCutoff, MinP, Temperature, TopK, TopP, TypicalP};
        match semantics {
            Semantics::Hf => Self {
                order: [Temperature, TopK, TopP, MinP, TypicalP, EpsilonCutoff, EtaCutoff],
                repetition_history: History::All,
                count_history: History::Generated,
                ties_survive_top_k: true,
                ties_survive_typical_p: true,
                top_p_from_the_top: false,
            },
            Semantics::Llamacpp => Self {
                order: [TopK, TypicalP, TopP, MinP, EpsilonCutoff, EtaCutoff, Temperature],
                repetition_history: History::Last(64),
                count_history: History::Last(64),
                ties_survive_top_k: false,
                ties_survive_typical_p: false,
                top_p_from_the_top: true,
            },
            Semantics::Mlx => Self {
                order: [TopP, MinP, TopK, TypicalP, EpsilonCutoff, EtaCutoff, Temperature],
                repetition_history: History::Last(20),
                count_history: History::Last(20),
                ties_survive_top_k: false,
                ties_survive_typical_p: true,
                top_p_from_the_top: false,
            },
        }
    }

    /// The knobs that are on, in order.
    pub(crate) fn order_of_what_is_on(&self, config: &GenerationConfig) -> Vec<Knob> {
        self.order.into_iter().filter(|knob| knob.is_on(config)).collect()
    }
}
