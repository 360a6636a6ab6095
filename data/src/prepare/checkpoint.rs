//! Saves the state of a long preparation, so that the same call can resume after an interruption.
//!
//! A checkpoint consists of the tokens written so far and a few records. Each record holds the
//! whole state of a pass over the text just before some piece of it: resuming from it gives the
//! same bytes as an uninterrupted call. Records belong to one text, one set of options and one
//! version of this program. At the end all prepared files lie beside the records and only have to
//! be renamed into place. Everything lies in one folder inside the output folder, which is removed
//! once the text is prepared or turns out to be unusable.

use super::{error::Error, options::PrepareOptions, options::Progress};
use crate::{source::Input, tokens};
use ember_host::file_error::{At, FileError};
use ember_host::files::{make_folder, open_regular, read_regular, write_atomic, write_text};
use serde::{Serialize, de::DeserializeOwned};
use std::time::{Duration, Instant};
use std::{fs, io, path::Path, path::PathBuf};

/// Saving may take at most one part in `ONE_IN` of the time. A slower save happens less often, at
/// the least once in `MAX_SELDOM` requested intervals.
const ONE_IN: u32 = 50;
const MAX_SELDOM: u32 = 30;

/// The checkpoint folder. The leading dot hides it when the output folder is itself read as text.
pub const CHECKPOINT: &str = ".prepare-checkpoint";

/// The file that identifies the text, options and version the records belong to.
const OWNER: &str = "owner";

/// Version of the records and of the code that resumes from them. Increase it when either changes:
/// the program's own version changes more rarely.
const LAYOUT: u32 = 4;

/// A record, stored in a file of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first pass, unfinished.
    Survey,
    /// The result of the first pass.
    Surveyed,
    /// The second pass, unfinished; the tokens written so far lie beside it.
    Encoding,
}

impl Record {
    fn name(self) -> &'static str {
        match self {
            Self::Survey => "survey",
            Self::Surveyed => "surveyed",
            Self::Encoding => "encoding",
        }
    }
}

/// Whether an interrupted call left records in the folder `out` that the same call can resume from.
pub fn is_begun(out: &Path) -> bool {
    [Record::Survey, Record::Surveyed].iter().any(|record| out.join(CHECKPOINT).join(record.name()).exists())
}

/// The checkpoint folder of one call.
pub struct Checkpoint<'a> {
    out: &'a Path,
    folder: PathBuf,
    owner: String,
    /// The requested interval between saves; `None` if nothing is saved.
    every: Option<Duration>,
    /// The time of the last save (at first, of opening), and how long to wait after it.
    last: Instant,
    wait: Duration,
    progress: &'a dyn Progress,
}

impl<'a> Checkpoint<'a> {
    /// Opens the folder inside `options.out` and removes records that this call cannot resume from.
    /// With standard input nothing is saved: the next call may be given another text.
    ///
    /// # Errors
    /// On a file system error.
    pub fn open(options: &'a PrepareOptions, fingerprint: &str, progress: &'a dyn Progress) -> Result<Self, FileError> {
        let checkpoint = Self {
            out: &options.out,
            folder: options.out.join(CHECKPOINT),
            owner: format!("{fingerprint} {} {LAYOUT}", env!("CARGO_PKG_VERSION")),
            every: options.keep_every.filter(|_| !options.inputs.contains(&Input::Stdin)),
            last: Instant::now(),
            wait: options.keep_every.unwrap_or_default(),
            progress,
        };
        let is_own = read_regular(&checkpoint.file(OWNER)).is_ok_and(|owner| owner == checkpoint.owner.as_bytes());
        if checkpoint.every.is_none() || !is_own || !checkpoint.is_begun() {
            if checkpoint.is_begun() {
                let others = "another text, other settings or another version of this program";
                progress.note(&format!("{} holds progress of {others}; starting over", options.out.display()));
            }
            checkpoint.remove()?;
        }
        make_folder(&checkpoint.folder).at("cannot write into the folder", &checkpoint.folder)?;
        Ok(checkpoint)
    }

    /// The folder itself.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Path of a file before it is moved into place.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Whether a record of this kind was saved.
    pub fn has(&self, record: Record) -> bool {
        self.file(record.name()).exists()
    }

    /// Whether there is something to resume from.
    pub fn is_begun(&self) -> bool {
        is_begun(self.out)
    }

    /// Whether it is time to save.
    pub fn is_due(&self) -> bool {
        self.every.is_some() && self.last.elapsed() >= self.wait
    }

    /// Saves a record, replacing the previous one of the same kind.
    ///
    /// # Errors
    /// On a file system error.
    pub fn save(&mut self, record: Record, state: &impl Serialize) -> Result<(), FileError> {
        let began = Instant::now();
        if !self.is_begun() {
            write_text(&self.file(OWNER), &self.owner)?;
        }
        write_atomic(&self.file(record.name()), |file| {
            let mut frame = zstd::Encoder::new(file, 1)?;
            frame.include_checksum(true)?;
            let mut buffered = io::BufWriter::new(frame);
            let mut serializer = rmp_serde::Serializer::new(&mut buffered).with_struct_map();
            state.serialize(&mut serializer).map_err(io::Error::other)?;
            buffered.into_inner()?.finish()?;
            Ok(())
        })?;
        let every = self.every.unwrap_or_default();
        self.wait = (ONE_IN * began.elapsed()).clamp(every, every.saturating_mul(MAX_SELDOM));
        self.last = Instant::now();
        Ok(())
    }

    /// Saves a record unless one of the same kind exists.
    ///
    /// # Errors
    /// On a file system error.
    pub fn save_once(&mut self, record: Record, state: &impl Serialize) -> Result<(), FileError> {
        if self.has(record) { Ok(()) } else { self.save(record, state) }
    }

    /// Loads a record: `None` if there is none or, with a note to the user, if it is damaged. A
    /// damaged one is removed, so that it is saved anew.
    pub fn load<T: DeserializeOwned>(&self, record: Record) -> Option<T> {
        let path = self.file(record.name());
        if !path.exists() {
            return None;
        }
        let read = || -> io::Result<T> {
            let mut frame = io::BufReader::new(zstd::Decoder::new(open_regular(&path)?)?);
            let state = rmp_serde::from_read(&mut frame).map_err(io::Error::other)?;
            // Read to the end of the frame, where its checksum is verified.
            io::copy(&mut frame, &mut io::sink())?;
            Ok(state)
        };
        let damaged = |_: io::Error| {
            self.note_damaged(&path);
            let _ = fs::remove_file(&path);
        };
        read().map_err(damaged).ok()
    }

    /// Notes that a file of the folder is damaged.
    pub fn note_damaged(&self, path: &Path) {
        self.progress.note(&format!("{} is damaged; its part of the work is repeated", path.display()));
    }

    /// Notes that the tokens so far were made with another tokenizer.
    pub fn note_other_tokenizer(&self) {
        self.progress.note("the tokenizer has changed; encoding starts over");
    }

    /// Notes where the call resumes.
    pub fn note_resuming(&self, what: &str, source: &str) {
        self.progress.note(&format!("{}: resuming {what} in {source}", self.out.display()));
    }

    /// Ends the call. The folder is kept only if the same call could resume from it.
    ///
    /// # Errors
    /// On a file system error.
    pub fn close<T>(&self, prepared: &Result<T, Error>) -> Result<(), FileError> {
        let is_stopped = match prepared {
            Err(Error::Source(error)) => error.is_of_the_disk(),
            Err(Error::Interrupted | Error::File(_) | Error::Tokens(tokens::Error::File(_))) => true,
            _ => false,
        };
        if !is_stopped || !self.is_begun() {
            return self.remove();
        }
        let line = format!("progress is kept in {}; run the same command again to continue", self.out.display());
        self.progress.note(&line);
        Ok(())
    }

    fn remove(&self) -> Result<(), FileError> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at("cannot remove", &self.folder),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
