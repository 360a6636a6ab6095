//! A launch, and one block of it: its place, its shared memory, what is watched and counted.

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
    /// Run only so many blocks of the grid.
    pub sample: Option<usize>,
    /// Globals of the module: readable and writable beside what is allocated.
    pub globals: &'a [Box<[u64]>],
}

pub struct Block<'a> {
    pub launch: &'a Launch<'a>,
    pub at: (u32, u32, u32),
    pub shared: Vec<u8>,
    /// The allocation touched last.
    pub cached: (u64, u64),
    pub races: Option<Races>,
    pub counts: Counts,
}
