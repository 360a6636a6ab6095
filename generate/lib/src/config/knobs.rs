//! The table of knobs: what each is called, what it may be, and which strategies use it.

use std::fmt;

use serde_json::Value;

use super::value::FromJson;
use super::{EarlyStopping, GenerationConfig, KnobError, KnobValue, Overflow, Range, Semantics, Strategy};

/// The knobs that one source sets, flags or a file; `None` where it says nothing.
///
/// Each means what the field of the same name in [`GenerationConfig`] does.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Knobs {
    /// How the next token is chosen; in a file, what `do_sample` and the beams do not say by themselves.
    pub strategy: Option<Strategy>,
    /// A file's way to say that tokens are drawn.
    pub do_sample: Option<bool>,
    pub semantics: Option<Semantics>,
    pub max_new_tokens: Option<usize>,
    pub min_new_tokens: Option<usize>,
    /// As a flag, 0 means greedy.
    pub temperature: Option<f32>,
    pub top_k: Option<usize>,
    pub top_p: Option<f64>,
    pub min_p: Option<f64>,
    pub typical_p: Option<f64>,
    pub epsilon_cutoff: Option<f64>,
    pub eta_cutoff: Option<f64>,
    pub repetition_penalty: Option<f32>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub no_repeat_ngram_size: Option<usize>,
    pub bad_words: Option<Vec<Vec<u32>>>,
    pub suppress_tokens: Option<Vec<u32>>,
    pub logit_bias: Option<Vec<(Vec<u32>, f32)>>,
    pub num_beams: Option<usize>,
    pub length_penalty: Option<f32>,
    pub early_stopping: Option<EarlyStopping>,
    pub num_beam_groups: Option<usize>,
    pub diversity_penalty: Option<f32>,
    pub num_return_sequences: Option<usize>,
    pub max_nodes: Option<usize>,
    pub stop_strings: Option<Vec<String>>,
    pub max_time_s: Option<f64>,
    pub overflow: Option<Overflow>,
    /// No file sets it: it makes the same text come faster, and needs a draft.
    pub draft_tokens: Option<usize>,
}

/// Which strategies a knob acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsedBy {
    /// All of them.
    All,
    /// Those that write one token after another, greedy and sampling.
    OneByOne,
    /// All but greedy, which has one text to return.
    AllButGreedy,
    /// Those that draw tokens.
    Sampling,
    /// Those with beams.
    Beams,
    /// Diverse beam search.
    DiverseBeams,
    /// Exact search.
    Exact,
}

impl UsedBy {
    /// Whether `strategy` is one of them.
    pub fn contains(self, strategy: Strategy) -> bool {
        match self {
            Self::All => true,
            Self::OneByOne => matches!(strategy, Strategy::Greedy | Strategy::Sample),
            Self::AllButGreedy => strategy != Strategy::Greedy,
            Self::Sampling => strategy.samples(),
            Self::Beams => strategy.has_beams(),
            Self::DiverseBeams => strategy == Strategy::DiverseBeam,
            Self::Exact => strategy == Strategy::Exact,
        }
    }
}

/// One knob: a row of [`KNOBS`].
pub struct Knob {
    /// Its key in `generation_config.json`: Hugging Face's where they have one, else our own, which they let be.
    pub name: &'static str,
    /// What people call it.
    pub label: &'static str,
    /// The strategies that use it.
    pub used_by: UsedBy,
    /// Its range.
    pub range: Range,
    set: fn(&Knobs) -> Option<&dyn KnobValue>,
    read: fn(&mut Knobs, &Value) -> Result<(), &'static str>,
    apply: fn(&Knobs, &mut GenerationConfig),
    value: fn(&GenerationConfig) -> &dyn KnobValue,
}

impl Knob {
    /// What `knobs` sets it to.
    pub fn set_in<'a>(&self, knobs: &'a Knobs) -> Option<&'a dyn KnobValue> {
        (self.set)(knobs)
    }

    /// What it is in `config`.
    pub fn of<'a>(&self, config: &'a GenerationConfig) -> &'a dyn KnobValue {
        (self.value)(config)
    }

    /// Whether this value changes nothing.
    pub fn is_off(&self, value: &dyn KnobValue) -> bool {
        self.of(&GenerationConfig::default()).to_json() == value.to_json()
    }

    /// Refuses a number out of the range.
    pub(super) fn check_range(&'static self, value: &dyn KnobValue) -> Result<(), KnobError> {
        match value.number().is_some_and(|number| !self.range.contains(number)) {
            true => Err(KnobError::OutOfRange { knob: self, value: value.words() }),
            false => Ok(()),
        }
    }

    /// Takes its value from `knobs` over into `config`, if it is set there.
    pub(super) fn apply(&self, knobs: &Knobs, config: &mut GenerationConfig) {
        (self.apply)(knobs, config);
    }

    /// Sets it in `knobs` to what a file says.
    ///
    /// # Errors
    /// What kind of value it must be, in words that follow "it must be".
    pub fn read(&self, knobs: &mut Knobs, json: &Value) -> Result<(), &'static str> {
        (self.read)(knobs, json)
    }
}

impl fmt::Debug for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label)
    }
}

impl PartialEq for Knob {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// A row; the field has the same name in [`Knobs`] and [`GenerationConfig`].
macro_rules! knob {
    ($field:ident, $name:literal, $label:literal, $used_by:ident, $range:expr) => {
        Knob {
            name: $name,
            label: $label,
            used_by: UsedBy::$used_by,
            range: $range,
            set: |knobs| knobs.$field.as_ref().map(|value| value as &dyn KnobValue),
            read: |knobs, json| read_into(&mut knobs.$field, json),
            apply: |knobs, config| {
                if let Some(value) = &knobs.$field {
                    config.$field = value.clone().into();
                }
            },
            value: |config| &config.$field,
        }
    };
}

/// Every knob that a flag and a file can set, in the order in which they are listed.
///
/// A knob's off value is its field's in `GenerationConfig::default()`. The ranges are transformers' or narrower: what it would
/// silently ignore, such as a typical_p of 2, is an error here.
#[rustfmt::skip]
pub const KNOBS: &[Knob] = &[
    knob!(semantics, "semantics", "semantics", OneByOne, Range::Any),
    knob!(num_beams, "num_beams", "num-beams", Beams, Range::OneTo(10_000)),
    knob!(num_beam_groups, "num_beam_groups", "num-beam-groups", DiverseBeams, Range::OneUp),
    knob!(diversity_penalty, "diversity_penalty", "diversity-penalty", DiverseBeams, Range::Within(1_000_000)),
    knob!(length_penalty, "length_penalty", "length-penalty", Beams, Range::Within(10)),
    knob!(early_stopping, "early_stopping", "early-stopping", Beams, Range::Any),
    knob!(max_nodes, "max_nodes", "max-nodes", Exact, Range::OneUp),
    knob!(temperature, "temperature", "temperature", Sampling, Range::Temperature),
    knob!(top_k, "top_k", "top-k", Sampling, Range::Any),
    knob!(top_p, "top_p", "top-p", Sampling, Range::Mass),
    knob!(min_p, "min_p", "min-p", Sampling, Range::Share),
    knob!(typical_p, "typical_p", "typical-p", Sampling, Range::Mass),
    knob!(epsilon_cutoff, "epsilon_cutoff", "epsilon-cutoff", Sampling, Range::Cutoff),
    knob!(eta_cutoff, "eta_cutoff", "eta-cutoff", Sampling, Range::Cutoff),
    knob!(logit_bias, "sequence_bias", "logit-bias", All, Range::Within(1_000_000_000)),
    knob!(repetition_penalty, "repetition_penalty", "repetition-penalty", All, Range::Factor),
    knob!(presence_penalty, "presence_penalty", "presence-penalty", All, Range::Within(1_000_000)),
    knob!(frequency_penalty, "frequency_penalty", "frequency-penalty", All, Range::Within(1_000_000)),
    knob!(no_repeat_ngram_size, "no_repeat_ngram_size", "no-repeat-ngram-size", All, Range::Any),
    knob!(bad_words, "bad_words_ids", "bad-words", All, Range::Any),
    knob!(suppress_tokens, "suppress_tokens", "suppress", All, Range::Any),
    knob!(stop_strings, "stop_strings", "stop", All, Range::Any),
    knob!(max_time_s, "max_time", "max-time", All, Range::Seconds),
    knob!(overflow, "overflow", "overflow", All, Range::Any),
    knob!(num_return_sequences, "num_return_sequences", "num-return-sequences", AllButGreedy, Range::OneTo(100_000)),
    knob!(min_new_tokens, "min_new_tokens", "min-new-tokens", All, Range::Any),
    knob!(max_new_tokens, "max_new_tokens", "max-new-tokens", All, Range::OneUp),
];

fn read_into<T: FromJson>(slot: &mut Option<T>, json: &Value) -> Result<(), &'static str> {
    *slot = Some(T::from_json(json).ok_or(T::KIND)?);
    Ok(())
}

impl Knobs {
    /// Refuses a value out of its range: all that can be said of knobs before the folder is known.
    ///
    /// # Errors
    /// [`KnobError::OutOfRange`] for the first such knob.
    pub fn check_ranges(&self) -> Result<(), KnobError> {
        KNOBS.iter().try_for_each(|knob| knob.set_in(self).map_or(Ok(()), |value| knob.check_range(value)))
    }

    /// The first knob with a token id that a vocabulary of this size lacks, and the id.
    pub fn outside_vocabulary(&self, vocab_size: usize) -> Option<(&'static Knob, u32)> {
        KNOBS.iter().find_map(|knob| {
            let ids = knob.set_in(self)?.ids();
            ids.into_iter().find(|&id| id as usize >= vocab_size).map(|id| (knob, id))
        })
    }

    /// The first knob that is set and that only drawing tokens uses.
    pub(super) fn sampling(&self) -> Option<&'static Knob> {
        KNOBS.iter().find(|knob| knob.used_by == UsedBy::Sampling && knob.set_in(self).is_some())
    }
}
