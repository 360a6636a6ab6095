//! Token ids on disk: a header of 64 bytes, then the ids as 16-bit or 32-bit integers, all little-endian.
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

use ember_host::file_error::{At, FileError};
use ember_host::files;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::NamedTempFile;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

mod error;
mod layout;

pub use error::Error;

use layout::{HEADER_BYTES, MAGIC, VERSION, header, id_bytes};

/// Whether there is a token file at `path`, by its first bytes.
pub(crate) fn is_token_file(path: &Path) -> bool {
    let mut start = [0; MAGIC.len()];
    File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok() && &start == MAGIC
}

/// How many ids are read at once where all of them are.
const BLOCK_IDS: usize = 1 << 16;

/// A file of token ids, of which a range is read at a time; clones share the open file.
///
/// It is not mapped into memory: a file that others cut short would end the process without a line, where a read that comes
/// back short is an error like any other. What is read often stays in the system's cache all the same.
#[derive(Clone)]
pub struct TokenFile {
    path: PathBuf,
    content: Arc<Content>,
    id_bytes: usize,
    count: usize,
    vocab_size: usize,
    checksum: u64,
}

enum Content {
    File(File),
    Memory(Vec<u8>),
}

impl TokenFile {
    /// Opens a token file and checks its header and size, not yet its content (see [`TokenFile::verify`]).
    ///
    /// # Errors
    /// When it cannot be read, or its header says that it is another kind of file, damaged or of another version.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).at("cannot open", path)?;
        let bytes = file.metadata().at("cannot read", path)?.len();
        Self::from_content(path, Content::File(file), bytes)
    }

    /// The same from ids in memory, for tests and small experiments.
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
        let path = path.to_owned();
        let mut header = [0; HEADER_BYTES];
        if bytes < HEADER_BYTES as u64 {
            return Err(Error::Foreign(path));
        }
        content.read_at(&mut header, 0).map_err(|error| unreadable(&path, error))?;
        if !header.starts_with(MAGIC) {
            return Err(Error::Foreign(path));
        }
        let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let version = u32_at(8);
        if version != VERSION {
            return Err(Error::Version { path, version });
        }
        let (width, count, vocab_size, checksum) = (u32_at(12) as usize, u64_at(16), u64_at(24) as usize, u64_at(32));
        if u64_at(40) != xxh3_64(&header[..40]) || width != id_bytes(vocab_size) {
            return Err(Error::Header(path));
        }
        let expected = count.checked_mul(width as u64).and_then(|payload| payload.checked_add(HEADER_BYTES as u64));
        if expected != Some(bytes) {
            return Err(Error::Length { path, bytes, count, width });
        }
        Ok(Self { path, content: Arc::new(content), id_bytes: width, count: count as usize, vocab_size, checksum })
    }

    /// Reads the whole file: its checksum must be the header's, and every id below the size of the vocabulary.
    ///
    /// # Errors
    /// When it cannot be read, or is damaged.
    pub fn verify(&self) -> Result<(), Error> {
        let path = || self.path.clone();
        let mut hash = Xxh3Default::new();
        let (mut bytes, mut ids) = (Vec::new(), Vec::new());
        for start in (0..self.count).step_by(BLOCK_IDS) {
            self.read(start..self.count.min(start + BLOCK_IDS), &mut bytes)?;
            hash.update(&bytes);
            ids.clear();
            self.push_ids(&bytes, &mut ids);
            if let Some(&id) = ids.iter().find(|&&id| id as usize >= self.vocab_size) {
                return Err(Error::ForeignId { path: path(), id, vocab_size: self.vocab_size });
            }
        }
        if hash.digest() == self.checksum { Ok(()) } else { Err(Error::Damaged(path())) }
    }

    /// Number of token ids.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no token at all.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Every id is below this.
    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// The checksum (xxh3, 64 bits) that the header promises.
    pub fn checksum(&self) -> u64 {
        self.checksum
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

    /// All places where `id` stands, in order.
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

    /// Puts the bytes of the ids of `range` into `bytes`, in place of what was there.
    fn read(&self, range: Range<usize>, bytes: &mut Vec<u8>) -> Result<(), Error> {
        debug_assert!(range.end <= self.count);
        bytes.resize(range.len() * self.id_bytes, 0);
        let offset = HEADER_BYTES + range.start * self.id_bytes;
        self.content.read_at(bytes, offset as u64).map_err(|error| unreadable(&self.path, error))
    }

    /// Appends the ids that `bytes` hold.
    fn push_ids(&self, bytes: &[u8], out: &mut Vec<u32>) {
        if self.id_bytes == 2 {
            out.extend(bytes.chunks_exact(2).map(|id| u32::from(u16::from_le_bytes([id[0], id[1]]))));
        } else {
            out.extend(bytes.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]])));
        }
    }
}

impl Content {
    /// Fills `bytes` with what stands from byte `offset` on.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match self {
            Self::File(file) => read_exact_at(file, bytes, offset),
            Self::Memory(all) => {
                let start = offset as usize;
                bytes.copy_from_slice(
                    all.get(start..start + bytes.len()).ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?,
                );
                Ok(())
            }
        }
    }
}

/// Reads without moving the file's position, so that clones may read at the same time.
#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

/// Reads at a place; the file's position, which this moves, is used by nobody.
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

/// Why a file that was whole when it was opened cannot be read.
fn unreadable(path: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::CutShort(path.to_owned()),
        _ => FileError { doing: "cannot read", path: path.to_owned(), source: error }.into(),
    }
}

/// Appends ids in the width that `vocab_size` asks for; an id outside the vocabulary is an error, never cut to fit.
fn push_ids(bytes: &mut Vec<u8>, ids: &[u32], vocab_size: usize) -> Result<(), Error> {
    if let Some(&id) = ids.iter().find(|&&id| id as usize >= vocab_size) {
        return Err(Error::OutsideVocabulary { id, vocab_size });
    }
    if id_bytes(vocab_size) == 2 {
        bytes.extend(ids.iter().flat_map(|&id| (id as u16).to_le_bytes()));
    } else {
        bytes.extend(ids.iter().flat_map(|&id| id.to_le_bytes()));
    }
    Ok(())
}

/// Writes a token file piece by piece; nothing stands under its name before [`TokenWriter::finish`].
pub struct TokenWriter {
    path: PathBuf,
    file: BufWriter<NamedTempFile>,
    hash: Xxh3Default,
    block: Vec<u8>,
    count: u64,
    vocab_size: usize,
}

impl TokenWriter {
    /// Starts a file beside `path` for ids below `vocab_size`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(path: &Path, vocab_size: usize) -> Result<Self, Error> {
        let mut file = BufWriter::with_capacity(1 << 20, files::temporary(path)?);
        file.write_all(&[0; HEADER_BYTES]).at("cannot write", path)?;
        Ok(Self { path: path.to_owned(), file, hash: Xxh3Default::new(), block: Vec::new(), count: 0, vocab_size })
    }

    /// Appends ids.
    ///
    /// # Errors
    /// When an id is not below the size of the vocabulary, or the file cannot be written.
    pub fn push(&mut self, ids: &[u32]) -> Result<(), Error> {
        self.block.clear();
        push_ids(&mut self.block, ids, self.vocab_size)?;
        self.hash.update(&self.block);
        self.file.write_all(&self.block).at("cannot write", &self.path)?;
        self.count += ids.len() as u64;
        Ok(())
    }

    /// Number of ids so far.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether no id was pushed yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Completes the header, makes the file durable, gives it its name and returns its checksum.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(self) -> Result<u64, Error> {
        let checksum = self.hash.digest();
        let whole = || -> io::Result<NamedTempFile> {
            let mut file = self.file.into_inner().map_err(|error| error.into_error())?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&header(self.count, self.vocab_size, checksum))?;
            Ok(file)
        };
        files::commit(whole().at("cannot write", &self.path)?, &self.path)?;
        Ok(checksum)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn write(path: &Path, ids: &[u32], vocab_size: usize) {
        let mut writer = TokenWriter::create(path, vocab_size).unwrap();
        for piece in ids.chunks(7) {
            writer.push(piece).unwrap();
        }
        writer.finish().unwrap();
    }

    #[test]
    fn the_layout_is_the_documented_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.bin");
        write(&path, &[1, 258], 300);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(&bytes[..8], b"EMBERTOK");
        assert_eq!(bytes[12], 2);
        assert_eq!(bytes[16], 2);
        assert_eq!(&bytes[64..], [1, 0, 2, 1]);
    }

    #[test]
    fn damage_is_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.bin");
        write(&path, &[1, 2, 3, 4], 70_000);
        let whole = std::fs::read(&path).unwrap();
        let open = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            TokenFile::open(&path).and_then(|file| file.verify())
        };
        assert!(open(&whole).is_ok());
        assert!(open(&whole[..whole.len() - 1]).unwrap_err().to_string().contains("promises 4 ids"));
        assert!(open(&whole[..10]).unwrap_err().to_string().contains("not a token file"));
        assert!(open(&[]).is_err());
        for place in [0, 8, 12, 16, 24, 32, 40, 64, 79] {
            let mut broken = whole.clone();
            broken[place] ^= 1;
            assert!(open(&broken).is_err(), "a flipped bit at byte {place} went unseen");
        }
    }

    #[test]
    fn an_id_outside_the_vocabulary_is_refused() {
        assert!(TokenFile::from_ids(&[0, 65], 65).is_err());
        assert!(TokenFile::from_ids(&[0, 70_000], 65_536).is_err());
    }

    #[test]
    fn an_id_outside_the_vocabulary_is_seen_behind_a_right_checksum() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.bin");
        let payload: Vec<u8> = [3u16, 65, 4].into_iter().flat_map(u16::to_le_bytes).collect();
        std::fs::write(&path, [&header(3, 65, xxh3_64(&payload))[..], &payload].concat()).unwrap();
        let error = TokenFile::open(&path).unwrap().verify().unwrap_err().to_string();
        assert!(error.contains("holds the token id 65, and its vocabulary has 65 ids"), "{error}");
    }

    #[test]
    fn a_file_that_is_cut_short_while_it_is_open_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.bin");
        write(&path, &[7; 10_000], 65);
        let file = TokenFile::open(&path).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
        assert!(file.get(0..100, &mut Vec::new()).is_ok());
        for failed in [file.get(9_000..9_100, &mut Vec::new()), file.verify(), file.positions(1).map(drop)] {
            let error = failed.unwrap_err().to_string();
            assert!(error.ends_with("t.bin was cut short while it was in use; prepare the text again"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            ids in proptest::collection::vec(0u32..60_000, 0..200), vocab_size in prop_oneof![Just(60_000usize), Just(100_000)],
            from in 0.0..1.0f64, to in 0.0..1.0f64,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("t.bin");
            write(&path, &ids, vocab_size);
            let file = TokenFile::open(&path).unwrap();
            file.verify().unwrap();
            prop_assert_eq!(file.len(), ids.len());
            let (a, b) = ((from * ids.len() as f64) as usize, (to * ids.len() as f64) as usize);
            let mut read = Vec::new();
            file.get(a.min(b)..a.max(b), &mut read).unwrap();
            prop_assert_eq!(&read[..], &ids[a.min(b)..a.max(b)]);
            if let Some(&id) = ids.first() {
                let expected: Vec<u64> = (0..ids.len()).filter(|&i| ids[i] == id).map(|i| i as u64).collect();
                prop_assert_eq!(file.positions(id).unwrap(), expected);
            }
        }
    }
}
