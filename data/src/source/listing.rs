//! Finds the files to read: lists folders and archives, and recognises the format of each file.

use super::archive::{self, Archive, Entry, is_skipped_silently};
use super::content::Location;
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

/// Bytes at the start of a file by which its format is recognised.
const SNIFFED_BYTES: u64 = 8 << 10;

/// One source of text.
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

/// A file with text. The struct is small because a folder may hold a million files.
#[derive(Clone, Debug)]
pub struct TextFile {
    /// Its name for the user: its path as the user gave it, or "standard input".
    pub name: Box<str>,
    /// Its path, if that is not its name.
    elsewhere: Option<Arc<Path>>,
    /// Its size on the disk.
    pub bytes: u64,
    /// Its format.
    pub kind: Kind,
    /// Its entry, if it is in the archive at `path`.
    pub(super) entry: Option<Entry>,
    /// Whether it was found in a folder or archive, so that it is left out if it cannot be used. A
    /// file that the user named must be usable.
    pub found: bool,
}

/// The files of all inputs, in the order in which they are read.
#[derive(Default)]
pub struct Listing {
    /// The files; those of a folder are sorted by name.
    pub files: Vec<TextFile>,
    /// Files and folders in the inputs that are not read.
    pub left_out: Vec<LeftOut>,
    /// The copy of standard input, and archives that were compressed as a whole: deleted when the
    /// listing is dropped.
    spooled: Vec<NamedTempFile>,
    /// Whether standard input is among the inputs.
    has_stdin: bool,
    /// The encoding of text without a byte order mark, if the user has set one.
    encoding: Option<&'static Encoding>,
}

impl Listing {
    /// An empty listing, for reading with these options.
    pub fn new(options: &ReadOptions) -> Self {
        Self { encoding: options.encoding, ..Self::default() }
    }

    /// Adds a file, or all files under a folder except those that are empty, binary or written by
    /// these programs. Hidden files, Word's lock files and files that a `.gitignore` in the folder
    /// names are skipped without a report, unless there is nothing else. zip and tar archives count
    /// as folders.
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
            let mut reasons = LeftOut::summary(&self.left_out[left_out..]);
            let ignored = if metadata.is_dir() { ignored_in(path) } else { 0 };
            if ignored > 0 {
                reasons.push(format!("a .gitignore excludes {}", counted(ignored, "file")));
            }
            let in_brackets = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
            let what = format!("holds no file with text; give another folder{in_brackets}");
            return Err(Error::unusable(path.display(), what));
        }
        Ok(())
    }

    fn add_folder(&mut self, folder: &Path) -> Result<(), Error> {
        std::fs::read_dir(folder).at("cannot read the folder", folder)?;
        // The walk's filter cannot borrow the list, so it sends through a channel.
        let (sender, left_out) = channel();
        for entry in walk(folder, true, sender) {
            match entry {
                Err(error) => {
                    let reason = format!("cannot read {}", with_causes(&error));
                    self.left_out.push(LeftOut {
                        name: folder.display().to_string(),
                        kind: LeftOutKind::Folder,
                        reason,
                    });
                }
                // `is_file` follows links.
                Ok(entry) if entry.path().is_file() => {
                    let name = entry.path().display().to_string();
                    if let Err((kind, error)) = self.add_file(entry.path(), &name, true) {
                        self.leave_out(name, kind, &error);
                    }
                }
                Ok(entry) if entry.path_is_symlink() && !entry.path().exists() => {
                    let name = entry.path().display().to_string();
                    let reason = format!("{name} is a link to a missing file");
                    self.left_out.push(LeftOut { name, kind: LeftOutKind::Link, reason });
                }
                Ok(_) => {}
            }
            self.left_out.extend(left_out.try_iter());
        }
        self.left_out.extend(left_out.try_iter());
        Ok(())
    }

    fn leave_out(&mut self, name: String, kind: LeftOutKind, error: &Error) {
        let says_all = matches!(kind, LeftOutKind::Empty | LeftOutKind::Own);
        let reason = if says_all { name.clone() } else { with_causes(error) };
        self.left_out.push(LeftOut { name, kind, reason });
    }

    /// Adds a file, or the files of an archive. An error has the kind under which it is left out.
    fn add_file(&mut self, path: &Path, name: &str, found: bool) -> Result<(), (LeftOutKind, Error)> {
        let bytes = std::fs::metadata(path).at("cannot read", path).map_err(unreadable)?.len();
        let elsewhere = (path.to_str() != Some(name)).then(|| path.into());
        let mut file = TextFile { name: name.into(), elsewhere, bytes, kind: Kind::text(), entry: None, found };
        let start = file.start().map_err(unreadable)?;
        if bytes == 0 {
            // Files that the kernel generates, as in /proc, have the length 0.
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
            // The copy stands for its archive: the same archive has the same fingerprint.
            let changed = std::fs::metadata(&path).and_then(|metadata| metadata.modified());
            changed.and_then(|time| unpacked.as_file().set_modified(time)).at(DOING, &*file.name)?;
            path = unpacked.path().into();
            self.spooled.push(unpacked);
        }
        for (inner, entry) in archive.entries(&path, &file.name)? {
            let name = format!("{}/{inner}", file.name);
            if entry.is_link() {
                let reason = format!("{name} is a link to another file");
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
    /// twice, and adds that; `false` if `interrupted` returned true.
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

    /// The size of all files on the disk, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// A file whose beginning cannot be read is left out as unusable text.
fn unreadable(error: impl Into<Error>) -> (LeftOutKind, Error) {
    (LeftOutKind::Unusable(Kind::text()), error.into())
}

/// The number of files in a folder that are skipped because a `.gitignore` there names them.
fn ignored_in(folder: &Path) -> usize {
    let files = |obeys_git| {
        let (sender, _receiver) = channel();
        walk(folder, obeys_git, sender).flatten().filter(|entry| entry.path().is_file()).count()
    };
    files(false).saturating_sub(files(true))
}

/// Walks a folder and its subfolders, sorted by name. Skips hidden files and, if `obeys_git`, those
/// that a `.gitignore` names. Skips also the folders that these programs wrote, and sends each of
/// these to `left_out`.
fn walk(folder: &Path, obeys_git: bool, left_out: Sender<LeftOut>) -> Walk {
    // Links to folders are not followed: they may form cycles. Only the `.gitignore` files inside
    // the folder count, because a repository around it may ignore the whole folder.
    let mut walk = WalkBuilder::new(folder);
    walk.standard_filters(false).hidden(true).git_ignore(obeys_git).require_git(false).sort_by_file_name(Ord::cmp);
    walk.filter_entry(move |entry| {
        if entry.depth() == 0 {
            return true;
        }
        if is_skipped_silently(&entry.file_name().to_string_lossy()) {
            return false;
        }
        let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        let Some(kind) = is_folder.then(|| kind_of_folder(entry.path())).flatten() else { return true };
        let name = entry.path().display().to_string();
        let _ = left_out.send(LeftOut { name: name.clone(), kind, reason: name }); // fails only without a receiver
        false
    });
    walk.build()
}

impl TextFile {
    /// The path of the file, or of the archive that contains it.
    pub fn path(&self) -> &Path {
        self.elsewhere.as_deref().unwrap_or(Path::new(&*self.name))
    }

    /// Where its bytes are.
    pub(super) fn location(&self) -> Location<'_> {
        Location { name: &self.name, path: self.path(), entry: self.entry, bytes: self.bytes }
    }

    /// Its bytes as stored on the disk, or in an archive.
    fn open_raw(&self) -> Result<Box<dyn Read>, Error> {
        archive::open(self.path(), self.entry, &self.name)
    }

    /// Reads its beginning.
    fn start(&self) -> Result<Start, Error> {
        let lower = self.name.to_lowercase();
        let name = Compression::of_name(&lower).1.to_owned();
        let mut bytes = room_for_start();
        let raw = self.open_raw()?.take(SNIFFED_BYTES).read_to_end(&mut bytes);
        raw.at("cannot read", &*self.name)?;
        if Compression::of_content(&bytes) != Compression::None {
            let mut content = room_for_start();
            // Errors are ignored: what can be read of a damaged file will do here.
            if let Ok(reader) = compression::reader(self.open_raw()?, &self.name) {
                let _ = reader.take(SNIFFED_BYTES).read_to_end(&mut content);
            }
            bytes = content;
        }
        Ok(Start { bytes, name })
    }

    /// Its archive format, if it is to be read as a folder: not a document format that is itself an
    /// archive, and not another program's file.
    fn as_archive(&self, start: &Start) -> Option<Archive> {
        let archive = Archive::of(start)?;
        let is_folder = Kind::of(start).reader().is_text() && Foreign::of(start).is_none();
        is_folder.then_some(archive)
    }

    /// This file with its format set; `set_encoding` is the encoding that the user has set. An error has
    /// the kind under which the file is left out.
    fn of_kind(mut self, start: &Start, set_encoding: Option<&Encoding>) -> Result<Self, (LeftOutKind, Error)> {
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
        let is_set_to_utf16 = set_encoding.is_some_and(|encoding| {
            [UTF_16LE, UTF_16BE].contains(&encoding) && guess::reads_as_utf16(&start.bytes, encoding)
        });
        if !is_set_to_utf16
            && !encoding::may_hold_zeros(&start.bytes)
            && let Some(at) = start.bytes.iter().position(|&byte| byte == 0)
        {
            // No advice for files found in a folder: its pictures were never meant as text.
            let advice = "; give text, or save UTF-16 text with a byte order mark";
            let what = format!("looks binary (byte {at} is zero){}", if self.found { "" } else { advice });
            return Err((LeftOutKind::Binary, Error::unusable(&self.name, what)));
        }
        Ok(self)
    }

    /// The report of this file as unusable.
    pub(crate) fn left_out(&self, reason: String) -> LeftOut {
        LeftOut { name: self.name.to_string(), kind: LeftOutKind::Unusable(self.kind), reason }
    }
}

/// A buffer for the first bytes of a file, so that they are not read in many small pieces.
fn room_for_start() -> Vec<u8> {
    Vec::with_capacity(SNIFFED_BYTES as usize)
}

/// Reads the first bytes of a file.
pub(super) fn sniff(path: &Path) -> Result<Vec<u8>, FileError> {
    let mut start = room_for_start();
    let read = File::open(path).and_then(|file| file.take(SNIFFED_BYTES).read_to_end(&mut start));
    read.at("cannot read", path).map(|_| start)
}
