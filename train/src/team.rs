//! The processes that train one model together, each on a device of its own.
//!
//! They hold the same weights, take different windows of each step, and add up their gradients: then each takes the same
//! step. What stands between them is one operation, [`Team::sum`].

use anyhow::Result;

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
}
