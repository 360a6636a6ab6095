//! How the windows of a step are shared among the processes.

use std::ops::Range;

use super::process_group::ProcessGroup;
use crate::error::GroupError;

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

/// Refuses a step of `windows` windows that `size` processes cannot share.
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
