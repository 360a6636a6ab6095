//! Collective operations for other data than gradients: broadcasts from rank 0, and gathers. A
//! gather is a sum over arrays in which each process fills its own part and leaves 0 elsewhere.

use serde::{Serialize, de::DeserializeOwned};

use super::process_group::ProcessGroup;
use crate::error::{Error, GroupError, Result};

/// The bytes of every process, by rank.
///
/// # Errors
/// As [`ProcessGroup::all_reduce`].
pub fn all_gather(group: &dyn ProcessGroup, own: &[u8]) -> Result<Vec<Vec<u8>>> {
    if group.size() == 1 {
        return Ok(vec![own.to_vec()]);
    }
    // float32 represents lengths up to 16 million exactly, and every byte.
    let mut lengths = vec![0.0; group.size()];
    lengths[group.rank()] = own.len() as f32;
    group.all_reduce(&mut lengths)?;
    let lengths: Vec<usize> = lengths.into_iter().map(|length| length as usize).collect();
    let before: usize = lengths[..group.rank()].iter().sum();
    let mut all = vec![0.0; lengths.iter().sum()];
    for (place, byte) in all[before..].iter_mut().zip(own) {
        *place = f32::from(*byte);
    }
    group.all_reduce(&mut all)?;
    let mut all = all.into_iter().map(|byte| byte as u8);
    Ok(lengths.into_iter().map(|length| all.by_ref().take(length).collect()).collect())
}

/// Rank 0's value, in every process; the others' values are discarded.
///
/// # Errors
/// As [`ProcessGroup::broadcast`], and when `own` cannot be written as JSON and read again.
pub fn broadcast<T: Serialize + DeserializeOwned>(group: &dyn ProcessGroup, own: &T) -> Result<T> {
    let mut json = serde_json::to_vec(own)?;
    let mut length = (json.len() as u64).to_le_bytes();
    group.broadcast(&mut length)?;
    json.resize(u64::from_le_bytes(length) as usize, 0);
    group.broadcast(&mut json)?;
    Ok(serde_json::from_slice(&json)?)
}

/// Rank 0's number, to the bit: machines of different kinds sum in different orders.
///
/// # Errors
/// As [`ProcessGroup::broadcast`].
pub fn broadcast_number(group: &dyn ProcessGroup, own: f64) -> Result<f64> {
    let mut bytes = own.to_le_bytes();
    group.broadcast(&mut bytes)?;
    Ok(f64::from_le_bytes(bytes))
}

/// Sums of a few numbers over all processes, in float64 and in the order of their ranks.
///
/// # Errors
/// As [`ProcessGroup::all_reduce`].
pub fn all_reduce_f64<const N: usize>(group: &dyn ProcessGroup, own: [f64; N]) -> Result<[f64; N]> {
    let bytes: Vec<u8> = own.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut sums = [0.0; N];
    for process in all_gather(group, &bytes)? {
        let (numbers, _) = process.as_chunks::<8>();
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum += f64::from_le_bytes(*number);
        }
    }
    Ok(sums)
}

/// Succeeds only if every process does. Otherwise all processes leave the group and end; the one
/// with the lowest rank among those with an error reports it.
///
/// # Errors
/// Its own error, or [`GroupError::ReportedElsewhere`].
pub fn all_ok<T>(group: &dyn ProcessGroup, own: Result<T>) -> Result<T> {
    let mut codes = vec![0.0; group.size()];
    codes[group.rank()] = own.as_ref().err().map_or(0.0, |error| f32::from(group.code(error)));
    group.all_reduce(&mut codes)?;
    let Some(first) = codes.iter().position(|code| *code != 0.0) else { return own };
    group.leave();
    match own {
        Err(error) if first == group.rank() && !group.leads() => {
            Err(GroupError::OfRank { rank: first, source: error.into() }.into())
        }
        Err(error) if first == group.rank() => Err(error),
        _ => Err(reported_elsewhere(codes[first] as u8)),
    }
}

/// The error of a process when another one reports why all end. Waits a second for that report:
/// `mpirun` ends all processes as soon as one has ended.
pub(super) fn reported_elsewhere(code: u8) -> Error {
    std::thread::sleep(std::time::Duration::from_secs(1));
    GroupError::ReportedElsewhere(code).into()
}
