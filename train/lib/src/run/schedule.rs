//! The learning rate as a pure function of the step.

use std::f64::consts::PI;

use crate::config::{Curve, TrainConfig};

impl Curve {
    /// Whether the rate decays to its minimum and stays there.
    pub fn comes_down(self) -> bool {
        match self {
            Self::Cosine | Self::Wsd => true,
            Self::Constant => false,
        }
    }
}

/// The learning rate at `step`, counted from 0: linear warm-up to the peak, then the curve that
/// `schedule` names. All curves except the constant one decay to the minimum and stay there.
pub fn learning_rate(config: &TrainConfig, step: u64) -> f64 {
    let TrainConfig { learning_rate, min_learning_rate, warmup_steps, lr_decay_steps, .. } = *config;
    if step < warmup_steps {
        return learning_rate * (step + 1) as f64 / (warmup_steps + 1) as f64;
    }
    // Progress from `start` to the end of the decay, from 0 to 1.
    let progress = |start| (step - start) as f64 / (lr_decay_steps - start) as f64;
    // The last step of WSD's constant part, where its linear decay begins.
    let decay = (config.decay_fraction * lr_decay_steps as f64).round() as u64;
    let decay_start = lr_decay_steps.saturating_sub(decay).max(warmup_steps);
    let share = match config.schedule {
        Curve::Constant => return learning_rate,
        _ if step >= lr_decay_steps => return min_learning_rate,
        Curve::Cosine => 0.5 * (1.0 + (PI * progress(warmup_steps)).cos()),
        Curve::Wsd if step <= decay_start => return learning_rate,
        Curve::Wsd => 1.0 - progress(decay_start),
    };
    min_learning_rate + share * (learning_rate - min_learning_rate)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::config::{DeviceKind, Settings, TextFacts};

    fn cosine() -> TrainConfig {
        let keys = "learning_rate = 1e-3\nmin_learning_rate = 1e-4\nwarmup_steps = 9\nlr_decay_steps = 109\nschedule = \"cosine\"\ndecay_fraction = 0.2";
        Settings::from_toml_str(keys).unwrap().resolve(&TextFacts::assumed(65), DeviceKind::Cpu).unwrap().0
    }

    #[test]
    fn warms_up_peaks_halves_and_stays_down() {
        let config = cosine();
        assert!((learning_rate(&config, 0) - 1e-4).abs() < 1e-12);
        assert!((learning_rate(&config, 8) - 9e-4).abs() < 1e-12);
        assert_eq!(learning_rate(&config, 9), 1e-3);
        assert!((learning_rate(&config, 59) - 5.5e-4).abs() < 1e-12); // halfway: the mean of the two
        assert_eq!(learning_rate(&config, 109), 1e-4);
        assert_eq!(learning_rate(&config, 1_000_000), 1e-4); // a cosine that is not clamped would rise again
    }

    #[test]
    fn stays_level_and_goes_straight_down() {
        let config = TrainConfig { schedule: Curve::Wsd, lr_decay_steps: 100, ..cosine() };
        assert!((learning_rate(&config, 8) - 9e-4).abs() < 1e-12);
        for level in [9, 50, 79, 80] {
            assert_eq!(learning_rate(&config, level), 1e-3);
        }
        assert!((learning_rate(&config, 85) - 7.75e-4).abs() < 1e-12); // a quarter of the way
        assert!((learning_rate(&config, 90) - 5.5e-4).abs() < 1e-12); // half of the way
        assert!((learning_rate(&config, 99) - 1.45e-4).abs() < 1e-12);
        assert_eq!(learning_rate(&config, 100), 1e-4);
        assert_eq!(learning_rate(&config, 1_000_000), 1e-4);
        // A decay over the whole run begins after the warm-up.
        let all = TrainConfig { decay_fraction: 1.0, ..config };
        assert_eq!(learning_rate(&all, 9), 1e-3);
        assert!(learning_rate(&all, 10) < 1e-3);
    }

    #[test]
    fn stays_level_for_ever() {
        let config = TrainConfig { schedule: Curve::Constant, ..cosine() };
        assert!((learning_rate(&config, 4) - 5e-4).abs() < 1e-12);
        for step in [9, 109, 1_000_000] {
            assert_eq!(learning_rate(&config, step), 1e-3);
        }
    }

    proptest! {
        /// For any lengths, including a warm-up longer than the run: rates lie between 0 and the
        /// peak, and never rise after the warm-up.
        #[test]
        fn every_curve_only_goes_down_after_the_warm_up(
            schedule in prop::sample::select(vec![Curve::Cosine, Curve::Wsd, Curve::Constant]),
            warmup_steps in 0u64..60, lr_decay_steps in 1u64..100, decay_fraction in 0.001f64..=1.0,
        ) {
            let config = TrainConfig { schedule, warmup_steps, lr_decay_steps, decay_fraction, ..cosine() };
            let rates: Vec<f64> = (0..150).map(|step| learning_rate(&config, step)).collect();
            prop_assert!(rates.iter().all(|rate| *rate > 0.0 && *rate <= 1e-3));
            prop_assert!(rates[warmup_steps as usize..].windows(2).all(|pair| pair[1] <= pair[0]));
        }
    }
}
