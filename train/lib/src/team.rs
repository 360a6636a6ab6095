//! The processes that train one model together, each on a device of its own.
//!
//! They hold the same weights, take different windows of each step, and add up their gradients: then each takes the same
//! step. What stands between them are two operations, [`Team::sum`] and [`Team::broadcast`]; all else they say to each other
//! is made of them ([`messages`]). The process of rank 0 leads: it alone prepares the text, holds the run's lock, writes and
//! speaks, and what could differ between machines and would lead the processes apart, it decides for all.

use std::path::Path;

use anyhow::Result;
#[cfg(not(feature = "mpi"))]
use ember_cli::program::SaidElsewhere;
use ember_cli::program::{CommonArgs, UsageError};
use ember_host::interrupt::Interrupt;

pub mod exchange;
pub mod launch;
pub mod messages;
#[cfg(feature = "mpi")]
pub mod mpi;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod threads;
#[cfg(any(test, feature = "mpi"))]
#[cfg_attr(not(feature = "mpi"), allow(dead_code))] // tested without MPI as well
mod watch;

use crate::memory::fit::largest_divisor;
use launch::Launch;

/// The processes of a run, as one of them sees them.
pub trait Team {
    /// This process's number, from 0; process 0 speaks and writes for all.
    fn rank(&self) -> usize;
    /// How many there are.
    fn size(&self) -> usize;
    /// Replaces `values` by their sums over all processes, the same bits in each; every process must call it with as many.
    ///
    /// # Errors
    /// When another process is gone.
    fn sum(&self, values: &mut [f32]) -> Result<()>;
    /// Replaces `bytes` by those of the process of rank 0; every process must call it with as many.
    ///
    /// # Errors
    /// When another process is gone.
    fn broadcast(&self, bytes: &mut [u8]) -> Result<()>;
    /// From here on, should another process die, says how to go on with the run in this folder.
    fn keep_watch(&self, _run: &Path) {}
    /// Parts in peace: every process calls it once, when it has done all that it had to.
    fn leave(&self) {}

    /// Whether this process speaks and writes for all.
    fn leads(&self) -> bool {
        self.rank() == 0
    }
}

/// A process that trains by itself.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Team for Alone {
    fn rank(&self) -> usize {
        0
    }
    fn size(&self) -> usize {
        1
    }
    fn sum(&self, _values: &mut [f32]) -> Result<()> {
        Ok(())
    }
    fn broadcast(&self, _bytes: &mut [u8]) -> Result<()> {
        Ok(())
    }
}

/// The team that this process was started in: [`Alone`], unless by an `mpirun` of several.
///
/// # Errors
/// When `mpirun` started several of a program that cannot speak to them: each would train a run of its own, in one folder.
pub fn join(interrupt: &Interrupt) -> Result<Box<dyn Team>> {
    let Some(launch) = Launch::of_this_process() else { return Ok(Box::new(Alone)) };
    join_launched(launch, interrupt)
}

#[cfg(feature = "mpi")]
fn join_launched(launch: Launch, interrupt: &Interrupt) -> Result<Box<dyn Team>> {
    Ok(Box::new(mpi::MpiTeam::join(launch, interrupt)?))
}

#[cfg(not(feature = "mpi"))]
fn join_launched(launch: Launch, _interrupt: &Interrupt) -> Result<Box<dyn Team>> {
    if launch.rank > 0 {
        // The process of rank 0 says it, which mpirun would end as soon as another has ended.
        std::thread::sleep(std::time::Duration::from_millis(500));
        return Err(SaidElsewhere(2).into());
    }
    Err(UsageError::new(format!(
        "mpirun started {} processes of an ember-train that was built without MPI, and they would write into one folder; \
         build it with `cargo build --release -p ember-train --features mpi`, or start it without mpirun",
        launch.size
    ))
    .into())
}

/// The common arguments as this process takes them: only the one that leads has something to say.
pub fn voice(team: &dyn Team, common: &CommonArgs) -> CommonArgs {
    CommonArgs { quiet: common.quiet || !team.leads(), ..common.clone() }
}

/// This process's share of a step of `windows` windows that begins at window `first`, and the windows of one pass: at most
/// `micro_batch`, the largest such divisor of the share.
///
/// # Errors
/// A [`UsageError`] when the windows do not divide among the processes.
pub fn share(team: &dyn Team, first: u64, windows: usize, micro_batch: usize) -> Result<(std::ops::Range<u64>, usize)> {
    let size = team.size();
    check_share(windows, size)?;
    let count = windows / size;
    let first = first + (team.rank() * count) as u64;
    Ok((first..first + count as u64, largest_divisor(count, micro_batch).unwrap_or(1)))
}

/// Refuses a step of `windows` windows that `size` processes cannot share.
///
/// # Errors
/// As said.
pub fn check_share(windows: usize, size: usize) -> Result<(), UsageError> {
    if windows.is_multiple_of(size) {
        return Ok(());
    }
    Err(UsageError::new(format!(
        "the {windows} windows of a step (batch_size times grad_accum_steps) do not divide among {size} processes; start a \
         number of processes that divides {windows}, or choose another batch_size"
    )))
}

/// Adds `parts`, each as long as `sums`, in their order: floating-point addition in one order has one result.
#[cfg(any(test, feature = "mpi"))]
fn add_in_order<'a>(sums: &mut [f32], mut parts: impl Iterator<Item = &'a [f32]>) {
    let Some(first) = parts.next() else { return };
    sums.copy_from_slice(first);
    for part in parts {
        for (sum, value) in sums.iter_mut().zip(part) {
            *sum += value;
        }
    }
}
