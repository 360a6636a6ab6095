//! A survey of a text before training: how much there is and where it comes from, what is repeated,
//! its languages, private data in it, and its author's style.
//!
//! The text is read once and never held in memory. Counts cover all of it; words, phrases,
//! sentences and languages come from a sample of at most 8 MiB spread over the whole.

mod lines;
mod origin;
mod private;
mod table;
mod vocabulary;

pub use lines::{Lines, OddLine, RepeatedLine};
pub use origin::Share;
pub use private::{Place, Private};
pub use vocabulary::{Counted, Vocabulary};

use crate::near_duplicates::{Groups, NearDuplicates};
use crate::prepare::corpus::{Corpus, Purpose};
use crate::prepare::position::{EventPosition, Position};
use crate::prepare::reading::{Reading, empty_text_error};
use crate::prepare::report::guesses;
use crate::prepare::sample::Sample;
use crate::prepare::{Error, PrepareOptions, Progress};
use crate::sensitive::{Finding, TextChunk, TextChunks, find};
use crate::source::{Dated, Event, LeftOut};
use lines::{ChunkLines, LineCounts, count_length};
use private::PrivateFindings;
use rayon::prelude::*;
use serde::Serialize;

/// Size of the sample for words and phrases.
const SAMPLE_BYTES: usize = 8 << 20;

/// Chunks processed in one parallel batch.
const BATCH_CHUNKS: usize = 256;

/// The findings.
#[derive(Clone, Debug, Serialize)]
pub struct Look {
    /// Documents that are not blank.
    pub documents: u64,
    /// Bytes of text.
    pub bytes: u64,
    /// Characters of text.
    pub characters: u64,
    /// The kinds of files, by file name extension, the largest share first.
    pub kinds: Vec<Share>,
    /// The years of the text: a document's own date if it has one, as in mail, else a year in the
    /// file's name, else the year in which the file was last changed, which is unknown in archives.
    pub years: Vec<Share>,
    /// The largest files.
    pub largest: Vec<Share>,
    /// Number of files read.
    pub files: u64,
    /// Histogram of document lengths: entry n counts documents of less than 2^n and at least
    /// 2^(n-1) bytes.
    pub lengths: Vec<u64>,
    /// Files that were not read, and why.
    pub left_out: Vec<LeftOut>,
    /// A sentence about the encodings detected in files that are not UTF-8 and declare none.
    pub encodings: Option<String>,
    /// The file that this sentence names.
    #[serde(skip)]
    pub least_certain: Option<String>,
    /// Near-duplicate documents.
    pub repeated: Repeated,
    /// Findings about lines.
    pub lines: Lines,
    /// Private data found.
    pub private: Vec<Private>,
    /// Words, phrases, sentences and languages of the sample.
    pub vocabulary: Vocabulary,
    /// Size of the sample in bytes.
    pub sample_bytes: u64,
}

/// Near-duplicate documents.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Repeated {
    /// Number of groups.
    pub groups: u64,
    /// Documents in the groups, without the first of each.
    pub documents: u64,
    /// Bytes of these documents.
    pub bytes: u64,
    /// One in this many documents was compared.
    pub one_in: u64,
    /// The largest groups: at most three file names each.
    pub examples: Vec<Vec<String>>,
}

/// Reads the text named by `options` and surveys it.
///
/// # Errors
/// As [`crate::prepare::prepare`]. Nothing is prepared, but standard input may be copied to
/// `options.out`, which must exist.
pub fn look(options: &PrepareOptions, progress: &dyn Progress) -> Result<Look, Error> {
    let mut corpus = Corpus::find(options, progress)?;
    loop {
        let mut state = LookState::new();
        let reading =
            corpus.read(Purpose::Looking, Position::default(), progress, &mut |at: EventPosition<'_>, event| {
                match event {
                    Event::Text(text) => state.add(text),
                    Event::EndOfDocument => state.end_document(at.source()),
                    // A date before 1970 comes from a clock that was never set.
                    Event::Dated(Dated::At(seconds)) => state.written = u64::try_from(seconds).ok(),
                    Event::Title(_) | Event::Dated(Dated::Throughout) => {}
                }
                Ok(())
            })?;
        corpus.leave_out(&reading.unusable)?;
        if !reading.is_spoilt {
            return match state.documents {
                0 => Err(empty_text_error(&reading.sources)),
                _ => Ok(state.finish(reading, corpus.listing.left_out)),
            };
        }
    }
}

/// State gathered while reading.
struct LookState {
    chunks: TextChunks,
    /// Chunks to process, each with its document number.
    waiting: Vec<(u64, TextChunk)>,
    /// Their bytes.
    waiting_bytes: usize,
    sample: Sample,
    near: NearDuplicates<(u64, u64)>,
    lines: LineCounts,
    private: PrivateFindings,
    lengths: Vec<u64>,
    documents: u64,
    bytes: u64,
    characters: u64,
    document_bytes: u64,
    /// The date of the open document, in seconds since 1970, if it has one.
    written: Option<u64>,
    dated: origin::DocumentYears,
}

impl LookState {
    fn new() -> Self {
        Self {
            chunks: TextChunks::default(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            sample: Sample::new(SAMPLE_BYTES),
            near: NearDuplicates::default(),
            lines: LineCounts::default(),
            private: PrivateFindings::default(),
            lengths: Vec::new(),
            documents: 0,
            bytes: 0,
            characters: 0,
            document_bytes: 0,
            written: None,
            dated: origin::DocumentYears::default(),
        }
    }

    fn add(&mut self, text: &str) {
        self.document_bytes += text.len() as u64;
        self.sample.add(text);
        self.near.add(text);
        let chunks = self.chunks.add(text);
        self.process_later(chunks);
    }

    fn end_document(&mut self, source: usize) {
        if let Some(seconds) = self.written.take() {
            self.dated.add(source, seconds, self.document_bytes);
        }
        let last = self.chunks.end_document();
        self.process_later(last);
        self.sample.end_document();
        self.near.end_document((self.documents, self.document_bytes));
        count_length(&mut self.lengths, self.document_bytes);
        self.documents += 1;
        self.bytes += self.document_bytes;
        self.document_bytes = 0;
    }

    /// Adds chunks of the open document to the batch, and processes it when it is full.
    fn process_later(&mut self, chunks: impl IntoIterator<Item = TextChunk>) {
        for chunk in chunks {
            self.waiting_bytes += chunk.text.len();
            self.waiting.push((self.documents, chunk));
        }
        let chunks = self.waiting.len();
        // Short documents have short chunks, so more chunks make a batch.
        if chunks >= 16 * BATCH_CHUNKS || chunks >= BATCH_CHUNKS && self.waiting_bytes >= 1 << 20 {
            self.process_batch();
        }
    }

    fn process_batch(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let seen: Vec<(ChunkLines, Vec<Finding>, u64)> = waiting
            .par_iter()
            .map(|(_, chunk)| (ChunkLines::new(chunk), find(&chunk.text), chunk.text.chars().count() as u64))
            .collect();
        for ((document, chunk), (lines, findings, characters)) in waiting.iter().zip(seen) {
            self.lines.add(*document, chunk, lines);
            self.private.add(*document, chunk, findings);
            self.characters += characters;
        }
    }

    fn finish(mut self, reading: Reading, left_out: Vec<LeftOut>) -> Look {
        self.process_batch();
        let sources = reading.sources;
        // Number of each file's first document, in reading order.
        let (mut starts, mut next) = (Vec::with_capacity(sources.len()), 0);
        for source in &sources {
            starts.push(next);
            next += source.documents.iter().sum::<u64>();
        }
        // The file of a document, and the document's number in it, from 1.
        let place = |document: u64| {
            let source = starts.partition_point(|&start| start <= document).saturating_sub(1);
            let name = sources.get(source).map(|source| source.name.clone()).unwrap_or_default();
            (name, document - starts.get(source).copied().unwrap_or_default() + 1)
        };
        let name = |document: u64| place(document).0;
        let texts: Vec<&str> = self.sample.texts().collect();
        let guesses = guesses(&sources).map(|(line, name)| (line, name.to_owned()));
        let (encodings, least_certain) = guesses.unzip();
        Look {
            documents: self.documents,
            bytes: self.bytes,
            characters: self.characters,
            kinds: origin::kinds(&sources),
            years: origin::years(&sources, &self.dated),
            largest: origin::largest(&sources),
            files: sources.len() as u64,
            lengths: self.lengths,
            left_out,
            encodings,
            least_certain,
            repeated: repeated(self.near.finish(), &name),
            lines: self.lines.finish(&name),
            private: self.private.finish(&place),
            vocabulary: Vocabulary::new(&texts),
            sample_bytes: self.sample.bytes as u64,
        }
    }
}

fn repeated(near: Groups<(u64, u64)>, name: &dyn Fn(u64) -> String) -> Repeated {
    const EXAMPLES: usize = 12;
    let mut repeated = Repeated { one_in: near.one_in, groups: near.groups.len() as u64, ..Repeated::default() };
    for group in &near.groups {
        repeated.documents += group.len() as u64 - 1;
        repeated.bytes += group[1..].iter().map(|(_, bytes)| bytes).sum::<u64>();
    }
    let mut groups = near.groups;
    groups.sort_by_key(|group| std::cmp::Reverse(group.iter().map(|(_, bytes)| bytes).sum::<u64>()));
    let examples = groups.iter().take(EXAMPLES);
    repeated.examples =
        examples.map(|group| group.iter().take(3).map(|&(document, _)| name(document)).collect()).collect();
    repeated
}

#[cfg(test)]
mod tests;
