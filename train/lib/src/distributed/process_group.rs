//! The interface of a process group, a group of one process, and how the windows of a step are
//! divided.

use std::{ops::Range, path::Path};

use crate::error::{Error, GroupError, Result};

/// The processes of a run, seen from one of them.
pub trait ProcessGroup {
    /// This process's number, from 0; rank 0 writes and reports for all.
    fn rank(&self) -> usize;
    /// Number of processes.
    fn size(&self) -> usize;
    /// Replaces `values` by their sums over all processes, the same bits in each; every process
    /// must call it with as many.
    ///
    /// # Errors
    /// When another process is gone.
    fn all_reduce(&self, values: &mut [f32]) -> Result<()>;
    /// Replaces `bytes` by rank 0's; every process must call it with as many.
    ///
    /// # Errors
    /// When another process is gone.
    fn broadcast(&self, bytes: &mut [u8]) -> Result<()>;
    /// Begins to watch the other processes: if one dies, tells the user how to go on with the run
    /// in this folder. Every process must call it.
    fn keep_watch(&self, _run: &Path) {}
    /// The exit code of all processes when this one fails with this error; not 0, which means
    /// success.
    fn code(&self, _error: &Error) -> u8 {
        1
    }
    /// Leaves the group: every process calls this when its work is done, and does not use the group
    /// afterwards.
    fn leave(&self) {}

    /// Whether this process, rank 0, writes and reports for all.
    fn leads(&self) -> bool {
        self.rank() == 0
    }
}

/// A group of one process.
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

/// Sums `parts`, each as long as `sums`, in order: in a fixed order, floating-point addition has
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
/// windows of one pass: the largest divisor of the share that is at most `micro_batch`.
///
/// # Errors
/// When the windows do not divide evenly among the processes.
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

/// Checks that a step's `windows` divide evenly among `processes`.
///
/// # Errors
/// When they do not.
pub fn check_share(windows: usize, processes: usize) -> Result<(), GroupError> {
    if windows.is_multiple_of(processes) { Ok(()) } else { Err(GroupError::UnequalShares { windows, processes }) }
}

/// The largest divisor of `number` that is at most `most`; `None` at 0.
pub fn largest_divisor(number: usize, most: usize) -> Option<usize> {
    (1..=most.min(number)).rev().find(|divisor| number.is_multiple_of(*divisor))
}
