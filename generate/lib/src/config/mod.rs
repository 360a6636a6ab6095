//! The generation configuration: its knobs, their ranges, and which source takes precedence.
//!
//! A knob's value is what the caller sets, else what the checkpoint folder's
//! `generation_config.json` sets, else off (or another program's default, if the caller asks for
//! that program's semantics). Everything about a knob (its type, its value when off, its names, its
//! range, which strategies use it, its meaning, its command-line form) is declared once in
//! `knobs.rs`. From that follow the settings of one source ([`Knobs`]), the configuration with its
//! defaults, the table [`KNOBS`] and most command-line flags. Code that treats all knobs alike
//! (reading, checking, merging, writing) iterates over the table.

mod error;
mod folder;
mod knobs;
mod range;
mod resolve;
mod sources;
mod value;

use crate::named::named;

pub use error::{Contradiction, FolderError, KnobError};
pub use folder::{FolderSettings, Sampling};
pub use knobs::{GenerationConfig, KNOBS, KNOBS_IN_HELP, Knob, Knobs, Typed, UsedBy};
pub use range::Range;
pub use resolve::{About, Note};
pub(crate) use sources::stack_defaults;
pub(crate) use value::last_of_each;
pub use value::{Form, KnobValue, as_typed};

/// Default number of tokens that speculative decoding proposes at a time.
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
    /// What happens when the context is full.
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

named! {
    /// Which program's order, rules and defaults apply to the knobs.
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

impl Strategy {
    /// Whether tokens are drawn, so that the sampling knobs act and a seed matters.
    pub fn samples(self) -> bool {
        matches!(self, Self::Sample | Self::BeamSample)
    }

    /// Whether several texts grow side by side, so that the beam knobs act.
    pub fn has_beams(self) -> bool {
        matches!(self, Self::Beam | Self::BeamSample | Self::DiverseBeam)
    }

    /// Whether whole texts are ranked, so that none is final before the search is over.
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

    /// The strategy that Hugging Face's three knobs imply; transformers has no name for it.
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
