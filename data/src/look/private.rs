//! Addresses, numbers and keys of the text, counted, with places.

use crate::sensitive::{Finding, Kind, Window};
use serde::Serialize;
use std::collections::BTreeMap;

/// One kind, all over the text.
#[derive(Clone, Debug, Serialize)]
pub struct Private {
    /// The kind.
    pub kind: Kind,
    /// How often it stands in the text.
    pub count: u64,
    /// Documents that have it.
    pub documents: u64,
    /// Where, at most the first hundred of these.
    pub places: Vec<Place>,
}

/// A place of the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file.
    pub source: String,
    /// Which of the file's documents, from 1.
    pub document: u64,
    /// Bytes of the document before it.
    pub offset: u64,
    /// Its beginning, the rest as dots: enough to know it again.
    pub shown: String,
}

/// Places that are kept of each kind.
const MOST_PLACES: usize = 100;

/// What was found so far.
#[derive(Default)]
pub struct PlacesFound(BTreeMap<Kind, OfKind>);

#[derive(Default)]
struct OfKind {
    count: u64,
    documents: u64,
    last: Option<u64>,
    /// Document, offset, and what is shown.
    places: Vec<(u64, u64, String)>,
}

impl PlacesFound {
    pub fn add(&mut self, document: u64, window: &Window, findings: Vec<Finding>) {
        for Finding { kind, range } in findings {
            let found = self.0.entry(kind).or_default();
            found.count += 1;
            found.documents += u64::from(found.last.replace(document) != Some(document));
            if found.places.len() < MOST_PLACES {
                found.places.push((document, window.offset + range.start as u64, shown(&window.text[range])));
            }
        }
    }

    /// What was found; `place` has the file of a document in the order of reading, and which of that
    /// file's it is.
    pub fn finish(self, place: &dyn Fn(u64) -> (String, u64)) -> Vec<Private> {
        let of_kind = |(kind, found): (Kind, OfKind)| {
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

/// The first quarter, at most four characters.
fn shown(found: &str) -> String {
    let characters = found.chars().count();
    found.chars().take((characters / 4).min(4)).chain("\u{2026}".chars()).collect()
}
