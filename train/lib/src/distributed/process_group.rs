//! What the processes of a run are to each other, a process by itself, and how the windows of a
//! step are shared.

use std::{ops::Range, path::Path};

use crate::error::{Error, GroupError, Result};

/// The processes of a run, as one of them sees them.
pub trait ProcessGroup {
    /// This process's number, from 0; process 0 speaks and writes for all.
    fn rank(&self) -> usize;
    /// How many there are.
    fn size(&self) -> usize;
    /// Replaces `values` by their sums over all processes, the same bits in each; every process
    /// must call it with as many.
    ///
    /// # Errors
    /// When another process is gone.
    fn all_reduce(&self, values: &mut [f32]) -> Result<()>;
    /// Replaces `bytes` by those of the process of rank 0; every process must call it with as many.
    ///
    /// # Errors
    /// When another process is gone.
    fn broadcast(&self, bytes: &mut [u8]) -> Result<()>;
    /// From here on, should another process die, says how to go on with the run in this folder; every
    /// process must call it.
    fn keep_watch(&self, _run: &Path) {}
    /// The code with which all processes end where this one has failed so; not 0, which is that of
    /// a process that can go on.
    fn code(&self, _error: &Error) -> u8 {
        1
    }
    /// Parts in peace: every process calls it when it has done all that it had to; after that it
    /// asks nothing more of the group.
    fn leave(&self) {}

    /// Whether this process speaks and writes for all.
    fn leads(&self) -> bool {
        self.rank() == 0
    }
}

/// A process that trains by itself.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl ProcessGroup for Alone {
    fn rank(&self) -> usize {
        0
    }
    fn size(&self) -> usize {
        1
    }
    fn all_reduce(&self, _values: &mut [f32]) -> Result<()> {
        Ok(())
    }
    fn broadcast(&self, _bytes: &mut [u8]) -> Result<()> {
        Ok(())
    }
}

/// Adds `parts`, each as long as `sums`, in their order: floating-point addition in one order has
/// one result.
#[cfg(any(test, feature = "mpi"))]
pub(super) fn add_in_order<'a>(sums: &mut [f32], mut parts: impl Iterator<Item = &'a [f32]>) {
    let Some(first) = parts.next() else { return };
    sums.copy_from_slice(first);
    for part in parts {
        for (sum, value) in sums.iter_mut().zip(part) {
            *sum += value;
        }
    }
}

/// This process's share of a step of `windows` windows that begins at window `first`, and the
/// windows of one pass: at most `micro_batch`, the largest such divisor of the share.
///
/// # Errors
/// When the windows do not divide among the processes.
pub fn share(
    group: &dyn ProcessGroup,
    first: u64,
    windows: usize,
    micro_batch: usize,
) -> Result<(Range<u64>, usize), GroupError> {
    let size = group.size();
    check_share(windows, size)?;
    let count = windows / size;
    let first = first + (group.rank() * count) as u64;
    Ok((first..first + count as u64, largest_divisor(count, micro_batch).unwrap_or(1)))
}

/// Refuses a step of `windows` windows that so many `processes` cannot share.
///
/// # Errors
/// As said.
pub fn check_share(windows: usize, processes: usize) -> Result<(), GroupError> {
    if windows.is_multiple_of(processes) { Ok(()) } else { Err(GroupError::UnequalShares { windows, processes }) }
}

/// The largest divisor of `number` that is at most `most`; `None` at 0.
pub fn largest_divisor(number: usize, most: usize) -> Option<usize> {
    (1..=most.min(number)).rev().find(|divisor| number.is_multiple_of(*divisor))
}
