//! zip and tar archives read as folders: which files they contain, and where.

use super::{allowance::Allowance, allowance::Allowed, compression, error::Error, start::Start};
use ember_host::{file_error::At, panics::quietly};
use rawzip::{CompressionMethod, RECOMMENDED_BUFFER_SIZE, ZipArchive};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// The most that is read of a tar archive to find its next file: headers, and extensions of them
/// such as long names.
const LONGEST_HEADERS_BYTES: u64 = 4 << 20;

/// A kind of archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Archive {
    Zip,
    Tar,
}

/// The position of a file in an archive that is not compressed as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    offset: u64,
    /// Its bytes in the archive, compressed.
    pub bytes: u64,
    packing: Packing,
}

/// How an archive stores a file.
#[derive(Clone, Copy, Debug)]
enum Packing {
    Stored,
    Deflated,
    /// Encrypted, compressed by another method, or sparse.
    Unsupported,
    /// A link: the name of another file.
    Link,
}

/// Whether a file or folder of this name is skipped without a report: hidden files, the metadata
/// that macOS adds to archives, and Word's lock files beside open documents.
pub fn is_skipped_silently(name: &str) -> bool {
    name.starts_with('.') || name == "__MACOSX" || name.starts_with("~$")
}

impl Archive {
    /// Recognises an archive by its first bytes.
    pub fn of(start: &Start) -> Option<Self> {
        if start.bytes.starts_with(b"PK\x03\x04") || start.bytes.starts_with(b"PK\x05\x06") {
            Some(Self::Zip)
        } else if start.bytes.get(257..262) == Some(b"ustar") {
            Some(Self::Tar)
        } else {
            None
        }
    }

    /// The names and entries of an archive's files, without the skipped ones, sorted by name.
    ///
    /// # Errors
    /// As [`Self::list`].
    pub fn entries(self, path: &Path, name: &str) -> Result<Vec<(String, Entry)>, Error> {
        let mut files = self.list(File::open(path).at("cannot open", name)?, name)?;
        files.retain(|(name, _)| !name.split('/').any(is_skipped_silently));
        files.sort_by(|(one, _), (other, _)| one.split('/').cmp(other.split('/')));
        Ok(files)
    }

    /// The names and entries of all files in an archive.
    ///
    /// # Errors
    /// When it is damaged, or a decompression bomb.
    pub fn list(self, file: File, name: &str) -> Result<Vec<(String, Entry)>, Error> {
        let archive_bytes = file.metadata().at("cannot read", name)?.len();
        let damaged =
            |source| Error::Unreadable { what: format!("{name} as an archive; it is damaged: make it again"), source };
        let listed = quietly(|| match self {
            Self::Zip => list_zip(file),
            Self::Tar => list_tar(file, archive_bytes),
        });
        let Listed { files, content_bytes } = listed.map_err(|panic| damaged(panic.into()))?.map_err(damaged)?;
        let packed_bytes = files.iter().map(|(_, entry)| entry.bytes).fold(0, u64::saturating_add);
        if packed_bytes > archive_bytes || compression::is_bomb(packed_bytes, content_bytes) {
            return Err(Error::unusable(name, "unpacks to far more than any text would; leave it out"));
        }
        Ok(files)
    }
}

struct Listed {
    files: Vec<(String, Entry)>,
    /// Bytes after decompression, according to the archive.
    content_bytes: u64,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

fn list_zip(file: File) -> Result<Listed, BoxError> {
    let mut buffer = vec![0; RECOMMENDED_BUFFER_SIZE];
    let archive = ZipArchive::from_file(file, &mut buffer)?;
    let (mut found, mut content_bytes) = (Vec::new(), 0u64);
    let mut entries = archive.entries(&mut buffer);
    while let Some(entry) = entries.next_entry()? {
        if entry.is_dir() {
            continue;
        }
        let packing = match entry.compression_method() {
            _ if entry.mode().is_symlink() => Packing::Link,
            _ if entry.flags().is_encrypted() => Packing::Unsupported,
            CompressionMethod::STORE => Packing::Stored,
            CompressionMethod::DEFLATE => Packing::Deflated,
            _ => Packing::Unsupported,
        };
        let name = match entry.file_path().try_normalize() {
            Ok(name) => name.as_ref().to_owned(),
            Err(_) => String::from_utf8_lossy(entry.file_path().as_ref()).replace("..", "_"),
        };
        content_bytes = content_bytes.saturating_add(entry.uncompressed_size_hint());
        found.push((name, entry.wayfinder(), packing));
    }
    let mut files = Vec::with_capacity(found.len());
    for (name, place, packing) in found {
        let (offset, end) = archive.get_entry(place)?.compressed_data_range();
        files.push((name, Entry { offset, bytes: end.saturating_sub(offset), packing }));
    }
    Ok(Listed { files, content_bytes })
}

fn list_tar(file: File, archive_bytes: u64) -> Result<Listed, BoxError> {
    let headers = Allowance::new(LONGEST_HEADERS_BYTES);
    let mut archive = tar::Archive::new(Allowed::new(file, headers.clone()));
    let (mut files, mut content_bytes) = (Vec::new(), 0u64);
    for entry in archive.entries_with_seek()? {
        headers.renew();
        let mut entry = entry?;
        let Some(packing) = packing_in_tar(&mut entry)? else { continue };
        let name = String::from_utf8_lossy(&entry.path_bytes()).trim_start_matches("./").to_owned();
        // Some programs give a link the size of its target.
        let bytes = if matches!(packing, Packing::Stored) { entry.size() } else { 0 };
        let offset = entry.raw_file_position();
        // The library seeks past the end of the file, and takes it for that of the archive.
        if offset.saturating_add(bytes) > archive_bytes {
            return Err(format!("it ends within {name}").into());
        }
        content_bytes = content_bytes.saturating_add(bytes);
        files.push((name, Entry { offset, bytes, packing }));
    }
    Ok(Listed { files, content_bytes })
}

/// How a tar archive stores this entry; `None` if it is not a file: a folder, a pipe, a device, or
/// metadata.
fn packing_in_tar(entry: &mut tar::Entry<'_, impl Read>) -> io::Result<Option<Packing>> {
    let kind = entry.header().entry_type();
    // Of a sparse file the archive has a map and the parts that are not zero.
    let is_map = |extension: tar::PaxExtension<'_>| extension.key_bytes().starts_with(b"GNU.sparse.");
    let has_map = entry.pax_extensions()?.is_some_and(|extensions| extensions.flatten().any(is_map));
    Ok(if kind.is_hard_link() || kind.is_symlink() {
        Some(Packing::Link)
    } else if kind.is_gnu_sparse() || has_map {
        Some(Packing::Unsupported)
    } else if kind.is_file() || kind.is_contiguous() {
        Some(Packing::Stored)
    } else {
        None
    })
}

/// A reader of the file at `path`, or of an entry of that archive.
///
/// # Errors
/// When it cannot be opened.
pub fn open(path: &Path, entry: Option<Entry>, name: &str) -> Result<Box<dyn Read>, Error> {
    let file = File::open(path).at("cannot open", name)?;
    Ok(match entry {
        Some(entry) => entry.open(file).at("cannot open", name)?,
        None => Box::new(file),
    })
}

impl Entry {
    /// Whether it is a link to another file.
    pub fn is_link(self) -> bool {
        matches!(self.packing, Packing::Link)
    }

    /// A reader of this entry's decompressed bytes.
    ///
    /// # Errors
    /// When the archive cannot be read, or the entry is a link, encrypted or of another method.
    pub fn open(self, mut archive: File) -> io::Result<Box<dyn Read>> {
        archive.seek(SeekFrom::Start(self.offset))?;
        let packed = archive.take(self.bytes);
        match self.packing {
            Packing::Stored => Ok(Box::new(packed)),
            Packing::Deflated => Ok(compression::inflated(packed)),
            Packing::Unsupported => {
                let what = "it is encrypted or compressed by an unsupported method, or sparse; unpack the archive";
                Err(io::Error::other(what))
            }
            Packing::Link => Err(io::Error::other("it is a link; unpack the archive")),
        }
    }
}
