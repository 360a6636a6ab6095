//! The flags of every command that opens a model and reads texts: `--weights` and
//! `--special-tokens`.

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ember_data::tokenizer::SpecialTokens;
use ember_decoding::named::Named;
use ember_model::WeightType;

/// What the model's matrices are stored as while it works.
#[derive(Args, Clone, Copy, Debug)]
pub struct WeightsArgs {
    /// Number type of the model's matrices: each token reads all of them, so fewer bits are faster
    /// and less exact. A CPU computes in float32 whatever their type; a GPU computes with bf16
    /// matrices in bf16, and has no int8
    #[arg(id = "weights", long = "weights", value_parser = weight_type(), default_value = "f32", value_name = "TYPE", help_heading = "Everywhere")]
    pub(crate) chosen: WeightType,
}

/// What the names of special tokens in a text are.
#[derive(Args, Clone, Copy, Debug)]
pub struct SpecialTokensArgs {
    /// How the name of a special token, such as <|endoftext|> or <s>, is read in a given text: as
    /// that token, as in transformers, or as characters. The tokens that the tokenizer puts around
    /// texts are added either way
    #[arg(id = "special_tokens", long = "special-tokens", value_parser = special_tokens(), default_value = "parse", value_name = "HOW")]
    pub(super) chosen: SpecialTokens,
}

pub(super) fn weight_type() -> impl TypedValueParser<Value = WeightType> {
    words([
        (WeightType::F32, "f32", "float32: nothing is lost"),
        (WeightType::Bf16, "bf16", "bfloat16: half the memory"),
        (WeightType::Int8, "int8", "8 bits, and a scale for every 32 weights: about a quarter of the memory"),
    ])
}

fn special_tokens() -> impl TypedValueParser<Value = SpecialTokens> {
    words([(SpecialTokens::Parse, "parse", "The token"), (SpecialTokens::Text, "text", "Its characters")])
}

/// Parses a library's enum by its variants' names.
pub(super) fn named<T: Named>() -> impl TypedValueParser<Value = T> {
    words(T::ALL.iter().map(|value| (*value, value.name(), value.meaning())))
}

/// Parses one of these values by its name; `--help` shows each one's meaning.
pub(super) fn words<T: Copy + Send + Sync + 'static>(
    words: impl IntoIterator<Item = (T, &'static str, &'static str)>,
) -> impl TypedValueParser<Value = T> {
    let words = Vec::from_iter(words);
    let values: Vec<_> = words.iter().map(|(_, name, meaning)| PossibleValue::new(name).help(meaning)).collect();
    let value = move |name: String| words.iter().find(|word| word.1 == name).expect("one of the values").0;
    PossibleValuesParser::new(values).map(value)
}
