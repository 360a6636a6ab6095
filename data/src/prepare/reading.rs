//! The result of a pass over the text.

use super::error::Error;
use crate::numbers::counted;
use crate::sensitive;
use crate::source::{Changes, Guess, LeftOut};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of one pass over the whole corpus.
#[derive(Default, Serialize, Deserialize)]
pub struct Reading {
    /// One entry per source, except while encoding. Its documents are all counted as training until
    /// the split is known.
    pub sources: Vec<Source>,
    /// Files in folders that could not be read to their end
    /// ([`Corpus::leave_out`](super::corpus::Corpus::leave_out)).
    pub unusable: Vec<Unusable>,
    /// Whether text of such a file was emitted before its error: then the pass is void and the text
    /// must be read again without these files.
    pub is_spoilt: bool,
    /// Number of masked items per kind.
    pub masked: BTreeMap<sensitive::Kind, u64>,
}

/// A file in a folder that could not be read to its end.
#[derive(Clone, Serialize, Deserialize)]
pub struct Unusable {
    /// Its number among all parts of the corpus, which does not change when others are left out:
    /// two files may have one displayed name.
    pub part: usize,
    /// The report of it.
    pub report: LeftOut,
}

/// A place that text came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// The file as the user gave it, or a description of another source.
    pub name: String,
    /// Bytes of its text, after decompression and extraction.
    pub bytes: u64,
    /// The detected encoding, if none was declared and the file was not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Guess>,
    /// Number of its documents in training and in validation. The token files hold documents in the
    /// order of the sources. A document cut in two counts in both.
    pub documents: [u64; 2],
    /// Titles by document number within the source, from 1, for documents that have one. Over all
    /// sources the first 10,000 are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub titles: Vec<(u64, String)>,
    /// What cleaning changed.
    #[serde(default, skip_serializing_if = "Changes::is_none")]
    pub changes: Changes,
}

/// The error that these sources hold no text.
pub fn empty_text_error(sources: &[Source]) -> Error {
    let names = names_of(sources);
    Error::unusable(format!("the text is empty: there is only white space in {names}; give a file with text"))
}

/// The first source, and how many others there are.
pub fn names_of(sources: &[Source]) -> String {
    match sources {
        [] => String::new(),
        [only] => only.name.clone(),
        [first, others @ ..] => format!("{} and {}", first.name, counted(others.len(), "other file")),
    }
}
