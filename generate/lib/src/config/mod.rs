//! What to generate and how: the knobs, their ranges, and whose word counts when several speak.
//!
//! A knob's value comes from the flag, else from the checkpoint folder's `generation_config.json`,
//! else the knob is off (or what another program takes by default, where the caller asks for that
//! one's ways). All that there is to say of one knob (its type, its value when off, its names, its
//! range, which strategies use it) is one line of the statement in `knobs.rs`: what one source sets
//! ([`Knobs`]), the defaults and the table [`KNOBS`] follow from it, and whatever treats knobs
//! alike, reading, checking, joining, writing, walks that table.

mod error;
mod folder;
mod knobs;
mod range;
mod resolve;
mod semantics;
mod summary;
mod value;

use serde::{Deserialize, Serialize};

use crate::named::named;

pub use error::{Contradiction, FolderError, KnobError};
pub use folder::{FolderSettings, Sampling};
pub use knobs::{KNOBS, Knob, Knobs, UsedBy};
pub use range::Range;
pub use resolve::Note;
pub use semantics::{Defaults, Semantics, defaults};
pub use value::KnobValue;

/// Tokens that speculative decoding proposes at a time when nobody says how many.
pub const DEFAULT_DRAFT_TOKENS: usize = 8;

named! {
    /// How the next token is chosen.
    pub Strategy {
        /// Always the most probable token.
        Greedy = "greedy",
        /// A draw from the distribution that the sampling knobs leave.
        Sample = "sample",
        /// The most probable of several texts that grow side by side.
        Beam = "beam",
        /// Beam search whose candidates are drawn.
        BeamSample = "beam-sample",
        /// Groups of beams that avoid one another's tokens.
        DiverseBeam = "diverse-beam",
        /// The most probable continuation there is, by exhaustive search with a bound.
        Exact = "exact",
    }
}

named! {
    /// When a beam search may end before its beams have reached the last token.
    pub EarlyStopping default False {
        /// As soon as `num_beams` texts have finished.
        True = "true",
        /// When what is running is unlikely to beat what has finished.
        False = "false",
        /// When what is running cannot beat what has finished.
        Never = "never",
    }
}

named! {
    /// What happens when the text is as long as what the model can attend to.
    pub Overflow default Slide {
        /// Go on with the last `context_length` tokens; each further token costs a pass over all of
        /// them.
        Slide = "slide",
        /// End there, with the finish reason `length`.
        Stop = "stop",
        /// Fail there.
        Error = "error",
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

impl Strategy {
    /// Whether tokens are drawn, so that the sampling knobs act and a seed matters.
    pub fn samples(self) -> bool {
        matches!(self, Self::Sample | Self::BeamSample)
    }

    /// Whether several texts grow side by side, so that the beam knobs act.
    pub fn has_beams(self) -> bool {
        matches!(self, Self::Beam | Self::BeamSample | Self::DiverseBeam)
    }

    /// Whether whole texts are ranked, so that none is known before the search is over.
    pub fn ranks_texts(self) -> bool {
        self.has_beams() || self == Self::Exact
    }

    /// The strategy's name in a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::Sample => "sampling",
            Self::Beam => "beam search",
            Self::BeamSample => "beam sampling",
            Self::DiverseBeam => "diverse beam search",
            Self::Exact => "exact search",
        }
    }

    /// What Hugging Face's three knobs mean together: they have no name for a strategy.
    pub fn of_hugging_face(do_sample: bool, num_beams: usize, num_beam_groups: usize) -> Self {
        match (do_sample, num_beams > 1) {
            _ if num_beam_groups > 1 => Self::DiverseBeam,
            (true, true) => Self::BeamSample,
            (false, true) => Self::Beam,
            (true, false) => Self::Sample,
            (false, false) => Self::Greedy,
        }
    }
}
