//! What multiplies tiles: plain multiply-adds, which every device has, or tensor cores; and the
//! tiles that suit either.

use burn::tensor::DType;
use cubecl::prelude::*;

use crate::gpu::tensor_cores::{PLANE, SIDE};
use crate::gpu::tile::{Holds, Tile, line};

/// What multiplies tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Plain multiply-adds in float32.
    Units,
    /// Tensor cores, whose factors have the type of the inputs.
    TensorCores,
}

/// Shared memory that leaves room for three cubes on a multiprocessor of today's large devices.
const ROOM: usize = 76 << 10;

impl Engine {
    /// The numbers that a unit reads at once, at most.
    pub fn widest(self) -> usize {
        if self == Self::Units { 4 } else { 8 }
    }

    /// The type of attention weights as factors, for inputs of type `dtype`.
    pub fn weights(self, dtype: DType) -> DType {
        if self == Self::Units { DType::F32 } else { dtype }
    }

    /// The tiles for heads of `vectors` vectors of `line` numbers, the largest first: those that
    /// serve a device well, and those that are for one with little shared memory.
    fn tiles(self, vectors: usize, line: usize) -> (Vec<Tile>, Vec<Tile>) {
        let units = |(rows, columns)| Tile::of_units(rows, columns, vectors, line);
        let tensor_cores = |(rows, columns)| {
            // Fragments must begin and go on at multiples of 16 bytes.
            let units = rows / SIDE * PLANE;
            Tile { rows, columns, vectors, line, units, gap: 4, weight_gap: 8, planes: true }
        };
        match self {
            Self::Units => (
                [(32, 32), (32, 16), (16, 16), (16, 8), (8, 8)].map(units).to_vec(),
                [(8, 8), (8, 4), (8, 2), (4, 2)].map(units).to_vec(),
            ),
            // With 64 columns the forward takes 254 registers a unit on sm_90: room for two cubes,
            // with 32 for three.
            Self::TensorCores => (
                [(64, 32), (64, 16), (32, 32), (32, 16), (16, 16)].map(tensor_cores).to_vec(),
                [(16, 16)].map(tensor_cores).to_vec(),
            ),
        }
    }

    /// The largest tile with which a kernel that `holds` so much, for heads of `head_size` numbers
    /// of type `dtype`, takes no more than a device's `shared_memory` bytes; `None` where not even
    /// the smallest does.
    pub fn tile(self, holds: Holds, head_size: usize, dtype: DType, shared_memory: usize) -> Option<Tile> {
        let line = line(head_size, self.widest());
        let takes = |tile: &Tile| holds.bytes(*tile, dtype.size(), self.weights(dtype).size());
        let (usual, small) = self.tiles(head_size / line, line);
        let fits = |tiles: Vec<Tile>, room| tiles.into_iter().find(|tile| takes(tile) <= room);
        fits(usual, shared_memory.min(ROOM)).or_else(|| fits(small, shared_memory))
    }

    /// As [`Self::tile`] on the device of `client`; a head that is too wide for it was refused by
    /// [`crate::limits`].
    ///
    /// # Panics
    /// When it was not.
    pub fn tile_on(self, client: &Client, holds: Holds, head_size: usize, dtype: DType) -> Tile {
        let shared_memory = client.properties().hardware.max_shared_memory_size;
        let tile = self.tile(holds, head_size, dtype, shared_memory);
        tile.unwrap_or_else(|| panic!("heads of {head_size} need more than {shared_memory} bytes of shared memory"))
    }
}
