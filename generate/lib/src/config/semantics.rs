//! Whose reading of the knobs counts, and what each stack takes where nobody says anything.

use crate::named::named;

named! {
    /// Whose reading of the knobs counts.
    pub Semantics default Hf {
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

/// What a stack's own program uses where the user says nothing; every other knob is off in all of
/// them.
///
/// transformers has none here: a folder's `generation_config.json` says what its model wants
/// (where a file leaves top_k out, transformers itself takes 50). llama.cpp's are those of
/// `llama-cli`, MLX's those of `mlx_lm.generate`.
pub fn defaults(semantics: Semantics) -> Option<Defaults> {
    match semantics {
        Semantics::Hf => None,
        Semantics::Llamacpp => Some(Defaults { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05 }),
        Semantics::Mlx => Some(Defaults { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0 }),
    }
}
