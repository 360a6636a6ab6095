//! Detects private data that a model should not learn by heart: e-mail addresses, telephone
//! numbers, keys, card numbers and IBANs, by their shape and, if they have one, their checksum.
//!
//! The findings do not depend on how the text is divided into pieces: it is searched in chunks of
//! at most 64 KiB that end at a line end if possible and never cut a finding, so that memory is
//! bounded and all cores can search ([`TextChunks`]). Shapes are regular expressions without
//! backtracking: the time is linear in the length of the text.

mod chunks;
mod email;
mod key;
mod mask;
mod neighbours;
mod number;
mod telephone;

pub use chunks::{TextChunk, TextChunks};
pub use mask::{Masking, masked};

use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, ops::Range};

/// Kinds of private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An e-mail address.
    EmailAddress,
    /// A telephone number: international, or in a common national format.
    TelephoneNumber,
    /// A password, a token or a private key.
    Key,
    /// A payment card number with a valid Luhn checksum.
    CardNumber,
    /// An international bank account number with a valid checksum.
    Iban,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::EmailAddress, Self::TelephoneNumber, Self::Key, Self::CardNumber, Self::Iban];

    /// The tag that replaces it in a masked text.
    pub fn tag(self) -> &'static str {
        match self {
            Self::EmailAddress => "[e-mail]",
            Self::TelephoneNumber => "[telephone]",
            Self::Key => "[key]",
            Self::CardNumber => "[card]",
            Self::Iban => "[iban]",
        }
    }

    /// The noun for this many of the kind.
    pub fn words(self, count: u64) -> &'static str {
        let [one, several] = match self {
            Self::EmailAddress => ["e-mail address", "e-mail addresses"],
            Self::TelephoneNumber => ["telephone number", "telephone numbers"],
            Self::Key => ["key or password", "keys and passwords"],
            Self::CardNumber => ["card number", "card numbers"],
            Self::Iban => ["IBAN", "IBANs"],
        };
        if count == 1 { one } else { several }
    }
}

/// An occurrence of private data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub kind: Kind,
    /// Its range in bytes.
    pub range: Range<usize>,
}

/// The findings in a text, in order and without overlaps.
pub fn find(text: &str) -> Vec<Finding> {
    let mut all = Vec::new();
    for (kind, ranges) in [
        (Kind::EmailAddress, email::find(text)),
        (Kind::TelephoneNumber, telephone::find(text)),
        (Kind::Key, key::find(text)),
        (Kind::CardNumber, number::cards(text)),
        (Kind::Iban, number::ibans(text)),
    ] {
        all.extend(ranges.into_iter().map(|range| Finding { kind, range }));
    }
    // Of two overlapping findings the one that begins first is kept; if they begin together, the
    // longer.
    all.sort_by_key(|finding| (finding.range.start, Reverse(finding.range.end)));
    let mut end = 0;
    all.retain(|finding| {
        let is_free = finding.range.start >= end;
        end = if is_free { finding.range.end } else { end };
        is_free
    });
    all
}

#[cfg(test)]
mod tests;
