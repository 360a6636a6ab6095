//! The types of knob values, and their form in `generation_config.json`.

use std::collections::{HashMap, hash_map::Entry};

use serde_json::{Value, json};

use crate::named::Named;

/// Lists of ids longer than this many characters are summarised by their length.
const MAX_SHOWN: usize = 40;

/// The value of a knob of any type.
pub trait KnobValue {
    /// Its form in Hugging Face's `generation_config.json`; null for a limit that is not set.
    fn to_json(&self) -> Value;

    /// The number to check against the knob's range; `None` if it is not a number or not set.
    fn number(&self) -> Option<f64> {
        None
    }

    /// The token ids in it, to check against the vocabulary.
    fn ids(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Its text in a sentence.
    fn words(&self) -> String {
        let json = self.to_json();
        match &json {
            Value::Array(list) if json.to_string().len() > MAX_SHOWN => format!("({} entries)", list.len()),
            Value::String(word) => word.clone(),
            _ => json.to_string(),
        }
    }
}

/// The command-line form of a value.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// A whole number, 0 or more.
    Count,
    /// Any number.
    Number,
    /// One of some words, listed with their meanings.
    Word(fn() -> Vec<(&'static str, &'static str)>),
    /// A text; the flag may be repeated.
    Texts,
    /// A form of its own.
    Special,
}

/// Parsing of a [`KnobValue`].
pub(super) trait Reads: Sized {
    /// Its command-line form.
    const FORM: Form = Form::Special;

    /// [`Self::kind`] if it is constant.
    const KIND: &str = "";

    /// The expected kind of value, in words that follow "it must be".
    fn kind() -> String {
        Self::KIND.to_owned()
    }

    /// Reads the value from `json`; `None` if it is of another kind.
    fn from_json(json: &Value) -> Option<Self>;

    /// Parses `text` from the command line into `slot`; `None` if it does not parse.
    fn take(slot: &mut Option<Self>, _text: &str) {
        *slot = None;
    }
}

/// Implements a type of numbers: its kind, its command-line form, and its conversion to and from
/// JSON.
macro_rules! number {
    ($type:ty, $kind:literal, $form:ident, $to_json:expr, $from_json:expr) => {
        impl KnobValue for $type {
            fn to_json(&self) -> Value {
                $to_json(self)
            }

            fn number(&self) -> Option<f64> {
                Some(*self as f64)
            }

            fn words(&self) -> String {
                self.to_string()
            }
        }

        impl Reads for $type {
            const FORM: Form = Form::$form;

            const KIND: &str = $kind;

            fn from_json(json: &Value) -> Option<Self> {
                $from_json(json)
            }

            fn take(slot: &mut Option<Self>, text: &str) {
                *slot = text.parse().ok();
            }
        }
    };
}

number!(usize, "a whole number, 0 or more", Count, |count| json!(count), |json: &Value| json.as_u64()?.try_into().ok());
number!(f64, "a number", Number, |number| json!(number), Value::as_f64);
number!(f32, "a number", Number, |number: &f32| json!(as_typed(*number)), |json: &Value| {
    json.as_f64().map(|number| number as f32)
});

/// A float32 as the shortest decimal number that was typed for it: 0.8, not 0.800000011920929.
pub fn as_typed(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::from(number))
}

impl KnobValue for Option<f64> {
    fn to_json(&self) -> Value {
        json!(self)
    }

    fn number(&self) -> Option<f64> {
        *self
    }
}

/// A word; in JSON the words true and false are written as booleans.
impl<T: Named> KnobValue for T {
    fn to_json(&self) -> Value {
        self.name().parse().map_or_else(|_| json!(self.name()), Value::Bool)
    }
}

impl<T: Named> Reads for T {
    const FORM: Form = Form::Word(|| T::ALL.iter().map(|word| (word.name(), word.meaning())).collect());

    fn kind() -> String {
        let words: Vec<String> = T::ALL.iter().map(|word| word.to_json().to_string()).collect();
        let (last, others) = words.split_last().expect("there is a word");
        format!("{} or {last}", others.join(", "))
    }

    fn from_json(json: &Value) -> Option<Self> {
        T::ALL.iter().copied().find(|word| word.to_json() == *json)
    }

    fn take(slot: &mut Option<Self>, text: &str) {
        *slot = T::from_name(text);
    }
}

/// Strings.
impl KnobValue for Vec<String> {
    fn to_json(&self) -> Value {
        json!(self)
    }
}

impl Reads for Vec<String> {
    const FORM: Form = Form::Texts;

    const KIND: &str = "a string or a list of strings, none of them empty";

    fn from_json(json: &Value) -> Option<Self> {
        let text = |json: &Value| json.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        match json {
            Value::Array(list) => list.iter().map(text).collect(),
            single => text(single).map(|text| vec![text]),
        }
    }

    fn take(slot: &mut Option<Self>, text: &str) {
        slot.get_or_insert_default().push(text.to_owned());
    }
}

/// Token ids.
impl KnobValue for Vec<u32> {
    fn to_json(&self) -> Value {
        json!(self)
    }

    fn ids(&self) -> Vec<u32> {
        self.clone()
    }
}

impl Reads for Vec<u32> {
    const KIND: &str = "a list of token ids";

    fn from_json(json: &Value) -> Option<Self> {
        json.as_array()?.iter().map(|id| id.as_u64()?.try_into().ok()).collect()
    }
}

/// Sequences of token ids.
impl KnobValue for Vec<Vec<u32>> {
    fn to_json(&self) -> Value {
        json!(self)
    }

    fn ids(&self) -> Vec<u32> {
        self.concat()
    }
}

impl Reads for Vec<Vec<u32>> {
    const KIND: &str = "a list of lists of token ids, none of them empty";

    fn from_json(json: &Value) -> Option<Self> {
        json.as_array()?.iter().map(sequence).collect()
    }
}

/// Sequences of token ids, each with the bias added to its last token's logit.
impl KnobValue for Vec<(Vec<u32>, f32)> {
    fn to_json(&self) -> Value {
        self.iter().map(|(ids, bias)| json!([ids, bias.to_json()])).collect()
    }

    /// The bias with the largest absolute value.
    fn number(&self) -> Option<f64> {
        self.iter().map(|&(_, bias)| f64::from(bias)).max_by(|a, b| a.abs().total_cmp(&b.abs()))
    }

    fn ids(&self) -> Vec<u32> {
        self.iter().flat_map(|(ids, _)| ids.clone()).collect()
    }
}

impl Reads for Vec<(Vec<u32>, f32)> {
    const KIND: &str = "a list of [[ids...], bias], such as [[[5, 6], -2.5]]";

    /// Reads the list that transformers reads, or the map that it writes for a dict, `{"(5, 6)":
    /// -2.5}`. If a sequence is given twice, the later one counts, as in transformers.
    fn from_json(json: &Value) -> Option<Self> {
        let pairs: Option<Vec<(Vec<u32>, f32)>> = match json {
            Value::Array(list) => list.iter().map(pair).collect(),
            Value::Object(map) => map.iter().map(|(key, bias)| Some((tuple(key)?, finite(bias)?))).collect(),
            _ => None,
        };
        pairs.map(last_of_each)
    }
}

/// Keeps the last bias of each sequence, in the position of the first.
pub(crate) fn last_of_each(biases: impl IntoIterator<Item = (Vec<u32>, f32)>) -> Vec<(Vec<u32>, f32)> {
    let mut unique: Vec<(Vec<u32>, f32)> = Vec::new();
    let mut places: HashMap<Vec<u32>, usize> = HashMap::new();
    for (ids, bias) in biases {
        match places.entry(ids) {
            Entry::Occupied(place) => unique[*place.get()].1 = bias,
            Entry::Vacant(place) => {
                unique.push((place.key().clone(), bias));
                place.insert(unique.len() - 1);
            }
        }
    }
    unique
}

/// Token ids, at least one.
fn sequence(json: &Value) -> Option<Vec<u32>> {
    Vec::<u32>::from_json(json).filter(|ids| !ids.is_empty())
}

/// `[[5, 6], -2.5]`.
fn pair(json: &Value) -> Option<(Vec<u32>, f32)> {
    match json.as_array()?.as_slice() {
        [ids, bias] => Some((sequence(ids)?, finite(bias)?)),
        _ => None,
    }
}

/// Python's `(5, 6)`, or `(5,)`.
fn tuple(text: &str) -> Option<Vec<u32>> {
    let inner = text.trim().strip_prefix('(')?.strip_suffix(')')?;
    let ids: Vec<&str> = inner.split(',').map(str::trim).filter(|id| !id.is_empty()).collect();
    ids.iter().map(|id| id.parse().ok()).collect::<Option<Vec<u32>>>().filter(|ids| !ids.is_empty())
}

fn finite(json: &Value) -> Option<f32> {
    f32::from_json(json).filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::EarlyStopping;
    use proptest::prelude::*;

    #[test]
    fn a_bias_is_read_as_a_list_and_as_the_map_that_transformers_writes() {
        let read = Vec::<(Vec<u32>, f32)>::from_json;
        let expected = vec![(vec![5, 6], -2.5), (vec![7], 1.0)];
        assert_eq!(read(&json!([[[5, 6], -2.5], [[7], 1]])), Some(expected.clone()));
        assert_eq!(read(&json!({"(5, 6)": -2.5, "(7,)": 1.0})), Some(expected));
        assert_eq!(read(&json!([[[5], 1.0], [[6], 2.0], [[5], 3.0]])), Some(vec![(vec![5], 3.0), (vec![6], 2.0)]));
        for wrong in [json!([[[], 1.0]]), json!([[5, 1.0]]), json!([[[5], "x"]]), json!({"5": 1.0}), json!({"()": 1.0})]
        {
            assert_eq!(read(&wrong), None, "{wrong}");
        }
    }

    /// Comparing each entry with all before it would take minutes.
    #[test]
    fn many_biases_are_read_in_no_time() {
        let many = 200_000..400_000;
        let biases: Vec<_> = many.clone().chain(many.clone()).map(|id| (vec![id], id as f32)).collect();
        assert_eq!(last_of_each(biases), many.map(|id| (vec![id], id as f32)).collect::<Vec<_>>());
    }

    #[test]
    fn words_are_short() {
        assert_eq!(0.8_f32.words(), "0.8");
        assert_eq!(f32::NAN.words(), "NaN");
        assert_eq!(EarlyStopping::Never.words(), "never");
        assert_eq!(vec![1_u32, 2].words(), "[1,2]");
        assert_eq!((0..40).collect::<Vec<u32>>().words(), "(40 entries)");
    }

    proptest! {
        #[test]
        fn every_float32_reads_back_to_the_same_bits(bits: u32) {
            let number = f32::from_bits(bits);
            prop_assume!(number.is_finite());
            let text = number.to_json().to_string();
            let read: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(f32::from_json(&read).unwrap().to_bits(), bits, "{}", text);
        }
    }
}
