//! Rotary positions ([Su et al. 2021](https://arxiv.org/abs/2104.09864), section 3.2.2).

mod cpu;
#[cfg(feature = "gpu")]
mod gpu;
#[cfg(all(test, feature = "autodiff", feature = "gpu"))]
mod gpu_tests;
#[cfg(test)]
mod tests;

use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::{Heads, operation::apply};

/// Rotates queries and keys inside `qkv` `[batch, time, (n_head + 2 n_kv_head) head_size]` by the
/// angles of their positions, in place if nothing else holds `qkv`; the values are unchanged.
pub fn rotate(qkv: Tensor<3>, rotary: &Rotary, heads: Heads) -> Tensor<3> {
    apply(Rotate { rotary: rotary.clone(), heads }, [qkv.into_dispatch()])
}

#[derive(Clone, Debug)]
struct Rotate {
    rotary: Rotary,
    heads: Heads,
}

/// Cosines and sines of the rotation angles of one pass's positions: pair i of a head at position p
/// is rotated by `p * theta^(-2i / head_size)`. A pair is a value of the head's first half and the
/// value at the same index of its second half, as in transformers.
#[derive(Clone, Debug)]
pub struct Rotary {
    /// `[positions, head_size / 2]`
    pub cos: Tensor<2>,
    /// `[positions, head_size / 2]`
    pub sin: Tensor<2>,
}

impl Rotary {
    /// For these `positions` of a text, in float32 on `device`.
    pub fn new(positions: impl Iterator<Item = usize>, head_size: usize, theta: f64, device: &Device) -> Self {
        let half = head_size / 2;
        // Frequencies in float32, as in transformers; otherwise the angles of a long text would
        // differ noticeably.
        let frequencies: Vec<f32> =
            (0..half).map(|i| 1.0 / (theta as f32).powf(2.0 * i as f32 / head_size as f32)).collect();
        let angles: Vec<f32> =
            positions.flat_map(|p| frequencies.iter().map(move |frequency| p as f32 * frequency)).collect();
        let table = |f: fn(f32) -> f32| {
            let values: Vec<f32> = angles.iter().map(|&angle| f(angle)).collect();
            Tensor::from_data(TensorData::new(values, [angles.len() / half.max(1), half]), device)
        };
        Self { cos: table(f32::cos), sin: table(f32::sin) }
    }

    /// The rows of some of the positions.
    pub fn select(&self, positions: Tensor<1, Int>) -> Self {
        let [cos, sin] = [&self.cos, &self.sin].map(|table| table.clone().select(0, positions.clone()));
        Self { cos, sin }
    }
}

/// Queries and keys rotated by the angles of their positions; see [`rotate`].
#[cfg(test)]
pub fn plain(qkv: Tensor<3>, rotary: &Rotary, heads: Heads) -> Tensor<3> {
    use burn::tensor::DType;

    let dtype = qkv.dtype();
    let [q, k, v] = crate::heads::parts(qkv, heads);
    let angles = |table: &Tensor<2>| table.clone().unsqueeze_dim::<3>(1).unsqueeze::<4>(); // [1, time, 1, head_size / 2]
    let rotated = |x: Tensor<4>| {
        let half = heads.head_size / 2;
        let (x, cos, sin) = (x.cast(DType::F32), angles(&rotary.cos), angles(&rotary.sin));
        let (a, b) = (x.clone().narrow(3, 0, half), x.narrow(3, half, half));
        let rotated = [a.clone() * cos.clone() - b.clone() * sin.clone(), b * cos + a * sin];
        Tensor::cat(rotated.to_vec(), 3).cast(dtype).flatten::<3>(2, 3)
    };
    Tensor::cat(vec![rotated(q), rotated(k), v.flatten(2, 3)], 2)
}
