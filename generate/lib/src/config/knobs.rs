//! The table of knobs: their names, ranges, and the strategies that use them.

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
    /// All but greedy, which returns only one text.
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
    /// Its key in `generation_config.json`: Hugging Face's if there is one, else our own, which
    /// transformers ignores.
    pub name: &'static str,
    /// Its name for people.
    pub label: &'static str,
    /// The strategies that use it.
    pub used_by: UsedBy,
    /// Its range.
    pub range: Range,
    /// What it does, in a sentence for the help text.
    pub meaning: &'static str,
    /// Its command-line form, if it is one of the common ones: a number, a word, or texts.
    pub typed: Option<Typed>,
    set: fn(&Knobs) -> Option<&dyn KnobValue>,
    read: fn(&mut Knobs, &Value) -> Result<(), String>,
    unset: fn(&mut Knobs),
    /// Copies its value into the configuration, if it is set.
    pub(super) apply: fn(&Knobs, &mut GenerationConfig),
    value: fn(&GenerationConfig) -> &dyn KnobValue,
}

/// The command-line form of a knob.
#[derive(Clone, Copy, Debug)]
pub struct Typed {
    /// Its heading in the help text.
    pub heading: &'static str,
    /// The placeholder for its value in help text, such as "K".
    pub placeholder: &'static str,
    /// The form of its value.
    pub form: Form,
    /// Parses a text and sets the knob; unsets it if the text does not parse.
    pub take: fn(&mut Knobs, &str),
}

impl Knob {
    /// Its value in `knobs`, if set.
    pub fn set_in<'a>(&self, knobs: &'a Knobs) -> Option<&'a dyn KnobValue> {
        (self.set)(knobs)
    }

    /// Its value in `config`.
    pub fn of<'a>(&self, config: &'a GenerationConfig) -> &'a dyn KnobValue {
        (self.value)(config)
    }

    /// Whether this value changes nothing.
    pub fn is_off(&self, value: &dyn KnobValue) -> bool {
        self.of(&GenerationConfig::default()).to_json() == value.to_json()
    }

    /// Sets it in `knobs` from a file's JSON value.
    ///
    /// # Errors
    /// The expected kind of value, in words that follow "it must be".
    pub fn read(&self, knobs: &mut Knobs, json: &Value) -> Result<(), String> {
        (self.read)(knobs, json)
    }
}

/// Declares every knob once. The doc comment is its meaning, for the field and the help text; text
/// after it appears only in the help text (`help`) or only at the field (`field`). Then follow the
/// field, its type and its value when off, and what [`Knob`] says about it, where the key is the
/// name. A placeholder is given if its command-line form is a common one.
///
/// For example `top_k: usize = 0, key "top_k", label "top-k", used by Sampling, range Range::Any,
/// placeholder "K";` declares three things: a field `top_k: usize` of [`GenerationConfig`], 0 by
/// default; a field `top_k: Option<usize>` of [`Knobs`]; and a row of [`KNOBS`], which is used to
/// read and check a file's key `top_k` and a program's flag `top-k`.
///
/// The fields of [`GenerationConfig`] and [`Knobs`] and the lines of the help text are in the order of
/// declaration; [`KNOBS`] is in the order of `order_in_reports`. `not_knobs` are fields of the
/// configuration that are no knobs: `eos_token_id` is read with the model's configuration, the others
/// belong to one run.
macro_rules! knobs {
    (
        order_in_reports: [$($listed:ident)+]
        $($heading:literal {$(
            $(#[doc = $meaning:literal])+
            $(#[help = $in_help:literal])?
            $(#[field = $at_field:literal])?
            $field:ident: $type:ty $(as $kept:ty)? = $off:expr,
                key $name:literal, label $label:literal, used by $used_by:ident, range $range:expr
                $(, placeholder $placeholder:literal)?;
        )+} $(not_knobs [$($(#[$about:meta])+ $other:ident: $other_type:ty = $other_off:expr;)+])?)+
    ) => {
        /// Everything that decides which tokens follow a prompt: a complete configuration, checked
        /// at the start of every generation.
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
                $($($(#[$about])+ pub $other: $other_type,)+)?
            )+
        }

        impl Default for GenerationConfig {
            /// Greedy, everything off.
            fn default() -> Self {
                Self { strategy: Strategy::Greedy, $($($field: $off,)+ $($($other: $other_off,)+)?)+ }
            }
        }

        /// The knobs that one source (a caller or a file) sets; `None` if it does not set a knob.
        ///
        /// Each means the same as the field with its name in [`GenerationConfig`].
        #[derive(Clone, Debug, Default, PartialEq)]
        #[allow(missing_docs)]
        pub struct Knobs {
            /// How the next token is chosen; a file sets it only if `do_sample` and the beams do
            /// not imply it.
            pub strategy: Option<Strategy>,
            /// Whether tokens are drawn, as a file says it.
            pub do_sample: Option<bool>,
            /// Never set by a file: it changes only the speed, not the distribution, and needs a
            /// draft.
            pub draft_tokens: Option<usize>,
            $($(pub $field: Option<$type>,)+)+
        }

        /// The rows of the table, named after the fields.
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
                unset: |knobs| knobs.$field = None,
                apply: |knobs, config| {
                    if let Some(value) = &knobs.$field {
                        config.$field = value.clone().into();
                    }
                },
                value: |config| &config.$field,
            };)+)+
        }

        /// Every knob that a caller and a file can set, in the order of reports.
        pub const KNOBS: &[Knob] = &[$(row::$listed),+];

        /// The same in the order of the help text.
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

// The ranges are transformers' or narrower: values that it would silently ignore, such as a
// typical_p of 2, are errors here. A temperature of 0 set by a caller means greedy.
//
// Headings repeat because the order is that in which the configuration's fields are written into
// the first line of a trace.
#[rustfmt::skip]
knobs! {
    order_in_reports: [
        semantics num_beams num_beam_groups diversity_penalty length_penalty early_stopping max_nodes
        temperature top_k top_p min_p typical_p epsilon_cutoff eta_cutoff
        logit_bias repetition_penalty presence_penalty frequency_penalty no_repeat_ngram_size bad_words suppress_tokens
        stop_strings max_time_s overflow num_return_sequences min_new_tokens max_new_tokens
    ]
    "Strategy" {
        /// Apply the knobs in the order and by the rules and defaults of transformers, llama.cpp or
        /// MLX [default: hf]
        #[field = "(the defaults are put in by [`GenerationConfig::resolve`])"]
        semantics: Semantics = Semantics::Hf,
            key "semantics", label "semantics", used by OneByOne, range Range::Any, placeholder "STACK";
    }
    "Stopping" {
        /// Most tokens to write [default: 256]
        max_new_tokens: usize = 256,
            key "max_new_tokens", label "max-new-tokens", used by All, range Range::OneUp, placeholder "N";
        /// No end token before this many new tokens; 0 is off
        min_new_tokens: usize = 0,
            key "min_new_tokens", label "min-new-tokens", used by All, range Range::Any, placeholder "N";
    }
    "Sampling" {
        /// Sharpens (below 1) or flattens (above 1) the distribution
        #[help = "; 0 means greedy (Hugging Face refuses it)"]
        #[field = "(never 0 here: greedy is a [`Strategy`] of its own)"]
        temperature: f32 = 1.0,
            key "temperature", label "temperature", used by Sampling, range Range::Temperature, placeholder "T";
        /// Sample from the K best tokens and those that tie with the last of them; 0 is off
        top_k: usize = 0,
            key "top_k", label "top-k", used by Sampling, range Range::Any, placeholder "K";
        /// Sample from the fewest best tokens whose probabilities reach P; 1 is off
        top_p: f64 = 1.0,
            key "top_p", label "top-p", used by Sampling, range Range::Mass, placeholder "P";
        /// Sample from the tokens at least P times as probable as the best; 0 is off
        min_p: f64 = 0.0,
            key "min_p", label "min-p", used by Sampling, range Range::Share, placeholder "P";
        /// Sample from the tokens whose surprise is nearest to the expected one, until their
        /// probabilities reach P; 1 is off
        typical_p: f64 = 1.0,
            key "typical_p", label "typical-p", used by Sampling, range Range::Mass, placeholder "P";
        /// Sample from the tokens with a probability of at least P; 0 is off
        epsilon_cutoff: f64 = 0.0,
            key "epsilon_cutoff", label "epsilon-cutoff", used by Sampling, range Range::Cutoff, placeholder "P";
        /// Like epsilon-cutoff, with a lower limit where the distribution is flat; 0 is off
        eta_cutoff: f64 = 0.0,
            key "eta_cutoff", label "eta-cutoff", used by Sampling, range Range::Cutoff, placeholder "P";
    }
    "Penalties and bans" {
        /// Makes each token of the prompt and the text less probable (above 1) or more (below 1);
        /// 1 is off
        repetition_penalty: f32 = 1.0,
            key "repetition_penalty", label "repetition-penalty", used by All, range Range::Factor, placeholder "X";
        /// Subtracted from the logit of each token written so far; 0 is off
        presence_penalty: f32 = 0.0,
            key "presence_penalty", label "presence-penalty", used by All, range Range::Within(1_000_000), placeholder "X";
        /// Subtracted from a token's logit for each time that it was written; 0 is off
        frequency_penalty: f32 = 0.0,
            key "frequency_penalty", label "frequency-penalty", used by All, range Range::Within(1_000_000), placeholder "X";
        /// No N tokens in a row occur twice, prompt included; 0 is off
        no_repeat_ngram_size: usize = 0,
            key "no_repeat_ngram_size", label "no-repeat-ngram-size", used by All, range Range::Any, placeholder "N";
        /// Sequences of token ids that are never completed
        bad_words: Vec<Vec<u32>> = Vec::new(),
            key "bad_words_ids", label "bad-words", used by All, range Range::Any;
        /// Token ids that are never chosen
        suppress_tokens: Vec<u32> = Vec::new(),
            key "suppress_tokens", label "suppress", used by All, range Range::Any;
        /// Added to the logit of the last token of a sequence when the others have just been
        /// produced
        logit_bias: Vec<(Vec<u32>, f32)> = Vec::new(),
            key "sequence_bias", label "logit-bias", used by All, range Range::Within(1_000_000_000);
    }
    "Beams" {
        /// Keep the N most probable texts side by side
        num_beams: usize = 1,
            key "num_beams", label "num-beams", used by Beams, range Range::OneTo(10_000), placeholder "N";
        /// A finished beam's score is divided by its length to this power: above 0 favours long
        /// texts, below short ones [default: 1]
        length_penalty: f32 = 1.0,
            key "length_penalty", label "length-penalty", used by Beams, range Range::Within(10), placeholder "X";
        /// When the search may end: once N texts are finished, when a better one is unlikely, or
        /// when none can come [default: false]
        early_stopping: EarlyStopping = EarlyStopping::False,
            key "early_stopping", label "early-stopping", used by Beams, range Range::Any, placeholder "WHEN";
        /// Diverse beams: number of groups of equal size, each avoiding the tokens of earlier ones
        num_beam_groups: usize = 1,
            key "num_beam_groups", label "num-beam-groups", used by DiverseBeams, range Range::OneUp, placeholder "N";
        /// Diverse beams: subtracted from a token's log-probability for each earlier beam that
        /// chose it at this step
        diversity_penalty: f32 = 0.0,
            key "diversity_penalty", label "diversity-penalty", used by DiverseBeams, range Range::Within(1_000_000), placeholder "X";
    }
    "Output" {
        /// How many texts to write for each prompt; with beams, at most as many as beams [default:
        /// 1]
        num_return_sequences: usize = 1,
            key "num_return_sequences", label "num-return-sequences", used by AllButGreedy, range Range::OneTo(100_000), placeholder "N";
    }
    "Strategy" {
        /// Exact search: give up the proof after looking at this many prefixes [default: 100000]
        max_nodes: usize = 100_000,
            key "max_nodes", label "max-nodes", used by Exact, range Range::OneUp, placeholder "N";
    } not_knobs [
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
        stop_strings: Vec<String> = Vec::new(),
            key "stop_strings", label "stop", used by All, range Range::Any, placeholder "STRING";
        /// End after the step in which this many seconds have passed, counted for each batch of
        /// prompts
        max_time_s: f64 as Option<f64> = None,
            key "max_time", label "max-time", used by All, range Range::Seconds, placeholder "SECONDS";
        /// When the context is full: continue with a sliding window (each token then costs a pass
        /// over all of it), stop, or fail [default: slide]
        overflow: Overflow = Overflow::Slide,
            key "overflow", label "overflow", used by All, range Range::Any, placeholder "HOW";
    } not_knobs [
        /// Seed of the draws.
        seed: u64 = 0;
        /// How many of the most probable tokens to report beside each chosen one.
        logprobs: usize = 0;
    ]
}

impl Knobs {
    /// The first knob with a token id outside a vocabulary of this size, and the id.
    pub fn outside_vocabulary(&self, vocab_size: usize) -> Option<(&'static Knob, u32)> {
        KNOBS.iter().find_map(|knob| {
            let ids = knob.set_in(self)?.ids();
            ids.into_iter().find(|&id| id as usize >= vocab_size).map(|id| (knob, id))
        })
    }

    /// The first set knob that is used only for sampling.
    pub(super) fn sampling(&self) -> Option<&'static Knob> {
        KNOBS.iter().find(|knob| knob.used_by == UsedBy::Sampling && knob.set_in(self).is_some())
    }

    /// The first such knob with a value that is not off.
    pub(super) fn sampling_and_on(&self) -> Option<&'static Knob> {
        let mut sampling = KNOBS.iter().filter(|knob| knob.used_by == UsedBy::Sampling);
        sampling.find(|knob| knob.set_in(self).is_some_and(|value| !knob.is_off(value)))
    }

    /// Unsets all that are used only for sampling, except the temperature.
    pub fn unset_sampling(&mut self) {
        for knob in KNOBS.iter().filter(|knob| knob.used_by == UsedBy::Sampling && knob.name != "temperature") {
            (knob.unset)(self);
        }
    }
}

impl GenerationConfig {
    /// How many candidates a beam needs so that at least one does not end: one more than there are
    /// end tokens, and at least two, as in transformers.
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
                // Always shown, on or off, since readers look for them.
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
