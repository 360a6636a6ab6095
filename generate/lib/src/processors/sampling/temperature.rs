//! Temperature: how much the better tokens are preferred.

use super::{LogitsProcessor, Step};

/// Divides the logits: below 1 sharpens the distribution, above 1 flattens it
/// ([Ackley, Hinton and Sejnowski 1985](https://doi.org/10.1207/s15516709cog0901_7); transformers `TemperatureLogitsWarper`).
#[derive(Clone, Copy, Debug)]
pub struct Temperature(
    /// The divisor, above 0.
    pub f32,
);

impl LogitsProcessor for Temperature {
    fn name(&self) -> &'static str {
        "temperature"
    }

    fn process(&self, _: &Step, logits: &mut [f32]) {
        for logit in logits {
            *logit /= self.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processors::{START, processed};
    use crate::softmax::softmax;

    #[test]
    fn temperature_divides() {
        assert_eq!(
            processed(&Temperature(0.5), &START, &[2.0, -1.0, f32::NEG_INFINITY]),
            [4.0, -2.0, f32::NEG_INFINITY]
        );
    }

    /// Logits 2, 1, 0 are odds of e^2 : e : 1. At temperature 0.5 the odds are squared, at 2 their roots are taken.
    #[test]
    fn odds_are_raised_to_the_power_of_one_over_the_temperature() {
        for (temperature, odds) in [(1.0, 1.0_f32.exp()), (0.5, 2.0_f32.exp()), (2.0, 0.5_f32.exp())] {
            let p = softmax(&processed(&Temperature(temperature), &START, &[2.0, 1.0, 0.0]));
            assert!((p[0] / p[1] - odds).abs() < 1e-5 && (p[1] / p[2] - odds).abs() < 1e-5, "{temperature}: {p:?}");
        }
    }
}
