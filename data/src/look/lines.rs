//! Lines: how long they are, which are odd, which stand in many documents, and which are code.

use crate::sensitive::Window;
use ahash::{AHashMap, AHashSet};
use serde::Serialize;
use std::cmp::Reverse;
use xxhash_rust::xxh3::xxh3_64;

/// What was found in the lines.
#[derive(Clone, Debug, Serialize)]
pub struct Lines {
    /// How many there are that are not blank.
    pub count: u64,
    /// Bytes of the longest.
    pub longest: u64,
    /// Lines by length: those of less than 2^n bytes and not less than half of it.
    pub lengths: Vec<u64>,
    /// Lines that are hardly anybody's prose: how many.
    pub odd_count: u64,
    /// The first of them.
    pub odd: Vec<OddLine>,
    /// The share of the bytes that looks like a program's source.
    pub code: f64,
    /// Lines that stand in several documents, the most frequent first.
    pub repeated: Vec<RepeatedLine>,
    /// The share of the bytes that such lines are.
    pub boilerplate: f64,
}

/// A line that is oddly long.
#[derive(Clone, Debug, Serialize)]
pub struct OddLine {
    /// The file.
    pub source: String,
    /// Bytes.
    pub bytes: u64,
    /// Its beginning.
    pub begins: String,
}

/// A line that stands in several documents.
#[derive(Clone, Debug, Serialize)]
pub struct RepeatedLine {
    /// The line, without white space around it.
    pub line: String,
    /// How many documents have it.
    pub documents: u64,
}

/// A line of more bytes is odd: no paragraph is so long.
const ODDLY_LONG: usize = 10_000;

/// So is one of so many bytes whose words have more than so many bytes each on average.
const ODD_WORDS: (usize, usize) = (300, 40);

const MOST_ODD: usize = 20;

/// A line of fewer bytes is repeated by chance: "Yours sincerely," is shorter.
const SHORTEST_REPEATED: usize = 20;

/// A line is boilerplate from so many documents on.
const BOILERPLATE: u32 = 5;

/// Different lines that are counted at most; those that were seen once are then forgotten.
const MOST_COUNTED: usize = 1 << 20;

const MOST_SHOWN: usize = 25;

/// The lines of one window.
#[derive(Default)]
pub struct LinesOfWindow {
    count: u64,
    longest: u64,
    lengths: Vec<u64>,
    code_bytes: u64,
    /// Where the odd ones are.
    odd: Vec<std::ops::Range<usize>>,
    /// The hash and place of those long enough to be told from others.
    hashes: Vec<(u64, std::ops::Range<usize>)>,
}

impl LinesOfWindow {
    pub fn new(text: &str) -> Self {
        let mut lines = Self::default();
        let mut start = 0;
        for with_end in text.split_inclusive('\n') {
            let line = with_end.trim();
            let begin = start + (with_end.len() - with_end.trim_start().len());
            start += with_end.len();
            if line.is_empty() {
                continue;
            }
            let place = begin..begin + line.len();
            lines.count += 1;
            lines.longest = lines.longest.max(line.len() as u64);
            count_length(&mut lines.lengths, line.len() as u64);
            lines.code_bytes += if is_code(line) { with_end.len() as u64 } else { 0 };
            if is_odd(line) {
                lines.odd.push(place.clone());
            }
            if line.len() >= SHORTEST_REPEATED {
                lines.hashes.push((xxh3_64(line.as_bytes()), place));
            }
        }
        lines
    }
}

/// Counts one length among those of less than 2^n bytes and not less than half of it.
pub fn count_length(lengths: &mut Vec<u64>, bytes: u64) {
    let place = (u64::BITS - bytes.leading_zeros()) as usize;
    lengths.resize(lengths.len().max(place + 1), 0);
    lengths[place] += 1;
}

fn is_odd(line: &str) -> bool {
    let (bytes, word) = ODD_WORDS;
    line.len() > ODDLY_LONG
        || line.len() >= bytes && line.is_ascii() && line.len() > word * line.split_ascii_whitespace().count()
}

/// Whether a line looks like a program's: it ends as statements do, and a good part of it is
/// brackets and operators.
fn is_code(line: &str) -> bool {
    let signs = line.bytes().filter(|byte| b"(){}[]<>=;_&|\\$".contains(byte)).count();
    let ends = line.ends_with(['{', '}', ';', ')', ':', ',', '>', ']']);
    let begins =
        ["def ", "fn ", "import ", "#include", "class ", "return ", "pub ", "let ", "const ", "var ", "use ", "</"];
    12 * signs >= line.len() && ends || signs > 0 && begins.iter().any(|word| line.starts_with(word))
}

/// The lines of all windows so far.
#[derive(Default)]
pub struct LineCounts {
    all: LinesOfWindow,
    bytes: u64,
    odd_count: u64,
    /// Document, bytes and beginning.
    odd: Vec<(u64, u64, String)>,
    /// In how many documents each line stands; its bytes there; and the line, once it is repeated.
    documents: AHashMap<u64, (u32, u64, Option<Box<str>>)>,
    /// The open document's.
    document: u64,
    seen: AHashSet<u64>,
}

impl LineCounts {
    pub fn add(&mut self, document: u64, window: &Window, lines: LinesOfWindow) {
        self.bytes += window.text.len() as u64;
        self.all.count += lines.count;
        self.all.longest = self.all.longest.max(lines.longest);
        self.all.code_bytes += lines.code_bytes;
        self.all.lengths.resize(self.all.lengths.len().max(lines.lengths.len()), 0);
        self.all.lengths.iter_mut().zip(lines.lengths).for_each(|(all, more)| *all += more);
        self.odd_count += lines.odd.len() as u64;
        for place in lines.odd {
            if self.odd.len() < MOST_ODD {
                let begins = window.text[place.clone()].chars().take(80).collect();
                self.odd.push((document, place.len() as u64, begins));
            }
        }
        if std::mem::replace(&mut self.document, document) != document || self.seen.len() > MOST_COUNTED {
            self.seen.clear();
        }
        for (hash, place) in lines.hashes {
            if self.seen.insert(hash) {
                let (documents, bytes, line) = self.documents.entry(hash).or_default();
                *documents += 1;
                *bytes += place.len() as u64;
                if *documents == 2 {
                    *line = Some(window.text[place].chars().take(160).collect::<String>().into());
                }
            }
        }
        if self.documents.len() > MOST_COUNTED {
            self.documents.retain(|_, (documents, ..)| *documents > 1);
            // Where that is not enough, the frequent ones have been seen.
            if self.documents.len() > MOST_COUNTED / 2 {
                self.documents.retain(|_, (documents, ..)| *documents >= BOILERPLATE);
            }
        }
    }

    pub fn finish(self, name: &dyn Fn(u64) -> String) -> Lines {
        let share = |bytes: u64| bytes as f64 / self.bytes.max(1) as f64;
        let counted = self.documents.values().filter(|(documents, ..)| *documents >= BOILERPLATE);
        let mut repeated: Vec<(u32, &str)> = Vec::new();
        let mut boilerplate = 0u64;
        for (documents, bytes, line) in counted {
            boilerplate += bytes;
            repeated.push((*documents, line.as_deref().unwrap_or_default()));
        }
        repeated.sort_by_key(|&(documents, line)| (Reverse(documents), line));
        let shown = repeated.iter().take(MOST_SHOWN);
        let odd = |&(document, bytes, ref begins): &(u64, u64, String)| OddLine {
            source: name(document),
            bytes,
            begins: begins.clone(),
        };
        Lines {
            count: self.all.count,
            longest: self.all.longest,
            odd_count: self.odd_count,
            odd: self.odd.iter().map(odd).collect(),
            code: share(self.all.code_bytes),
            repeated: shown
                .map(|&(documents, line)| RepeatedLine { line: line.to_owned(), documents: documents.into() })
                .collect(),
            boilerplate: share(boilerplate),
            lengths: self.all.lengths,
        }
    }
}
