//! Optional cleaning of text, with counts of its changes.

mod characters;
pub mod pages;
pub mod quotes;

pub use characters::Cleaner;

use serde::{Deserialize, Serialize};

/// How much is cleaned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clean {
    /// The surroundings of documents' text: page headers and footers, quoted mails, signatures.
    /// Characters stay as they are.
    #[default]
    Auto,
    /// Also the characters of all text: Unicode NFC, line ends, unusual spaces.
    All,
    /// Nothing.
    Off,
}

impl std::str::FromStr for Clean {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "auto" => Ok(Self::Auto),
            "all" => Ok(Self::All),
            "off" => Ok(Self::Off),
            _ => Err("it must be auto, all or off".to_owned()),
        }
    }
}

impl std::fmt::Display for Clean {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::All => "all",
            Self::Off => "off",
        })
    }
}

/// The number of changes by cleaning, of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Changes {
    /// Lines removed because they repeat at the top or bottom of pages.
    pub page_lines: u64,
    /// Words that were hyphenated at the end of a page's line, and were joined.
    pub hyphens: u64,
    /// Quoted lines removed from mails, attribution lines ("Ann wrote:") included.
    pub quoted_lines: u64,
    /// Signature lines removed from mails.
    pub signature_lines: u64,
    /// Characters changed by Unicode normalization to NFC.
    pub composed: u64,
    /// Line ends other than a line feed, replaced by one.
    pub line_ends: u64,
    /// Lines with trailing blanks, blank lines after two, unusual spaces, invisible characters.
    pub blanks: u64,
    /// Characters such as Ã©: UTF-8 that was decoded as Windows-1252. They stay; the count is a
    /// warning.
    pub mojibake: u64,
    /// Unpaired surrogate escapes in JSON Lines, replaced by U+FFFD.
    pub lone_surrogates: u64,
}

impl Changes {
    /// Whether nothing was changed.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl std::ops::AddAssign for Changes {
    fn add_assign(&mut self, other: Self) {
        self.page_lines += other.page_lines;
        self.hyphens += other.hyphens;
        self.quoted_lines += other.quoted_lines;
        self.signature_lines += other.signature_lines;
        self.composed += other.composed;
        self.line_ends += other.line_ends;
        self.blanks += other.blanks;
        self.mojibake += other.mojibake;
        self.lone_surrogates += other.lone_surrogates;
    }
}
