//! Data-parallel training: several processes train one model, each on its own device.
//!
//! All processes hold the same weights. In each step every process computes the gradient of its own
//! windows, the gradients are averaged, and each process takes the same step. They communicate by
//! two operations, [`ProcessGroup::all_reduce`] and [`ProcessGroup::broadcast`]; all other
//! communication is built from these (`collectives.rs`). Rank 0 leads: only it prepares the text,
//! holds the run's lock, writes files and shows progress. It also broadcasts values that could
//! differ between machines and make the processes diverge.

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

/// The group that this process was started in: [`Alone`], unless `mpirun` started several
/// processes.
///
/// # Errors
/// When `mpirun` started several processes but the program has no MPI, or a launcher does not tell
/// their number: otherwise each process would train its own run, in the same folder.
pub fn join(program: Program, interrupt: &Interrupt) -> Result<Box<dyn ProcessGroup>> {
    if let Some(rank) = launch::rank_without_size() {
        return Err(error_at_rank_0(rank, program, GroupError::Unknown));
    }
    let Some(launch) = Launch::of_this_process() else { return Ok(Box::new(Alone)) };
    join_launched(launch, program, interrupt)
}

/// The error of processes that cannot communicate: only rank 0 reports it.
fn error_at_rank_0(rank: usize, program: Program, error: GroupError) -> Error {
    let error: Error = error.into();
    if rank > 0 { collectives::reported_elsewhere((program.code)(&error)) } else { error }
}

#[cfg(feature = "mpi")]
fn join_launched(launch: Launch, program: Program, interrupt: &Interrupt) -> Result<Box<dyn ProcessGroup>> {
    Ok(Box::new(mpi::MpiGroup::join(launch, program, interrupt)?))
}

#[cfg(not(feature = "mpi"))]
fn join_launched(launch: Launch, program: Program, _interrupt: &Interrupt) -> Result<Box<dyn ProcessGroup>> {
    Err(error_at_rank_0(launch.rank, program, GroupError::NoMpi(launch.size)))
}
