//! Cleaning: what is changed of a text, by choice, and how often.

mod characters;
pub mod pages;
pub mod quotes;

pub use characters::Cleaner;

use serde::{Deserialize, Serialize};

/// What is cleaned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clean {
    /// What pages, mails and other documents have around their text; the characters stay as they
    /// are.
    #[default]
    Auto,
    /// The characters of all text as well: Unicode NFC, line ends, odd blanks.
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

/// How often cleaning changed something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Changes {
    /// Lines that stood at the top or bottom of page after page, and were left out.
    pub page_lines: u64,
    /// Words that a page's line had cut, and were joined.
    pub hyphens: u64,
    /// Lines of mails quoted in answers, with what announces them, and left out.
    pub quoted_lines: u64,
    /// Lines of signatures below mails, left out.
    pub signature_lines: u64,
    /// Characters that are written otherwise in Unicode's NFC.
    pub composed: u64,
    /// Line ends that were not a line feed.
    pub line_ends: u64,
    /// Blanks at ends of lines, blank lines beyond two, spaces of odd widths, invisible characters.
    pub blanks: u64,
    /// Characters such as Ã©, which are UTF-8 that was read as Windows-1252. They stay: this counts
    /// what should be looked at.
    pub mojibake: u64,
    /// Halves of characters that stood alone as escapes in JSON Lines: no text, and read as U+FFFD.
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
