//! All inputs as one stream of documents, which can be read more than once.

use super::{ahead, error::Error, options::PrepareOptions, options::Progress, options::tell};
use crate::sensitive::{self, Masking};
use crate::source::{self, Changes, Dated, Event, FileNotes, Guess, Input, LeftOut, Listing, Sink, TextFile};
use crate::stories::story;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::{ops::Range, sync::atomic::AtomicU64, sync::atomic::Ordering};

/// Stories told at once, on all cores.
const STORIES: u64 = 4096;

/// Progress is told about once for so many bytes of text.
const BYTES_TOLD: usize = 1 << 20;

/// What the inputs hold.
pub struct Corpus<'a> {
    /// What was asked for.
    pub options: &'a PrepareOptions,
    /// What the folders hold, and what in them is not read.
    pub listing: Listing,
    /// In the order of the inputs.
    parts: Vec<Part>,
}

enum Part {
    /// A file of the listing.
    File(TextFile),
    /// Stories by their numbers.
    Stories(Range<u64>),
}

impl Part {
    fn file(&self) -> Option<&TextFile> {
        match self {
            Self::File(file) => Some(file),
            Self::Stories(_) => None,
        }
    }
}

/// A place that text came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// The file as the user gave it, or words for another source.
    pub name: String,
    /// Bytes of text in it, after decompression and without what is not text.
    pub bytes: u64,
    /// The encoding that it looked to be in, where nothing said it and it was not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Guess>,
    /// Documents of it that teach, and that validate: in the token files they stand in the order of
    /// the sources. One that is cut in two counts in both. Earlier versions did not say.
    #[serde(default)]
    pub documents: [u64; 2],
    /// What its documents are called, by their numbers in it from 1, where the file says; of all
    /// sources the first 10,000 are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub titles: Vec<(u64, String)>,
    /// What cleaning changed.
    #[serde(default, skip_serializing_if = "Changes::is_none")]
    pub changes: Changes,
}

/// Titles that are kept.
const MOST_TITLES: usize = 10_000;

/// The most characters that are kept of one.
const LONGEST_TITLE: usize = 200;

/// What a reading of the whole has found.
pub struct Reading {
    /// What each source held; its documents are not yet told apart by what they are for.
    pub sources: Vec<Source>,
    /// Files in folders that could not be read to their ends. What was handed on is of no use then:
    /// the text is to be read again without them ([`Corpus::leave_out`]).
    pub unusable: Vec<LeftOut>,
    /// How many of each kind were masked.
    pub masked: BTreeMap<sensitive::Kind, u64>,
}

impl<'a> Corpus<'a> {
    /// Finds the files of the inputs; standard input is copied to `options.out`, which must exist.
    pub fn find(options: &'a PrepareOptions) -> Result<Self, Error> {
        let mut corpus = Self { options, listing: Listing::default(), parts: Vec::new() };
        let mut stories = 0;
        for input in &options.inputs {
            match input {
                Input::Path(path) => corpus.listing.add_path(path)?,
                Input::Stdin => corpus.listing.add_stdin(&mut std::io::stdin().lock(), &options.out)?,
                Input::Stories { count: 0 } => {
                    return Err(Error::unusable("0 stories of the built-in corpus are no text; ask for more"));
                }
                Input::Stories { count } => {
                    corpus.parts.push(Part::Stories(stories..stories + count));
                    stories += count;
                }
            }
            corpus.parts.extend(corpus.listing.files.drain(..).map(Part::File));
        }
        Ok(corpus)
    }

    /// Goes on without files that a reading found to be unusable.
    ///
    /// # Errors
    /// When nothing is left to read.
    pub fn leave_out(&mut self, unusable: Vec<LeftOut>) -> Result<(), Error> {
        let names: BTreeSet<&str> = unusable.iter().map(|one| one.name.as_str()).collect();
        self.parts.retain(|part| !matches!(part, Part::File(file) if file.found && names.contains(file.name.as_str())));
        self.listing.left_out.extend(unusable);
        if self.parts.is_empty() {
            let told = LeftOut::told(&self.listing.left_out).join("; ");
            return Err(Error::unusable(format!("none of the files can be used; give others ({told})")));
        }
        Ok(())
    }

    /// Hands on every document with something else than white space in it. Of a text in which a
    /// file turns out to be unusable, what comes behind is read as well, to find others, but not
    /// handed on. An [`Error::Source`] is never the sink's.
    pub fn read(&self, stage: &str, progress: &dyn Progress, sink: &mut Sink<'_, Error>) -> Result<Reading, Error> {
        let read_bytes = AtomicU64::new(0);
        let file_bytes = |part: &Part| match part {
            Part::File(file) => Some(file.bytes),
            Part::Stories(_) => None,
        };
        let whole: Option<u64> = self.parts.iter().map(file_bytes).sum();
        let mut reading = Reading { sources: Vec::new(), unusable: Vec::new(), masked: BTreeMap::new() };
        let mut masking = self.options.mask.then(Masking::default);
        let mut masked = |event: Event<'_>| match (&mut masking, event) {
            (Some(masking), Event::Text(text)) => masking.add(text, &mut |text| sink(Event::Text(text))),
            (Some(masking), Event::EndOfDocument) => {
                masking.end_document(&mut |text| sink(Event::Text(text)))?;
                sink(Event::EndOfDocument)
            }
            (_, event) => sink(event),
        };
        let mut filter = BlankFilter::new(&mut masked);
        let (mut untold, mut ahead) = (BYTES_TOLD, VecDeque::new());
        for (place, part) in self.parts.iter().enumerate() {
            let mut bytes = 0;
            filter.documents = 0;
            match part {
                Part::File(file) => {
                    let whole_so_far = reading.unusable.is_empty();
                    if ahead.is_empty() {
                        let files = self.parts[place..].iter().map_while(Part::file);
                        ahead = ahead::read(files, &self.options.reading);
                    }
                    let mut told = |event: Event<'_>| {
                        if let Event::Text(text) = event {
                            bytes += text.len() as u64;
                            untold += text.len();
                        }
                        if untold >= BYTES_TOLD {
                            untold = 0;
                            tell(progress, stage, read_bytes.load(Ordering::Relaxed), whole)?;
                        }
                        if whole_so_far { filter.event(event) } else { Ok(()) }
                    };
                    let read = match ahead.pop_front().flatten() {
                        Some(ahead) => ahead.hand_on(&read_bytes, &mut told),
                        None => source::read(file, &self.options.reading, &read_bytes, &mut told),
                    };
                    match read {
                        Ok(notes) => {
                            let name = file.name.clone();
                            reading.sources.push(filter.source(name, bytes, notes));
                        }
                        Err(Error::Source(error)) if file.found => {
                            reading.unusable.push(file.left_out((self.options.describe)(&error)));
                        }
                        Err(error) => return Err(error),
                    }
                }
                Part::Stories(range) => {
                    for first in range.clone().step_by(STORIES as usize) {
                        let numbers = first..range.end.min(first + STORIES);
                        let text = |number| story(self.options.seed, number).text;
                        for text in numbers.into_par_iter().map(text).collect::<Vec<_>>() {
                            bytes += text.len() as u64;
                            filter.event(Event::Text(&text))?;
                            filter.event(Event::EndOfDocument)?;
                        }
                        tell(progress, stage, bytes, whole)?;
                    }
                    let name = format!("{} built-in stories", range.end - range.start);
                    reading.sources.push(filter.source(name, bytes, FileNotes::default()));
                }
            }
        }
        tell(progress, stage, whole.unwrap_or(read_bytes.into_inner()), whole)?;
        reading.masked = masking.map(|masking| masking.counts).unwrap_or_default();
        Ok(reading)
    }
}

/// Leaves out documents of nothing but white space, such as what follows the last separator of a
/// file.
struct BlankFilter<'a, 'b> {
    /// White space at the beginning of a document.
    held: String,
    begun: bool,
    dated: Option<Dated>,
    /// Documents of the source that were handed on, and what they are called.
    documents: u64,
    titles: Vec<(u64, String)>,
    /// Titles of all sources.
    all_titles: usize,
    sink: &'a mut Sink<'b, Error>,
}

impl<'a, 'b> BlankFilter<'a, 'b> {
    fn new(sink: &'a mut Sink<'b, Error>) -> Self {
        Self { held: String::new(), begun: false, dated: None, documents: 0, titles: Vec::new(), all_titles: 0, sink }
    }

    /// The source that was read.
    fn source(&mut self, name: String, bytes: u64, notes: FileNotes) -> Source {
        // A title without a document is nothing's.
        self.titles.retain(|&(number, _)| number <= self.documents);
        let titles = std::mem::take(&mut self.titles);
        self.all_titles += titles.len();
        Source { name, bytes, encoding: notes.guess, documents: [self.documents, 0], titles, changes: notes.changes }
    }

    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Title(title) => {
                if self.all_titles + self.titles.len() < MOST_TITLES {
                    self.titles.retain(|&(number, _)| number <= self.documents);
                    self.titles.push((self.documents + 1, title.chars().take(LONGEST_TITLE).collect()));
                }
                (self.sink)(Event::Title(title))?;
            }
            Event::Dated(dated) => self.dated = Some(dated),
            Event::Text(text) if self.begun => (self.sink)(Event::Text(text))?,
            Event::Text(text) => {
                self.held.push_str(text);
                // A megabyte of white space is text after all: it must not pile up here.
                if self.held.len() > BYTES_TOLD || !text.trim_start().is_empty() {
                    self.begun = true;
                    if let Some(dated) = self.dated {
                        (self.sink)(Event::Dated(dated))?;
                    }
                    (self.sink)(Event::Text(&self.held))?;
                    self.held.clear();
                }
            }
            Event::EndOfDocument => {
                if std::mem::take(&mut self.begun) {
                    self.documents += 1;
                    (self.sink)(Event::EndOfDocument)?;
                }
                self.dated = None;
                self.held.clear();
            }
        }
        Ok(())
    }
}
