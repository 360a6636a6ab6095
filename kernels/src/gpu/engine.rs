//! What multiplies the tiles of attention on a device: tensor cores where it has them for the
//! numbers at hand, and where they have shown that they compute what plain multiply-adds compute;
//! plain multiply-adds everywhere else.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::DType;
use burn_cubecl::kernel::cast;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use crate::Heads;
use crate::attention::gpu::{attend, line};
use crate::attention::gpu_backward::backward;
use crate::gpu::limits::KERNELS;
use crate::gpu::tensor::elem;
use crate::gpu::tensor_cores::{PLANE, SIDE};
use crate::gpu::tile::{Holds, Tile};
use ember_host::panics::quietly;

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
        match self {
            Self::Units => 4,
            Self::TensorCores => 8,
        }
    }

    /// The type of attention weights as factors, for inputs of type `dtype`.
    pub fn weights(self, dtype: DType) -> DType {
        match self {
            Self::Units => DType::F32,
            Self::TensorCores => dtype,
        }
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
    /// [`super::limits`].
    ///
    /// # Panics
    /// When it was not.
    pub fn tile_on(self, client: &Client, holds: Holds, head_size: usize, dtype: DType) -> Tile {
        let shared_memory = client.properties().hardware.max_shared_memory_size;
        let tile = self.tile(holds, head_size, dtype, shared_memory);
        tile.unwrap_or_else(|| panic!("heads of {head_size} need more than {shared_memory} bytes of shared memory"))
    }

    /// The best one for `qkv` on its device.
    pub fn of(qkv: &CubeTensor, heads: Heads) -> Self {
        match Choice::of(qkv, heads.head_size) {
            Choice::TensorCores => Self::TensorCores,
            Choice::NoneThere | Choice::Wrong => Self::Units,
        }
    }
}

/// Why attention is computed as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// By tensor cores.
    TensorCores,
    /// By plain multiply-adds: the device names no tensor cores for such numbers, or the heads are
    /// none of their sizes.
    NoneThere,
    /// By plain multiply-adds: tensor cores computed something else, or failed.
    Wrong,
}

/// A device, a type of numbers and a size of heads.
type Asked = (String, &'static str, usize);

/// What was chosen so far.
fn chosen() -> MutexGuard<'static, BTreeMap<Asked, Choice>> {
    static CHOSEN: Mutex<BTreeMap<Asked, Choice>> = Mutex::new(BTreeMap::new());
    CHOSEN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Choice {
    /// Computed once for each device, type and size.
    fn of(qkv: &CubeTensor, head_size: usize) -> Self {
        let asked = (format!("{:?}", qkv.device), qkv.dtype.name(), head_size);
        // Let go before the check, which is long.
        let known = chosen().get(&asked).copied();
        known.unwrap_or_else(|| {
            let choice = if !tensor_cores_take(qkv, head_size) {
                Self::NoneThere
            } else if quietly(|| small_attention_agrees(qkv, head_size)).unwrap_or(false) {
                Self::TensorCores
            } else {
                Self::Wrong
            };
            chosen().insert(asked, choice);
            choice
        })
    }
}

/// A line for each kind of attention in a half type that GPUs have computed so far: on what, and
/// why not on tensor cores.
pub fn said() -> Vec<String> {
    let halves = chosen().clone().into_iter().filter(|((_, dtype, _), _)| *dtype != DType::F32.name());
    let said = halves.map(|((_, dtype, head_size), choice)| {
        let on = match choice {
            Choice::TensorCores => "on tensor cores",
            Choice::NoneThere => "in plain multiply-adds, for the device names no tensor cores for it",
            Choice::Wrong => "in plain multiply-adds, for the device's tensor cores failed or computed something else",
        };
        format!("attention in {dtype}, heads of {head_size}: {on}")
    });
    said.collect()
}

/// Whether the device says that its tensor cores multiply numbers of this type, in planes and
/// fragments of the sizes we know.
fn tensor_cores_take(qkv: &CubeTensor, head_size: usize) -> bool {
    let properties = qkv.client.properties();
    let hardware = &properties.hardware;
    let (factor, sum) = (elem(qkv.dtype), elem(DType::F32));
    let listed = properties.features.matmul.cmma.iter().any(|config| {
        [config.a_type, config.b_type, config.cd_type] == [factor, factor, sum]
            && [config.m, config.n, config.k].map(|side| side as usize) == [SIDE; 3]
    });
    let planes = [hardware.plane_size_min, hardware.plane_size_max].map(|size| size as usize);
    let known = listed && qkv.dtype != DType::F32 && planes == [PLANE; 2] && head_size % SIDE == 0 && head_size <= 256;
    let room = hardware.max_shared_memory_size;
    known && KERNELS.iter().all(|holds| Engine::TensorCores.tile(*holds, head_size, qkv.dtype, room).is_some())
}

/// Longer than a tile, and no multiple of one.
const CHECK_TIME: usize = 100;

fn small_attention_agrees(like: &CubeTensor, head_size: usize) -> bool {
    let heads = Heads { n_head: 2, n_kv_head: 1, head_size };
    let qkv = noise(like, [1, CHECK_TIME, heads.width()], 2.0);
    let forward = [Engine::Units, Engine::TensorCores].map(|engine| attend(engine, qkv.clone(), heads, None));
    let [plain, fast] = forward.clone().map(|(y, _log_sums)| read(y));
    let gradients = if cfg!(feature = "autodiff") {
        let dy = noise(like, [1, CHECK_TIME, heads.query_width()], 1.0);
        [Engine::Units, Engine::TensorCores].map(|engine| {
            let (y, log_sums) = forward[0].clone();
            read(backward(engine, qkv.clone(), y, log_sums, dy.clone(), heads, None))
        })
    } else {
        [Vec::new(), Vec::new()]
    };
    let [plain_gradient, fast_gradient] = gradients;
    near(&plain, &fast) && near(&plain_gradient, &fast_gradient)
}

/// Numbers between `-scale` and `scale`, the same every time.
fn noise(like: &CubeTensor, shape: [usize; 3], scale: f32) -> CubeTensor {
    let number = |i: usize| ((i as u32).wrapping_mul(0x9e37_79b9) >> 8) as f32 / (1 << 23) as f32 - 1.0;
    let bytes: Vec<u8> = (0..shape.iter().product()).flat_map(|i| (scale * number(i)).to_ne_bytes()).collect();
    let handle = like.client.create_from_slice(&bytes);
    let values = CubeTensor::new_contiguous(like.client.clone(), like.device.clone(), shape.into(), handle, DType::F32);
    cast(values, like.dtype)
}

fn read(tensor: CubeTensor) -> Vec<f32> {
    let tensor = cast(tensor, DType::F32);
    let bytes = tensor.client.read_one_unchecked(tensor.handle);
    bytes.chunks_exact(4).map(|bytes| f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect()
}

/// Whether two results differ by no more than the rounding of factors to 8 bits explains.
fn near(a: &[f32], b: &[f32]) -> bool {
    let largest = a.iter().fold(0.0f32, |largest, a| largest.max(a.abs()));
    a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 0.03 * largest)
}
