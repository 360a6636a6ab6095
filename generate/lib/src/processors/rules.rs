//! What a stack does with the knobs: a table of the points on which the stacks differ.

use super::History;
use crate::config::Semantics;

/// How one stack understands the knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Whose order the sampling knobs have.
    pub(crate) order: Semantics,
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
    /// The rules of a stack: transformers' `GenerationMixin._get_logits_processor`, llama.cpp's
    /// `common_params_sampling` and `llama-sampling.cpp`, mlx-lm's `sample_utils.py`.
    ///
    /// Two differences in those sources make none in the result and have no entry: llama.cpp
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
