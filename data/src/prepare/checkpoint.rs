//! What is kept while a long text is prepared, so that the same call goes on after an interruption.
//!
//! Beside the tokens that are written it is a few records, each the whole state of a reading before
//! some piece of the text: going on from one gives the bytes that an uninterrupted call gives. They
//! belong to one text, one set of options and one version of this program. In the end the whole of
//! what is prepared lies beside them, to be put in its place by names alone. All of it lies in one
//! folder inside the one that is prepared into; that folder goes when the text is prepared, and when
//! it turns out that it cannot be.

use super::{error::Error, options::PrepareOptions, options::Progress};
use crate::{source::Input, tokens};
use ember_host::file_error::{At, FileError};
use ember_host::files::{make_folder, write_atomic, write_text};
use serde::{Serialize, de::DeserializeOwned};
use std::time::{Duration, Instant};
use std::{fs, fs::File, io, path::Path, path::PathBuf};

/// Keeping may take one part in so many of the time. What takes longer is kept less often, down to once
/// in so many times the interval that was asked for.
const ONE_IN: u32 = 50;
const MOST_SELDOM: u32 = 30;

/// The name of the folder. It begins with a dot, so that a folder of text that it is in holds no more
/// text for it.
pub const CHECKPOINT: &str = ".prepare-checkpoint";

/// The name of what the records belong to.
const OWNER: &str = "owner";

/// Of the records, and of how what is in them is gone on with: another number where either is changed,
/// since the version of the program stays the same for long.
const LAYOUT: u32 = 3;

/// A record, named as its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first reading, as far as it came.
    Survey,
    /// What the first reading found.
    Surveyed,
    /// The second reading, as far as it came; the tokens up to there lie beside it.
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

/// Whether an interrupted call has left something in the folder `out` that the same call goes on with.
pub fn is_begun(out: &Path) -> bool {
    [Record::Survey, Record::Surveyed].iter().any(|record| out.join(CHECKPOINT).join(record.name()).exists())
}

/// The folder of one call.
pub struct Checkpoint<'a> {
    out: &'a Path,
    folder: PathBuf,
    owner: String,
    /// How often something is kept; `None` where nothing is.
    every: Option<Duration>,
    /// When something was kept last, or could have been, and how long to wait from then on.
    last: Instant,
    wait: Duration,
    progress: &'a dyn Progress,
}

impl<'a> Checkpoint<'a> {
    /// Opens the folder inside `options.out`, and empties it of what cannot be gone on with. Nothing
    /// is kept of standard input: what is piped into it again may be another text.
    ///
    /// # Errors
    /// The disk's.
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
        let is_own = fs::read(checkpoint.file(OWNER)).is_ok_and(|owner| owner == checkpoint.owner.as_bytes());
        if checkpoint.every.is_none() || !is_own || !checkpoint.is_begun() {
            if checkpoint.is_begun() {
                let others = "with another text, other settings or another version of this program";
                progress.note(&format!("{} was begun before {others}: it is begun anew", options.out.display()));
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

    /// Where a file lies as long as it is not in its place.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Whether there is something to go on with.
    pub fn is_begun(&self) -> bool {
        is_begun(self.out)
    }

    /// Whether it is time to keep what is done.
    pub fn is_due(&self) -> bool {
        self.every.is_some() && self.last.elapsed() >= self.wait
    }

    /// Keeps what is done, in the place of what was kept under this name.
    ///
    /// # Errors
    /// The disk's.
    pub fn keep(&mut self, record: Record, state: &impl Serialize) -> Result<(), FileError> {
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
        self.wait = (ONE_IN * began.elapsed()).clamp(every, every.saturating_mul(MOST_SELDOM));
        self.last = Instant::now();
        Ok(())
    }

    /// The same, where nothing is kept under this name yet.
    ///
    /// # Errors
    /// The disk's.
    pub fn keep_once(&mut self, record: Record, state: &impl Serialize) -> Result<(), FileError> {
        if self.file(record.name()).exists() { Ok(()) } else { self.keep(record, state) }
    }

    /// What was kept under this name: `None` where nothing was, or, which is said, where it is
    /// damaged.
    pub fn kept<T: DeserializeOwned>(&self, record: Record) -> Option<T> {
        let path = self.file(record.name());
        let file = File::open(&path).ok()?;
        let read = || -> io::Result<T> {
            let mut frame = io::BufReader::new(zstd::Decoder::new(file)?);
            let state = rmp_serde::from_read(&mut frame).map_err(io::Error::other)?;
            // To the end of the frame, where its checksum is compared.
            io::copy(&mut frame, &mut io::sink())?;
            Ok(state)
        };
        read().map_err(|_| self.say_damaged(&path)).ok()
    }

    /// Says that a file of the folder is not what was written.
    pub fn say_damaged(&self, path: &Path) {
        self.progress.note(&format!("{} is damaged: what it held is done again", path.display()));
    }

    /// Says that the tokenizer is not the one that the tokens so far are of.
    pub fn say_other_tokenizer(&self) {
        self.progress.note("the tokenizer is another one than before: the encoding begins anew");
    }

    /// Says from where the call goes on.
    pub fn say_going_on(&self, what: &str, source: &str) {
        self.progress.note(&format!("{} was begun before: {what} goes on in {source}", self.out.display()));
    }

    /// Ends the call: what was kept stays only where the same call may get further with it.
    ///
    /// # Errors
    /// The disk's.
    pub fn close<T>(&self, prepared: &Result<T, Error>) -> Result<(), FileError> {
        let is_stopped =
            matches!(prepared, Err(Error::Interrupted | Error::File(_) | Error::Tokens(tokens::Error::File(_))));
        if !is_stopped || !self.is_begun() {
            return self.remove();
        }
        let line = format!("what is done is kept in {}: the same command goes on from there", self.out.display());
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
