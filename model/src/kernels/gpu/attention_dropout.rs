//! Dropout of attention weights: the CPU's hash of (key, place), so that both devices drop the same weights and the backward
//! computes the mask again.

use cubecl::prelude::*;

use super::super::DropoutMask;

/// What a kernel needs to know of a mask.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub struct Drop {
    /// Low and high half of the key.
    pub key: u32,
    /// See `key`.
    pub key_high: u32,
    /// A hash below it drops the weight.
    pub threshold: u32,
    /// What is kept is multiplied by it.
    pub scale: f32,
}

/// The arguments of a kernel for `mask`; where there is none, they are not read.
pub fn launch_arguments(mask: Option<DropoutMask>) -> DropLaunch {
    let DropoutMask { probability, key } = mask.unwrap_or(DropoutMask { probability: 0.0, key: 0 });
    let threshold = (probability as f64 * (1u64 << 32) as f64) as u32;
    DropLaunch::new(key as u32, (key >> 32) as u32, threshold, 1.0 / (1.0 - probability))
}

#[cube]
impl Drop {
    /// 0 or the scale, for the weight in `column` of row `row` among all rows of all heads, `[batch * n_head * time, time]`.
    pub fn factor(&self, row: u32, column: u32, time: u32) -> f32 {
        // The place `row * time + column` has 64 bits, which not every device computes with.
        let low = row * time;
        let place = low + column;
        let mut high = row.mul_hi(time);
        if place < low {
            high += 1u32;
        }
        let hash = mix(mix(place ^ self.key) + (high ^ self.key_high) * 0x9e37_79b9u32);
        let mut factor = self.scale;
        if hash < self.threshold {
            factor = 0.0;
        }
        factor
    }
}

/// A round of the "lowbias32" integer hash, as in the CPU's `dropout.rs`.
#[cube]
fn mix(x: u32) -> u32 {
    let x = x ^ (x >> 16u32);
    let x = x * 0x7feb_352du32;
    let x = x ^ (x >> 15u32);
    let x = x * 0x846c_a68bu32;
    x ^ (x >> 16u32)
}
