//! All inputs as one stream of documents that can be read repeatedly.

use super::pipeline::{PartResult, Pipeline};
use super::position::{Emitter, Position, PositionedSink};
use super::{
    ahead, ahead::BufferedFile, error::Error, options::PrepareOptions, options::Progress, options::report_progress,
    reading::Reading, reading::Unusable,
};
use crate::source::{self, Event, FileNotes, Input, LeftOut, Listing, Sink, TextFile};
use crate::{numbers::grouped, stories::story};
use rayon::prelude::*;
use std::collections::{BTreeSet, VecDeque};
use std::{ops::Range, sync::atomic::AtomicU64, sync::atomic::Ordering};

/// Stories generated in one parallel batch.
const STORY_BATCH: u64 = 4096;

/// Progress is reported about once per this many bytes of text.
const REPORT_INTERVAL: usize = 1 << 20;

/// The inputs, resolved to files and stories.
pub struct Corpus<'a> {
    /// The caller's options.
    pub options: &'a PrepareOptions,
    /// Files found in folders, and those left out.
    pub listing: Listing,
    /// In input order, each with its number among all parts, those left out included.
    parts: Vec<(usize, Part)>,
}

enum Part {
    /// A file of the listing.
    File(TextFile),
    /// A range of story numbers.
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

/// Titles kept over all sources.
const MAX_TITLES: usize = 10_000;

/// Which pass over the text this is.
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

impl<'a> Corpus<'a> {
    /// Finds the files of the inputs; standard input is copied to `options.out`, which must exist.
    pub fn find(options: &'a PrepareOptions, progress: &dyn Progress) -> Result<Self, Error> {
        let mut corpus = Self { options, listing: Listing::new(&options.reading), parts: Vec::new() };
        let (mut parts, mut stories) = (Vec::new(), 0);
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
                    return Err(Error::unusable("the number of built-in stories is 0; ask for at least 1"));
                }
                Input::Stories { count } => {
                    parts.push(Part::Stories(stories..stories + count));
                    stories += count;
                }
            }
            parts.extend(std::mem::take(&mut corpus.listing.files).into_iter().map(Part::File));
        }
        corpus.parts = parts.into_iter().enumerate().collect();
        Ok(corpus)
    }

    /// Drops files that a pass found to be unusable.
    ///
    /// # Errors
    /// When nothing is left to read.
    pub fn leave_out(&mut self, unusable: &[Unusable]) -> Result<(), Error> {
        let gone: BTreeSet<usize> = unusable.iter().map(|one| one.part).collect();
        self.parts.retain(|(number, _)| !gone.contains(number));
        self.listing.left_out.extend(unusable.iter().map(|one| one.report.clone()));
        if self.parts.is_empty() {
            let reasons = LeftOut::summary(&self.listing.left_out).join("; ");
            return Err(Error::unusable(format!("none of the files can be used; give others ({reasons})")));
        }
        Ok(())
    }

    /// Emits every document that is not blank, starting at a position. Events of the position's
    /// part that lie before it are emitted again and marked as replayed. Once the pass is spoilt by
    /// an unusable file, the rest is still read, to find other such files, but not emitted. A disk
    /// that fails is no reason to leave a file out. An [`Error::Source`] never comes from the sink.
    pub fn read(
        &self,
        purpose: Purpose,
        from: Position,
        progress: &dyn Progress,
        sink: &mut PositionedSink<'_>,
    ) -> Result<Reading, Error> {
        let Position { part: first, mut text_bytes, mut reading } = from;
        let file_bytes = |(_, part): &(usize, Part)| part.file().map(|file| file.bytes);
        let total: Option<u64> = self.parts.iter().map(file_bytes).sum();
        let read_bytes = AtomicU64::new(self.parts.iter().take(first).filter_map(file_bytes).sum());
        let stage = purpose.stage();
        let mut meter = ProgressMeter { progress, stage, read_bytes: &read_bytes, total, unreported: REPORT_INTERVAL };
        let mut ahead = VecDeque::new();
        let mut titles: usize = reading.sources.iter().map(|source| source.titles.len()).sum();
        for (index, (number, part)) in self.parts.iter().enumerate().skip(first) {
            let replayed = text_bytes.take();
            let emitter = Emitter::new(index, replayed, &reading, sink);
            let most_titles = MAX_TITLES.saturating_sub(titles);
            let pipeline = Pipeline::new(self.options.mask, most_titles, reading.is_spoilt, emitter);
            let next = part.file().and_then(|_| self.next_ahead(index, &mut ahead));
            let result = self.read_part(part, next, pipeline, &mut meter);
            for (kind, count) in result.masked {
                *reading.masked.entry(kind).or_default() += count;
            }
            match (result.source, part.file()) {
                // Encoding collects no sources: the first pass has them, and for a million files a
                // second copy costs memory.
                (Ok(_), _) if purpose == Purpose::Encoding => {}
                (Ok(source), _) => {
                    titles += source.titles.len();
                    reading.sources.push(source);
                }
                (Err(Error::Source(error)), Some(file)) if file.found && !error.is_of_the_disk() => {
                    let report = file.left_out((self.options.describe)(&error));
                    reading.unusable.push(Unusable { part: *number, report });
                    // Before an interruption text of it may have been emitted, too.
                    reading.is_spoilt |= result.bytes > 0 || replayed.is_some_and(|bytes| bytes > 0);
                }
                (Err(error), _) => return Err(error),
            }
        }
        report_progress(progress, stage, total.unwrap_or(read_bytes.into_inner()), total)?;
        Ok(reading)
    }

    /// Passes the events of one part through the pipeline, from its reader or from what was read
    /// ahead.
    fn read_part(
        &self,
        part: &Part,
        ahead: Option<BufferedFile>,
        mut pipeline: Pipeline<'_, '_>,
        meter: &mut ProgressMeter<'_>,
    ) -> PartResult {
        let read_bytes = meter.read_bytes;
        let mut sink = |event: Event<'_>| {
            meter.event(event)?;
            pipeline.event(event)
        };
        let read = match (part, ahead) {
            (Part::File(_), Some(ahead)) => ahead.replay(read_bytes, &mut sink),
            (Part::File(file), None) => source::read(file, &self.options.reading, read_bytes, &mut sink),
            (Part::Stories(range), _) => self.generate_stories(range, read_bytes, &mut sink),
        };
        pipeline.finish(part.name(), read)
    }

    /// The buffered events of the part at `index`, after reading ahead from there if the buffer is
    /// empty; `None` if the part is to be read in its turn.
    fn next_ahead(&self, index: usize, ahead: &mut VecDeque<Option<BufferedFile>>) -> Option<BufferedFile> {
        if ahead.is_empty() {
            let files = self.parts[index..].iter().map_while(|(_, part)| part.file());
            *ahead = ahead::read(files, &self.options.reading);
        }
        ahead.pop_front().flatten()
    }

    fn generate_stories(
        &self,
        numbers: &Range<u64>,
        read_bytes: &AtomicU64,
        sink: &mut Sink<'_, Error>,
    ) -> Result<FileNotes, Error> {
        for first in numbers.clone().step_by(STORY_BATCH as usize) {
            let numbers = first..numbers.end.min(first + STORY_BATCH);
            let text = |number| story(self.options.seed, number).text;
            for text in numbers.into_par_iter().map(text).collect::<Vec<_>>() {
                read_bytes.fetch_add(text.len() as u64, Ordering::Relaxed);
                sink(Event::Text(&text))?;
                sink(Event::EndOfDocument)?;
            }
        }
        Ok(FileNotes::default())
    }

    /// Name of the part in which a pass resumes.
    pub fn name_of(&self, position: &Position) -> String {
        self.parts.get(position.part).map(|(_, part)| part.name()).unwrap_or_default()
    }
}

/// Reports the progress of a pass.
struct ProgressMeter<'a> {
    progress: &'a dyn Progress,
    stage: &'a str,
    read_bytes: &'a AtomicU64,
    /// Bytes of all files, if known.
    total: Option<u64>,
    /// Bytes of text since the last report.
    unreported: usize,
}

impl ProgressMeter<'_> {
    /// Counts the text of an event, and reports when that is due.
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        if let Event::Text(text) = event {
            self.unreported += text.len();
        }
        if self.unreported < REPORT_INTERVAL {
            return Ok(());
        }
        self.unreported = 0;
        report_progress(self.progress, self.stage, self.read_bytes.load(Ordering::Relaxed), self.total)
    }
}
