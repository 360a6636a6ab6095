//! llama2.c's `.bin`, and `tokenizer.bin` beside it.
//!
//! There are two versions: a header of sizes, then the float32 values of every tensor, without
//! names, in a fixed order (`order.rs`). The first has no magic number, marks an untied head by a
//! negative vocabulary size, and contains two tables of rotary angles that follow from the sizes.
//! The second has a magic number and 256 bytes of header. Rotary positions rotate adjacent pairs,
//! with base 10,000; norms add 1e-5.

mod order;
mod read;
mod tokens;
mod write;

pub use read::File;
pub use write::write;

/// Magic number of the second version: `ak42` as an integer.
pub const MAGIC: [u8; 4] = 0x616b_3432_u32.to_le_bytes();

/// Bytes of the second version's header.
const HEADER: usize = 256;

/// Base of the rotary angles of every model.
const ROPE_THETA: f64 = 10_000.0;

/// Epsilon of every norm.
const EPSILON: f64 = 1e-5;

/// The name of the tokenizer's file.
const TOKENIZER: &str = "tokenizer.bin";
