//! Matrix products on the CPU, float32 and bfloat16, after [Goto and van de Geijn
//! 2008](https://doi.org/10.1145/1356052.1356053): a microkernel keeps a tile of the result in
//! registers (`tile.rs`) and reads panels of the factors, packed in the order of access
//! (`pack.rs`), with the processor's SIMD instructions (`instructions.rs`).
//!
//! Each value of the result is one chain of multiplications and additions in the order of k, in
//! blocks whose boundaries depend on k alone. So its bits do not depend on how the result is
//! divided among threads.

mod blocks;
mod compiled;
pub mod instructions;
pub mod matrix;
mod pack;
mod product;
#[cfg(test)]
mod tests;
mod tile;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use compiled::multiplies_bf16;
pub use matrix::{Matrix, MatrixMut};
pub use product::{Element, Onto, Product, Threads, product};
