//! The processes that train one model together, each on a device of its own.
//!
//! They hold the same weights, take different windows of each step, and add up their gradients:
//! then each takes the same step. What stands between them are two operations,
//! [`ProcessGroup::all_reduce`] and [`ProcessGroup::broadcast`]; all else they say to each other is
//! made of them (`collectives.rs`). The process of rank 0 leads: it alone prepares the text, holds
//! the run's lock, writes and speaks, and what could differ between machines and would lead the
//! processes apart, it decides for all.

mod collectives;
pub mod exchange;
pub mod launch;
#[cfg(feature = "mpi")]
pub mod mpi;
mod process_group;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod threads;
#[cfg_attr(not(feature = "mpi"), allow(dead_code))] // tested without MPI as well
pub mod watch;

use ember_host::interrupt::Interrupt;

use crate::error::{Error, GroupError, Result};

pub use collectives::{all_gather, all_ok, all_reduce_f64, broadcast, broadcast_number};
pub use launch::Launch;
pub use process_group::{Alone, ProcessGroup, check_share, largest_divisor, share};
pub use watch::Program;

/// The group that this process was started in: [`Alone`], unless by an `mpirun` of several.
///
/// # Errors
/// When `mpirun` started several of a program that cannot speak to them, or another launcher does not
/// say how many: each would train a run of its own, in one folder.
pub fn join(program: Program, interrupt: &Interrupt) -> Result<Box<dyn ProcessGroup>> {
    if let Some(rank) = launch::rank_among_unknown() {
        return Err(said_by_first(rank, program, GroupError::Unknown));
    }
    let Some(launch) = Launch::of_this_process() else { return Ok(Box::new(Alone)) };
    join_launched(launch, program, interrupt)
}

/// The error of processes that do not speak to each other: the first one says it.
fn said_by_first(rank: usize, program: Program, error: GroupError) -> Error {
    let error: Error = error.into();
    if rank > 0 { collectives::said_elsewhere((program.code)(&error)) } else { error }
}

#[cfg(feature = "mpi")]
fn join_launched(launch: Launch, program: Program, interrupt: &Interrupt) -> Result<Box<dyn ProcessGroup>> {
    Ok(Box::new(mpi::MpiGroup::join(launch, program, interrupt)?))
}

#[cfg(not(feature = "mpi"))]
fn join_launched(launch: Launch, program: Program, _interrupt: &Interrupt) -> Result<Box<dyn ProcessGroup>> {
    Err(said_by_first(launch.rank, program, GroupError::NoMpi(launch.size)))
}
