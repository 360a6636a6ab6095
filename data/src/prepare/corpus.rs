//! All inputs as one stream of documents, which can be read more than once.

use super::{error::Error, options::PrepareOptions, options::Progress, options::tell};
use crate::sensitive::{self, Masking};
use crate::source::{self, Event, Input, LeftOut, Listing, Sink, TextFile};
use crate::stories::story;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, collections::BTreeSet, ops::Range, sync::atomic::AtomicU64, sync::atomic::Ordering};

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

/// A place that text came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The file as the user gave it, or words for another source.
    pub name: String,
    /// Bytes of text in it, after decompression and without what is not text.
    pub bytes: u64,
    /// Documents in it that are not blank; earlier versions did not say.
    #[serde(default)]
    pub documents: u64,
}

/// What a reading of the whole has found.
pub struct Reading {
    /// What each source held.
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
            (None, event) => sink(event),
            (Some(masking), Event::Text(text)) => masking.add(text, &mut |text| sink(Event::Text(text))),
            (Some(masking), Event::EndOfDocument) => {
                masking.end_document(&mut |text| sink(Event::Text(text)))?;
                sink(Event::EndOfDocument)
            }
        };
        let mut filter = BlankFilter { held: String::new(), begun: false, documents: 0, sink: &mut masked };
        let mut untold = BYTES_TOLD;
        for part in &self.parts {
            let (mut bytes, before) = (0, filter.documents);
            match part {
                Part::File(file) => {
                    let whole_so_far = reading.unusable.is_empty();
                    let read = source::read(file, &self.options.field, &read_bytes, &mut |event| {
                        if let Event::Text(text) = event {
                            bytes += text.len() as u64;
                            untold += text.len();
                        }
                        if untold >= BYTES_TOLD {
                            untold = 0;
                            tell(progress, stage, read_bytes.load(Ordering::Relaxed), whole)?;
                        }
                        if whole_so_far { filter.event(event) } else { Ok(()) }
                    });
                    match read {
                        Ok(()) => {
                            let documents = filter.documents - before;
                            reading.sources.push(Source { name: file.name.clone(), bytes, documents });
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
                    reading.sources.push(Source { name, bytes, documents: range.end - range.start });
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
    /// Documents handed on.
    documents: u64,
    sink: &'a mut Sink<'b, Error>,
}

impl BlankFilter<'_, '_> {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Text(text) if self.begun => (self.sink)(Event::Text(text))?,
            Event::Text(text) => {
                self.held.push_str(text);
                // A megabyte of white space is text after all: it must not pile up here.
                if self.held.len() > BYTES_TOLD || !text.trim_start().is_empty() {
                    self.begun = true;
                    (self.sink)(Event::Text(&self.held))?;
                    self.held.clear();
                }
            }
            Event::EndOfDocument => {
                if std::mem::take(&mut self.begun) {
                    self.documents += 1;
                    (self.sink)(Event::EndOfDocument)?;
                }
                self.held.clear();
            }
        }
        Ok(())
    }
}
