//! The same knobs elsewhere: other stacks apply them in another order, with other rules and defaults, so the same numbers
//! give another distribution there. This module holds the stacks' defaults and measures where they part for one token.
//!
//! [`Chain::new`](crate::processors::Chain::new) builds a stack's chain; what is compared here are those same chains.

use crate::named::named;

mod compare;
mod explain;

pub use compare::{Cause, Difference, MOST_TOKENS, TokenDifference, compare};
pub use explain::explain;

named! {
    /// Whose reading of the knobs counts.
    Semantics default Hf {
        /// Hugging Face transformers'.
        Hf = "hf",
        /// llama.cpp's: temperature last, penalties on the last 64 tokens.
        Llamacpp = "llamacpp",
        /// MLX's (mlx-lm): top-p first, temperature last, penalties on the last 20 tokens.
        Mlx = "mlx",
    }
}

impl Semantics {
    /// The stack's name for people.
    pub fn stack(self) -> &'static str {
        match self {
            Self::Hf => "transformers",
            Self::Llamacpp => "llama.cpp",
            Self::Mlx => "MLX",
        }
    }
}

/// The values that a stack gives to knobs nobody set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Defaults {
    /// Temperature; 0 is greedy, as in the flag.
    pub temperature: f32,
    /// Top-k; 0 is off.
    pub top_k: usize,
    /// Top-p; 1 is off.
    pub top_p: f64,
    /// Min-p; 0 is off.
    pub min_p: f64,
}

/// What a stack's own program uses where the user says nothing; every other knob is off in all of them.
///
/// transformers' are all off here: a folder's `generation_config.json` says what its model wants (where a file leaves top_k
/// out, transformers itself takes 50). llama.cpp's are those of `llama-cli`, MLX's those of `mlx_lm.generate`.
pub fn defaults(semantics: Semantics) -> Defaults {
    match semantics {
        Semantics::Hf => Defaults { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0 },
        Semantics::Llamacpp => Defaults { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05 },
        Semantics::Mlx => Defaults { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0 },
    }
}
