//! The processes that train one model together, each on a device of its own.
//!
//! They hold the same weights, take different windows of each step, and add up their gradients:
//! then each takes the same step. What stands between them are two operations,
//! [`ProcessGroup::all_reduce`] and [`ProcessGroup::broadcast`]; all else they say to each other is
//! made of them ([`collectives`]). The process of rank 0 leads: it alone prepares the text, holds
//! the run's lock, writes and speaks, and what could differ between machines and would lead the
//! processes apart, it decides for all.

mod collectives;
pub mod exchange;
mod join;
pub mod launch;
#[cfg(feature = "mpi")]
pub mod mpi;
mod process_group;
mod share;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod threads;
#[cfg_attr(not(feature = "mpi"), allow(dead_code))] // tested without MPI as well
pub mod watch;

pub use collectives::{all_gather, all_ok, all_reduce_f64, broadcast, broadcast_number};
pub use join::join;
pub use launch::Launch;
pub use process_group::{Alone, ProcessGroup};
pub use share::{check_share, largest_divisor, share};
pub use watch::Program;
