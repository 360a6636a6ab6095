//! A CUDA driver without a GPU: as much of the driver's interface as cubecl uses, with kernels' PTX
//! run on the CPU.
//!
//! It says whether kernels compute what they should, touch only what is theirs, and meet at
//! barriers; it says nothing about time. In the environment: `SOFTCUDA_RACES=1` watches shared
//! memory, `SOFTCUDA_PROFILE=FILE` writes what each kernel did and how often the driver was called,
//! `SOFTCUDA_LOG=1` tells of every launch and copy, and `SOFTCUDA_SAMPLE=4:matmul_entry` runs only
//! four blocks of each launch of such kernels, for profiles of sizes that would take too long: the
//! numbers are wrong then. `SOFTCUDA_PTX=FOLDER` keeps the PTX of every kernel, for `ptxas -v`.

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
