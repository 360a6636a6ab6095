//! Causal attention on a GPU, and the choice of the engine that multiplies its tiles: tensor cores
//! if the device supports the type and a check shows that they agree with plain multiply-adds;
//! otherwise plain multiply-adds.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ember_host::panics::quietly;

use super::gpu_backward::{KEYS, QUERIES, backward};
use super::{CausalAttention, gpu_forward::FORWARD, gpu_forward::attend};
use crate::gpu::tensor_cores::{SIDE, supports};
use crate::{Heads, gpu::engine::Engine, gpu::prelude::*, gpu::tile::Footprint};

impl Operation<CubeBackend, 1> for CausalAttention {
    /// `qkv`, the output, and the log-sum-exp of each row of scores.
    type Kept = [CubeTensor; 3];

    fn forward(&self, [qkv]: [CubeTensor; 1]) -> ([CubeTensor; 1], Self::Kept) {
        let (y, log_sums) = attend(engine_for(&qkv, self.heads.head_size), self, qkv.clone());
        ([y.clone()], [qkv, y, log_sums])
    }

    fn backward(&self, kept: Self::Kept, dy: CubeTensor) -> [CubeTensor; 1] {
        [backward(engine_for(&kept[0], self.heads.head_size), self, kept, dy)]
    }
}

/// Footprints of the tiled attention kernels; inference needs only the first.
pub const KERNELS: &[Footprint] = if cfg!(feature = "autodiff") { &[FORWARD, QUERIES, KEYS] } else { &[FORWARD] };

/// The chosen engine, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// Tensor cores.
    TensorCores,
    /// Plain multiply-adds: the device's tensor cores do not support this type, or this head size.
    Unsupported,
    /// Plain multiply-adds: tensor cores computed something else, or failed.
    Wrong,
}

/// Device, type of numbers and head size.
type Key = (String, &'static str, usize);

/// The choices so far.
fn chosen() -> MutexGuard<'static, BTreeMap<Key, Choice>> {
    static CHOSEN: Mutex<BTreeMap<Key, Choice>> = Mutex::new(BTreeMap::new());
    CHOSEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The best engine for heads of `head_size` in `qkv` on its device, determined once for each
/// device, type and size.
pub fn engine_for(qkv: &CubeTensor, head_size: usize) -> Engine {
    let key = (format!("{:?}", qkv.device), qkv.dtype.name(), head_size);
    // The lock is released before the check, which takes long.
    let known = chosen().get(&key).copied();
    let choice = known.unwrap_or_else(|| {
        let choice = if !tensor_cores_support(qkv, head_size) {
            Choice::Unsupported
        } else if quietly(|| small_attention_agrees(qkv, head_size)).unwrap_or(false) {
            Choice::TensorCores
        } else {
            Choice::Wrong
        };
        chosen().insert(key, choice);
        choice
    });
    if choice == Choice::TensorCores { Engine::TensorCores } else { Engine::Units }
}

/// A line for each kind of attention in a half type that this process has computed on a GPU: the
/// engine, and why it is not tensor cores.
pub fn report() -> Vec<String> {
    let halves = chosen().clone().into_iter().filter(|((_, dtype, _), _)| *dtype != DType::F32.name());
    let lines = halves.map(|((_, dtype, head_size), choice)| {
        let on = match choice {
            Choice::TensorCores => "on tensor cores",
            Choice::Unsupported => "in plain multiply-adds, as the device reports no tensor cores for it",
            Choice::Wrong => "in plain multiply-adds, as the device's tensor cores failed or gave wrong results",
        };
        format!("attention in {dtype}, heads of {head_size}: {on}")
    });
    lines.collect()
}

/// Largest head size that tensor cores multiply; not measured against others.
const MAX_HEAD_SIZE: usize = 256;

/// Whether tensor cores support this type and head size.
fn tensor_cores_support(qkv: &CubeTensor, head_size: usize) -> bool {
    let shared_memory = qkv.client.properties().hardware.max_shared_memory_size;
    supports(&qkv.client, qkv.dtype)
        && head_size.is_multiple_of(SIDE)
        && head_size <= MAX_HEAD_SIZE
        && KERNELS.iter().all(|kernel| Engine::TensorCores.tile(*kernel, head_size, qkv.dtype, shared_memory).is_some())
}

/// Positions in the check: longer than a tile, and not a multiple of one.
const CHECK_TIME: usize = 100;

fn small_attention_agrees(like: &CubeTensor, head_size: usize) -> bool {
    let attention = CausalAttention { heads: Heads { n_head: 2, n_kv_head: 1, head_size }, dropout: None };
    let heads = attention.heads;
    let qkv = noise(like, [1, CHECK_TIME, heads.width()], 2.0);
    let forward = [Engine::Units, Engine::TensorCores].map(|engine| attend(engine, &attention, qkv.clone()));
    let [plain, fast] = forward.clone().map(|(y, _log_sums)| read(y));
    let [plain_gradient, fast_gradient] = if cfg!(feature = "autodiff") {
        let dy = noise(like, [1, CHECK_TIME, heads.query_width()], 1.0);
        [Engine::Units, Engine::TensorCores].map(|engine| {
            let (y, log_sums) = forward[0].clone();
            read(backward(engine, &attention, [qkv.clone(), y, log_sums], dy.clone()))
        })
    } else {
        [Vec::new(), Vec::new()]
    };
    near(&plain, &fast) && near(&plain_gradient, &fast_gradient)
}

/// Deterministic pseudo-random numbers between `-scale` and `scale`.
fn noise(like: &CubeTensor, shape: [usize; 3], scale: f32) -> CubeTensor {
    let number = |i: usize| ((i as u32).wrapping_mul(0x9e37_79b9) >> 8) as f32 / (1 << 23) as f32 - 1.0;
    let bytes: Vec<u8> = (0..shape.iter().product()).flat_map(|i| (scale * number(i)).to_ne_bytes()).collect();
    let handle = like.client.create_from_slice(&bytes);
    let values = CubeTensor::new_contiguous(like.client.clone(), like.device.clone(), shape.into(), handle, DType::F32);
    cast(values, like.dtype)
}

fn read(tensor: CubeTensor) -> Vec<f32> {
    from_cube::<3>(tensor).into_data().iter::<f32>().collect()
}

/// Whether two results agree up to the rounding of factors to 8 bits of precision.
fn near(a: &[f32], b: &[f32]) -> bool {
    let largest = a.iter().fold(0.0f32, |largest, a| largest.max(a.abs()));
    a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 0.03 * largest)
}
