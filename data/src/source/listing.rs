//! Which files there are to read.

use super::left_out::{LeftOut, LeftOutKind, kind_of_folder};
use super::{compression::Compression, error::Error, text::SNIFFED_BYTES, text::check_kind};
use ember_host::{file_error::At, file_error::FileError, file_error::with_causes, files::UNFINISHED};
use std::{fs::File, io, io::Read, io::Write, path::Path, path::PathBuf};
use tempfile::NamedTempFile;

/// One place that text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the variant says what its field is
pub enum Input {
    /// A file, or a folder with all files under it.
    Path(PathBuf),
    /// Standard input: plain text or Parquet, compressed or not.
    Stdin,
    /// The built-in corpus.
    Stories { count: u64 },
}

/// How a file holds its documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Plain text.
    Text,
    /// One JSON object a line.
    JsonLines,
    /// Parquet.
    Parquet,
}

/// A file with text in it.
#[derive(Clone, Debug)]
pub struct TextFile {
    /// Where it is.
    pub path: PathBuf,
    /// What to call it: its path as the user gave it, or "standard input".
    pub name: String,
    /// Its size on the disk.
    pub bytes: u64,
    /// How it holds its documents.
    pub format: Format,
    /// Whether it was found in a folder, where what cannot be used is left out; what was named by
    /// itself must be usable.
    pub found: bool,
}

/// The files of a few inputs, in the order in which they are read.
#[derive(Default)]
pub struct Listing {
    /// The files; those of a folder are sorted by name.
    pub files: Vec<TextFile>,
    /// What stands in the folders and is not read.
    pub left_out: Vec<LeftOut>,
    /// The copy of standard input, deleted when the listing is dropped.
    spooled: Option<NamedTempFile>,
}

impl Listing {
    /// Adds a file, or all files under a folder but those that are empty, binary or written by
    /// these programs; names with a leading dot are passed over in silence.
    ///
    /// # Errors
    /// When there is nothing at `path`, when a file is empty or binary, or when a folder holds no
    /// text.
    pub fn add_path(&mut self, path: &Path) -> Result<(), Error> {
        let metadata = std::fs::metadata(path).map_err(|error| {
            let what = format!("{}; name a file or folder that exists and that you may read", path.display());
            Error::Unreadable { what, source: error.into() }
        })?;
        if metadata.is_file() {
            self.files.push(TextFile::open(path, false).map_err(|(_, error)| error)?);
            return Ok(());
        }
        if !metadata.is_dir() {
            return Err(Error::unusable(path.display(), "is not a file; pipe it into standard input instead"));
        }
        match kind_of_folder(path) {
            Some(LeftOutKind::Run) => return Err(Error::Run(path.to_owned())),
            Some(_) => return Err(Error::Prepared(path.to_owned())),
            None => {}
        }
        let (files, left_out) = (self.files.len(), self.left_out.len());
        self.add_folder(path)?;
        if self.files.len() == files {
            let told = LeftOut::told(&self.left_out[left_out..]).join("; ");
            let in_brackets = if told.is_empty() { told } else { format!(" ({told})") };
            let what = format!("holds no file with text; give another folder{in_brackets}");
            return Err(Error::unusable(path.display(), what));
        }
        Ok(())
    }

    fn add_folder(&mut self, folder: &Path) -> Result<(), FileError> {
        const DOING: &str = "cannot read the folder";
        let mut entries =
            std::fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>).at(DOING, folder)?;
        entries.retain(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
        entries.sort_by_key(|entry| entry.file_name());
        for entry in entries {
            let path = entry.path();
            let name = || path.display().to_string();
            let left_out = |kind, reason| LeftOut { name: name(), kind, reason };
            // Links to folders are not followed: they may lead in circles.
            if entry.file_type().at(DOING, folder)?.is_dir() {
                if let Some(kind) = kind_of_folder(&path) {
                    self.left_out.push(left_out(kind, name()));
                } else if let Err(error) = self.add_folder(&path) {
                    self.left_out.push(left_out(LeftOutKind::Folder, with_causes(&error)));
                }
            } else if path.is_file() {
                match TextFile::open(&path, true) {
                    Ok(file) => self.files.push(file),
                    Err((kind @ LeftOutKind::Empty, _)) => self.left_out.push(left_out(kind, name())),
                    Err((kind, error)) => self.left_out.push(left_out(kind, with_causes(&error))),
                }
            }
        }
        Ok(())
    }

    /// Copies `input` (standard input) into a temporary file in `folder`, so that it can be read
    /// twice, and adds that.
    ///
    /// # Errors
    /// When it cannot be copied, is empty, or was added before.
    pub fn add_stdin(&mut self, input: &mut dyn Read, folder: &Path) -> Result<(), Error> {
        if self.spooled.is_some() {
            return Err(Error::unusable("standard input", "is named twice; name it once"));
        }
        let mut spool = || -> io::Result<(NamedTempFile, u64)> {
            let mut copy = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)?;
            let bytes = io::copy(input, &mut copy)?;
            copy.flush()?;
            Ok((copy, bytes))
        };
        let (copy, bytes) = spool().at("cannot copy standard input into", folder)?;
        if bytes == 0 {
            return Err(Error::unusable("standard input", "is empty; pipe text into it"));
        }
        let start = sniff(copy.path())?;
        self.files.push(TextFile::new(copy.path(), "standard input".to_owned(), bytes, &start, false));
        self.spooled = Some(copy);
        Ok(())
    }

    /// Bytes of all files on the disk.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

impl TextFile {
    /// A file by its name and what it begins with; else what it is instead of text, and what is
    /// wrong with it.
    fn open(path: &Path, found: bool) -> Result<Self, (LeftOutKind, Error)> {
        let unreadable = |error: FileError| (LeftOutKind::Text, error.into());
        let bytes = std::fs::metadata(path).at("cannot read", path).map_err(unreadable)?.len();
        if bytes == 0 {
            return Err((LeftOutKind::Empty, Error::unusable(path.display(), "is empty; give a file with text")));
        }
        let start = sniff(path).map_err(unreadable)?;
        let file = Self::new(path, path.display().to_string(), bytes, &start, found);
        if file.format == Format::Text && Compression::of_content(&start) == Compression::None {
            check_kind(&file.name, &start).map_err(|error| (LeftOutKind::Binary, error))?;
        }
        Ok(file)
    }

    fn new(path: &Path, name: String, bytes: u64, start: &[u8], found: bool) -> Self {
        let lower = name.to_lowercase();
        let inner = Compression::of_name(&lower).1;
        let format = if inner.ends_with(".jsonl") || inner.ends_with(".ndjson") {
            Format::JsonLines
        } else if inner.ends_with(".parquet") || start.starts_with(b"PAR1") {
            Format::Parquet
        } else {
            Format::Text
        };
        Self { path: path.to_owned(), name, bytes, format, found }
    }

    /// This file as one that could not be read.
    pub(crate) fn left_out(&self, reason: String) -> LeftOut {
        let kind = match self.format {
            Format::Text => LeftOutKind::Text,
            Format::JsonLines => LeftOutKind::JsonLines,
            Format::Parquet => LeftOutKind::Parquet,
        };
        LeftOut { name: self.name.clone(), kind, reason }
    }
}

/// The first bytes of a file.
pub(super) fn sniff(path: &Path) -> Result<Vec<u8>, FileError> {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(SNIFFED_BYTES as u64).read_to_end(&mut start));
    read.at("cannot read", path).map(|_| start)
}
