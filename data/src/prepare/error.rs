//! Why a text cannot be prepared, and why a prepared one does not open.

use super::{FORMAT_VERSION, MANIFEST};
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
    #[error("val_fraction is {val_fraction}; give a share between 0 and 1, such as 0.1")]
    ValFraction {
        /// What was asked for.
        val_fraction: f64,
    },
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
    #[error("none of the files can be used; give others ({})", LeftOut::told(left_out).join("; "))]
    NothingUsable {
        /// The files, and what else was left out.
        left_out: Vec<LeftOut>,
    },
    /// No document with anything in it.
    #[error("the text is empty; give some")]
    Empty,
    /// Nothing to cut in two.
    #[error("the text is one character long; give more")]
    OneCharacter,
    /// Copies of one document.
    #[error("all {documents} documents are the same text, which cannot both teach and validate; give different ones")]
    OneText {
        /// How many there are.
        documents: u64,
    },
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
        reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default()
    )]
    Changed {
        /// What is wrong with it now.
        reason: Option<String>,
    },
    /// [`Progress::interrupted`](super::Progress::interrupted) said so.
    #[error("interrupted while preparing the text; run the same command again to start over")]
    Interrupted,
}

/// Why a prepared folder does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A token file is missing or damaged.
    #[error(transparent)]
    Tokens(#[from] tokens::Error),
    /// The tokenizer is missing or damaged.
    #[error(transparent)]
    Tokenizer(#[from] tokenizer::Error),
    /// There is no folder.
    #[error("{path} is not a folder; prepare a text into it first")]
    NoFolder {
        /// What was named.
        path: PathBuf,
    },
    /// A folder without its last file.
    #[error("{folder} has no {MANIFEST}: it was never prepared, or preparing did not finish; prepare the text again")]
    Unfinished {
        /// The folder.
        folder: PathBuf,
    },
    /// What the folder says about itself cannot be understood.
    #[error("{path} is damaged; prepare the text again")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A folder of another version.
    #[error("{path} has format version {version}, this program reads {FORMAT_VERSION}; prepare the text again")]
    Version {
        /// The file that says so.
        path: PathBuf,
        /// The folder's version.
        version: u64,
    },
    /// The tokenizer is another than when the tokens were made.
    #[error("{path} is not the tokenizer that the tokens were made with; prepare the text again")]
    OtherTokenizer {
        /// The tokenizer's file.
        path: PathBuf,
    },
    /// A file is not the one that the folder says it has.
    #[error("{path} does not belong to the {MANIFEST} beside it; prepare the text again")]
    Mismatch {
        /// The file.
        path: PathBuf,
    },
}
