//! Softmax and log-sum-exp, vectorised: one pass over 50,257 logits takes tens of microseconds,
//! which is negligible beside the model.

use ember_kernels::simd_versions;

/// Independent accumulators of a reduction, so that the compiler can keep them in vector registers.
const LANES: usize = 16;

simd_versions! {
    /// The softmax of `logits` in float32, with its normaliser summed in float64; `[vocab]` to
    /// `[vocab]`.
    pub fn softmax(logits: &[f32]) -> Vec<f32> {
        let highest = highest(logits);
        let mut probabilities: Vec<f32> = logits.iter().map(|logit| exp(logit - highest)).collect();
        let total = sum(&probabilities) as f32;
        for p in &mut probabilities {
            *p /= total;
        }
        probabilities
    }

    /// The natural logarithm of the sum of the logits' exponentials, which normalises logits to
    /// log-probabilities. Not finite if a logit is NaN or +inf, or if all are -inf.
    pub fn log_sum_exp(logits: &[f32]) -> f64 {
        let highest = highest(logits);
        let exponentials = reduced(logits, 0.0, |sum, logit| sum + f64::from(exp(logit - highest)));
        f64::from(highest) + exponentials.into_iter().sum::<f64>().ln()
    }

    /// The highest logit; minus infinity for an empty slice.
    pub(crate) fn highest(logits: &[f32]) -> f32 {
        reduced(logits, f32::NEG_INFINITY, f32::max).into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    /// The sum in float64, in an order that depends only on the length.
    pub(crate) fn sum(values: &[f32]) -> f64 {
        reduced(values, 0.0_f64, |sum, value| sum + f64::from(value)).into_iter().sum()
    }
}

/// Reduces the values into [`LANES`] accumulators that start at `start`. They may be float64, in
/// which the kernels' `simd::sum` cannot add.
#[inline(always)]
fn reduced<T: Copy>(values: &[f32], start: T, join: impl Fn(T, f32) -> T) -> [T; LANES] {
    let mut lanes = [start; LANES];
    let chunks = values.chunks_exact(LANES);
    for &value in chunks.remainder() {
        lanes[0] = join(lanes[0], value);
    }
    for chunk in chunks {
        for (lane, &value) in lanes.iter_mut().zip(chunk) {
            *lane = join(*lane, value);
        }
    }
    lanes
}

/// e to the power of `x` for `x` at most 0, within 2 units in the last place; results below the
/// smallest normal number become 0.
///
/// Written out because the C library's is neither vectorised nor the same on every machine. The
/// range reduction is `2^n e^r` with |r| at most ln 2 / 2, n being rounded by the float's mantissa
/// (Muller, "Elementary Functions", chapter 11). Then follows the Taylor series up to the sixth
/// power; the seventh is too small to matter.
///
/// Not the kernels' `simd::exp`, which never gives 0, since it goes no lower than e^-87: a removed
/// token, whose logit is minus infinity, must have probability 0, or a draw could take it.
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// 1.5 * 2^23: adding it leaves a float's integer part in its lowest bits.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts; the first has trailing zeros so that `n * LN_2_HIGH` is exact.
    const LN_2_HIGH: f32 = 355.0 / 512.0;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    let series = 1.0 / 720.0 * r + 1.0 / 120.0;
    let series = ((((series * r + 1.0 / 24.0) * r + 1.0 / 6.0) * r + 0.5) * r + 1.0) * r + 1.0;
    let power_of_two = f32::from_bits((rounded.to_bits() << 23).wrapping_add(1.0_f32.to_bits()));
    if x < -87.0 { 0.0 } else { series * power_of_two }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ends_of_the_exponential() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-1e30), 0.0);
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn softmax_by_hand() {
        let p = softmax(&[0.0, 3.0_f32.ln(), f32::NEG_INFINITY]);
        assert!((p[0] - 0.25).abs() < 1e-7 && (p[1] - 0.75).abs() < 1e-7 && p[2] == 0.0);
        assert!((log_sum_exp(&[1000.0, 1000.0]) - (1000.0 + 2.0_f64.ln())).abs() < 1e-9);
        assert!(!log_sum_exp(&[0.0, f32::NAN]).is_finite());
        assert!(!log_sum_exp(&[0.0, f32::INFINITY]).is_finite());
        assert!(!log_sum_exp(&[f32::NEG_INFINITY]).is_finite());
    }

    proptest! {
        #[test]
        fn the_exponential_is_right_to_two_units(x in -87.0_f32..0.0) {
            let exact = f64::from(x).exp();
            let error = (f64::from(exp(x)) - exact).abs() / exact;
            prop_assert!(error < 2.0 * f64::from(f32::EPSILON), "e^{x} is off by {error:e}");
        }

        #[test]
        fn reductions_count_every_value(values in prop::collection::vec(-100.0_f32..0.0, 0..100)) {
            prop_assert_eq!(highest(&values), values.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            let exact: f64 = values.iter().map(|&v| f64::from(v)).sum();
            prop_assert!((sum(&values) - exact).abs() < 1e-9);
        }

        #[test]
        fn probabilities_sum_to_one(logits in prop::collection::vec(-50.0_f32..50.0, 1..300)) {
            prop_assert!((sum(&softmax(&logits)) - 1.0).abs() < 1e-5);
            let norm = log_sum_exp(&logits);
            let total: f64 = logits.iter().map(|&logit| (f64::from(logit) - norm).exp()).sum();
            prop_assert!((total - 1.0).abs() < 1e-5);
        }
    }
}
