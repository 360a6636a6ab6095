//! Counts and locations of addresses, numbers and keys in the text.

use crate::sensitive::{Finding, Kind, TextChunk};
use serde::Serialize;
use std::collections::BTreeMap;

/// One kind of private data in the whole text.
#[derive(Clone, Debug, Serialize)]
pub struct Private {
    /// The kind.
    pub kind: Kind,
    /// Number of occurrences.
    pub count: u64,
    /// Number of documents with an occurrence.
    pub documents: u64,
    /// The first occurrences, at most a hundred.
    pub places: Vec<Place>,
}

/// The location of an occurrence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file.
    pub source: String,
    /// The document's number in the file, from 1.
    pub document: u64,
    /// Byte offset in the document.
    pub offset: u64,
    /// Its beginning followed by an ellipsis: enough to recognize it.
    pub shown: String,
}

/// Occurrences kept of each kind.
const MAX_PLACES: usize = 100;

/// The findings so far, by kind.
#[derive(Default)]
pub struct PrivateFindings(BTreeMap<Kind, KindFindings>);

#[derive(Default)]
struct KindFindings {
    count: u64,
    documents: u64,
    last: Option<u64>,
    /// Document, offset, and the text shown.
    places: Vec<(u64, u64, String)>,
}

impl PrivateFindings {
    pub fn add(&mut self, document: u64, chunk: &TextChunk, findings: Vec<Finding>) {
        for Finding { kind, range } in findings {
            let found = self.0.entry(kind).or_default();
            found.count += 1;
            found.documents += u64::from(found.last.replace(document) != Some(document));
            if found.places.len() < MAX_PLACES {
                found.places.push((document, chunk.offset + range.start as u64, shown(&chunk.text[range])));
            }
        }
    }

    /// The findings; `place` maps a document, numbered in reading order, to its file and its number
    /// in that file.
    pub fn finish(self, place: &dyn Fn(u64) -> (String, u64)) -> Vec<Private> {
        let of_kind = |(kind, found): (Kind, KindFindings)| {
            let named = |(document, offset, shown)| {
                let (source, document) = place(document);
                Place { source, document, offset, shown }
            };
            let places = found.places.into_iter().map(named).collect();
            Private { kind, count: found.count, documents: found.documents, places }
        };
        self.0.into_iter().map(of_kind).collect()
    }
}

/// The first quarter, at most four characters, and an ellipsis.
fn shown(found: &str) -> String {
    let characters = found.chars().count();
    found.chars().take((characters / 4).min(4)).chain("\u{2026}".chars()).collect()
}
