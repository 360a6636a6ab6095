//! How the stacks differ in applying the knobs, as a table of rules.

use super::History;
use crate::config::Semantics;

/// One stack's rules for the knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The stack whose order of sampling knobs applies.
    pub(crate) order: Semantics,
    /// The tokens that the repetition penalty applies to.
    pub(crate) repetition_history: History,
    /// The tokens that the presence and frequency penalties count.
    pub(crate) count_history: History,
    /// Whether top-k keeps tokens that tie with the k-th.
    pub(crate) ties_survive_top_k: bool,
    /// Whether typical-p keeps tokens that tie with the last one kept.
    pub(crate) ties_survive_typical_p: bool,
    /// Whether top-p sums downwards from the most probable token.
    pub(crate) top_p_from_the_top: bool,
}

impl Rules {
    /// The rules of a stack: transformers' `GenerationMixin._get_logits_processor`, llama.cpp's
    /// `common_params_sampling` and `llama-sampling.cpp`, mlx-lm's `sample_utils.py`.
    ///
    /// Two differences between those sources do not change the result and have no entry: llama.cpp
    /// multiplies a score of exactly 0 by the repetition penalty where transformers divides it, and
    /// MLX works on log-probabilities.
    pub(crate) fn of(semantics: Semantics) -> Self {
        let hf = Self {
            order: semantics,
            repetition_history: History::All,
            count_history: History::Generated,
            ties_survive_top_k: true,
            ties_survive_typical_p: true,
            top_p_from_the_top: false,
        };
        let last = |count: usize| Self {
            repetition_history: History::Last(count),
            count_history: History::Last(count),
            ties_survive_top_k: false,
            ..hf
        };
        match semantics {
            Semantics::Hf => hf,
            Semantics::Llamacpp => Self { ties_survive_typical_p: false, top_p_from_the_top: true, ..last(64) },
            Semantics::Mlx => last(20),
        }
    }
}
