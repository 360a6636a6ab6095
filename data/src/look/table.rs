//! What was found, to read on a terminal.

use super::{Look, Place, Share};
use crate::prepare::grouped;
use crate::source::LeftOut;
use std::fmt;

/// Shares, words and phrases that are named.
const NAMED: usize = 8;

/// Places of a kind that are named.
const PLACES: usize = 3;

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut row = |name: &str, says: &str| writeln!(f, "{name:<22}{says}");
        let share = |share: f64| format!("{:.1}%", 100.0 * share);
        row("documents", &format!("{} in {} files", grouped(self.documents), grouped(self.files)))?;
        row("bytes", &grouped(self.bytes))?;
        row("kinds", &shares(&self.kinds, self.bytes))?;
        row("years", &shares(&self.years, self.bytes))?;
        let words = &self.vocabulary;
        let languages = words.languages.iter().take(NAMED).map(|(name, part)| format!("{name} {}", share(*part)));
        row("languages", &languages.collect::<Vec<_>>().join(", "))?;
        let [all, different, once] = [words.words, words.different, words.once].map(grouped);
        row("words", &format!("{all} in {} bytes, {different} different, {once} once", grouped(self.sample_bytes)))?;
        row("words a sentence", &format!("{:.1}", words.words_per_sentence))?;
        for (name, counted) in [("favourite words", &words.favourites), ("favourite phrases", &words.phrases)] {
            let named = counted.iter().take(NAMED).map(|one| format!("{} {}", one.text, grouped(one.count)));
            row(name, &named.collect::<Vec<_>>().join(", "))?;
        }
        let repeated = &self.repeated;
        let [documents, groups, bytes] = [repeated.documents, repeated.groups, repeated.bytes].map(grouped);
        row("near-duplicates", &format!("{documents} documents in {groups} groups, {bytes} bytes"))?;
        row("boilerplate", &format!("{} of the bytes", share(self.lines.boilerplate)))?;
        row("code", &format!("{} of the bytes", share(self.lines.code)))?;
        row(
            "odd lines",
            &format!("{}, the longest {} bytes", grouped(self.lines.odd_count), grouped(self.lines.longest)),
        )?;
        for found in &self.private {
            let places = found.places.iter().take(PLACES);
            let place = |place: &Place| format!("{}, document {}, byte {}", place.source, place.document, place.offset);
            let places = places.map(place);
            let [one, more] = found.kind.words();
            let name = if found.count == 1 { one } else { more };
            row(name, &format!("{}: {}", grouped(found.count), places.collect::<Vec<_>>().join("; ")))?;
        }
        LeftOut::told(&self.left_out).iter().try_for_each(|kind| writeln!(f, "Left out: {kind}"))
    }
}

fn shares(shares: &[Share], all: u64) -> String {
    let named = shares.iter().take(NAMED);
    let share = |share: &Share| format!("{} {:.1}%", share.name, 100.0 * share.bytes as f64 / all.max(1) as f64);
    let more = if shares.len() > NAMED { ", ..." } else { "" };
    named.map(share).collect::<Vec<_>>().join(", ") + more
}
