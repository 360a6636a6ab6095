//! GGUF, version 3: the files of llama.cpp.
//!
//! A file begins with `GGUF`, the version, the number of tensors and the number of keys. Then come
//! the keys with their values (written by `header.rs`, read by `keys.rs`), the tensors' names,
//! sizes and offsets, and, aligned to 32 bytes, their values (`blocks.rs`). All numbers are
//! little-endian, and sizes are listed from the innermost dimension to the outermost. The
//! specification: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod blocks;
mod header;
mod keys;
mod names;
mod read;
mod sampling;
mod shape;
mod stored;
mod tokens;
mod value_kind;
mod vocabulary;
mod write;

pub use read::File;
pub use write::write;

/// The first four bytes of a file.
const MAGIC: &[u8; 4] = b"GGUF";

/// The version that is written.
const VERSION: u32 = 3;

/// Default alignment of tensor data, in bytes.
const ALIGNMENT: usize = 32;
