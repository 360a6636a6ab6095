//! Counters of what a kernel did that costs time on a GPU.

use crate::{
    lanes::LANES,
    ptx::{SHARED, Space},
    races::Found,
};

#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub launches: u64,
    pub blocks: u64,
    pub instructions: u64,
    pub lanes: u64,
    pub divergent: u64,
    pub barriers: u64,
    pub atomics: u64,
    pub matrix_macs: u64,
    /// Global memory: sectors of 32 bytes moved, and the minimum that would suffice.
    pub sectors: u64,
    pub min_sectors: u64,
    /// Shared memory: passes over the 32 banks, and the minimum without bank conflicts.
    pub rounds: u64,
    pub min_rounds: u64,
    pub races: Found,
}

impl Counts {
    pub fn add(&mut self, o: Counts) {
        self.launches += o.launches;
        self.blocks += o.blocks;
        self.instructions += o.instructions;
        self.lanes += o.lanes;
        self.divergent += o.divergent;
        self.barriers += o.barriers;
        self.atomics += o.atomics;
        self.matrix_macs += o.matrix_macs;
        self.sectors += o.sectors;
        self.min_sectors += o.min_sectors;
        self.rounds += o.rounds;
        self.min_rounds += o.min_rounds;
        self.races.add(o.races);
    }

    /// Extrapolates the counts of `done` blocks to `all` blocks.
    pub fn scaled(mut self, all: u64, done: u64) -> Self {
        for count in [
            &mut self.instructions,
            &mut self.lanes,
            &mut self.divergent,
            &mut self.barriers,
            &mut self.atomics,
            &mut self.matrix_macs,
            &mut self.sectors,
            &mut self.min_sectors,
            &mut self.rounds,
            &mut self.min_rounds,
        ] {
            *count = *count * all / done;
        }
        self
    }

    pub fn touch(&mut self, space: Space, addresses: &[u64; LANES], bytes: u64, mask: u32) {
        let lanes: Vec<u64> = (0..LANES).filter(|i| mask >> i & 1 == 1).map(|i| addresses[i]).collect();
        let Some(first) = lanes.first() else { return };
        let shared = space == Space::Shared || space == Space::Generic && (SHARED..2 * SHARED).contains(first);
        if shared {
            // Accesses wider than 4 bytes are served for half or a quarter of a warp at a time.
            let together = (LANES as u64 * 4 / bytes.max(4)) as usize;
            for part in lanes.chunks(together.max(1)) {
                let mut words: Vec<u64> = part.iter().flat_map(|a| a / 4..(a + bytes).div_ceil(4)).collect();
                words.sort_unstable();
                words.dedup();
                let mut banks = [0u64; 32];
                for word in words {
                    banks[(word % 32) as usize] += 1;
                }
                self.rounds += banks.iter().max().copied().unwrap_or(0);
                self.min_rounds += 1;
            }
        } else if matches!(space, Space::Global | Space::Generic) && *first < SHARED {
            let mut sectors: Vec<u64> = lanes.iter().flat_map(|a| a / 32..(a + bytes).div_ceil(32)).collect();
            sectors.sort_unstable();
            sectors.dedup();
            self.sectors += sectors.len() as u64;
            let mut distinct = lanes;
            distinct.sort_unstable();
            distinct.dedup();
            self.min_sectors += (distinct.len() as u64 * bytes).div_ceil(32);
        }
    }
}
