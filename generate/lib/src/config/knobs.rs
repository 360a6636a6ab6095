//! The table of knobs: what each is called, what it may be, and which strategies use it.

use ember_data::numbers::counted;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::value::{Form, Reads};
use super::{EarlyStopping, KnobValue, Overflow, Range, Semantics, Strategy};

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
#[derive(Debug)]
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
    /// What it does, in a sentence, for a list of help.
    pub meaning: &'static str,
    /// How it is typed, where that is the same for all: one number, one word, or texts.
    pub typed: Option<Typed>,
    set: fn(&Knobs) -> Option<&dyn KnobValue>,
    read: fn(&mut Knobs, &Value) -> Result<(), String>,
    /// Takes its value over, if it is set.
    pub(super) apply: fn(&Knobs, &mut GenerationConfig),
    value: fn(&GenerationConfig) -> &dyn KnobValue,
}

/// What there is to know of a knob that is typed.
#[derive(Clone, Copy, Debug)]
pub struct Typed {
    /// Under which heading a list of help has it.
    pub heading: &'static str,
    /// What stands for its value in a line of help, such as "K".
    pub placeholder: &'static str,
    /// What is typed.
    pub form: Form,
    /// Sets the knob to what a text writes; unsets it where that is not of its form.
    pub take: fn(&mut Knobs, &str),
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

    /// Sets it in `knobs` to what a file says.
    ///
    /// # Errors
    /// What kind of value it must be, in words that follow "it must be".
    pub fn read(&self, knobs: &mut Knobs, json: &Value) -> Result<(), String> {
        (self.read)(knobs, json)
    }
}

/// States every knob once. Above it stands what it does, for its field and for lists of help, and
/// how it goes on in a list of help alone (`help`) or at the field alone (`field`); then its field,
/// type and value when off; its key in a file and what people call it; the strategies that use it
/// and its range; where typing it is nothing special, what stands for its value.
///
/// So the line `top_k: usize = 0, "top_k", "top-k", Sampling, Range::Any, "K";` makes three things: a
/// field `top_k: usize` of [`GenerationConfig`], 0 by default; a field `top_k: Option<usize>` of
/// [`Knobs`]; and a row of [`KNOBS`], by which a file's key `top_k` and a program's flag `top-k` are
/// read and their values checked.
///
/// The fields of [`GenerationConfig`] and of [`Knobs`] and the lists of help follow in the order of
/// the statements; [`KNOBS`] has the order of `told`. In square brackets stand the fields of a
/// configuration that no file sets as a knob.
macro_rules! knobs {
    (
        told: [$($told:ident)+]
        $($heading:literal {$(
            $(#[doc = $meaning:literal])+
            $(#[help = $in_help:literal])?
            $(#[field = $at_field:literal])?
            $field:ident: $type:ty $(as $kept:ty)? = $off:expr,
            $name:literal, $label:literal, $used_by:ident, $range:expr $(, $placeholder:literal)?;
        )+} [$($(#[$about:meta])+ $other:ident: $other_type:ty = $other_off:expr;)*])+
    ) => {
        /// Everything that decides which tokens follow a prompt: complete, and checked wherever a
        /// text begins.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct GenerationConfig {
            /// How the next token is chosen.
            pub strategy: Strategy,
            $(
                $(
                    $(#[doc = $meaning])+
                    $(#[doc = $at_field])?
                    #[doc = concat!("\n`", $name, "` in a file; its values are those of `", stringify!($range), "`.")]
                    pub $field: knobs!(@kept $type $(as $kept)?),
                )+
                $($(#[$about])+ pub $other: $other_type,)*
            )+
        }

        impl Default for GenerationConfig {
            /// Greedy, everything off.
            fn default() -> Self {
                Self { strategy: Strategy::Greedy, $($($field: $off,)+ $($other: $other_off,)*)+ }
            }
        }

        /// The knobs that one source sets, a caller or a file; `None` where it says nothing.
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
            /// No file sets it: it changes how fast a text comes and not its distribution, and needs a
            /// draft.
            pub draft_tokens: Option<usize>,
            $($(pub $field: Option<$type>,)+)+
        }

        /// The rows, each by the name of its field.
        #[allow(non_upper_case_globals)]
        mod row {
            use super::*;

            $($(pub(super) const $field: Knob = Knob {
                name: $name,
                label: $label,
                used_by: UsedBy::$used_by,
                range: $range,
                meaning: concat!($($meaning),+ $(, $in_help)?),
                typed: knobs!(@typed $heading $field $type $(, $placeholder)?),
                set: |knobs| knobs.$field.as_ref().map(|value| value as &dyn KnobValue),
                read: |knobs, json| {
                    knobs.$field = Some(<$type>::from_json(json).ok_or_else(<$type>::kind)?);
                    Ok(())
                },
                apply: |knobs, config| {
                    if let Some(value) = &knobs.$field {
                        config.$field = value.clone().into();
                    }
                },
                value: |config| &config.$field,
            };)+)+
        }

        /// Every knob that a caller and a file can set, in the order in which they are told.
        pub const KNOBS: &[Knob] = &[$(row::$told),+];

        /// The same in the order of lists of help.
        pub const KNOBS_IN_HELP: &[Knob] = &[$($(row::$field),+),+];
    };
    (@kept $type:ty) => { $type };
    (@kept $type:ty as $kept:ty) => { $kept };
    (@typed $heading:literal $field:ident $type:ty) => { None };
    (@typed $heading:literal $field:ident $type:ty, $placeholder:literal) => {
        Some(Typed {
            heading: $heading,
            placeholder: $placeholder,
            form: <$type>::FORM,
            take: |knobs, text| <$type>::take(&mut knobs.$field, text),
        })
    };
}

// The ranges are transformers' or narrower: what it would silently ignore, such as a typical_p of
// 2, is an error here. Where a caller sets a temperature of 0, that means greedy.
//
// Headings come again, and most brackets are empty, because the order is that of the
// configuration's fields as they are written into the first line of a trace.
#[rustfmt::skip]
knobs! {
    told: [
        semantics num_beams num_beam_groups diversity_penalty length_penalty early_stopping max_nodes
        temperature top_k top_p min_p typical_p epsilon_cutoff eta_cutoff
        logit_bias repetition_penalty presence_penalty frequency_penalty no_repeat_ngram_size bad_words suppress_tokens
        stop_strings max_time_s overflow num_return_sequences min_new_tokens max_new_tokens
    ]
    "Strategy" {
        /// Whose order of the knobs, rules and defaults: transformers', llama.cpp's or MLX's
        /// [default: hf]
        #[field = "(the defaults are put in by [`GenerationConfig::resolve`])"]
        semantics: Semantics = Semantics::Hf, "semantics", "semantics", OneByOne, Range::Any, "STACK";
    } []
    "Stopping" {
        /// Most tokens to write [default: 256]
        max_new_tokens: usize = 256, "max_new_tokens", "max-new-tokens", All, Range::OneUp, "N";
        /// No end token before so many tokens; 0 is off
        min_new_tokens: usize = 0, "min_new_tokens", "min-new-tokens", All, Range::Any, "N";
    } []
    "Sampling" {
        /// Sharpens (below 1) or flattens (above 1) the distribution
        #[help = "; 0 means greedy here, where Hugging Face refuses it"]
        #[field = "(never 0 here: greedy is a [`Strategy`] of its own)"]
        temperature: f32 = 1.0, "temperature", "temperature", Sampling, Range::Temperature, "T";
        /// Sample from the K best tokens and those that tie with the last of them; 0 is off
        top_k: usize = 0, "top_k", "top-k", Sampling, Range::Any, "K";
        /// Sample from the fewest best tokens whose probabilities reach P; 1 is off
        top_p: f64 = 1.0, "top_p", "top-p", Sampling, Range::Mass, "P";
        /// Sample from the tokens at least P times as probable as the best; 0 is off
        min_p: f64 = 0.0, "min_p", "min-p", Sampling, Range::Share, "P";
        /// Sample from the tokens whose surprise is nearest to the expected one, until their
        /// probabilities reach P; 1 is off
        typical_p: f64 = 1.0, "typical_p", "typical-p", Sampling, Range::Mass, "P";
        /// Sample from the tokens with a probability of at least P; 0 is off
        epsilon_cutoff: f64 = 0.0, "epsilon_cutoff", "epsilon-cutoff", Sampling, Range::Cutoff, "P";
        /// The same, with a lower limit where the distribution is flat; 0 is off
        eta_cutoff: f64 = 0.0, "eta_cutoff", "eta-cutoff", Sampling, Range::Cutoff, "P";
    } []
    "Penalties and bans" {
        /// Makes each token that prompt or text hold less probable (above 1) or more (below); 1 is
        /// off
        repetition_penalty: f32 = 1.0, "repetition_penalty", "repetition-penalty", All, Range::Factor, "X";
        /// Subtracted from the logit of each token written so far; 0 is off
        presence_penalty: f32 = 0.0, "presence_penalty", "presence-penalty", All, Range::Within(1_000_000), "X";
        /// Subtracted from a token's logit for each time that it was written; 0 is off
        frequency_penalty: f32 = 0.0, "frequency_penalty", "frequency-penalty", All, Range::Within(1_000_000), "X";
        /// No N tokens in a row occur twice, prompt included; 0 is off
        no_repeat_ngram_size: usize = 0, "no_repeat_ngram_size", "no-repeat-ngram-size", All, Range::Any, "N";
        /// Sequences of token ids that are never completed
        bad_words: Vec<Vec<u32>> = Vec::new(), "bad_words_ids", "bad-words", All, Range::Any;
        /// Token ids that are never chosen
        suppress_tokens: Vec<u32> = Vec::new(), "suppress_tokens", "suppress", All, Range::Any;
        /// Added to the logit of the last token of a sequence when the others have just been
        /// produced
        logit_bias: Vec<(Vec<u32>, f32)> = Vec::new(), "sequence_bias", "logit-bias", All, Range::Within(1_000_000_000);
    } []
    "Beams" {
        /// Keep the N most probable texts side by side
        num_beams: usize = 1, "num_beams", "num-beams", Beams, Range::OneTo(10_000), "N";
        /// A finished beam's score is divided by its length to this power: above 0 favours long
        /// texts, below short ones [default: 1]
        length_penalty: f32 = 1.0, "length_penalty", "length-penalty", Beams, Range::Within(10), "X";
        /// When the search may end: once N texts are finished, when a better one is unlikely, or
        /// when none can come [default: false]
        early_stopping: EarlyStopping = EarlyStopping::False, "early_stopping", "early-stopping", Beams, Range::Any, "WHEN";
        /// Diverse beams: so many groups of equal size, each avoiding the tokens of those before it
        num_beam_groups: usize = 1, "num_beam_groups", "num-beam-groups", DiverseBeams, Range::OneUp, "N";
        /// Diverse beams: subtracted from a token's log-probability for each earlier beam that
        /// chose it at this step
        diversity_penalty: f32 = 0.0, "diversity_penalty", "diversity-penalty", DiverseBeams, Range::Within(1_000_000), "X";
    } []
    "Output" {
        /// How many texts to write for each prompt; with beams, at most as many as beams [default:
        /// 1]
        num_return_sequences: usize = 1, "num_return_sequences", "num-return-sequences", AllButGreedy, Range::OneTo(100_000), "N";
    } []
    "Strategy" {
        /// Exact search: give up the proof after looking at so many beginnings [default: 100000]
        max_nodes: usize = 100_000, "max_nodes", "max-nodes", Exact, Range::OneUp, "N";
    } [
        /// Tokens proposed at a time by speculative decoding; 0 is off.
        draft_tokens: usize = 0;
        /// Token ids that end a sequence.
        #[serde(rename = "eos_token_id")]
        end_tokens: Vec<u32> = Vec::new();
    ]
    "Stopping" {
        /// End the text before this string
        #[help = "; may be given again"]
        #[field = "(any of these; a [`Generator`](crate::Generator) looks for them, which makes text of the tokens)"]
        stop_strings: Vec<String> = Vec::new(), "stop_strings", "stop", All, Range::Any, "STRING";
        /// End after the step in which so many seconds have passed; of many prompts, each batch has
        /// the time to itself
        max_time_s: f64 as Option<f64> = None, "max_time", "max-time", All, Range::Seconds, "SECONDS";
        /// At the end of what the model can look back on: go on with a sliding window (each token
        /// then costs a pass over all of it), stop, or fail [default: slide]
        overflow: Overflow = Overflow::Slide, "overflow", "overflow", All, Range::Any, "HOW";
    } [
        /// Seed of the draws.
        seed: u64 = 0;
        /// How many of the most probable tokens to report beside each chosen one.
        logprobs: usize = 0;
    ]
}

impl Knobs {
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

    /// The first such knob that is set to something that changes what is drawn.
    pub(super) fn sampling_and_on(&self) -> Option<&'static Knob> {
        let mut sampling = KNOBS.iter().filter(|knob| knob.used_by == UsedBy::Sampling);
        sampling.find(|knob| knob.set_in(self).is_some_and(|value| !knob.is_off(value)))
    }
}

impl GenerationConfig {
    /// How many tokens a beam needs behind it for one that does not end: one more than there are end
    /// tokens, and two at least, as in transformers.
    pub fn tokens_for_a_beam(&self) -> usize {
        (1 + self.end_tokens.len()).max(2)
    }

    /// The strategy and every knob that is on, such as `sampling: temperature 0.8, top-p 0.95, up
    /// to 256 new tokens`.
    pub fn summary(&self) -> String {
        let mut parts = Vec::new();
        for knob in KNOBS.iter().filter(|knob| knob.used_by.contains(self.strategy)) {
            let (name, value) = (knob.label, knob.of(self));
            let words = value.words();
            match knob.name {
                "num_beams" => parts.push(counted(words, "beam")),
                "num_beam_groups" => parts.push(counted(words, "group")),
                "max_nodes" => parts.push(format!("at most {}", counted(words, "prefix"))),
                "max_time" if self.max_time_s.is_some() => parts.push(format!("at most {words} s")),
                "max_new_tokens" => parts.push(format!("up to {}", counted(words, "new token"))),
                // What a reader asks of any sampling and any beam search, on or off.
                "temperature" | "length_penalty" => parts.push(format!("{name} {words}")),
                _ if !knob.is_off(value) => parts.push(format!("{name} {words}")),
                _ => {}
            }
        }
        if self.draft_tokens > 0 {
            parts.push(format!("up to {} drafted at a time", self.draft_tokens));
        }
        let plain = self.strategy == Strategy::Greedy && parts.len() == 1;
        format!("{}{} {}", self.strategy.words(), if plain { "," } else { ":" }, parts.join(", "))
    }
}
