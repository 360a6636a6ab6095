//! A kernel launch, and the block being run: its index, its shared memory, its race detector and
//! counters.

use crate::{memory::Ranges, profile::Counts, ptx::Kernel, races::Races};

pub struct Launch<'a> {
    pub kernel: &'a Kernel,
    pub params: Vec<u8>,
    pub grid: (u32, u32, u32),
    pub block: (u32, u32, u32),
    pub shared: usize,
    pub ranges: Ranges,
    pub check_races: bool,
    pub profile: bool,
    /// If set, run only this number of blocks of the grid.
    pub sample: Option<usize>,
    /// Global variables of the module, accessible in addition to the allocations.
    pub globals: &'a [Box<[u64]>],
}

pub struct Block<'a> {
    pub launch: &'a Launch<'a>,
    pub at: (u32, u32, u32),
    pub shared: Vec<u8>,
    /// Begin and end of the allocation accessed last.
    pub cached: (u64, u64),
    pub races: Option<Races>,
    pub counts: Counts,
}
