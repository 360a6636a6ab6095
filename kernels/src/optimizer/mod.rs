//! The arithmetic of optimizers: AdamW, Muon, the moving average of the weights, and the sums for
//! clipping by the global norm. Optimizers are not differentiated, so nothing here has a gradient.

mod cpu;
#[cfg(feature = "gpu")]
pub mod gpu;
#[cfg(feature = "gpu")]
pub mod gpu_muon;
#[cfg(test)]
mod tests;
mod update;

pub use cpu::{adamw, follow, muon, sum_of_squares};
pub use update::{MuonUpdate, Update};
