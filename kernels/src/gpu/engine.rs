//! The engine that multiplies attention's tiles, plain multiply-adds (on every device) or tensor
//! cores, and the tile sizes for each.

use burn::tensor::DType;
use cubecl::prelude::*;

use crate::gpu::tensor_cores::{PLANE, SIDE};
use crate::gpu::tile::{Footprint, Tile, head_vector_size};

/// The engine that multiplies tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Plain multiply-adds in float32.
    Units,
    /// Tensor cores, whose factors have the type of the inputs.
    TensorCores,
}

/// Bytes of shared memory per cube with which three cubes fit on a multiprocessor of today's large
/// devices.
const PREFERRED_BYTES: usize = 76 << 10;

impl Engine {
    /// Largest vector width.
    pub fn widest(self) -> usize {
        if self == Self::Units { 4 } else { 8 }
    }

    /// The type in which attention weights are multiplied, for inputs of type `dtype`.
    pub fn weights(self, dtype: DType) -> DType {
        if self == Self::Units { DType::F32 } else { dtype }
    }

    /// Tiles for heads of `vectors` vectors of `vector_size` numbers, largest first: the usual
    /// ones, and those for devices with little shared memory.
    fn tiles(self, vectors: usize, vector_size: usize) -> (Vec<Tile>, Vec<Tile>) {
        let units = |(rows, columns)| Tile::of_units(rows, columns, vectors, vector_size);
        let tensor_cores = |(rows, columns)| {
            // Fragments must begin at multiples of 16 bytes, and have such strides.
            let units = rows / SIDE * PLANE;
            Tile { rows, columns, vectors, vector_size, units, gap: 4, weight_gap: 8, planes: true }
        };
        match self {
            Self::Units => (
                [(32, 32), (32, 16), (16, 16), (16, 8), (8, 8)].map(units).to_vec(),
                [(8, 8), (8, 4), (8, 2), (4, 2)].map(units).to_vec(),
            ),
            // With 64 columns the forward takes 254 registers a unit on sm_90, so two cubes fit on
            // a multiprocessor; with 32 columns, three.
            Self::TensorCores => (
                [(64, 32), (64, 16), (32, 32), (32, 16), (16, 16)].map(tensor_cores).to_vec(),
                [(16, 16)].map(tensor_cores).to_vec(),
            ),
        }
    }

    /// The largest tile with which a kernel of this `footprint`, for heads of `head_size` numbers
    /// of type `dtype`, fits into `shared_memory` bytes; `None` if not even the smallest fits.
    pub fn tile(self, footprint: Footprint, head_size: usize, dtype: DType, shared_memory: usize) -> Option<Tile> {
        let vector_size = head_vector_size(head_size, self.widest());
        let bytes = |tile: &Tile| footprint.bytes(*tile, dtype.size(), self.weights(dtype).size());
        let (usual, small) = self.tiles(head_size / vector_size, vector_size);
        let fits = |tiles: Vec<Tile>, limit| tiles.into_iter().find(|tile| bytes(tile) <= limit);
        fits(usual, shared_memory.min(PREFERRED_BYTES)).or_else(|| fits(small, shared_memory))
    }

    /// As [`Self::tile`] on the device of `client`. [`crate::limits`] has refused heads that are
    /// too wide.
    ///
    /// # Panics
    /// If it has not.
    pub fn tile_on(self, client: &Client, footprint: Footprint, head_size: usize, dtype: DType) -> Tile {
        let shared_memory = client.properties().hardware.max_shared_memory_size;
        let tile = self.tile(footprint, head_size, dtype, shared_memory);
        tile.unwrap_or_else(|| panic!("heads of {head_size} need more than {shared_memory} bytes of shared memory"))
    }
}
