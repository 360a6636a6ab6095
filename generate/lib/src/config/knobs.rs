//! The table of knobs: what each is called, what it may be, and which strategies use it.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::value::FromJson;
use super::{EarlyStopping, KnobError, KnobValue, Overflow, Range, Semantics, Strategy};

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
    /// Its key in `generation_config.json`: Hugging Face's where they have one, else our own, which
    /// they let be.
    pub name: &'static str,
    /// What people call it.
    pub label: &'static str,
    /// The strategies that use it.
    pub used_by: UsedBy,
    /// Its range.
    pub range: Range,
    /// How it is typed, where that is the same for all: one number.
    pub typed: Option<Typed>,
    set: fn(&Knobs) -> Option<&dyn KnobValue>,
    read: fn(&mut Knobs, &Value) -> Result<(), &'static str>,
    apply: fn(&Knobs, &mut GenerationConfig),
    value: fn(&GenerationConfig) -> &dyn KnobValue,
}

/// What there is to know of a number that is typed.
#[derive(Clone, Copy)]
pub struct Typed {
    /// What stands for it in a line of help, such as "K".
    pub placeholder: &'static str,
    /// What the knob does.
    pub meaning: &'static str,
    set: fn(&mut Knobs, &str),
}

impl Typed {
    /// Sets the knob in `knobs` to the number that `text` writes; unsets it where that is none.
    pub fn set(&self, knobs: &mut Knobs, text: &str) {
        (self.set)(knobs, text);
    }
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

/// Everything that decides which tokens follow a prompt, complete and checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GenerationConfig {
    /// How the next token is chosen.
    pub strategy: Strategy,
    /// Whose order and rules the knobs follow.
    pub semantics: Semantics,
    /// Most tokens to generate, at least 1.
    pub max_new_tokens: usize,
    /// End tokens are impossible before so many tokens are generated; 0 is off.
    pub min_new_tokens: usize,
    /// Divides the logits when sampling, above 0; 1 changes nothing.
    pub temperature: f32,
    /// How many of the best tokens to sample from; 0 is all.
    pub top_k: usize,
    /// The probability of the nucleus to sample from, in (0, 1]; 1 is all.
    pub top_p: f64,
    /// Least probability, as a share of the best token's, in [0, 1]; 0 is off.
    pub min_p: f64,
    /// The mass of the tokens whose surprise is nearest to the expected one, in (0, 1]; 1 is all.
    pub typical_p: f64,
    /// Least probability, in [0, 1); 0 is off.
    pub epsilon_cutoff: f64,
    /// Least probability, lowered where the distribution is flat, in [0, 1); 0 is off.
    pub eta_cutoff: f64,
    /// Makes what was said before less probable (above 1) or more (below), above 0; 1 changes
    /// nothing.
    pub repetition_penalty: f32,
    /// Subtracted from the logit of every token generated so far; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted from a token's logit for each time that it was generated; 0 is off.
    pub frequency_penalty: f32,
    /// No n tokens in a row occur twice; 0 is off.
    pub no_repeat_ngram_size: usize,
    /// Sequences of token ids that are never completed.
    pub bad_words: Vec<Vec<u32>>,
    /// Token ids that are never chosen.
    pub suppress_tokens: Vec<u32>,
    /// Added to the logit of the last token of a sequence when the others have just been produced.
    pub logit_bias: Vec<(Vec<u32>, f32)>,
    /// Texts that a beam search keeps side by side, at least 1.
    pub num_beams: usize,
    /// The power of the length by which a finished beam's score is divided; above 0 favours long
    /// texts.
    pub length_penalty: f32,
    /// When a beam search may end.
    pub early_stopping: EarlyStopping,
    /// Groups that the beams of a diverse search fall into; divides `num_beams`.
    pub num_beam_groups: usize,
    /// Subtracted from a token's log-probability for each earlier group's beam that chose it at the
    /// same step.
    pub diversity_penalty: f32,
    /// Texts to return for each prompt, at least 1, and with beams at most `num_beams`.
    pub num_return_sequences: usize,
    /// Most prefixes that an exact search looks at.
    pub max_nodes: usize,
    /// Tokens proposed at a time by speculative decoding; 0 is off.
    pub draft_tokens: usize,
    /// Token ids that end a sequence.
    #[serde(rename = "eos_token_id")]
    pub end_tokens: Vec<u32>,
    /// Texts that end a sequence before them; for the generator, since strategies write token ids.
    pub stop_strings: Vec<String>,
    /// Seconds after which generation ends, checked after each step.
    pub max_time_s: Option<f64>,
    /// What happens at the context's end.
    pub overflow: Overflow,
    /// Seed of the draws.
    pub seed: u64,
    /// How many of the most probable tokens to report beside each chosen one.
    pub logprobs: usize,
}

/// States every knob once: its field, type and value when off; its key in a file and what people
/// call it; the strategies that use it and its range; where typing it is nothing special, what
/// stands for its number and what it does. [`Knobs`], [`KNOBS`] and the defaults of
/// [`GenerationConfig`] follow.
macro_rules! knobs {
    ($(
        $field:ident: $type:ty = $off:expr, $name:literal, $label:literal, $used_by:ident, $range:expr
        $(, $placeholder:literal, $meaning:literal)?;
    )+) => {
        /// The knobs that one source sets, flags or a file; `None` where it says nothing.
        ///
        /// Each means what the field of the same name in [`GenerationConfig`] does.
        #[derive(Clone, Debug, Default, PartialEq)]
        #[allow(missing_docs)]
        pub struct Knobs {
            /// How the next token is chosen; in a file, what `do_sample` and the beams do not say
            /// by themselves.
            pub strategy: Option<Strategy>,
            /// A file's way to say that tokens are drawn.
            pub do_sample: Option<bool>,
            /// No file sets it: it makes the same text come faster, and needs a draft.
            pub draft_tokens: Option<usize>,
            $(pub $field: Option<$type>,)+
        }

        /// Every knob that a flag and a file can set, in the order in which they are listed.
        pub const KNOBS: &[Knob] = &[$(Knob {
            name: $name,
            label: $label,
            used_by: UsedBy::$used_by,
            range: $range,
            typed: knobs!(@typed $field $($placeholder $meaning)?),
            set: |knobs| knobs.$field.as_ref().map(|value| value as &dyn KnobValue),
            read: |knobs, json| read_into(&mut knobs.$field, json),
            apply: |knobs, config| {
                if let Some(value) = &knobs.$field {
                    config.$field = value.clone().into();
                }
            },
            value: |config| &config.$field,
        },)+];

        impl Default for GenerationConfig {
            /// Greedy, everything off.
            fn default() -> Self {
                Self {
                    strategy: Strategy::Greedy,
                    draft_tokens: 0,
                    end_tokens: Vec::new(),
                    seed: 0,
                    logprobs: 0,
                    $($field: $off,)+
                }
            }
        }
    };
    (@typed $field:ident) => { None };
    (@typed $field:ident $placeholder:literal $meaning:literal) => {
        Some(Typed {
            placeholder: $placeholder,
            meaning: $meaning,
            set: |knobs, text| knobs.$field = text.parse().ok(),
        })
    };
}

// The ranges are transformers' or narrower: what it would silently ignore, such as a typical_p of
// 2, is an error here. As a flag, a temperature of 0 means greedy.
#[rustfmt::skip]
knobs! {
    semantics: Semantics = Semantics::Hf, "semantics", "semantics", OneByOne, Range::Any;
    num_beams: usize = 1, "num_beams", "num-beams", Beams, Range::OneTo(10_000);
    num_beam_groups: usize = 1, "num_beam_groups", "num-beam-groups", DiverseBeams, Range::OneUp;
    diversity_penalty: f32 = 0.0, "diversity_penalty", "diversity-penalty", DiverseBeams, Range::Within(1_000_000);
    length_penalty: f32 = 1.0, "length_penalty", "length-penalty", Beams, Range::Within(10);
    early_stopping: EarlyStopping = EarlyStopping::False, "early_stopping", "early-stopping", Beams, Range::Any;
    max_nodes: usize = 100_000, "max_nodes", "max-nodes", Exact, Range::OneUp;
    temperature: f32 = 1.0, "temperature", "temperature", Sampling, Range::Temperature,
        "T", "Sharpens (below 1) or flattens (above 1) the distribution; 0 means greedy here, where Hugging Face refuses it";
    top_k: usize = 0, "top_k", "top-k", Sampling, Range::Any,
        "K", "Sample from the K best tokens and those that tie with the last of them; 0 is off";
    top_p: f64 = 1.0, "top_p", "top-p", Sampling, Range::Mass,
        "P", "Sample from the fewest best tokens whose probabilities reach P; 1 is off";
    min_p: f64 = 0.0, "min_p", "min-p", Sampling, Range::Share,
        "P", "Sample from the tokens at least P times as probable as the best; 0 is off";
    typical_p: f64 = 1.0, "typical_p", "typical-p", Sampling, Range::Mass,
        "P", "Sample from the tokens whose surprise is nearest to the expected one, until their probabilities reach P; 1 is off";
    epsilon_cutoff: f64 = 0.0, "epsilon_cutoff", "epsilon-cutoff", Sampling, Range::Cutoff,
        "P", "Sample from the tokens with a probability of at least P; 0 is off";
    eta_cutoff: f64 = 0.0, "eta_cutoff", "eta-cutoff", Sampling, Range::Cutoff,
        "P", "The same, with a lower limit where the distribution is flat; 0 is off";
    logit_bias: Vec<(Vec<u32>, f32)> = Vec::new(), "sequence_bias", "logit-bias", All, Range::Within(1_000_000_000);
    repetition_penalty: f32 = 1.0, "repetition_penalty", "repetition-penalty", All, Range::Factor;
    presence_penalty: f32 = 0.0, "presence_penalty", "presence-penalty", All, Range::Within(1_000_000);
    frequency_penalty: f32 = 0.0, "frequency_penalty", "frequency-penalty", All, Range::Within(1_000_000);
    no_repeat_ngram_size: usize = 0, "no_repeat_ngram_size", "no-repeat-ngram-size", All, Range::Any;
    bad_words: Vec<Vec<u32>> = Vec::new(), "bad_words_ids", "bad-words", All, Range::Any;
    suppress_tokens: Vec<u32> = Vec::new(), "suppress_tokens", "suppress", All, Range::Any;
    stop_strings: Vec<String> = Vec::new(), "stop_strings", "stop", All, Range::Any;
    max_time_s: f64 = None, "max_time", "max-time", All, Range::Seconds;
    overflow: Overflow = Overflow::Slide, "overflow", "overflow", All, Range::Any;
    num_return_sequences: usize = 1, "num_return_sequences", "num-return-sequences", AllButGreedy, Range::OneTo(100_000);
    min_new_tokens: usize = 0, "min_new_tokens", "min-new-tokens", All, Range::Any;
    max_new_tokens: usize = 256, "max_new_tokens", "max-new-tokens", All, Range::OneUp;
}

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
