//! Reads the pages of a column with a limit on the size of each: the library trusts the size in a
//! page's header, and decompresses without a limit.

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use parquet::basic::Compression;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length, SerializedPageReader};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, PoisonError};

/// The largest page that is read, uncompressed. Programs write pages of about a mebibyte.
const LARGEST_BYTES: u64 = 256 << 20;

/// A reader of the pages of a column in a row group with `rows` rows.
///
/// # Errors
/// When the library does not know their compression.
pub fn of_column(file: File, column: &ColumnChunkMetaData, rows: usize) -> Result<SerializedPageReader<Pages>> {
    let pages = Pages { file, compression: column.compression(), header: Mutex::default() };
    SerializedPageReader::new(Arc::new(pages), column, rows, None)
}

/// A file that checks each page as it is read. The library reads a page's header before its data.
pub struct Pages {
    file: File,
    compression: Compression,
    /// The header that was read last.
    header: Mutex<Header>,
}

impl Length for Pages {
    fn len(&self) -> u64 {
        Length::len(&self.file)
    }
}

impl ChunkReader for Pages {
    type T = BufReader<File>;

    /// Called with the position of a page's header.
    fn get_read(&self, start: u64) -> Result<Self::T> {
        let mut reader = self.file.get_read(start)?;
        let header = Header::read(&mut reader.fill_buf()?).ok_or_else(|| refused("a page has no header"))?;
        if header.bytes > LARGEST_BYTES {
            return Err(too_large());
        }
        *self.header.lock().unwrap_or_else(PoisonError::into_inner) = header;
        Ok(reader)
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(refused("a page ends beyond the end of the file"));
        }
        let bytes = self.file.get_bytes(start, length)?;
        let header = *self.header.lock().unwrap_or_else(PoisonError::into_inner);
        let levels = header.level_bytes.min(header.bytes);
        let Some(packed) = usize::try_from(levels).ok().and_then(|levels| bytes.get(levels..)) else {
            return Ok(bytes);
        };
        let most = header.bytes - levels;
        let is_larger = match self.compression {
            _ if !header.is_packed => false,
            Compression::GZIP(_) => unpacks_to_more(MultiGzDecoder::new(packed), most),
            Compression::ZSTD(_) => {
                zstd::Decoder::with_buffer(packed).is_ok_and(|packed| unpacks_to_more(packed, most))
            }
            // The others decompress to the size in the header.
            _ => false,
        };
        if is_larger { Err(refused("a page unpacks to more than its header says")) } else { Ok(bytes) }
    }
}

/// Whether the data has more than `most` bytes. Damaged data has not: the library reports it.
fn unpacks_to_more(unpacked: impl Read, most: u64) -> bool {
    io::copy(&mut unpacked.take(most + 1), &mut io::sink()).is_ok_and(|bytes| bytes > most)
}

fn refused(why: &str) -> ParquetError {
    ParquetError::General(why.to_owned())
}

fn too_large() -> ParquetError {
    refused(&format!("a page is larger than the limit of {} MiB", LARGEST_BYTES >> 20))
}

/// The part of a [`PageHeader`] that is needed here, in Thrift's compact protocol.
///
/// [`PageHeader`]: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Header {
    /// The size of the page, uncompressed.
    bytes: u64,
    /// The bytes at its start that are never compressed: the levels of a page of version 2.
    level_bytes: u64,
    is_packed: bool,
}

/// Field types of the compact protocol.
const FALSE: u8 = 2;
const I32: u8 = 5;
const STRUCT: u8 = 12;

/// Field numbers in a `PageHeader`: the uncompressed size, the header of version 2.
const UNPACKED_BYTES: usize = 2;
const SECOND_VERSION: usize = 8;
/// Field numbers in a `DataPageHeaderV2`.
const LEVEL_BYTES: [usize; 2] = [5, 6];
const IS_PACKED: usize = 7;

impl Header {
    fn read(bytes: &mut &[u8]) -> Option<Self> {
        let (values, field, kind) = integers::<5>(bytes)?;
        let mut header = Self { bytes: u64::try_from(values[UNPACKED_BYTES]).ok()?, level_bytes: 0, is_packed: true };
        if (field, kind) == (SECOND_VERSION, STRUCT) {
            let (values, field, kind) = integers::<7>(bytes)?;
            for level in LEVEL_BYTES {
                header.level_bytes += u64::try_from(values[level]).ok()?;
            }
            header.is_packed = (field, kind) != (IS_PACKED, FALSE);
        }
        Some(header)
    }
}

/// Reads the integers at the start of a structure, indexed by their field numbers below `N`; also
/// returns the number and type of the field after them.
fn integers<const N: usize>(bytes: &mut &[u8]) -> Option<([i64; N], usize, u8)> {
    let (mut values, mut field) = ([0; N], 0);
    loop {
        let [head] = take(bytes)?;
        let (step, kind) = (usize::from(head >> 4), head & 15);
        field += step;
        if kind != I32 || step == 0 {
            return Some((values, field, kind));
        }
        *values.get_mut(field)? = integer(bytes)?;
    }
}

/// Reads a zigzag varint: groups of seven bits, the sign in the lowest bit.
fn integer(bytes: &mut &[u8]) -> Option<i64> {
    let mut number = 0u64;
    for group in 0..5 {
        let [byte] = take(bytes)?;
        number |= u64::from(byte & 0x7f) << (7 * group);
        if byte < 0x80 {
            return Some((number >> 1) as i64 ^ -((number & 1) as i64));
        }
    }
    None
}

fn take(bytes: &mut &[u8]) -> Option<[u8; 1]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use parquet::basic::{GzipLevel, ZstdLevel};
    use std::io::Write;

    /// Reads a page of one mebibyte whose header claims a size of `claimed` bytes.
    fn read(compression: Compression, packed: &[u8], claimed: u64) -> Result<Bytes> {
        let mut file = tempfile::tempfile().unwrap();
        let mut number = 2 * claimed;
        let mut header = vec![0x15, 0, 0x15];
        while number >= 0x80 {
            header.push(number as u8 | 0x80);
            number >>= 7;
        }
        header.extend([number as u8, 0x15, 2, 0]);
        file.write_all(&[&header, packed].concat()).unwrap();
        let pages = Pages { file, compression, header: Mutex::default() };
        pages.get_read(0)?;
        pages.get_bytes(header.len() as u64, packed.len())
    }

    #[test]
    fn a_page_that_lies_about_its_size_is_not_unpacked() {
        let page = vec![b'a'; 1 << 20];
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(&page).unwrap();
        let packed = [
            (Compression::GZIP(GzipLevel::default()), gzip.finish().unwrap()),
            (Compression::ZSTD(ZstdLevel::default()), zstd::encode_all(&page[..], 1).unwrap()),
        ];
        for (compression, packed) in packed {
            assert_eq!(read(compression, &packed, 1 << 20).unwrap(), packed);
            assert!(read(compression, &packed, (1 << 20) - 1).unwrap_err().to_string().contains("its header says"));
            assert!(read(compression, &packed, 1 << 30).unwrap_err().to_string().contains("256 MiB"));
        }
    }

    #[test]
    fn a_header_says_what_its_page_takes() {
        // Page type 0, 300 bytes, 20 compressed, then the fields of a version 1 page.
        let first = [0x15, 0, 0x15, 0xd8, 4, 0x15, 40, 0x2c, 0x15, 6];
        assert_eq!(Header::read(&mut &first[..]), Some(Header { bytes: 300, level_bytes: 0, is_packed: true }));
        // Type 3, with a checksum; version 2: 3 values, 0 nulls, 3 rows, plain, levels of 4 and 5
        // bytes.
        let head = [0x15, 6, 0x15, 0xd8, 4, 0x15, 40, 0x15, 2, 0x4c];
        let second = [0x15, 6, 0x15, 0, 0x15, 6, 0x15, 0, 0x15, 8, 0x15, 10];
        for (end, is_packed) in [(0x11, true), (0x12, false), (0, true)] {
            let header = [&head[..], &second, &[end]].concat();
            assert_eq!(Header::read(&mut &header[..]), Some(Header { bytes: 300, level_bytes: 9, is_packed }));
        }
        assert_eq!(Header::read(&mut &first[..4]), None);
        assert_eq!(Header::read(&mut &[0x15, 0, 0x15, 1][..]), None);
    }
}
