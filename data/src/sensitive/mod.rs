//! What one might not want a model to learn by heart: e-mail addresses, telephone numbers, keys,
//! card numbers and IBANs, found by their shape and, where they have one, their check.
//!
//! What is told of a text does not depend on the pieces in which it comes: it is looked at in
//! windows of at most 64 KiB that end with a line where they can, and part nothing of what is found,
//! so that memory is bounded and all cores may look ([`Windows`]). Shapes are those of regular
//! expressions without backtracking: no text takes longer than its length.

mod email;
mod key;
mod mask;
mod neighbours;
mod number;
mod telephone;
mod windows;

pub use mask::{Masking, masked};
pub use windows::{Window, Windows};

use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, ops::Range};

/// Kinds of what is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An e-mail address.
    EmailAddress,
    /// A telephone number: international, or in a common national shape.
    TelephoneNumber,
    /// A password, a token or a private key of a machine.
    Key,
    /// The number of a payment card, right by Luhn's check.
    CardNumber,
    /// An international bank account number, right by its check.
    Iban,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::EmailAddress, Self::TelephoneNumber, Self::Key, Self::CardNumber, Self::Iban];

    /// What stands for it in a masked text.
    pub fn tag(self) -> &'static str {
        match self {
            Self::EmailAddress => "[e-mail]",
            Self::TelephoneNumber => "[telephone]",
            Self::Key => "[key]",
            Self::CardNumber => "[card]",
            Self::Iban => "[iban]",
        }
    }

    /// What so many of the kind are called.
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

/// One place of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What stands there.
    pub kind: Kind,
    /// Where, in bytes.
    pub range: Range<usize>,
}

/// What is found in a text, in order; no two overlap.
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
    // Of two that overlap the one that begins first is it, and of two that begin together the
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
