//! What attention multiplies: float32 or bfloat16. Scores, their softmax, all sums and the
//! gradients are float32 either way; what the softmax puts out is rounded before it is multiplied
//! again, as in FlashAttention.

use burn::tensor::bf16;

use crate::gemm::Element;
use crate::halves::{narrow_bf16, widened};
use crate::{simd, simd_versions};

/// A type of factors.
pub trait Factor: Element + Default {
    /// `weights` as factors: in `room` where they must be rounded.
    fn of<'a>(weights: &'a [f32], room: &'a mut Vec<Self>) -> &'a [Self];

    /// The sum of products of two rows.
    fn dot(x: &[Self], y: &[Self]) -> f32;
}

impl Factor for f32 {
    fn of<'a>(weights: &'a [f32], _room: &'a mut Vec<f32>) -> &'a [f32] {
        weights
    }

    fn dot(x: &[f32], y: &[f32]) -> f32 {
        dot(x, y)
    }
}

impl Factor for bf16 {
    fn of<'a>(weights: &'a [f32], room: &'a mut Vec<bf16>) -> &'a [bf16] {
        if room.len() < weights.len() {
            room.resize(weights.len(), bf16::ZERO);
        }
        let room = &mut room[..weights.len()];
        narrow_bf16(weights, room);
        room
    }

    fn dot(x: &[bf16], y: &[bf16]) -> f32 {
        dot_bf16(x, y)
    }
}

simd_versions! {
    fn dot(x: &[f32], y: &[f32]) -> f32 {
        simd::sum([x, y], |[x, y]| x * y)
    }

    fn dot_bf16(x: &[bf16], y: &[bf16]) -> f32 {
        simd::sum([x, y], |[x, y]| widened(x) * widened(y))
    }
}
