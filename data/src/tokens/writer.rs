//! Writes a token file, in one go or continuing after an interruption.

use super::{BLOCK_IDS, Error, HEADER_BYTES, damaged, header, id_bytes, push_ids};
use ember_host::{file_error::At, files::refuse_irregular};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::{fs::File, path::Path, path::PathBuf};
use xxhash_rust::xxh3::Xxh3Default;

/// Bytes of ids buffered before they are written.
const BUFFER_BYTES: usize = 1 << 18;

/// Writes a token file incrementally. The header is written last: before [`TokenWriter::finish`] it
/// is not a valid token file.
pub struct TokenWriter {
    path: PathBuf,
    file: File,
    hash: Xxh3Default,
    /// Ids not yet written.
    buffer: Vec<u8>,
    /// Ids pushed so far.
    pub(crate) count: u64,
    vocab_size: usize,
}

/// How much of a token file had been written at some moment, and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    count: u64,
    checksum: u64,
}

impl TokenWriter {
    /// Starts a file for ids below `vocab_size`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(path: &Path, vocab_size: usize) -> Result<Self, Error> {
        refuse_irregular(path).at("cannot write", path)?;
        let file = File::options().read(true).write(true).create(true).truncate(true).open(path);
        let mut file = file.at("cannot write", path)?;
        file.write_all(&[0; HEADER_BYTES]).at("cannot write", path)?;
        Ok(Self { path: path.to_owned(), file, hash: Xxh3Default::new(), buffer: Vec::new(), count: 0, vocab_size })
    }

    /// Continues a file from where it was [`Self::written`]; anything after that is dropped.
    ///
    /// # Errors
    /// When it cannot be read or written, or does not begin with what was written then.
    pub fn reopen(path: &Path, vocab_size: usize, Written { count, checksum }: Written) -> Result<Self, Error> {
        refuse_irregular(path).at("cannot open", path)?;
        let mut file = File::options().read(true).write(true).open(path).at("cannot open", path)?;
        let id_bytes = id_bytes(vocab_size) as u64;
        let payload = count.saturating_mul(id_bytes);
        let end = payload.saturating_add(HEADER_BYTES as u64);
        let mut hash = Xxh3Default::new();
        if file.metadata().at("cannot read", path)?.len() >= end {
            file.seek(SeekFrom::Start(HEADER_BYTES as u64)).at("cannot read", path)?;
            let (mut rest, mut block) = ((&file).take(payload), Vec::new());
            let block_bytes = BLOCK_IDS as u64 * id_bytes;
            // Unlike `read`, `read_to_end` continues after an interrupting signal.
            while rest.by_ref().take(block_bytes).read_to_end(&mut block).at("cannot read", path)? > 0 {
                hash.update(&block);
                block.clear();
            }
        }
        if hash.digest() != checksum {
            return damaged(path, "is damaged (its checksum differs)");
        }
        file.set_len(end).at("cannot write", path)?;
        file.seek(SeekFrom::Start(end)).at("cannot write", path)?;
        Ok(Self { path: path.to_owned(), file, hash, buffer: Vec::new(), count, vocab_size })
    }

    /// Appends ids.
    ///
    /// # Errors
    /// When an id is not below the size of the vocabulary, or the file cannot be written.
    pub fn push(&mut self, ids: &[u32]) -> Result<(), Error> {
        push_ids(&mut self.buffer, ids, self.vocab_size)?;
        self.count += ids.len() as u64;
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.hash.update(&self.buffer);
        self.file.write_all(&self.buffer).at("cannot write", &self.path)?;
        self.buffer.clear();
        Ok(())
    }

    /// Flushes the ids so far to disk.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn written(&mut self) -> Result<Written, Error> {
        self.flush()?;
        self.file.sync_data().at("cannot write", &self.path)?;
        Ok(Written { count: self.count, checksum: self.hash.digest() })
    }

    /// Completes the header, makes the file durable and returns its checksum.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(mut self) -> Result<u64, Error> {
        self.flush()?;
        let checksum = self.hash.digest();
        let mut whole = || -> io::Result<()> {
            self.file.seek(SeekFrom::Start(0))?;
            self.file.write_all(&header(self.count, self.vocab_size, checksum))?;
            self.file.sync_all()
        };
        whole().at("cannot write", &self.path)?;
        Ok(checksum)
    }
}
