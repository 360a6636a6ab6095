//! Origin of the text: kinds of files, and years.

use crate::prepare::Source;
use crate::source::compression::Compression;
use chrono::{DateTime, Datelike};
use regex::Regex;
use serde::Serialize;
use std::{cmp::Reverse, collections::BTreeMap, sync::LazyLock, time::UNIX_EPOCH};

/// A part of the text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Its name.
    pub name: String,
    /// Files in it.
    pub files: u64,
    /// Documents in it.
    pub documents: u64,
    /// Bytes of its text.
    pub bytes: u64,
}

/// The year of files without one.
const UNKNOWN: &str = "unknown";

/// Number of largest files listed.
const LARGEST: usize = 12;

/// Documents with a date: per source and year, their number and bytes.
#[derive(Default)]
pub struct DocumentYears(BTreeMap<(usize, u64), [u64; 2]>);

impl DocumentYears {
    /// Counts a document of source number `source`, written `seconds` after the beginning of 1970.
    /// An impossible year counts as no date.
    pub fn add(&mut self, source: usize, seconds: u64, bytes: u64) {
        let Some(year) = year_of(seconds) else { return };
        let [documents, all_bytes] = self.0.entry((source, year)).or_default();
        *documents += 1;
        *all_bytes += bytes;
    }

    fn of(&self, source: usize) -> Vec<(String, [u64; 2])> {
        let years = self.0.range((source, 0)..=(source, u64::MAX));
        years.map(|((_, year), size)| (year.to_string(), *size)).collect()
    }
}

/// The text by file name extension, the largest share first.
pub fn kinds(sources: &[Source]) -> Vec<Share> {
    let mut kinds = by_name(sources.iter().map(|source| (kind(&source.name), size(source))));
    kinds.sort_by_key(|share| Reverse(share.bytes));
    kinds
}

/// The text by year, the earliest first: the documents' own years, and the file's year for undated
/// documents.
pub fn years(sources: &[Source], dated: &DocumentYears) -> Vec<Share> {
    let years = sources.iter().enumerate().flat_map(|(number, source)| {
        let said = dated.of(number);
        let less = |[documents, bytes]: [u64; 2], (_, part): &(String, [u64; 2])| {
            [documents.saturating_sub(part[0]), bytes.saturating_sub(part[1])]
        };
        let rest = said.iter().fold(size(source), less);
        let has_rest = rest[0] > 0 || said.is_empty();
        said.into_iter().chain(has_rest.then(|| (year(&source.name), rest)))
    });
    by_name(years)
}

/// The largest files.
pub fn largest(sources: &[Source]) -> Vec<Share> {
    let mut largest: Vec<&Source> = sources.iter().collect();
    largest.sort_by_key(|source| Reverse(source.bytes));
    let share = |source: &Source| Share {
        name: source.name.clone(),
        files: 1,
        documents: size(source)[0],
        bytes: source.bytes,
    };
    largest.into_iter().take(LARGEST).map(share).collect()
}

/// Number of documents of a source, and its bytes.
fn size(source: &Source) -> [u64; 2] {
    [source.documents.iter().sum(), source.bytes]
}

/// Sums parts of files by name, each given with its documents and bytes.
fn by_name(parts: impl Iterator<Item = (String, [u64; 2])>) -> Vec<Share> {
    let mut shares: BTreeMap<String, Share> = BTreeMap::new();
    for (name, [documents, bytes]) in parts {
        let share = shares.entry(name.clone()).or_insert_with(|| Share { name, ..Share::default() });
        share.files += 1;
        share.documents += documents;
        share.bytes += bytes;
    }
    shares.into_values().collect()
}

/// The extension of a file's name, without that of its compression.
fn kind(name: &str) -> String {
    let lower = name.rsplit(['/', '\\']).next().unwrap_or_default().to_lowercase();
    match Compression::of_name(&lower).1.rsplit_once('.') {
        Some((start, end)) if !start.is_empty() && is_ending(end) => format!(".{end}"),
        _ => "without an ending".to_owned(),
    }
}

/// Whether it looks like an extension; `:2,S`, the end of a mail's name in a Maildir, does not.
fn is_ending(end: &str) -> bool {
    end.len() <= 8 && end.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-_".contains(&byte))
}

/// The first year in a file's name, else the year of its last change, unknown in an archive.
fn year(name: &str) -> String {
    // Matches 2019-05-01 and, at the beginning of a name, 20190501.
    static YEAR: LazyLock<Regex> = LazyLock::new(|| {
        let (year, month, day) = ("(?:18|19|20)[0-9]{2}", "(?:0[1-9]|1[0-2])", "(?:0[1-9]|[12][0-9]|3[01])");
        let pattern = format!("(?:^|[^0-9])(?<alone>{year})(?:[^0-9]|$)|^(?<first>{year}){month}{day}");
        Regex::new(&pattern).expect("the pattern is valid")
    });
    let file = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let found = YEAR.captures(file).and_then(|found| found.name("alone").or(found.name("first")));
    if let Some(year) = found {
        return year.as_str().to_owned();
    }
    let changed = std::fs::metadata(name).and_then(|metadata| metadata.modified()).ok();
    let since = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let year = since.and_then(|since| year_of(since.as_secs()));
    year.map_or_else(|| UNKNOWN.to_owned(), |year| year.to_string())
}

/// The year of a moment, given in seconds after the beginning of 1970, in UTC; `None` after 9999,
/// which comes from broken clocks or dates written by hand.
fn year_of(seconds: u64) -> Option<u64> {
    let moment = DateTime::from_timestamp(i64::try_from(seconds).ok()?, 0)?;
    u64::try_from(moment.year()).ok().filter(|&year| year <= 9999)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_years_of_names() {
        assert_eq!(
            ["a/B.TXT", "b.jsonl.gz", "c.csv.zstd", "letters/README", ".hidden"].map(kind),
            [".txt", ".jsonl", ".csv", "without an ending", "without an ending"]
        );
        assert_eq!(["x/letter-2019.txt", "1987 spring.txt", "20240501-note.md"].map(year), ["2019", "1987", "2024"]);
        assert_eq!(year("no/such/file 12345.txt"), "unknown");
        let none = ["00012345.txt", "98765432.txt", "20241301.txt", "20240532.txt", "2,000 built-in stories"];
        assert_eq!(none.map(year), ["unknown"; 5]);
    }

    #[test]
    fn years_end_in_utc_and_with_9999() {
        let days = [0, 364, 365, 11_016, 19_723, 20_088].map(|day| year_of(day * 86_400));
        assert_eq!(days, [1970, 1970, 1971, 2000, 2024, 2024].map(Some));
        let last = 253_402_300_799;
        assert_eq!([31_535_999, 31_536_000, last].map(year_of), [1970, 1971, 9999].map(Some));
        assert_eq!([last + 1, 9_000_000_000_000_000_000, u64::MAX].map(year_of), [None; 3]);
    }

    #[test]
    fn a_document_of_a_year_that_cannot_be_says_none() {
        let mut dated = DocumentYears::default();
        dated.add(0, 1_700_000_000, 5);
        dated.add(0, u64::MAX, 7);
        assert_eq!(dated.of(0), [("2023".to_owned(), [1, 5])]);
    }
}
