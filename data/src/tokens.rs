//! Token ids on disk: a header of 64 bytes, then the ids as 16-bit or 32-bit integers, all
//! little-endian.
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | `EMBERTOK` |
//! | 8..12 | version of this layout (1) |
//! | 12..16 | bytes per id: 2 where the vocabulary has at most 65,536 ids, else 4 |
//! | 16..24 | number of ids |
//! | 24..32 | size of the vocabulary |
//! | 32..40 | xxh3 (64 bits) of everything after the header |
//! | 40..48 | xxh3 (64 bits) of the header before this |
//! | 48..64 | zeros |

mod writer;

pub use writer::{TokenWriter, Written};

use ember_host::{file_error::At, file_error::FileError, files::open_regular};
use std::io::{self, Read};
use std::{fs::File, fs::TryLockError, ops::Range, path::Path, path::PathBuf, sync::Arc};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

const MAGIC: &[u8; 8] = b"EMBERTOK";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;

/// Why a token file cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages explain the fields
pub enum Error {
    /// A file system error.
    #[error(transparent)]
    File(#[from] FileError),
    /// Not a token file, one of another version, or a damaged one.
    #[error("{path} {what}; prepare the text again")]
    Damaged { path: PathBuf, what: String },
    /// An id to be written is not in the vocabulary.
    #[error("token id {id} is outside a vocabulary of {vocab_size}: the tokenizer contradicts its own size")]
    OutsideVocabulary { id: u32, vocab_size: usize },
}

fn damaged<T>(path: &Path, what: impl Into<String>) -> Result<T, Error> {
    Err(Error::Damaged { path: path.to_owned(), what: what.into() })
}

/// Bytes of an id.
fn id_bytes(vocab_size: usize) -> usize {
    if vocab_size <= 1 << 16 { 2 } else { 4 }
}

/// The header of a file with `count` ids of this checksum.
fn header(count: u64, vocab_size: usize, checksum: u64) -> [u8; HEADER_BYTES] {
    let [version, width] = [VERSION, id_bytes(vocab_size) as u32].map(u32::to_le_bytes);
    let numbers = [count, vocab_size as u64, checksum].map(u64::to_le_bytes);
    let fields = [&MAGIC[..], &version, &width, numbers.as_flattened()].concat();
    let mut header = [0u8; HEADER_BYTES];
    header[..40].copy_from_slice(&fields);
    header[40..48].copy_from_slice(&xxh3_64(&fields).to_le_bytes());
    header
}

/// Whether the file at `path` begins like a token file.
pub(crate) fn is_token_file(path: &Path) -> bool {
    let mut start = [0; MAGIC.len()];
    open_regular(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && &start == MAGIC
}

/// Whether a token file is open, for example in a training run: then it must not be replaced.
pub(crate) fn is_in_use(path: &Path) -> bool {
    open_regular(path).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Ids read at once by a pass over the whole file.
const BLOCK_IDS: usize = 1 << 16;

/// A file of token ids, read one range at a time; clones share the open file.
///
/// It is not memory-mapped: if another process truncated a mapped file, this process would die
/// without a message, whereas a short read is an ordinary error. Ranges read often stay in the
/// system's cache anyway.
#[derive(Clone)]
pub struct TokenFile {
    path: PathBuf,
    content: Arc<Content>,
    id_bytes: usize,
    count: usize,
    pub(crate) vocab_size: usize,
    pub(crate) checksum: u64,
}

enum Content {
    File(File),
    Memory(Vec<u8>),
}

impl TokenFile {
    /// Opens a token file and checks its header and size, but not its content (see
    /// [`TokenFile::verify`]). While it is open, no other text can be prepared in its place.
    ///
    /// # Errors
    /// When it cannot be read, or its header says that it is another kind of file, damaged or of
    /// another version.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = open_regular(path).at("cannot open", path)?;
        let bytes = file.metadata().at("cannot read", path)?.len();
        let _ = file.try_lock_shared(); // some network disks have no locks
        Self::from_content(path, Content::File(file), bytes)
    }

    /// A token file in memory, for tests and small experiments.
    ///
    /// # Errors
    /// When an id is not below `vocab_size`.
    pub fn from_ids(ids: &[u32], vocab_size: usize) -> Result<Self, Error> {
        let mut payload = Vec::new();
        push_ids(&mut payload, ids, vocab_size)?;
        let mut bytes = header(ids.len() as u64, vocab_size, xxh3_64(&payload)).to_vec();
        bytes.append(&mut payload);
        let size = bytes.len() as u64;
        Self::from_content(Path::new("(memory)"), Content::Memory(bytes), size)
    }

    fn from_content(path: &Path, content: Content, bytes: u64) -> Result<Self, Error> {
        let mut header = [0; HEADER_BYTES];
        if bytes >= HEADER_BYTES as u64 {
            content.read_at(&mut header, 0).map_err(|error| unreadable(path, error))?;
        }
        if !header.starts_with(MAGIC) {
            return damaged(path, "is not a token file");
        }
        let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let version = u32_at(8);
        if version != VERSION {
            return damaged(path, format!("has layout version {version}, this program reads {VERSION}"));
        }
        let (width, count, vocab_size, checksum) = (u32_at(12) as usize, u64_at(16), u64_at(24) as usize, u64_at(32));
        if u64_at(40) != xxh3_64(&header[..40]) || width != id_bytes(vocab_size) {
            return damaged(path, "has a damaged header");
        }
        let expected = count.checked_mul(width as u64).and_then(|payload| payload.checked_add(HEADER_BYTES as u64));
        if expected != Some(bytes) {
            return damaged(path, format!("has {bytes} bytes, but its header says {count} ids of {width} bytes"));
        }
        let (path, content) = (path.to_owned(), Arc::new(content));
        Ok(Self { path, content, id_bytes: width, count: count as usize, vocab_size, checksum })
    }

    /// Reads the whole file and checks it against the header's checksum and the size of the
    /// vocabulary.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub fn verify(&self) -> Result<(), Error> {
        let mut hash = Xxh3Default::new();
        let (mut bytes, mut ids) = (Vec::new(), Vec::new());
        for start in (0..self.count).step_by(BLOCK_IDS) {
            self.read(start..self.count.min(start + BLOCK_IDS), &mut bytes)?;
            hash.update(&bytes);
            ids.clear();
            self.push_ids(&bytes, &mut ids);
            if let Some(&id) = ids.iter().find(|&&id| id as usize >= self.vocab_size) {
                let what = format!("holds the token id {id}, but its vocabulary has only {} ids", self.vocab_size);
                return damaged(&self.path, what);
            }
        }
        if hash.digest() == self.checksum { Ok(()) } else { damaged(&self.path, "is damaged (its checksum differs)") }
    }

    /// Number of token ids.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no token at all.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Appends the ids of `range`, which must lie within the file, to `out`.
    ///
    /// # Errors
    /// When the file cannot be read, or was cut short since it was opened.
    pub fn get(&self, range: Range<usize>, out: &mut Vec<u32>) -> Result<(), Error> {
        let mut bytes = Vec::new();
        self.read(range, &mut bytes)?;
        self.push_ids(&bytes, out);
        Ok(())
    }

    /// All positions of `id`, in order.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn positions(&self, id: u32) -> Result<Vec<u64>, Error> {
        let mut found = Vec::new();
        let mut block = Vec::new();
        for start in (0..self.count).step_by(BLOCK_IDS) {
            block.clear();
            self.get(start..self.count.min(start + BLOCK_IDS), &mut block)?;
            found.extend(block.iter().enumerate().filter(|&(_, &other)| other == id).map(|(i, _)| (start + i) as u64));
        }
        Ok(found)
    }

    /// Replaces the content of `bytes` by the bytes of the ids of `range`.
    pub(crate) fn read(&self, range: Range<usize>, bytes: &mut Vec<u8>) -> Result<(), Error> {
        debug_assert!(range.end <= self.count);
        bytes.resize(range.len() * self.id_bytes, 0);
        let offset = HEADER_BYTES + range.start * self.id_bytes;
        self.content.read_at(bytes, offset as u64).map_err(|error| unreadable(&self.path, error))
    }

    /// Appends the ids encoded in `bytes`.
    pub(crate) fn push_ids(&self, bytes: &[u8], out: &mut Vec<u32>) {
        if self.id_bytes == 2 {
            out.extend(bytes.chunks_exact(2).map(|id| u32::from(u16::from_le_bytes([id[0], id[1]]))));
        } else {
            out.extend(bytes.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]])));
        }
    }

    /// Appends the two lower bytes of each id encoded in `bytes`.
    pub(crate) fn push_lower_halves(&self, bytes: &[u8], out: &mut Vec<u16>) {
        if self.id_bytes == 2 {
            out.extend(bytes.chunks_exact(2).map(|id| u16::from_le_bytes([id[0], id[1]])));
        } else {
            out.extend(bytes.chunks_exact(4).map(|id| u16::from_le_bytes([id[0], id[1]])));
        }
    }
}

impl Content {
    /// Fills `bytes` from byte `offset` on.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => read_exact_at(file, bytes, offset),
            Self::Memory(all) => all.get(offset as usize..).unwrap_or_default().read_exact(bytes),
        }
    }
}

/// Reads without moving the file's position, so that clones can read concurrently.
#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

/// Reads at an offset; this moves the file's position, which nothing else uses.
#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => (bytes, offset) = (&mut bytes[n..], offset + n as u64),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The error for a file that was whole when opened but can no longer be read.
fn unreadable(path: &Path, source: io::Error) -> Error {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::UnexpectedEof => Error::Damaged { path, what: "was truncated while it was in use".to_owned() },
        _ => FileError { doing: "cannot read", path, source }.into(),
    }
}

/// Appends ids in the width that `vocab_size` requires; an id outside the vocabulary is an error
/// and never truncated.
fn push_ids(bytes: &mut Vec<u8>, ids: &[u32], vocab_size: usize) -> Result<(), Error> {
    // The bitwise OR of all ids is at least the largest and faster to compute.
    let bits = ids.iter().fold(0, |bits, &id| bits | id);
    if bits as usize >= vocab_size
        && let Some(&id) = ids.iter().find(|&&id| id as usize >= vocab_size)
    {
        return Err(Error::OutsideVocabulary { id, vocab_size });
    }
    let (start, width) = (bytes.len(), id_bytes(vocab_size));
    bytes.resize(start + ids.len() * width, 0);
    let slots = &mut bytes[start..];
    if width == 2 {
        slots.as_chunks_mut().0.iter_mut().zip(ids).for_each(|(slot, &id)| *slot = (id as u16).to_le_bytes());
    } else {
        slots.as_chunks_mut().0.iter_mut().zip(ids).for_each(|(slot, &id)| *slot = id.to_le_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
