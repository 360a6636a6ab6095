//! Lines: their lengths, odd lines, lines repeated across documents, and code.

use crate::sensitive::TextChunk;
use ahash::{AHashMap, AHashSet};
use serde::Serialize;
use std::{cmp::Reverse, ops::Range};
use xxhash_rust::xxh3::xxh3_64;

/// Findings about the lines.
#[derive(Clone, Debug, Serialize)]
pub struct Lines {
    /// Number of lines that are not blank.
    pub count: u64,
    /// Bytes of the longest line.
    pub longest: u64,
    /// Histogram of lengths: entry n counts lines of less than 2^n and at least 2^(n-1) bytes.
    pub lengths: Vec<u64>,
    /// Number of lines that are unlikely to be prose.
    pub odd_count: u64,
    /// The first of them.
    pub odd: Vec<OddLine>,
    /// The fraction of the bytes that looks like source code.
    pub code: f64,
    /// Lines that occur in several documents, the most frequent first.
    pub repeated: Vec<RepeatedLine>,
    /// The fraction of the bytes in such lines, wherever they stand.
    pub boilerplate: f64,
}

/// A line that is unlikely to be prose.
#[derive(Clone, Debug, Serialize)]
pub struct OddLine {
    /// The file.
    pub source: String,
    /// Bytes.
    pub bytes: u64,
    /// Its beginning.
    pub begins: String,
}

/// A line that occurs in several documents.
#[derive(Clone, Debug, Serialize)]
pub struct RepeatedLine {
    /// The line, without white space around it.
    pub line: String,
    /// Number of documents that contain it.
    pub documents: u64,
}

/// Longer lines (in bytes) are odd: no paragraph is so long.
const ODDLY_LONG: usize = 10_000;

/// Lines of at least this many bytes whose words are longer than this on average are odd.
const ODD_WORDS: (usize, usize) = (300, 40);

const MAX_ODD: usize = 20;

/// Shorter lines (in bytes) may be repeated by chance, such as "Yours sincerely,".
const SHORTEST_REPEATED: usize = 20;

/// A line in at least this many documents is boilerplate.
const BOILERPLATE_DOCUMENTS: u32 = 5;

/// Maximum number of distinct lines counted; beyond it, lines seen once are dropped.
const MAX_COUNTED: usize = 1 << 20;

const MAX_SHOWN: usize = 25;

/// A line that spans chunks is represented by at most this many bytes of its beginning. A longer
/// line is odd in any case.
const KEPT_BYTES: usize = 16 << 10;

/// The lines of one chunk.
#[derive(Default)]
pub struct ChunkLines {
    /// The range of the lines that both begin and end in the chunk.
    whole: Range<usize>,
    count: u64,
    longest: u64,
    lengths: Vec<u64>,
    code_bytes: u64,
    /// The ranges of odd lines.
    odd: Vec<Range<usize>>,
    /// Hash and range of each line long enough to be distinctive.
    hashes: Vec<(u64, Range<usize>)>,
}

impl ChunkLines {
    pub fn new(chunk: &TextChunk) -> Self {
        let text = &chunk.text;
        let first = if chunk.begins_line { 0 } else { text.find('\n').map_or(text.len(), |end| end + 1) };
        let last = match chunk.ends_line {
            true => text.len(),
            false => text[first..].rfind('\n').map_or(first, |end| first + end + 1),
        };
        let whole = first..last;
        let mut lines = Self { whole: whole.clone(), ..Self::default() };
        let mut start = whole.start;
        for with_end in text[whole].split_inclusive('\n') {
            let line = with_end.trim();
            let begin = start + (with_end.len() - with_end.trim_start().len());
            start += with_end.len();
            if !line.is_empty() {
                lines.count_line(line, begin..begin + line.len(), with_end.len());
            }
        }
        lines
    }

    /// Counts the line at `place`, which takes `with_space` bytes including surrounding white
    /// space. For a very long line, `line` is only its kept beginning.
    fn count_line(&mut self, line: &str, place: Range<usize>, with_space: usize) {
        self.count += 1;
        self.longest = self.longest.max(place.len() as u64);
        count_length(&mut self.lengths, place.len() as u64);
        self.code_bytes += if is_code(line) { with_space as u64 } else { 0 };
        if is_odd(line) {
            self.odd.push(place.clone());
        }
        if line.len() >= SHORTEST_REPEATED {
            // The length distinguishes lines with the same kept beginning.
            let unknown = place.len().abs_diff(line.len()) as u64;
            self.hashes.push((xxh3_64(line.as_bytes()) ^ unknown, place));
        }
    }
}

/// A line that spans chunks. It may be as long as the document, so only its beginning is kept.
#[derive(Default)]
struct OpenLine {
    /// Its beginning, without leading white space.
    begins: String,
    /// Its last non-space character so far.
    last: Option<char>,
    /// Bytes from the first to the last non-space character.
    bytes: usize,
    /// Bytes from the first non-space character on.
    read: usize,
    /// All bytes, including leading white space.
    all: usize,
}

impl OpenLine {
    fn add(&mut self, piece: &str) {
        self.all += piece.len();
        let piece = if self.read == 0 { piece.trim_start() } else { piece };
        if self.begins.len() == self.read {
            let room = KEPT_BYTES - self.begins.len();
            self.begins.push_str(&piece[..piece.floor_char_boundary(room)]);
        }
        let line = piece.trim_end();
        if let Some(last) = line.chars().next_back() {
            (self.bytes, self.last) = (self.read + line.len(), Some(last));
        }
        self.read += piece.len();
    }

    /// The line's kept text and the counts of it as a single line. Code is recognized by line ends,
    /// so the kept text of a long line is its beginning followed by its last character.
    fn close(mut self) -> (String, ChunkLines) {
        match self.bytes <= self.begins.len() {
            true => self.begins.truncate(self.bytes),
            false => self.begins.extend(self.last),
        }
        let mut lines = ChunkLines::default();
        if self.bytes > 0 {
            lines.count_line(&self.begins, 0..self.bytes, self.all);
        }
        (self.begins, lines)
    }
}

/// The first characters of the line at `place`, which may extend past the text.
fn beginning(text: &str, place: &Range<usize>, characters: usize) -> String {
    text[place.start..place.end.min(text.len())].chars().take(characters).collect()
}

/// Adds a length to a histogram with power-of-two buckets.
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

/// Whether a line looks like source code: it ends as statements do, and a good part of it is
/// brackets and operators.
fn is_code(line: &str) -> bool {
    let signs = line.bytes().filter(|byte| b"(){}[]<>=;_&|\\$".contains(byte)).count();
    let ends = line.ends_with(['{', '}', ';', ')', ':', ',', '>', ']']);
    let begins =
        ["def ", "fn ", "import ", "#include", "class ", "return ", "pub ", "let ", "const ", "var ", "use ", "</"];
    12 * signs >= line.len() && ends || signs > 0 && begins.iter().any(|word| line.starts_with(word))
}

/// The lines of all chunks so far.
#[derive(Default)]
pub struct LineCounts {
    all: ChunkLines,
    open: OpenLine,
    bytes: u64,
    odd_count: u64,
    /// Document, bytes and beginning.
    odd: Vec<(u64, u64, String)>,
    /// For each line, by hash: the number of documents that contain it, its bytes in them however
    /// often it stands there, and its text once it is in a second document.
    documents: AHashMap<u64, (u32, u64, Option<Box<str>>)>,
    /// The open document, and the lines seen in it.
    document: u64,
    seen: AHashSet<u64>,
}

impl LineCounts {
    pub fn add(&mut self, document: u64, chunk: &TextChunk, lines: ChunkLines) {
        let (text, Range { start, end }) = (&chunk.text, lines.whole.clone());
        self.bytes += text.len() as u64;
        if !chunk.begins_line {
            self.open.add(&text[..start]);
            if chunk.ends_line || start < text.len() {
                let (kept, line) = std::mem::take(&mut self.open).close();
                self.count_lines(document, &kept, line);
            }
        }
        self.count_lines(document, text, lines);
        self.open.add(&text[end..]);
    }

    /// Counts lines of `text`, a part of the document.
    fn count_lines(&mut self, document: u64, text: &str, lines: ChunkLines) {
        self.all.count += lines.count;
        self.all.longest = self.all.longest.max(lines.longest);
        self.all.code_bytes += lines.code_bytes;
        self.all.lengths.resize(self.all.lengths.len().max(lines.lengths.len()), 0);
        self.all.lengths.iter_mut().zip(lines.lengths).for_each(|(all, more)| *all += more);
        self.odd_count += lines.odd.len() as u64;
        for place in lines.odd {
            if self.odd.len() < MAX_ODD {
                self.odd.push((document, place.len() as u64, beginning(text, &place, 80)));
            }
        }
        if std::mem::replace(&mut self.document, document) != document || self.seen.len() > MAX_COUNTED {
            self.seen.clear();
        }
        for (hash, place) in lines.hashes {
            let (documents, bytes, line) = self.documents.entry(hash).or_default();
            *bytes += place.len() as u64;
            if self.seen.insert(hash) {
                *documents += 1;
                if *documents == 2 {
                    *line = Some(beginning(text, &place, 160).into());
                }
            }
        }
        if self.documents.len() > MAX_COUNTED {
            self.documents.retain(|_, (documents, ..)| *documents > 1);
            // If that is not enough, keep only lines that are boilerplate already.
            if self.documents.len() > MAX_COUNTED / 2 {
                self.documents.retain(|_, (documents, ..)| *documents >= BOILERPLATE_DOCUMENTS);
            }
        }
    }

    pub fn finish(self, name: &dyn Fn(u64) -> String) -> Lines {
        let share = |bytes: u64| bytes as f64 / self.bytes.max(1) as f64;
        let counted = self.documents.values().filter(|(documents, ..)| *documents >= BOILERPLATE_DOCUMENTS);
        let mut repeated: Vec<(u32, &str)> = Vec::new();
        let mut boilerplate = 0u64;
        for (documents, bytes, line) in counted {
            boilerplate += bytes;
            repeated.push((*documents, line.as_deref().unwrap_or_default()));
        }
        repeated.sort_by_key(|&(documents, line)| (Reverse(documents), line));
        let shown = repeated.iter().take(MAX_SHOWN);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// The statistics of documents read in chunks of at most `most` bytes.
    fn lines(documents: &[String], most: usize) -> Lines {
        let mut counts = LineCounts::default();
        for (document, text) in (0..).zip(documents) {
            let mut start = 0;
            while start < text.len() {
                let end = text.ceil_char_boundary(start + most.min(text.len() - start));
                let begins_line = start == 0 || text[..start].ends_with('\n');
                let ends_line = end == text.len() || text[..end].ends_with('\n');
                let chunk =
                    TextChunk { offset: start as u64, text: text[start..end].to_owned(), begins_line, ends_line };
                counts.add(document, &chunk, ChunkLines::new(&chunk));
                start = end;
            }
        }
        counts.finish(&|document| document.to_string())
    }

    #[test]
    fn a_line_is_one_however_many_chunks_it_takes() {
        let text = "word ".repeat(40_000) + "\n" + &"short line\n".repeat(5);
        for most in [1, 7, 4096, 64 << 10, usize::MAX] {
            let found = lines(std::slice::from_ref(&text), most);
            assert_eq!((found.count, found.odd_count, found.longest), (6, 1, 199_999), "{most}");
            assert_eq!((found.odd[0].bytes, found.odd[0].begins.as_str()), (199_999, "word ".repeat(16).as_str()));
        }
    }

    #[test]
    fn long_lines_that_end_otherwise_are_told_apart() {
        let long = |end: &str| "x = f(1); ".repeat(12_000) + end;
        let documents: Vec<String> = (0..5).map(|_| long("}  ")).chain([long("no code at all"), long("")]).collect();
        let found = lines(&documents, 64 << 10);
        assert_eq!((found.count, found.odd_count, found.repeated.len()), (7, 7, 1));
        assert_eq!((found.repeated[0].documents, found.repeated[0].line.len()), (5, 160));
        assert!((0.8..0.9).contains(&found.code), "six of seven end as code does: {}", found.code);
    }

    /// Such as a header on every page. Within one document alone it may be a refrain.
    #[test]
    fn a_line_of_many_documents_is_boilerplate_as_often_as_it_stands_in_them() {
        let (header, own) = ("The Harbour Gazette, 1912\n", "a page\n");
        let document = format!("{header}{own}").repeat(3);
        let found = lines(&vec![document.clone(); 5], usize::MAX);
        assert_eq!((found.repeated.len(), found.repeated[0].documents), (1, 5));
        let share = (header.len() - 1) as f64 / (header.len() + own.len()) as f64;
        assert!((found.boilerplate - share).abs() < 1e-12, "{}", found.boilerplate);
        assert_eq!(lines(&[document.repeat(5)], usize::MAX).boilerplate, 0.0);
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(
            lines_of in proptest::collection::vec("( |a|\u{e9}|\u{2003}|\\{|;|\r|\n|for ever and ever|let x = 5){0,30}", 1..8),
            most in 1usize..90,
        ) {
            let documents = vec![lines_of; 5].concat(); // so that lines are repeated
            let summary = |most| serde_json::to_string(&lines(&documents, most)).unwrap();
            prop_assert_eq!(summary(most), summary(usize::MAX));
        }
    }
}
