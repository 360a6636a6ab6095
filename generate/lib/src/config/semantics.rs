//! Whose reading of the knobs counts.

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
