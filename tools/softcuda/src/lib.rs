//! A CUDA driver without a GPU: implements the part of the driver API that cubecl uses, and
//! interprets the kernels' PTX on the CPU.
//!
//! It checks that kernels compute the right results, access only memory that is allocated, and
//! agree on barriers; it does not model time. Environment variables: `SOFTCUDA_RACES=1` detects
//! races in shared memory, `SOFTCUDA_PROFILE=FILE` writes counters for each kernel and each driver
//! call, `SOFTCUDA_LOG=1` logs every launch and copy, and `SOFTCUDA_SAMPLE=4:matmul_entry` runs
//! only four blocks of each launch of such kernels, for profiles of sizes that would take too long;
//! the results are then wrong. `SOFTCUDA_PTX=FOLDER` saves the PTX of every kernel, for `ptxas -v`.

#![allow(non_snake_case, clippy::missing_safety_doc)]

mod access;
mod arithmetic;
mod block;
mod calls;
mod comparison;
mod conversion;
mod copy;
mod driver;
mod execute;
mod half;
mod lanes;
mod matrix;
mod memory;
mod number;
mod parse;
mod pending;
mod profile;
mod ptx;
mod races;
mod reconverge;
#[cfg(test)]
mod tests;
mod warp;
mod warpgroup;
