//! llama2.c's `.bin`, and `tokenizer.bin` beside it.
//!
//! Two versions of one thing: a header of sizes, then the float32 values of every tensor, without
//! names, in an order of their own (`order.rs`). The first has no mark but its sizes, says by a
//! vocabulary below 0 that the head is not tied, and holds two tables of rotary angles that follow
//! from the sizes; the second has a mark and 256 bytes of header. Rotary positions turn neighbours,
//! with angles to the base 10,000; norms add 1e-5.

mod order;
mod read;
mod tokens;
mod write;

pub use read::File;
pub use write::write;

/// What a file of the second version begins with: `ak42` as a number.
pub const MAGIC: [u8; 4] = 0x616b_3432_u32.to_le_bytes();

/// Bytes of the second version's header.
const HEADER: usize = 256;

/// The base of the angles of every model.
const ROPE_THETA: f64 = 10_000.0;

/// What every norm adds.
const EPSILON: f64 = 1e-5;

/// The name of the tokenizer's file.
const TOKENIZER: &str = "tokenizer.bin";
