//! The layout of a token file, which [the module above](super) lays out in a table.

use xxhash_rust::xxh3::xxh3_64;

pub const MAGIC: &[u8; 8] = b"EMBERTOK";
pub const VERSION: u32 = 1;
pub const HEADER_BYTES: usize = 64;

/// Bytes of an id.
pub fn id_bytes(vocab_size: usize) -> usize {
    if vocab_size <= 1 << 16 { 2 } else { 4 }
}

/// The header of a file with so many ids, which have this checksum.
pub fn header(count: u64, vocab_size: usize, checksum: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0u8; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    header[12..16].copy_from_slice(&(id_bytes(vocab_size) as u32).to_le_bytes());
    header[16..24].copy_from_slice(&count.to_le_bytes());
    header[24..32].copy_from_slice(&(vocab_size as u64).to_le_bytes());
    header[32..40].copy_from_slice(&checksum.to_le_bytes());
    let own = xxh3_64(&header[..40]);
    header[40..48].copy_from_slice(&own.to_le_bytes());
    header
}
