//! Which files there are to read.

use super::Format;
use super::compression::Compression;
use super::text::{SNIFFED_BYTES, check_kind};
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// One place that text comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A file, or a folder with all files under it.
    Path(PathBuf),
    /// Standard input: plain text or Parquet, compressed or not.
    Stdin,
    /// The built-in corpus.
    Stories {
        /// How many stories.
        count: u64,
    },
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
}

/// The files of a few inputs, in the order in which they are read.
#[derive(Default)]
pub struct Listing {
    /// The files; those of a folder are sorted by name.
    pub files: Vec<TextFile>,
    /// Files in folders that were left out because they hold no text.
    pub skipped: Vec<PathBuf>,
    /// The copy of standard input, deleted when the listing is dropped.
    spooled: Option<NamedTempFile>,
}

impl Listing {
    /// Adds a file, or all files under a folder; names with a leading dot are left out there, and what is empty or binary.
    ///
    /// Errors when there is nothing at `path`, when a file is empty or binary, or when a folder holds no text.
    pub fn add_path(&mut self, path: &Path) -> Result<()> {
        let metadata = std::fs::metadata(path).with_context(|| {
            format!("cannot read {}; name a file or folder that exists and that you may read", path.display())
        })?;
        if !metadata.is_dir() {
            ensure!(metadata.len() > 0 || !metadata.is_file(), "{} is empty; give a file with text", path.display());
            ensure!(metadata.is_file(), "{} is not a file; pipe it into standard input instead", path.display());
            let start = sniff(path)?;
            let file = TextFile::new(path, path.display().to_string(), metadata.len(), &start);
            if file.format == Format::Text && Compression::of_content(&start) == Compression::None {
                check_kind(&file.name, &start)?;
            }
            self.files.push(file);
            return Ok(());
        }
        let (files, skipped) = (self.files.len(), self.skipped.len());
        self.add_folder(path)?;
        if self.files.len() == files {
            match self.skipped.len() - skipped {
                0 => bail!("{} holds no file with text; give another folder", path.display()),
                n => bail!(
                    "{} holds no file with text, only {n} that are empty or binary; give another folder",
                    path.display()
                ),
            }
        }
        Ok(())
    }

    fn add_folder(&mut self, folder: &Path) -> Result<()> {
        let failed = || format!("cannot read the folder {}", folder.display());
        let mut entries =
            std::fs::read_dir(folder).with_context(failed)?.collect::<Result<Vec<_>, _>>().with_context(failed)?;
        entries.sort_by_key(|entry| entry.file_name());
        for entry in entries {
            let path = entry.path();
            if entry.file_name().to_string_lossy().starts_with('.') {
                continue;
            }
            let kind = entry.file_type().with_context(failed)?;
            // Links to folders are not followed: they may lead in circles.
            if kind.is_dir() {
                self.add_folder(&path)?;
            } else if path.is_file() {
                let bytes = std::fs::metadata(&path).with_context(|| format!("cannot read {}", path.display()))?.len();
                let start = sniff(&path)?;
                let file = TextFile::new(&path, path.display().to_string(), bytes, &start);
                let compressed = Compression::of_content(&start) != Compression::None;
                let text = file.format != Format::Text || compressed || check_kind(&file.name, &start).is_ok();
                if text && bytes > 0 {
                    self.files.push(file);
                } else {
                    self.skipped.push(path);
                }
            }
        }
        Ok(())
    }

    /// Copies `input` (standard input) into a temporary file in `folder`, so that it can be read twice, and adds that.
    pub fn add_stdin(&mut self, input: &mut dyn Read, folder: &Path) -> Result<()> {
        ensure!(self.spooled.is_none(), "standard input is named twice; name it once");
        let failed = || format!("cannot copy standard input into {}", folder.display());
        let mut copy = tempfile::Builder::new().prefix(".unfinished-").tempfile_in(folder).with_context(failed)?;
        let bytes = std::io::copy(input, &mut copy).with_context(failed)?;
        copy.flush().with_context(failed)?;
        ensure!(bytes > 0, "standard input is empty; pipe text into it");
        let start = sniff(copy.path())?;
        self.files.push(TextFile::new(copy.path(), "standard input".to_owned(), bytes, &start));
        self.spooled = Some(copy);
        Ok(())
    }

    /// Bytes of all files on the disk.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

impl TextFile {
    fn new(path: &Path, name: String, bytes: u64, start: &[u8]) -> Self {
        let lower = name.to_lowercase();
        let inner = Compression::of_name(&lower).1;
        let format = if inner.ends_with(".jsonl") || inner.ends_with(".ndjson") {
            Format::JsonLines
        } else if inner.ends_with(".parquet") || start.starts_with(b"PAR1") {
            Format::Parquet
        } else {
            Format::Text
        };
        Self { path: path.to_owned(), name, bytes, format }
    }
}

/// The first bytes of a file.
fn sniff(path: &Path) -> Result<Vec<u8>> {
    let failed = || format!("cannot read {}", path.display());
    let mut start = Vec::new();
    File::open(path).with_context(failed)?.take(SNIFFED_BYTES as u64).read_to_end(&mut start).with_context(failed)?;
    Ok(start)
}
