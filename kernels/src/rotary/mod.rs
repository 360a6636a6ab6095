//! The angles of rotary positions.

pub(crate) mod cpu;
pub(crate) mod gpu;
use burn::tensor::{Device, Int, Tensor, TensorData};

/// Cosines and sines of the angles by which the positions of one pass are turned
/// ([Su et al. 2021](https://arxiv.org/abs/2104.09864), section 3.2.2): pair i of a head at position p by `p * theta^(-2i / head_size)`.
/// A pair is a value of the head's first half with the one in the same place of its second half, as transformers has it.
#[derive(Clone, Debug)]
pub struct Rotary {
    /// `[positions, head_size / 2]`
    pub cos: Tensor<2>,
    /// `[positions, head_size / 2]`
    pub sin: Tensor<2>,
}

impl Rotary {
    /// For so many `positions` of a text, in float32 on `device`.
    pub fn new(positions: impl Iterator<Item = usize>, head_size: usize, theta: f64, device: &Device) -> Self {
        let half = head_size / 2;
        // The frequencies in float32, as transformers has them; the angles of a long text differ noticeably otherwise.
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

    /// Those of some of the positions.
    pub fn of(&self, positions: Tensor<1, Int>) -> Self {
        let [cos, sin] = [&self.cos, &self.sin].map(|table| table.clone().select(0, positions.clone()));
        Self { cos, sin }
    }
}
