//! All inputs as one stream of documents, which can be read more than once.

use super::{Input, Interrupted, PrepareOptions, Progress, Source};
use crate::source::{self, Event, Listing, Sink};
use crate::stories::story;
use anyhow::{Result, ensure};
use rayon::prelude::*;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_64;

/// Stories told at once, on all cores.
const STORIES: u64 = 4096;

/// Progress is told about once for so many bytes of text.
const BYTES_TOLD: usize = 1 << 20;

/// What the inputs hold.
pub struct Corpus {
    listing: Listing,
    /// Files by their place in the listing and stories by their numbers, in the order of the inputs.
    parts: Vec<Part>,
    field: String,
    seed: u64,
}

enum Part {
    Files(Range<usize>),
    Stories(Range<u64>),
}

impl Corpus {
    /// Finds the files of the inputs; standard input is copied to `options.out`, which must exist.
    pub fn find(options: &PrepareOptions) -> Result<Self> {
        let mut corpus =
            Self { listing: Listing::default(), parts: Vec::new(), field: options.field.clone(), seed: options.seed };
        let mut stories = 0;
        for input in &options.inputs {
            let first = corpus.listing.files.len();
            match input {
                Input::Path(path) => corpus.listing.add_path(path)?,
                Input::Stdin => corpus.listing.add_stdin(&mut std::io::stdin().lock(), &options.out)?,
                Input::Stories { count } => {
                    ensure!(*count > 0, "0 stories of the built-in corpus are no text; ask for more");
                    corpus.parts.push(Part::Stories(stories..stories + count));
                    stories += count;
                }
            }
            if corpus.listing.files.len() > first {
                corpus.parts.push(Part::Files(first..corpus.listing.files.len()));
            }
        }
        Ok(corpus)
    }

    /// Files in folders that hold no text.
    pub fn skipped(&self) -> &[PathBuf] {
        &self.listing.skipped
    }

    /// Hands on every document with something else than white space in it; returns what each source held.
    pub fn read(&self, stage: &str, progress: &dyn Progress, sink: &mut Sink<'_>) -> Result<Vec<Source>> {
        let read_bytes = AtomicU64::new(0);
        let whole = self.parts.iter().all(|part| matches!(part, Part::Files(_))).then(|| self.listing.bytes());
        let mut sources = Vec::new();
        let mut filter = BlankFilter { held: String::new(), begun: false, sink };
        let mut untold = BYTES_TOLD;
        for part in &self.parts {
            match part {
                Part::Files(range) => {
                    for file in &self.listing.files[range.clone()] {
                        let mut bytes = 0;
                        source::read(file, &self.field, &read_bytes, &mut |event| {
                            if let Event::Text(text) = event {
                                bytes += text.len() as u64;
                                untold += text.len();
                            }
                            if untold >= BYTES_TOLD {
                                untold = 0;
                                tell(progress, stage, read_bytes.load(Ordering::Relaxed), whole)?;
                            }
                            filter.event(event)
                        })?;
                        sources.push(Source { name: file.name.clone(), bytes });
                    }
                }
                Part::Stories(range) => {
                    let mut bytes = 0;
                    for first in range.clone().step_by(STORIES as usize) {
                        let numbers = first..range.end.min(first + STORIES);
                        let texts: Vec<String> =
                            numbers.into_par_iter().map(|number| story(self.seed, number).text).collect();
                        for text in texts {
                            bytes += text.len() as u64;
                            filter.event(Event::Text(&text))?;
                            filter.event(Event::EndOfDocument)?;
                        }
                        tell(progress, stage, bytes, whole)?;
                    }
                    let name = format!("{} built-in stories", range.end - range.start);
                    sources.push(Source { name, bytes });
                }
            }
        }
        tell(progress, stage, whole.unwrap_or(read_bytes.into_inner()), whole)?;
        Ok(sources)
    }
}

/// A name for the options and for the names, sizes and times of the files they name.
pub fn fingerprint(options: &PrepareOptions) -> Result<String> {
    let PrepareOptions { inputs, field, tokenizer, val_fraction, seed, out: _ } = options;
    let mut name = format!("{field:?} {tokenizer} {val_fraction} {seed}");
    for input in inputs {
        name += &format!("\n{input:?}");
        if let Input::Path(path) = input {
            let mut listing = Listing::default();
            listing.add_path(path)?;
            for file in &listing.files {
                let changed = std::fs::metadata(&file.path).and_then(|metadata| metadata.modified()).ok();
                name += &format!("\n{:?} {} {changed:?}", file.name, file.bytes);
            }
        }
    }
    Ok(format!("{:016x}", xxh3_64(name.as_bytes())))
}

/// Tells how far a stage has come; an error when the user wants to stop.
pub fn tell(progress: &dyn Progress, stage: &str, done_bytes: u64, total_bytes: Option<u64>) -> Result<()> {
    progress.update(stage, done_bytes, total_bytes);
    if progress.interrupted() { Err(Interrupted.into()) } else { Ok(()) }
}

/// Leaves out documents of nothing but white space, such as what follows the last separator of a file.
struct BlankFilter<'a, 'b> {
    /// White space at the beginning of a document.
    held: String,
    begun: bool,
    sink: &'a mut Sink<'b>,
}

impl BlankFilter<'_, '_> {
    fn event(&mut self, event: Event<'_>) -> Result<()> {
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
                    (self.sink)(Event::EndOfDocument)?;
                }
                self.held.clear();
            }
        }
        Ok(())
    }
}
