//! `--special-tokens`: what the names of special tokens in a text are.

use clap::{Args, ValueEnum};
use ember_data::tokenizer::SpecialTokens;

/// The flag of every command that is given texts.
#[derive(Args, Clone, Copy, Debug)]
pub struct SpecialTokensArgs {
    /// What the name of a special token, such as <|endoftext|> or <s>, is in a text that is given: that token, as transformers
    /// reads it, or the characters of the name. What the tokenizer puts around texts is put there either way
    #[arg(long = "special-tokens", value_enum, default_value_t = SpecialTokensArg::Parse, value_name = "HOW")]
    special_tokens: SpecialTokensArg,
}

/// The values of the flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SpecialTokensArg {
    /// The token
    Parse,
    /// Its characters
    Text,
}

impl SpecialTokensArgs {
    /// What was chosen.
    pub(super) fn chosen(self) -> SpecialTokens {
        match self.special_tokens {
            SpecialTokensArg::Parse => SpecialTokens::Parse,
            SpecialTokensArg::Text => SpecialTokens::Text,
        }
    }
}
