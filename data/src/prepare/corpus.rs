//! All inputs as one stream of documents, which can be read more than once.

use super::blanks::BlankFilter;
use super::position::{Handing, PlacedSink, Position};
use super::{ahead, ahead::Ahead, error::Error, options::PrepareOptions, options::Progress, options::tell};
use crate::numbers::{counted, grouped};
use crate::sensitive::{self, Masking};
use crate::source::{self, Changes, Event, FileNotes, Guess, Input, LeftOut, Listing, Sink, TextFile};
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

    fn name(&self) -> String {
        match self {
            Self::File(file) => file.name.to_string(),
            Self::Stories(range) => format!("{} built-in stories", grouped(range.end - range.start)),
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
    /// the sources. One that is cut in two counts in both.
    pub documents: [u64; 2],
    /// What its documents are called, by their numbers in it from 1, where the file says; of all
    /// sources the first 10,000 are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub titles: Vec<(u64, String)>,
    /// What cleaning changed.
    #[serde(default, skip_serializing_if = "Changes::is_none")]
    pub changes: Changes,
}

/// That there is nothing in these sources.
pub fn nothing_in(sources: &[Source]) -> Error {
    let first = sources.first().map_or("", |source| &source.name);
    let more = match sources.len() {
        0 | 1 => String::new(),
        all => format!(" and {}", counted(all - 1, "other file")),
    };
    Error::unusable(format!("the text is empty: there is nothing but white space in {first}{more}; give some"))
}

/// Titles that are kept.
const MOST_TITLES: usize = 10_000;

/// What the text is read for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Looking,
    Surveying,
    Encoding,
}

impl Purpose {
    fn stage(self) -> &'static str {
        match self {
            Self::Looking => "looking",
            Self::Surveying => "reading",
            Self::Encoding => "encoding",
        }
    }
}

/// What a reading of the whole has found.
#[derive(Default, Serialize, Deserialize)]
pub struct Reading {
    /// What each source held, but in encoding; its documents are not yet told apart by what they
    /// are for.
    pub sources: Vec<Source>,
    /// Files in folders that could not be read to their ends ([`Corpus::leave_out`]).
    pub unusable: Vec<LeftOut>,
    /// Whether something of one of these was handed on: all that was is of no use then, and the text
    /// is to be read again without them.
    pub is_spoilt: bool,
    /// How many of each kind were masked.
    pub masked: BTreeMap<sensitive::Kind, u64>,
}

impl<'a> Corpus<'a> {
    /// Finds the files of the inputs; standard input is copied to `options.out`, which must exist.
    pub fn find(options: &'a PrepareOptions, progress: &dyn Progress) -> Result<Self, Error> {
        let mut corpus = Self { options, listing: Listing::new(&options.reading), parts: Vec::new() };
        let mut stories = 0;
        for input in &options.inputs {
            match input {
                Input::Path(path) => corpus.listing.add_path(path)?,
                Input::Stdin => {
                    let interrupted = || progress.interrupted();
                    if !corpus.listing.add_stdin(std::io::stdin(), &options.out, &interrupted)? {
                        return Err(Error::Interrupted);
                    }
                }
                Input::Stories { count: 0 } => {
                    return Err(Error::unusable("0 stories of the built-in corpus are no text; ask for more"));
                }
                Input::Stories { count } => {
                    corpus.parts.push(Part::Stories(stories..stories + count));
                    stories += count;
                }
            }
            corpus.parts.extend(std::mem::take(&mut corpus.listing.files).into_iter().map(Part::File));
        }
        Ok(corpus)
    }

    /// Goes on without files that a reading found to be unusable.
    ///
    /// # Errors
    /// When nothing is left to read.
    pub fn leave_out(&mut self, unusable: &[LeftOut]) -> Result<(), Error> {
        let names: BTreeSet<&str> = unusable.iter().map(|one| one.name.as_str()).collect();
        self.parts.retain(|part| !matches!(part, Part::File(file) if file.found && names.contains(&*file.name)));
        self.listing.left_out.extend_from_slice(unusable);
        if self.parts.is_empty() {
            let told = LeftOut::told(&self.listing.left_out).join("; ");
            return Err(Error::unusable(format!("none of the files can be used; give others ({told})")));
        }
        Ok(())
    }

    /// Hands on every document with something else than white space in it, from a place on: what
    /// stands before it in its part is handed on again, and said to be. Of a text that is spoilt by
    /// a file that turns out to be unusable, what comes behind is read as well, to find others, but
    /// not handed on. An [`Error::Source`] is never the sink's.
    pub fn read(
        &self,
        purpose: Purpose,
        from: Position,
        progress: &dyn Progress,
        sink: &mut PlacedSink<'_>,
    ) -> Result<Reading, Error> {
        let Position { part: first, mut text_bytes, mut reading } = from;
        let file_bytes = |part: &Part| part.file().map(|file| file.bytes);
        let whole: Option<u64> = self.parts.iter().map(file_bytes).sum();
        let read_bytes = AtomicU64::new(self.parts.iter().take(first).filter_map(file_bytes).sum());
        let stage = purpose.stage();
        let mut telling = Telling { progress, stage, read_bytes: &read_bytes, whole, untold: BYTES_TOLD };
        let mut ahead = VecDeque::new();
        let mut titles: usize = reading.sources.iter().map(|source| source.titles.len()).sum();
        for (number, part) in self.parts.iter().enumerate().skip(first) {
            let handing = Handing::new(number, text_bytes.take(), &reading, sink);
            let next = part.file().and_then(|_| self.next_ahead(number, &mut ahead));
            let most_titles = MOST_TITLES.saturating_sub(titles);
            let held = self.read_part(part, next, handing, most_titles, reading.is_spoilt, &mut telling);
            for (kind, count) in held.masked {
                *reading.masked.entry(kind).or_default() += count;
            }
            match (held.source, part.file()) {
                // Encoding keeps no sources: the first reading has them, and a million files' would be
                // held twice.
                (Ok(_), _) if purpose == Purpose::Encoding => {}
                (Ok(source), _) => {
                    titles += source.titles.len();
                    reading.sources.push(source);
                }
                (Err(Error::Source(error)), Some(file)) if file.found => {
                    reading.unusable.push(file.left_out((self.options.describe)(&error)));
                    reading.is_spoilt |= held.bytes > 0;
                }
                (Err(error), _) => return Err(error),
            }
        }
        tell(progress, stage, whole.unwrap_or(read_bytes.into_inner()), whole)?;
        Ok(reading)
    }

    /// Reads one part, or hands on what was read ahead of it: its text is counted, rid of blank
    /// documents, masked, and handed on with its place; of a text that is spoilt it is only counted.
    fn read_part(
        &self,
        part: &Part,
        ahead: Option<Ahead>,
        mut handing: Handing<'_, '_>,
        most_titles: usize,
        is_spoilt: bool,
        telling: &mut Telling<'_>,
    ) -> Held {
        // An event goes from the reader to `told`, which counts it and masks a title, through the filter of
        // blank documents to `masked`, which masks text, and to the sink by `handing`, which says its place.
        let mut masking = self.options.mask.then(Masking::default);
        let mut masked = |event: Event<'_>| hand_on_masked(&mut masking, &mut handing, event);
        let mut filter = BlankFilter::new(most_titles, &mut masked);
        let read_bytes = telling.read_bytes;
        let mut bytes = 0;
        let mut told = |event: Event<'_>| {
            let title;
            let event = match event {
                Event::Title(words) if self.options.mask => {
                    title = sensitive::masked(words);
                    Event::Title(&title)
                }
                event => event,
            };
            if let Event::Text(text) = event {
                bytes += text.len() as u64;
                telling.add(text.len());
            }
            telling.tell_when_due()?;
            if is_spoilt { Ok(()) } else { filter.event(event) }
        };
        let read = match (part, ahead) {
            (Part::File(_), Some(ahead)) => ahead.hand_on(read_bytes, &mut told),
            (Part::File(file), None) => source::read(file, &self.options.reading, read_bytes, &mut told),
            (Part::Stories(range), _) => self.tell_stories(range, read_bytes, &mut told),
        };
        let source = read.map(|notes| Source {
            name: part.name(),
            bytes,
            encoding: notes.guess,
            documents: [filter.documents, 0],
            titles: filter.titles(),
            changes: notes.changes,
        });
        Held { source, bytes, masked: masking.map(|masking| masking.counts).unwrap_or_default() }
    }

    /// What was read ahead of the part of this number, and of those that follow where nothing was
    /// read ahead yet; `None` where it is to be read in its turn.
    fn next_ahead(&self, number: usize, ahead: &mut VecDeque<Option<Ahead>>) -> Option<Ahead> {
        if ahead.is_empty() {
            *ahead = ahead::read(self.parts[number..].iter().map_while(Part::file), &self.options.reading);
        }
        ahead.pop_front().flatten()
    }

    fn tell_stories(
        &self,
        numbers: &Range<u64>,
        read_bytes: &AtomicU64,
        sink: &mut Sink<'_, Error>,
    ) -> Result<FileNotes, Error> {
        for first in numbers.clone().step_by(STORIES as usize) {
            let numbers = first..numbers.end.min(first + STORIES);
            let text = |number| story(self.options.seed, number).text;
            for text in numbers.into_par_iter().map(text).collect::<Vec<_>>() {
                read_bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
                sink(Event::Text(&text))?;
                sink(Event::EndOfDocument)?;
            }
        }
        Ok(FileNotes::default())
    }

    /// What the part is called that a reading goes on in.
    pub fn name_of(&self, position: &Position) -> String {
        self.parts.get(position.part).map(Part::name).unwrap_or_default()
    }
}

/// What a part held.
struct Held {
    source: Result<Source, Error>,
    /// Bytes of its text, also of one that cannot be read to its end.
    bytes: u64,
    masked: BTreeMap<sensitive::Kind, u64>,
}

/// Hands on an event, its text masked where there is a masking.
fn hand_on_masked(masking: &mut Option<Masking>, handing: &mut Handing<'_, '_>, event: Event<'_>) -> Result<(), Error> {
    match (masking, event) {
        (Some(masking), Event::Text(text)) => masking.add(text, &mut |text| handing.event(Event::Text(text))),
        (Some(masking), Event::EndOfDocument) => {
            masking.end_document(&mut |text| handing.event(Event::Text(text)))?;
            handing.event(Event::EndOfDocument)
        }
        (_, event) => handing.event(event),
    }
}

/// Tells how far a reading has come.
struct Telling<'a> {
    progress: &'a dyn Progress,
    stage: &'a str,
    read_bytes: &'a AtomicU64,
    /// Bytes of all files, where they are known.
    whole: Option<u64>,
    /// Bytes of text since it was told last.
    untold: usize,
}

impl Telling<'_> {
    fn add(&mut self, bytes: usize) {
        self.untold += bytes;
    }

    fn tell_when_due(&mut self) -> Result<(), Error> {
        if self.untold < BYTES_TOLD {
            return Ok(());
        }
        self.untold = 0;
        tell(self.progress, self.stage, self.read_bytes.load(Ordering::Relaxed), self.whole)
    }
}
