//! Why a text cannot be prepared.

use crate::source::{self, LeftOut};
use crate::tokenizer::{self, UnknownCharacter};
use crate::tokens;
use ember_host::file_error::FileError;
use std::path::PathBuf;

/// Why a text cannot be prepared.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text cannot be read.
    #[error(transparent)]
    Source(#[from] source::Error),
    /// The tokenizer cannot be had, or fails on the text.
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::Error),
    /// The tokens cannot be written.
    #[error(transparent)]
    Tokens(#[from] tokens::Error),
    /// Another file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A share for validation that leaves nothing for it, or nothing else.
    #[error("val_fraction is {0}; give a share between 0 and 1, such as 0.1")]
    ValFraction(f64),
    /// No input.
    #[error("no text was named; name a file, a folder, or standard input")]
    NoInput,
    /// An input of no story.
    #[error("0 stories of the built-in corpus are no text; ask for more")]
    NoStories,
    /// The folder to write is somebody else's.
    #[error(
        "{folder} holds other files, {file} among them, and they might be overwritten; name a folder that is new or empty"
    )]
    ForeignFolder {
        /// The folder.
        folder: PathBuf,
        /// The name of a file in it.
        file: String,
    },
    /// Every file turned out to be unusable.
    #[error("none of the files can be used; give others ({})", LeftOut::told(.0).join("; "))]
    NothingUsable(Vec<LeftOut>),
    /// No document with anything in it.
    #[error("the text is empty; give some")]
    Empty,
    /// Nothing to cut in two.
    #[error("the text is one character long; give more")]
    OneCharacter,
    /// Copies of one document.
    #[error("all {0} documents are the same text, which cannot both teach and validate; give different ones")]
    OneText(u64),
    /// By chance all documents fell to one side.
    #[error("{val} of {documents} documents fell to validation; give another seed or more different documents")]
    OneSided {
        /// Documents that validate.
        val: u64,
        /// All documents.
        documents: u64,
    },
    /// A side of the split has no token.
    #[error("nothing is left for one of the splits; give more text")]
    EmptySplit,
    /// The tokenizer lacks characters of the text.
    #[error("{different} different characters of the text, {all} in all, are not known to the tokenizer ({examples})")]
    UnknownCharacters {
        /// How many of its characters are unknown, each counted once.
        different: usize,
        /// How many in all.
        all: u64,
        /// The most frequent ones and how often each occurs, in words.
        examples: String,
        /// The first of them, and where it stands.
        source: UnknownCharacter,
    },
    /// The second reading found another text than the first.
    #[error(
        "the text changed while it was read{}; prepare it again once nobody writes to it",
        .0.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default()
    )]
    Changed(Option<String>),
    /// [`Progress::interrupted`](super::Progress::interrupted) said so.
    #[error("interrupted while preparing the text; run the same command again to start over")]
    Interrupted,
}
