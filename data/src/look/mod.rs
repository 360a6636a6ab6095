//! A look at a text before a model learns from it: how much there is and where from, what stands in
//! it twice, whose language it is, what one might not want a model to know, and how its author
//! writes.
//!
//! The text is read once and never held. Counts are of all of it; words, phrases, sentences and
//! languages are those of a sample of at most 8 MiB that is spread over the whole.

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
use crate::prepare::corpus::{Corpus, Purpose, Reading, nothing_in};
use crate::prepare::position::{EventPosition, Position};
use crate::prepare::report::guesses;
use crate::prepare::sample::Sample;
use crate::prepare::{Error, PrepareOptions, Progress};
use crate::sensitive::{Finding, Window, Windows, find};
use crate::source::{Dated, Event, LeftOut};
use lines::{LineCounts, LinesOfWindow, count_length};
use private::PlacesFound;
use rayon::prelude::*;
use serde::Serialize;

/// How much of the text words and phrases are taken from.
const SAMPLE_BYTES: usize = 8 << 20;

/// Windows that are looked at together, on all cores.
const WINDOWS: usize = 256;

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Look {
    /// Documents with something else than white space in them.
    pub documents: u64,
    /// Bytes of text.
    pub bytes: u64,
    /// Characters of text.
    pub characters: u64,
    /// What the files are, by their names' ends, the most first.
    pub kinds: Vec<Share>,
    /// When the text is from: the year that a document says, as a mail does, else the one in the file's
    /// name, else that of the file's last change.
    pub years: Vec<Share>,
    /// The largest files, and how many there are.
    pub largest: Vec<Share>,
    /// Files that were read.
    pub files: u64,
    /// Documents by length: those of less than 2^n bytes and not less than half of it.
    pub lengths: Vec<u64>,
    /// What was not read, and why.
    pub left_out: Vec<LeftOut>,
    /// What the encodings of files were taken to be, in a sentence, where nothing said them and they
    /// are not UTF-8.
    pub encodings: Option<String>,
    /// Documents that are nearly the same.
    pub repeated: Repeated,
    /// Lines: how long, and which stand in many documents.
    pub lines: Lines,
    /// What one might not want a model to learn.
    pub private: Vec<Private>,
    /// Words, phrases, sentences and languages of the sample.
    pub vocabulary: Vocabulary,
    /// How much of the text that sample is, in bytes.
    pub sample_bytes: u64,
}

/// Documents that are nearly the same.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Repeated {
    /// Sets of them.
    pub groups: u64,
    /// Documents in these, but for one of each.
    pub documents: u64,
    /// Their bytes.
    pub bytes: u64,
    /// One in so many documents was compared.
    pub one_in: u64,
    /// The largest sets: the files that their documents stand in, at most three of each.
    pub examples: Vec<Vec<String>>,
}

/// Reads the text that `options` names and says what is in it.
///
/// # Errors
/// As [`crate::prepare::prepare`], but that nothing is written: `options.out` is where standard
/// input may be copied to, and must exist.
pub fn look(options: &PrepareOptions, progress: &dyn Progress) -> Result<Look, Error> {
    let mut corpus = Corpus::find(options, progress)?;
    loop {
        let mut looking = Looking::new();
        let reading = corpus.read(Purpose::Looking, Position::default(), progress, &mut |at: EventPosition<'_>, event| {
            match event {
                Event::Text(text) => looking.add(text),
                Event::EndOfDocument => looking.end_document(at.source()),
                // A date before 1970 is of a clock that nobody has set.
                Event::Dated(Dated::At(seconds)) => looking.written = u64::try_from(seconds).ok(),
                Event::Title(_) | Event::Dated(Dated::Throughout) => {}
            }
            Ok(())
        })?;
        corpus.leave_out(&reading.unusable)?;
        if !reading.is_spoilt {
            return match looking.documents {
                0 => Err(nothing_in(&reading.sources)),
                _ => Ok(looking.finish(reading, corpus.listing.left_out)),
            };
        }
    }
}

/// What is gathered as the text passes by.
struct Looking {
    windows: Windows,
    /// Windows that wait to be looked at, each with the number of its document.
    waiting: Vec<(u64, Window)>,
    sample: Sample,
    near: NearDuplicates<(u64, u64)>,
    lines: LineCounts,
    private: PlacesFound,
    lengths: Vec<u64>,
    documents: u64,
    bytes: u64,
    characters: u64,
    document_bytes: u64,
    /// When the document was written, in seconds since 1970, where it says that.
    written: Option<u64>,
    dated: origin::DocumentYears,
}

impl Looking {
    fn new() -> Self {
        Self {
            windows: Windows::default(),
            waiting: Vec::new(),
            sample: Sample::new(SAMPLE_BYTES),
            near: NearDuplicates::default(),
            lines: LineCounts::default(),
            private: PlacesFound::default(),
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
        let document = self.documents;
        self.waiting.extend(self.windows.add(text).into_iter().map(|window| (document, window)));
        self.look_when_full();
    }

    fn end_document(&mut self, source: usize) {
        if let Some(seconds) = self.written.take() {
            self.dated.add(source, seconds, self.document_bytes);
        }
        self.waiting.extend(self.windows.end_document().map(|window| (self.documents, window)));
        self.sample.end_document();
        self.near.end_document((self.documents, self.document_bytes));
        count_length(&mut self.lengths, self.document_bytes);
        self.documents += 1;
        self.bytes += self.document_bytes;
        self.document_bytes = 0;
        self.look_when_full();
    }

    fn look_when_full(&mut self) {
        let windows = self.waiting.len();
        let bytes: usize = self.waiting.iter().map(|(_, window)| window.text.len()).sum();
        // Short documents have short windows, of which more are waited for.
        if windows >= 16 * WINDOWS || windows >= WINDOWS && bytes >= 1 << 20 {
            self.look();
        }
    }

    fn look(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let seen: Vec<(LinesOfWindow, Vec<Finding>, u64)> = waiting
            .par_iter()
            .map(|(_, window)| (LinesOfWindow::new(window), find(&window.text), window.text.chars().count() as u64))
            .collect();
        for ((document, window), (lines, findings, characters)) in waiting.iter().zip(seen) {
            self.lines.add(*document, window, lines);
            self.private.add(*document, window, findings);
            self.characters += characters;
        }
    }

    fn finish(mut self, reading: Reading, left_out: Vec<LeftOut>) -> Look {
        self.look();
        let sources = reading.sources;
        // The number of each file's first document, of all in the order of reading.
        let (mut starts, mut next) = (Vec::with_capacity(sources.len()), 0);
        for source in &sources {
            starts.push(next);
            next += source.documents.iter().sum::<u64>();
        }
        // The file of a document, and which of that file's it is, from 1.
        let place = |document: u64| {
            let source = starts.partition_point(|&start| start <= document).saturating_sub(1);
            let name = sources.get(source).map(|source| source.name.clone()).unwrap_or_default();
            (name, document - starts.get(source).copied().unwrap_or_default() + 1)
        };
        let name = |document: u64| place(document).0;
        let texts: Vec<&str> = self.sample.texts().collect();
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
            encodings: guesses(&sources),
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
