//! What processes that were started together need of the program that they run.

use super::watch::Gone;
use crate::error::Error;

/// What processes that were started together need of the program that they run.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// The code, not 0, with which all of them end where one has failed so.
    pub code: fn(&Error) -> u8,
    /// Says that a process is gone.
    pub gone: fn(&Gone),
}
