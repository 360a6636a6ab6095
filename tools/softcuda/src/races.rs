//! Finds accesses to shared memory that no barrier orders.

/// Bytes that are watched as one.
const GRAIN: u64 = 2;

#[derive(Clone, Copy, Default)]
struct Cell {
    writer: u32,
    written: u32,
    write_sync: u32,
    write_lane: u8,
    reader: u32,
    read: u32,
    read_sync: u32,
    read_lane: u8,
}

#[derive(Clone, Copy, Default, Debug)]
pub struct Found {
    /// Between warps: no block barrier lies between a write and another access.
    pub between_warps: u64,
    /// Between lanes of a warp: no warp barrier (or shuffle) lies between them either.
    pub between_lanes: u64,
}

pub struct Races {
    cells: Vec<Cell>,
    epoch: u32,
    syncs: Vec<u32>,
    found: Found,
}

impl Races {
    pub fn new(bytes: usize) -> Self {
        Races {
            cells: vec![Cell::default(); bytes.div_ceil(GRAIN as usize)],
            epoch: 1,
            syncs: vec![0; 32],
            found: Found::default(),
        }
    }

    pub fn block(&mut self) {
        self.barrier();
    }

    pub fn barrier(&mut self) {
        self.epoch += 1;
    }

    pub fn warp_barrier(&mut self, warp: u32) {
        self.syncs[warp as usize] += 1;
    }

    pub fn take(&mut self) -> Found {
        std::mem::take(&mut self.found)
    }

    pub fn touch(&mut self, warp: u32, lane: usize, at: u64, bytes: u64, writes: bool) {
        let sync = self.syncs[warp as usize];
        for cell in &mut self.cells[(at / GRAIN) as usize..(at + bytes).div_ceil(GRAIN) as usize] {
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
            } else {
                (cell.reader, cell.read, cell.read_sync, cell.read_lane) = (warp, self.epoch, sync, lane as u8);
            }
        }
    }
}
