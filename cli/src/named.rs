//! A flag whose values are those of a library's enum.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use ember_decoding::named::Named;

/// Takes the names of the enum's values; `--help` tells what each means.
pub fn named<T: Named>() -> impl TypedValueParser<Value = T> {
    let value = |value: &T| PossibleValue::new(value.name()).help(value.meaning());
    PossibleValuesParser::new(T::ALL.iter().map(value))
        .map(|name| T::from_name(&name).expect("only names of values are let through"))
}
