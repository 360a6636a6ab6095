//! Why a token file cannot be read or written.

use super::layout::VERSION;
use ember_host::file_error::FileError;
use std::path::PathBuf;

/// Why a token file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system does not let the file be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another kind of file.
    #[error("{0} is not a token file; prepare the text again")]
    Foreign(PathBuf),
    /// A token file of another version.
    #[error("{path} has layout version {version}, this program reads {VERSION}; prepare the text again")]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// The header contradicts itself.
    #[error("{0} has a damaged header; prepare the text again")]
    Header(PathBuf),
    /// The file is shorter or longer than its header says.
    #[error("{path} has {bytes} bytes where its header promises {count} ids of {width} bytes; prepare the text again")]
    Length {
        /// The file.
        path: PathBuf,
        /// Its size.
        bytes: u64,
        /// Ids that it should hold.
        count: u64,
        /// Bytes for each.
        width: usize,
    },
    /// The ids are not those that were written.
    #[error("{0} is damaged (its checksum differs); prepare the text again")]
    Damaged(PathBuf),
    /// The file holds an id that it should not.
    #[error("{path} holds the token id {id}, and its vocabulary has {vocab_size} ids; prepare the text again")]
    ForeignId {
        /// The file.
        path: PathBuf,
        /// The id.
        id: u32,
        /// Every id is to be below this.
        vocab_size: usize,
    },
    /// Somebody cut the file short after it was opened.
    #[error("{0} was cut short while it was in use; prepare the text again")]
    CutShort(PathBuf),
    /// An id to be written is none of the vocabulary.
    #[error("token id {id} is outside a vocabulary of {vocab_size}: the tokenizer contradicts its own size")]
    OutsideVocabulary {
        /// The id.
        id: u32,
        /// Every id is to be below this.
        vocab_size: usize,
    },
}
