//! Loss scaling ([Micikevicius et al. 2018](https://arxiv.org/abs/1710.03740), section 3.2): in
//! float16 the smallest gradients would underflow to 0, so the loss is multiplied by a power of two
//! before the backward pass, and the gradient divided by it afterwards.

use burn::{module::ParamId, optim::GradientsParams};
use ember_model::{Gpt, Parameter};
use serde::{Deserialize, Serialize};

use crate::config::Precision;

/// Steps without overflow after which the scale is doubled.
const GROWTH_INTERVAL: u32 = 2000;
/// The scale of a new run.
const FIRST: f64 = 65_536.0;
const LARGEST: f64 = 16_777_216.0;

/// The loss scale, kept as large as float16 allows: halved when a gradient overflows, doubled after
/// 2,000 steps without overflow. It is part of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScale {
    scale: f64,
    good_steps: u32,
}

impl Default for LossScale {
    fn default() -> Self {
        Self { scale: FIRST, good_steps: 0 }
    }
}

impl LossScale {
    /// The factor on the loss: 1 except in float16.
    pub fn scale(&self, precision: Precision) -> f64 {
        if precision == Precision::F16 { self.scale } else { 1.0 }
    }

    /// Records the norm of a gradient. Returns whether the gradient must be computed again at half
    /// the scale, because it is not finite and the scale may be the cause. No step is taken then,
    /// and the batch is not lost.
    pub fn overflowed(&mut self, precision: Precision, grad_norm: f64) -> bool {
        if precision != Precision::F16 {
            return false;
        }
        if !grad_norm.is_finite() {
            self.good_steps = 0;
            // At 1 the scale is not what makes it overflow.
            let again = self.scale > 1.0;
            self.scale = if again { self.scale / 2.0 } else { FIRST };
            return again;
        }
        self.good_steps += 1;
        if self.good_steps == GROWTH_INTERVAL {
            *self = Self { scale: (2.0 * self.scale).min(LARGEST), good_steps: 0 };
        }
        false
    }
}

/// The gradient of the loss, from the gradient of the loss times `scale`. Dividing by a power of
/// two is exact.
pub(super) fn unscaled(gpt: &Gpt, mut gradients: GradientsParams, scale: f64) -> GradientsParams {
    if scale != 1.0 {
        for Parameter { id, shape, .. } in gpt.parameters() {
            match shape.len() {
                1 => divide::<1>(&mut gradients, id, scale),
                _ => divide::<2>(&mut gradients, id, scale),
            }
        }
    }
    gradients
}

fn divide<const D: usize>(gradients: &mut GradientsParams, id: ParamId, scale: f64) {
    if let Some(gradient) = gradients.remove::<D>(id) {
        gradients.register::<D>(id, gradient / scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_halves_on_overflow_and_doubles_after_two_thousand_good_steps() {
        let mut scale = LossScale::default();
        assert_eq!(scale.scale(Precision::Bf16), 1.0);
        assert!(!scale.overflowed(Precision::F32, f64::NAN));
        assert!(scale.overflowed(Precision::F16, f64::INFINITY));
        assert_eq!(scale.scale(Precision::F16), 32_768.0);
        for _ in 0..2000 {
            assert!(!scale.overflowed(Precision::F16, 1.0));
        }
        assert_eq!(scale.scale(Precision::F16), 65_536.0);
        // A gradient that is non-finite at any scale has another cause.
        let halvings = (0..100).take_while(|_| scale.overflowed(Precision::F16, f64::NAN)).count();
        assert_eq!(halvings, 16);
        assert_eq!(scale, LossScale::default());
    }
}
