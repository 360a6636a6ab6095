//! The findings as a table for the terminal.

use super::{Look, Place, Share};
use crate::numbers::{counted, grouped};
use crate::source::LeftOut;
use std::fmt;

/// At most this many shares, words and phrases are listed.
const MAX_NAMED: usize = 8;

/// At most this many places of each kind are listed.
const MAX_PLACES: usize = 3;

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, says: &str| writeln!(f, "{name:<22}{says}");
        let share = |share: f64| format!("{:.1}%", 100.0 * share);
        row("documents", &format!("{} in {}", grouped(self.documents), counted(grouped(self.files), "file")))?;
        row("bytes", &grouped(self.bytes))?;
        row("kinds", &shares(&self.kinds, self.bytes))?;
        row("years", &shares(&self.years, self.bytes))?;
        let words = &self.vocabulary;
        let languages = words.languages.iter().take(MAX_NAMED).map(|(name, part)| format!("{name} {}", share(*part)));
        row("languages", &languages.collect::<Vec<_>>().join(", "))?;
        let [all, different, once] = [words.words, words.different, words.once].map(grouped);
        row(
            "words",
            &format!("{all} in {}, {different} different, {once} once", counted(grouped(self.sample_bytes), "byte")),
        )?;
        row("words per sentence", &format!("{:.1}", words.words_per_sentence))?;
        for (name, most) in [("favourite words", &words.favourites), ("favourite phrases", &words.phrases)] {
            let named = most.iter().take(MAX_NAMED).map(|one| format!("{} {}", one.text, grouped(one.count)));
            row(name, &named.collect::<Vec<_>>().join(", "))?;
        }
        let repeated = &self.repeated;
        let repeated = [(repeated.documents, "document"), (repeated.groups, "group"), (repeated.bytes, "byte")];
        let [documents, groups, bytes] = repeated.map(|(number, noun)| counted(grouped(number), noun));
        row("near-duplicates", &format!("{documents} in {groups}, {bytes}"))?;
        row("boilerplate", &format!("{} of the bytes", share(self.lines.boilerplate)))?;
        row("code", &format!("{} of the bytes", share(self.lines.code)))?;
        row(
            "odd lines",
            &format!("{}, the longest {}", grouped(self.lines.odd_count), counted(grouped(self.lines.longest), "byte")),
        )?;
        for found in &self.private {
            let place = |place: &Place| format!("{}, document {}, byte {}", place.source, place.document, place.offset);
            let places: Vec<String> = found.places.iter().take(MAX_PLACES).map(place).collect();
            row(found.kind.words(found.count), &format!("{}: {}", grouped(found.count), places.join("; ")))?;
        }
        if let Some(guesses) = &self.encodings {
            writeln!(f, "{guesses}")?;
        }
        LeftOut::summary(&self.left_out).iter().try_for_each(|line| writeln!(f, "Left out: {line}"))
    }
}

fn shares(shares: &[Share], all: u64) -> String {
    let named = shares.iter().take(MAX_NAMED);
    let share = |share: &Share| format!("{} {:.1}%", share.name, 100.0 * share.bytes as f64 / all.max(1) as f64);
    let more = if shares.len() > MAX_NAMED { ", ..." } else { "" };
    named.map(share).collect::<Vec<_>>().join(", ") + more
}
