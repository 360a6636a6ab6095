//! The processes that train one model together, each on a device of its own.
//!
//! They hold the same weights, take different windows of each step, and add up their gradients: then each takes the same
//! step. What stands between them are two operations, [`Team::sum`] and [`Team::broadcast`]; all else they say to each other
//! is made of them ([`messages`]). The process of rank 0 leads: it alone prepares the text, holds the run's lock, writes and
//! speaks, and what could differ between machines and would lead the processes apart, it decides for all.

use std::path::Path;

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
#[cfg_attr(not(feature = "mpi"), allow(dead_code))] // tested without MPI as well
pub mod watch;

use crate::error::Result;
use crate::memory::fit::largest_divisor;
use launch::Launch;
use watch::Gone;

/// Why processes cannot train together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A launcher started several processes of a program that cannot speak to them.
    #[error(
        "{processes} processes of a program that was built without MPI were started, and they would write into one folder"
    )]
    NoMpi {
        /// How many.
        processes: usize,
    },
    /// The launcher's MPI is another than the program's.
    #[error(
        "the launcher started {launched} processes, but MPI sees {seen}; start them with the mpirun of the MPI that this program \
         was built with"
    )]
    OtherMpi {
        /// Processes of the launcher.
        launched: usize,
        /// Processes of MPI.
        seen: usize,
    },
    /// Something else of MPI failed.
    #[error("MPI was begun twice in one process")]
    BegunTwice,
    /// The windows of a step do not divide.
    #[error(
        "the {windows} windows of a step (batch_size times grad_accum_steps) do not divide among {processes} processes; start a \
         number of processes that divides {windows}, or choose another batch_size"
    )]
    UnequalShares {
        /// Windows of a step.
        windows: usize,
        /// Processes that share them.
        processes: usize,
    },
    /// Text that is none came over the wire.
    #[error("the process of rank 0 did not speak UTF-8")]
    NotUtf8,
    /// A process reads another text.
    #[error("it reads another {what} than that of rank 0; let all see the same folder")]
    OtherText {
        /// What is not the same.
        what: &'static str,
    },
    /// A process has come to other weights.
    #[error(
        "the process of rank {rank} has come to other weights than that of rank 0, as happens between devices or processors of \
         different kinds; they are not saved: resume with processes of one kind, or with EMBER_SIMD=avx2 for all of them where \
         only the processors differ"
    )]
    OtherWeights {
        /// Its rank.
        rank: usize,
    },
    /// The error of a process that does not lead, said by itself.
    #[error("the process of rank {rank}")]
    OfRank {
        /// Its rank.
        rank: usize,
        /// What failed there.
        source: Box<crate::error::Error>,
    },
    /// Another process failed, and says why.
    #[error("another process says why (exit code {code})")]
    SaidElsewhere {
        /// What the caller made of its error.
        code: u8,
    },
}

/// What processes that were started together need of the program that they run.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The code, not 0, with which all of them end where one has failed so.
    pub code: fn(&crate::error::Error) -> u8,
    /// Says that a process is gone.
    pub gone: fn(&Gone),
}

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
    /// The code with which all processes end where this one has failed so.
    fn code(&self, _error: &crate::error::Error) -> u8 {
        1
    }
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
pub fn join(program: Program, interrupt: &Interrupt) -> Result<Box<dyn Team>> {
    let Some(launch) = Launch::of_this_process() else { return Ok(Box::new(Alone)) };
    join_launched(launch, program, interrupt)
}

#[cfg(feature = "mpi")]
fn join_launched(launch: Launch, program: Program, interrupt: &Interrupt) -> Result<Box<dyn Team>> {
    Ok(Box::new(mpi::MpiTeam::join(launch, program, interrupt)?))
}

#[cfg(not(feature = "mpi"))]
fn join_launched(launch: Launch, program: Program, _interrupt: &Interrupt) -> Result<Box<dyn Team>> {
    let error = Error::NoMpi { processes: launch.size }.into();
    if launch.rank > 0 {
        // The process of rank 0 says it, which mpirun would end as soon as another has ended.
        std::thread::sleep(std::time::Duration::from_millis(500));
        return Err(Error::SaidElsewhere { code: (program.code)(&error) }.into());
    }
    Err(error)
}

/// This process's share of a step of `windows` windows that begins at window `first`, and the windows of one pass: at most
/// `micro_batch`, the largest such divisor of the share.
///
/// # Errors
/// When the windows do not divide among the processes.
pub fn share(
    team: &dyn Team,
    first: u64,
    windows: usize,
    micro_batch: usize,
) -> Result<(std::ops::Range<u64>, usize), Error> {
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
pub fn check_share(windows: usize, processes: usize) -> Result<(), Error> {
    if windows.is_multiple_of(processes) { Ok(()) } else { Err(Error::UnequalShares { windows, processes }) }
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
