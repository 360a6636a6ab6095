//! Errors of knobs, and of the file that sets some.

use std::path::PathBuf;

use ember_host::file_error::FileError;

use super::{Knob, Semantics, Strategy};

/// An error of a single knob, or of several together.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the message calls it
pub enum KnobError {
    /// A value out of the knob's range.
    #[error("{} is {value}; it must be {}", knob.name, knob.range.words())]
    OutOfRange { knob: &'static Knob, value: String },
    /// A value that a knob cannot have.
    #[error("{} is {value}; it must be {kind}", knob.name)]
    Kind { knob: &'static Knob, value: String, kind: String },
    /// A token id, under a key of `generation_config.json`, that is outside the vocabulary.
    #[error("{key} has {id}, which is outside the model's vocabulary of {vocab_size}")]
    OutsideVocabulary { key: &'static str, id: u32, vocab_size: usize },
    /// A temperature of 0 in a complete configuration.
    #[error("temperature is 0; use the strategy greedy instead")]
    ZeroTemperature,
    /// More tokens to report than the vocabulary has.
    #[error("logprobs is {logprobs}; it must be at most {vocab_size}")]
    Logprobs { logprobs: usize, vocab_size: usize },
    /// A knob that the strategy would ignore; `named` is the strategy that the caller named, if not
    /// implied by knobs.
    #[error("{} ignores {}", strategy.words(), knob.label)]
    Ignored { knob: &'static Knob, strategy: Strategy, named: Option<Strategy> },
    /// A sampling knob beside a temperature of 0.
    #[error("a temperature of 0 means greedy, which ignores {}", knob.label)]
    Greedy { knob: &'static Knob },
    /// A sampling knob, though the stack asked for is greedy by default.
    #[error("{} has a temperature of 0 by default, which means greedy and ignores {}", semantics.stack(), knob.label)]
    GreedyStack { semantics: Semantics, knob: &'static Knob },
    /// Knobs that contradict each other, the caller's among them.
    #[error(transparent)]
    Contradiction(Contradiction),
    /// Knobs of the folder's file that contradict each other or a default.
    #[error("the settings of generation_config.json cannot be used: {0}")]
    Impossible(Contradiction),
}

/// A contradiction between knobs that are each valid alone.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the message calls it
pub enum Contradiction {
    /// The minimum length exceeds the maximum.
    #[error("min_new_tokens is {least}, more than max_new_tokens, which is {most}")]
    Length { least: usize, most: usize },
    /// Draft tokens for a strategy that cannot use them.
    #[error("drafts make greedy decoding and sampling faster, not {}", .0.words())]
    Drafts(Strategy),
    /// A strategy with beams, but no number of beams.
    #[error("{} needs num_beams", .0.words())]
    NoBeams(Strategy),
    /// More texts to return than beams.
    #[error("num_return_sequences is {sequences}, more than num_beams, which is {beams}")]
    Sequences { sequences: usize, beams: usize },
    /// Diverse beams in one group.
    #[error("diverse beam search needs num_beam_groups above 1")]
    NoGroups,
    /// Groups of unequal size.
    #[error("num_beam_groups is {groups}, which does not divide num_beams, which is {beams}")]
    Groups { groups: usize, beams: usize },
    /// Groups that do not avoid each other.
    #[error("diversity_penalty is {0}; diverse beam search needs one above 0")]
    NoDiversity(f32),
}

/// An error in a `generation_config.json`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // a field is what the message calls it
pub enum FolderError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] FileError),
    /// The file is not JSON.
    #[error("{}: not a JSON object; repair or remove it", path.display())]
    NotJson { path: PathBuf, source: serde_json::Error },
    /// A key with an invalid value.
    #[error("{}: {key} is {value}; it must be {must_be}; correct or remove it", path.display())]
    Value { path: PathBuf, key: &'static str, value: String, must_be: String },
    /// A temperature of 0.
    #[error("{}: temperature is 0; remove it, and for greedy decoding set \"do_sample\" to false", path.display())]
    ZeroTemperature { path: PathBuf },
    /// A token id outside the model's vocabulary.
    #[error("generation_config.json: {0}; correct or remove it")]
    Vocabulary(KnobError),
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] ember_host::output::Error),
}
