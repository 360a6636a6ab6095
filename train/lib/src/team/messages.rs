//! What processes say to each other besides gradients: the first to all of them, or each to all in a sum in which it fills its own
//! place and leaves 0 in those of the others.

use super::{Error, Team};
use crate::error::Result;

/// The bytes of every process, by rank.
///
/// # Errors
/// As [`Team::sum`].
pub fn gather(team: &dyn Team, own: &[u8]) -> Result<Vec<Vec<u8>>> {
    if team.size() == 1 {
        return Ok(vec![own.to_vec()]);
    }
    // float32 holds lengths up to 16 million, and every byte.
    let mut lengths = vec![0.0; team.size()];
    lengths[team.rank()] = own.len() as f32;
    team.sum(&mut lengths)?;
    let lengths: Vec<usize> = lengths.into_iter().map(|length| length as usize).collect();
    let before: usize = lengths[..team.rank()].iter().sum();
    let mut all = vec![0.0; lengths.iter().sum()];
    for (place, byte) in all[before..].iter_mut().zip(own) {
        *place = f32::from(*byte);
    }
    team.sum(&mut all)?;
    let mut all = all.into_iter().map(|byte| byte as u8);
    Ok(lengths.into_iter().map(|length| all.by_ref().take(length).collect()).collect())
}

/// What the process of rank 0 says, in every process; the others' own words are lost.
///
/// # Errors
/// As [`Team::broadcast`].
pub fn said_by_the_first(team: &dyn Team, own: &str) -> Result<String> {
    let mut length = (own.len() as u64).to_le_bytes();
    team.broadcast(&mut length)?;
    let mut bytes = own.as_bytes().to_vec();
    bytes.resize(u64::from_le_bytes(length) as usize, 0);
    team.broadcast(&mut bytes)?;
    Ok(String::from_utf8(bytes).map_err(|_| Error::NotUtf8)?)
}

/// A number as the process of rank 0 has it, to the bit: machines of different kinds sum in different orders.
///
/// # Errors
/// As [`Team::broadcast`].
pub fn number_of_the_first(team: &dyn Team, own: f64) -> Result<f64> {
    let mut bytes = own.to_le_bytes();
    team.broadcast(&mut bytes)?;
    Ok(f64::from_le_bytes(bytes))
}

/// Sums of a few numbers over all processes, in float64 and in the order of their ranks.
///
/// # Errors
/// As [`Team::sum`].
pub fn sum_f64<const N: usize>(team: &dyn Team, own: [f64; N]) -> Result<[f64; N]> {
    if team.size() == 1 {
        return Ok(own);
    }
    let bytes: Vec<u8> = own.iter().flat_map(|number| number.to_le_bytes()).collect();
    let mut sums = [0.0; N];
    for process in gather(team, &bytes)? {
        let (numbers, _) = process.as_chunks::<8>();
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum += f64::from_le_bytes(*number);
        }
    }
    Ok(sums)
}

/// Goes on only if every process can. Else all of them end, and of those that have an error the one of the lowest rank says it.
///
/// # Errors
/// Its own error, or [`Error::SaidElsewhere`].
pub fn agree<T>(team: &dyn Team, own: Result<T>) -> Result<T> {
    if team.size() == 1 {
        return own;
    }
    let mut codes = vec![0.0; team.size()];
    codes[team.rank()] = own.as_ref().err().map_or(0.0, |error| f32::from(team.code(error)));
    team.sum(&mut codes)?;
    let Some(first) = codes.iter().position(|code| *code != 0.0) else { return own };
    team.leave();
    match own {
        Err(error) if first == team.rank() && !team.leads() => {
            Err(Error::OfRank { rank: first, source: Box::new(error) }.into())
        }
        Err(error) if first == team.rank() => Err(error),
        _ => Err(Error::SaidElsewhere { code: codes[first] as u8 }.into()),
    }
}
