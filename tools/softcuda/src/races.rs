//! Detects races: accesses to shared memory that no barrier orders.

use crate::lanes::LANES;

/// Bytes per cell, the unit in which accesses are tracked.
const GRAIN: u64 = 2;

#[derive(Clone, Copy, Default)]
struct Cell {
    writer: u32,
    written: u32,
    write_sync: u32,
    /// The writing thread's count of proxy fences at the time of the write.
    write_fence: u32,
    write_lane: u8,
    reader: u32,
    read: u32,
    read_sync: u32,
    read_lane: u8,
}

/// Asynchronous operations in progress on a cell.
#[derive(Clone, Copy, Default)]
struct Busy {
    copies: u16,
    products: u16,
}

#[derive(Clone, Copy, Default, Debug)]
pub struct Found {
    /// Between warps: a write and another access with no block barrier between them.
    pub between_warps: u64,
    /// Between lanes of a warp: with no warp barrier (or shuffle) between them either.
    pub between_lanes: u64,
    /// Accesses to memory that an asynchronous copy is still writing, and writes to memory that a
    /// `wgmma` is still reading.
    pub unfinished: u64,
    /// Reads by a `wgmma` of memory that was written without a `fence.proxy.async` afterwards.
    pub unfenced: u64,
}

impl Found {
    pub fn add(&mut self, o: Found) {
        self.between_warps += o.between_warps;
        self.between_lanes += o.between_lanes;
        self.unfinished += o.unfinished;
        self.unfenced += o.unfenced;
    }
}

pub struct Races {
    cells: Vec<Cell>,
    busy: Vec<Busy>,
    epoch: u32,
    /// The first epoch of the current block; each block barrier begins a new epoch.
    first: u32,
    syncs: Vec<u32>,
    /// Number of proxy fences each thread has executed.
    fences: Vec<[u32; LANES]>,
    found: Found,
}

fn cells(at: u64, bytes: u64) -> std::ops::Range<usize> {
    (at / GRAIN) as usize..(at + bytes).div_ceil(GRAIN) as usize
}

impl Races {
    pub fn new(bytes: usize) -> Self {
        let count = bytes.div_ceil(GRAIN as usize);
        Races {
            cells: vec![Cell::default(); count],
            busy: vec![Busy::default(); count],
            epoch: 1,
            first: 1,
            syncs: vec![0; 32],
            fences: vec![[0; LANES]; 32],
            found: Found::default(),
        }
    }

    pub fn block(&mut self) {
        self.barrier();
        self.first = self.epoch;
        self.busy.fill(Busy::default());
    }

    pub fn barrier(&mut self) {
        self.epoch += 1;
    }

    pub fn warp_barrier(&mut self, warp: u32) {
        self.syncs[warp as usize] += 1;
    }

    /// `fence.proxy.async`: makes the thread's writes so far visible to `wgmma`.
    pub fn fence(&mut self, warp: u32, lane: usize) {
        self.fences[warp as usize][lane] += 1;
    }

    pub fn take(&mut self) -> Found {
        std::mem::take(&mut self.found)
    }

    pub fn touch(&mut self, warp: u32, lane: usize, at: u64, bytes: u64, writes: bool) {
        let sync = self.syncs[warp as usize];
        let cells = cells(at, bytes);
        for (cell, busy) in self.cells[cells.clone()].iter_mut().zip(&self.busy[cells]) {
            let mut hazard = |epoch: u32, by: u32, by_lane: u8, by_sync: u32| {
                if epoch == self.epoch {
                    if by != warp {
                        self.found.between_warps += 1;
                    } else if by_lane != lane as u8 && by_sync == sync {
                        self.found.between_lanes += 1;
                    }
                }
            };
            hazard(cell.written, cell.writer, cell.write_lane, cell.write_sync);
            if writes {
                hazard(cell.read, cell.reader, cell.read_lane, cell.read_sync);
                (cell.writer, cell.written, cell.write_sync, cell.write_lane) = (warp, self.epoch, sync, lane as u8);
                cell.write_fence = self.fences[warp as usize][lane];
            } else {
                (cell.reader, cell.read, cell.read_sync, cell.read_lane) = (warp, self.epoch, sync, lane as u8);
            }
            if busy.copies > 0 || writes && busy.products > 0 {
                self.found.unfinished += 1;
            }
        }
    }

    /// An asynchronous copy begins, and may write from now on.
    pub fn begin_copy(&mut self, warp: u32, lane: usize, at: u64, bytes: u64) {
        self.touch(warp, lane, at, bytes, true);
        self.busy[cells(at, bytes)].iter_mut().for_each(|busy| busy.copies += 1);
    }

    /// An asynchronous copy has finished writing.
    pub fn end_copy(&mut self, warp: u32, lane: usize, at: u64, bytes: u64) {
        self.busy[cells(at, bytes)].iter_mut().for_each(|busy| busy.copies -= 1);
        self.touch(warp, lane, at, bytes, true);
    }

    /// A `wgmma` begins, and may read from now on.
    pub fn begin_product(&mut self, warp: u32, at: u64, bytes: u64) {
        for cell in &self.cells[cells(at, bytes)] {
            let fences = self.fences[cell.writer as usize][cell.write_lane as usize];
            if cell.written >= self.first && cell.write_fence == fences {
                self.found.unfenced += 1;
            }
        }
        self.touch(warp, LANES, at, bytes, false);
        self.busy[cells(at, bytes)].iter_mut().for_each(|busy| busy.products += 1);
    }

    /// A `wgmma` has finished reading. The whole warp counts as the reader, not one of its lanes.
    pub fn end_product(&mut self, warp: u32, at: u64, bytes: u64) {
        self.busy[cells(at, bytes)].iter_mut().for_each(|busy| busy.products -= 1);
        self.touch(warp, LANES, at, bytes, false);
    }
}
