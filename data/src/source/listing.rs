//! Which files there are to read.

use super::archive::{self, Archive, Entry, is_passed_over};
use super::content::Place;
use super::foreign::Foreign;
use super::guess;
use super::left_out::{LeftOut, LeftOutKind};
use super::options::ReadOptions;
use super::own::{is_own, kind_of_folder};
use super::start::Start;
use super::{compression, compression::Compression, encoding, error::Error, kinds::Kind, piped};
use crate::numbers::counted;
use ember_host::{file_error::At, file_error::FileError, file_error::with_causes, files::UNFINISHED};
use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};
use ignore::{Walk, WalkBuilder};
use std::sync::mpsc::{Sender, channel};
use std::{fs::File, io, io::Read, path::Path, path::PathBuf, sync::Arc};
use tempfile::NamedTempFile;

/// How far into a file its kind is looked for.
const SNIFFED_BYTES: u64 = 8 << 10;

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

/// A file with text in it. A folder may hold a million: so it is small.
#[derive(Clone, Debug)]
pub struct TextFile {
    /// What to call it: its path as the user gave it, or "standard input".
    pub name: Box<str>,
    /// Where it is, where its name is not its path.
    elsewhere: Option<Arc<Path>>,
    /// Its size on the disk.
    pub bytes: u64,
    /// How it holds its documents.
    pub kind: Kind,
    /// Where it stands in the archive at `path`, if it does.
    pub(super) entry: Option<Entry>,
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
    /// The copy of standard input, and archives that were compressed as a whole: deleted when the
    /// listing is dropped.
    spooled: Vec<NamedTempFile>,
    /// Whether standard input is among them.
    has_stdin: bool,
    /// The encoding of text without a mark, where the user says it.
    encoding: Option<&'static Encoding>,
}

impl Listing {
    /// None yet, to be read so.
    pub fn new(options: &ReadOptions) -> Self {
        Self { encoding: options.encoding, ..Self::default() }
    }

    /// Adds a file, or all files under a folder but those that are empty, binary or written by
    /// these programs. Hidden files, what Word keeps beside an open document, and what a
    /// `.gitignore` in the folder names are passed over in silence, unless nothing else is there. zip
    /// and tar are folders here.
    ///
    /// # Errors
    /// When there is nothing at `path`, when a file is empty or binary, or when a folder holds no
    /// text.
    pub fn add_path(&mut self, path: &Path) -> Result<(), Error> {
        if path.as_os_str().is_empty() {
            return Err(Error::unusable("the name of the text", "is empty; name a file or folder"));
        }
        let metadata = std::fs::metadata(path).map_err(|error| {
            let what = format!("{}; name a file or folder that exists and that you may read", path.display());
            Error::Unreadable { what, source: error.into() }
        })?;
        let (files, left_out) = (self.files.len(), self.left_out.len());
        if metadata.is_file() {
            self.add_file(path, &path.display().to_string(), false).map_err(|(_, error)| error)?;
        } else if metadata.is_dir() {
            match kind_of_folder(path) {
                Some(LeftOutKind::Run) => return Err(Error::Run(path.to_owned())),
                Some(_) => return Err(Error::Prepared(path.to_owned())),
                None => self.add_folder(path)?,
            }
        } else {
            return Err(Error::unusable(path.display(), "is not a file; pipe it into standard input instead"));
        }
        if self.files.len() == files {
            let mut told = LeftOut::told(&self.left_out[left_out..]);
            let ignored = if metadata.is_dir() { ignored_in(path) } else { 0 };
            if ignored > 0 {
                told.push(format!("a .gitignore names {}", counted(ignored, "file")));
            }
            let in_brackets = if told.is_empty() { String::new() } else { format!(" ({})", told.join("; ")) };
            let what = format!("holds no file with text; give another folder{in_brackets}");
            return Err(Error::unusable(path.display(), what));
        }
        Ok(())
    }

    fn add_folder(&mut self, folder: &Path) -> Result<(), Error> {
        std::fs::read_dir(folder).at("cannot read the folder", folder)?;
        // The walk keeps its filter, which therefore cannot write into the list itself.
        let (tell, told) = channel();
        for entry in walk(folder, true, tell) {
            match entry {
                Err(error) => {
                    let reason = format!("cannot read {}", with_causes(&error));
                    self.left_out.push(LeftOut {
                        name: folder.display().to_string(),
                        kind: LeftOutKind::Folder,
                        reason,
                    });
                }
                // What a link leads to counts.
                Ok(entry) if entry.path().is_file() => {
                    let name = entry.path().display().to_string();
                    if let Err((kind, error)) = self.add_file(entry.path(), &name, true) {
                        self.leave_out(name, kind, &error);
                    }
                }
                Ok(entry) if entry.path_is_symlink() && !entry.path().exists() => {
                    let name = entry.path().display().to_string();
                    let reason = format!("{name} leads to no file");
                    self.left_out.push(LeftOut { name, kind: LeftOutKind::Link, reason });
                }
                Ok(_) => {}
            }
            self.left_out.extend(told.try_iter());
        }
        self.left_out.extend(told.try_iter());
        Ok(())
    }

    fn leave_out(&mut self, name: String, kind: LeftOutKind, error: &Error) {
        let says_all = matches!(kind, LeftOutKind::Empty | LeftOutKind::Own);
        let reason = if says_all { name.clone() } else { with_causes(error) };
        self.left_out.push(LeftOut { name, kind, reason });
    }

    /// Adds a file, or the files in it; else what it is instead of text, and what is wrong with it.
    fn add_file(&mut self, path: &Path, name: &str, found: bool) -> Result<(), (LeftOutKind, Error)> {
        let bytes = std::fs::metadata(path).at("cannot read", path).map_err(unreadable)?.len();
        let elsewhere = (path.to_str() != Some(name)).then(|| path.into());
        let mut file = TextFile { name: name.into(), elsewhere, bytes, kind: Kind::text(), entry: None, found };
        let start = file.start().map_err(unreadable)?;
        if bytes == 0 {
            // What the system makes up as it is read, as in /proc, says no length.
            file.bytes = start.bytes.len() as u64;
        }
        match file.as_archive(&start) {
            Some(archive) => self.add_archive(archive, &file).map_err(|error| (LeftOutKind::Archive, error)),
            None => {
                self.files.push(file.of_kind(&start, self.encoding)?);
                Ok(())
            }
        }
    }

    fn add_archive(&mut self, archive: Archive, file: &TextFile) -> Result<(), Error> {
        let mut path = Arc::from(file.path());
        if Compression::of_content(&sniff(&path)?) != Compression::None {
            const DOING: &str = "cannot unpack";
            let mut unpacked = tempfile::Builder::new().prefix(UNFINISHED).tempfile().at(DOING, &*file.name)?;
            let mut content = compression::reader(file.open_raw()?, &file.name)?;
            io::copy(&mut content, &mut unpacked).at(DOING, &*file.name)?;
            path = unpacked.path().into();
            self.spooled.push(unpacked);
        }
        for (inner, entry) in archive.entries(&path, &file.name)? {
            let name = format!("{}/{inner}", file.name);
            if entry.is_link() {
                let reason = format!("{name} leads to another file");
                self.left_out.push(LeftOut { name, kind: LeftOutKind::Link, reason });
                continue;
            }
            let entry = TextFile {
                name: name.as_str().into(),
                elsewhere: Some(Arc::clone(&path)),
                bytes: entry.bytes,
                kind: Kind::text(),
                entry: Some(entry),
                found: true,
            };
            let added = entry.start().map_err(unreadable).and_then(|start| match entry.as_archive(&start) {
                None => entry.of_kind(&start, self.encoding),
                Some(_) => {
                    let what = "is an archive in an archive; unpack it and give the files in it";
                    Err((LeftOutKind::Archive, Error::unusable(&name, what)))
                }
            });
            match added {
                Ok(file) => self.files.push(file),
                Err((kind, error)) => self.leave_out(name, kind, &error),
            }
        }
        Ok(())
    }

    /// Copies `input` (standard input) into a temporary file in `folder`, so that it can be read
    /// twice, and adds that; `false` when `interrupted` said to end.
    ///
    /// # Errors
    /// When it cannot be copied, is empty, or was added before.
    pub fn add_stdin(
        &mut self,
        input: impl Read + Send + 'static,
        folder: &Path,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        if std::mem::replace(&mut self.has_stdin, true) {
            return Err(Error::unusable("standard input", "is named twice; name it once"));
        }
        let spool = || -> io::Result<(NamedTempFile, Option<u64>)> {
            let mut copy = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)?;
            let bytes = piped::copy(input, &mut copy, interrupted)?;
            Ok((copy, bytes))
        };
        let (copy, bytes) = spool().at("cannot copy standard input into", folder)?;
        let Some(bytes) = bytes else { return Ok(false) };
        if bytes == 0 {
            return Err(Error::unusable("standard input", "is empty; pipe text into it"));
        }
        self.add_file(copy.path(), "standard input", false).map_err(|(_, error)| error)?;
        self.spooled.push(copy);
        Ok(true)
    }

    /// Bytes of all files on the disk.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// What a file counts as whose beginning cannot be read, and why it cannot.
fn unreadable(error: impl Into<Error>) -> (LeftOutKind, Error) {
    (LeftOutKind::Unusable(Kind::text()), error.into())
}

/// How many files in a folder are passed over since a `.gitignore` there names them.
fn ignored_in(folder: &Path) -> usize {
    let files = |obeys_git| {
        let (tell, _told) = channel();
        walk(folder, obeys_git, tell).flatten().filter(|entry| entry.path().is_file()).count()
    };
    files(false).saturating_sub(files(true))
}

/// What lies in a folder, and in those in it, sorted by name. What is passed over in silence is not
/// among it, nor, where the walk obeys, what a `.gitignore` names; nor what the folders hold that these
/// programs wrote: of each of these `tell` is told.
fn walk(folder: &Path, obeys_git: bool, tell: Sender<LeftOut>) -> Walk {
    // Links to folders are not followed: they may lead in circles. Of the rules that hide files only
    // those count that lie in the folder itself: it may be hidden from its repository.
    let mut walk = WalkBuilder::new(folder);
    walk.standard_filters(false).hidden(true).git_ignore(obeys_git).require_git(false).sort_by_file_name(Ord::cmp);
    walk.filter_entry(move |entry| {
        if entry.depth() == 0 {
            return true;
        }
        if is_passed_over(&entry.file_name().to_string_lossy()) {
            return false;
        }
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        let Some(kind) = is_folder.then(|| kind_of_folder(entry.path())).flatten() else { return true };
        let name = entry.path().display().to_string();
        let _ = tell.send(LeftOut { name: name.clone(), kind, reason: name }); // there is who listens
        false
    });
    walk.build()
}

impl TextFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        self.elsewhere.as_deref().unwrap_or(Path::new(&*self.name))
    }

    /// Where its bytes are.
    pub(super) fn place(&self) -> Place<'_> {
        Place { name: &self.name, path: self.path(), entry: self.entry, bytes: self.bytes }
    }

    /// Its bytes as they are on the disk, or in an archive there.
    fn open_raw(&self) -> Result<Box<dyn Read>, Error> {
        archive::open(self.path(), self.entry, &self.name)
    }

    /// What it begins with.
    fn start(&self) -> Result<Start, Error> {
        let lower = self.name.to_lowercase();
        let name = Compression::of_name(&lower).1.to_owned();
        let mut bytes = room_for_start();
        let raw = self.open_raw()?.take(SNIFFED_BYTES).read_to_end(&mut bytes);
        raw.at("cannot read", &*self.name)?;
        if Compression::of_content(&bytes) != Compression::None {
            let mut content = room_for_start();
            // Of what is broken, so much as there is: reading it will tell.
            if let Ok(reader) = compression::reader(self.open_raw()?, &self.name) {
                let _ = reader.take(SNIFFED_BYTES).read_to_end(&mut content);
            }
            bytes = content;
        }
        Ok(Start { bytes, name })
    }

    /// The archive that it is, unless its documents are of a kind that is an archive itself, or it
    /// is another program's file.
    fn as_archive(&self, start: &Start) -> Option<Archive> {
        let archive = Archive::of(start)?;
        let is_folder = Kind::of(start).reader().is_text() && Foreign::of(start).is_none();
        is_folder.then_some(archive)
    }

    /// This file with its kind, its text in this encoding where that is said; else what it is instead
    /// of text, and what is wrong with it.
    fn of_kind(mut self, start: &Start, said: Option<&Encoding>) -> Result<Self, (LeftOutKind, Error)> {
        if self.bytes == 0 {
            return Err((LeftOutKind::Empty, Error::unusable(&self.name, "is empty; give a file with text")));
        }
        self.kind = Kind::of(start);
        if !self.kind.reader().is_text() {
            return Ok(self);
        }
        if let Some(foreign) = Foreign::of(start) {
            return Err((LeftOutKind::Foreign(foreign), Error::unusable(&self.name, foreign.advice())));
        }
        if is_own(start) {
            let what = "is a page or a recipe that Ember wrote, not text; name the text itself";
            return Err((LeftOutKind::Own, Error::unusable(&self.name, what)));
        }
        let is_said_utf16 =
            said.is_some_and(|said| [UTF_16LE, UTF_16BE].contains(&said) && guess::reads_as_utf16(&start.bytes, said));
        if !is_said_utf16
            && !encoding::may_hold_zeros(&start.bytes)
            && let Some(at) = start.bytes.iter().position(|&byte| byte == 0)
        {
            // Nobody meant the pictures in a folder for text.
            let advice = "; give text, or if it is UTF-16 save it with its byte order mark";
            let what = format!("looks binary (byte {at} is zero){}", if self.found { "" } else { advice });
            return Err((LeftOutKind::Binary, Error::unusable(&self.name, what)));
        }
        Ok(self)
    }

    /// This file as one that could not be read.
    pub(crate) fn left_out(&self, reason: String) -> LeftOut {
        LeftOut { name: self.name.to_string(), kind: LeftOutKind::Unusable(self.kind), reason }
    }
}

/// Memory for the first bytes of a file: without it they would be read in many small pieces.
fn room_for_start() -> Vec<u8> {
    Vec::with_capacity(SNIFFED_BYTES as usize)
}

/// The first bytes of a file.
pub(super) fn sniff(path: &Path) -> Result<Vec<u8>, FileError> {
    let mut start = room_for_start();
    let read = File::open(path).and_then(|file| file.take(SNIFFED_BYTES).read_to_end(&mut start));
    read.at("cannot read", path).map(|_| start)
}
