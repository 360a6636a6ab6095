//! GGUF, version 3: the files of llama.cpp.
//!
//! A file begins with `GGUF`, the version, the number of tensors and the number of keys; then come
//! the keys with their values (written by `header.rs`, read by `keys.rs`), the tensors' names, sizes
//! and places, and, at a multiple of 32 bytes, their values (`blocks.rs`). All numbers are little
//! endian, and sizes stand from the innermost dimension to the outermost. The specification:
//! <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod blocks;
mod header;
mod keys;
mod names;
mod read;
mod sampling;
mod shape;
mod stored;
mod tokens;
mod vocabulary;
mod write;

pub use read::File;
pub use write::write;

/// The first four bytes of a file.
const MAGIC: &[u8; 4] = b"GGUF";

/// The version that is written.
const VERSION: u32 = 3;

/// What the place of a tensor's values is a multiple of, in bytes, where a file does not say.
const ALIGNMENT: usize = 32;
