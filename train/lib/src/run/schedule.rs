//! The learning rate as a pure function of the step.

use crate::config::Curve;

/// Linear warm-up, then a curve down to a minimum, which it keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// What follows the warm-up.
    pub curve: Curve,
    /// The highest rate, reached at the end of the warm-up.
    pub learning_rate: f64,
    /// The rate from `decay_steps` on, but for the constant curve.
    pub min_learning_rate: f64,
    /// Steps of warm-up.
    pub warmup_steps: u64,
    /// The step at which the minimum is reached.
    pub decay_steps: u64,
    /// The share of `decay_steps` that the straight way down takes.
    pub decay_fraction: f64,
}

impl Curve {
    /// Whether the rate comes down to its minimum, and stays there.
    pub fn comes_down(self) -> bool {
        match self {
            Self::Cosine | Self::Wsd => true,
            Self::Constant => false,
        }
    }
}

impl Schedule {
    /// The rate of step `step`, counted from 0.
    pub fn learning_rate(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return self.learning_rate * (step + 1) as f64 / (self.warmup_steps + 1) as f64;
        }
        let share = match self.curve {
            Curve::Constant => return self.learning_rate,
            _ if step >= self.decay_steps => return self.min_learning_rate,
            Curve::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * self.progress(step, self.warmup_steps)).cos()),
            Curve::Wsd if step <= self.decay_start() => return self.learning_rate,
            Curve::Wsd => 1.0 - self.progress(step, self.decay_start()),
        };
        self.min_learning_rate + share * (self.learning_rate - self.min_learning_rate)
    }

    /// How far `step` is on the way from `start` to the end, from 0 to 1.
    fn progress(&self, step: u64, start: u64) -> f64 {
        (step - start) as f64 / (self.decay_steps - start) as f64
    }

    /// The last step of the level part, where the way down begins.
    fn decay_start(&self) -> u64 {
        let decay = (self.decay_fraction * self.decay_steps as f64).round() as u64;
        self.decay_steps.saturating_sub(decay).max(self.warmup_steps)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COSINE: Schedule = Schedule {
        curve: Curve::Cosine,
        learning_rate: 1e-3,
        min_learning_rate: 1e-4,
        warmup_steps: 9,
        decay_steps: 109,
        decay_fraction: 0.2,
    };

    #[test]
    fn warms_up_peaks_halves_and_stays_down() {
        let schedule = COSINE;
        assert!((schedule.learning_rate(0) - 1e-4).abs() < 1e-12);
        assert!((schedule.learning_rate(8) - 9e-4).abs() < 1e-12);
        assert_eq!(schedule.learning_rate(9), 1e-3);
        assert!((schedule.learning_rate(59) - 5.5e-4).abs() < 1e-12); // half way: the mean of the two
        assert_eq!(schedule.learning_rate(109), 1e-4);
        assert_eq!(schedule.learning_rate(1_000_000), 1e-4); // a cosine left alone would rise again
    }

    #[test]
    fn stays_level_and_goes_straight_down() {
        let schedule = Schedule { curve: Curve::Wsd, warmup_steps: 9, decay_steps: 100, ..COSINE };
        assert!((schedule.learning_rate(8) - 9e-4).abs() < 1e-12);
        for level in [9, 50, 79, 80] {
            assert_eq!(schedule.learning_rate(level), 1e-3);
        }
        assert!((schedule.learning_rate(85) - 7.75e-4).abs() < 1e-12); // a quarter of the way
        assert!((schedule.learning_rate(90) - 5.5e-4).abs() < 1e-12); // half of it
        assert!((schedule.learning_rate(99) - 1.45e-4).abs() < 1e-12);
        assert_eq!(schedule.learning_rate(100), 1e-4);
        assert_eq!(schedule.learning_rate(1_000_000), 1e-4);
        // A way down that is the whole run begins after the warm-up.
        let all = Schedule { decay_fraction: 1.0, ..schedule };
        assert_eq!(all.learning_rate(9), 1e-3);
        assert!(all.learning_rate(10) < 1e-3);
    }

    #[test]
    fn stays_level_for_ever() {
        let schedule = Schedule { curve: Curve::Constant, ..COSINE };
        assert!((schedule.learning_rate(4) - 5e-4).abs() < 1e-12);
        for step in [9, 109, 1_000_000] {
            assert_eq!(schedule.learning_rate(step), 1e-3);
        }
    }

    proptest! {
        /// Whatever the lengths, a warm-up longer than the run included: between 0 and the peak,
        /// and never up after the warm-up.
        #[test]
        fn every_curve_only_goes_down_after_the_warm_up(
            curve in prop::sample::select(vec![Curve::Cosine, Curve::Wsd, Curve::Constant]),
            warmup_steps in 0u64..60, decay_steps in 1u64..100, decay_fraction in 0.001f64..=1.0,
        ) {
            let schedule = Schedule { curve, warmup_steps, decay_steps, decay_fraction, ..COSINE };
            let rates: Vec<f64> = (0..150).map(|step| schedule.learning_rate(step)).collect();
            prop_assert!(rates.iter().all(|rate| *rate > 0.0 && *rate <= 1e-3));
            prop_assert!(rates[warmup_steps as usize..].windows(2).all(|pair| pair[1] <= pair[0]));
        }
    }
}
