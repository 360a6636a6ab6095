//! Finds accesses to shared memory that no barrier orders.

use crate::lanes::LANES;

/// Bytes that are watched as one.
const GRAIN: u64 = 2;

#[derive(Clone, Copy, Default)]
struct Cell {
    writer: u32,
    written: u32,
    write_sync: u32,
    /// How many fences to products its writer had put up.
    write_fence: u32,
    write_lane: u8,
    reader: u32,
    read: u32,
    read_sync: u32,
    read_lane: u8,
}

/// What goes on at a cell while threads go on.
#[derive(Clone, Copy, Default)]
struct Busy {
    copies: u16,
    products: u16,
}

#[derive(Clone, Copy, Default, Debug)]
pub struct Found {
    /// Between warps: no block barrier lies between a write and another access.
    pub between_warps: u64,
    /// Between lanes of a warp: no warp barrier (or shuffle) lies between them either.
    pub between_lanes: u64,
    /// Accesses to what an asynchronous copy still writes, and writes to what a product of a
    /// warpgroup still reads.
    pub unfinished: u64,
    /// Reads by products of warpgroups of what was written without a `fence.proxy.async` after.
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
    /// The block's first epoch.
    first: u32,
    syncs: Vec<u32>,
    /// How many fences to products each thread has put up.
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

    /// Products see what the thread has written so far.
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

    /// An asynchronous copy may write from here on, ...
    pub fn begin_copy(&mut self, warp: u32, lane: usize, at: u64, bytes: u64) {
        self.touch(warp, lane, at, bytes, true);
        self.busy[cells(at, bytes)].iter_mut().for_each(|busy| busy.copies += 1);
    }

    /// ... and has written here.
    pub fn end_copy(&mut self, warp: u32, lane: usize, at: u64, bytes: u64) {
        self.busy[cells(at, bytes)].iter_mut().for_each(|busy| busy.copies -= 1);
        self.touch(warp, lane, at, bytes, true);
    }

    /// A product of a warpgroup may read from here on, ...
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

    /// ... and has read here. It is the whole warp that reads, none of its lanes.
    pub fn end_product(&mut self, warp: u32, at: u64, bytes: u64) {
        self.busy[cells(at, bytes)].iter_mut().for_each(|busy| busy.products -= 1);
        self.touch(warp, LANES, at, bytes, false);
    }
}
