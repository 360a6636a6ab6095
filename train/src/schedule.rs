//! The learning rate as a pure function of the step.

use serde::{Deserialize, Serialize};

/// What the rate does after the warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Curve {
    /// Half a cosine down.
    Cosine,
    /// Level, then straight down (warm-up, stable, decay).
    Wsd,
    /// Level.
    Constant,
}

/// Linear warm-up, then half a cosine down to a minimum, which it keeps
/// ([Loshchilov and Hutter 2017](https://arxiv.org/abs/1608.03983), equation 5, without restarts).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    /// The highest rate, reached at the end of the warm-up.
    pub learning_rate: f64,
    /// The rate from `decay_steps` on.
    pub min_learning_rate: f64,
    /// Steps of warm-up.
    pub warmup_steps: u64,
    /// The step at which the minimum is reached.
    pub decay_steps: u64,
}

impl Schedule {
    /// The rate of step `step`, counted from 0.
    pub fn learning_rate(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return self.learning_rate * (step + 1) as f64 / (self.warmup_steps + 1) as f64;
        }
        if step >= self.decay_steps {
            return self.min_learning_rate;
        }
        let progress = (step - self.warmup_steps) as f64 / (self.decay_steps - self.warmup_steps) as f64;
        let share = 0.5 * (1.0 + (std::f64::consts::PI * progress).cos());
        self.min_learning_rate + share * (self.learning_rate - self.min_learning_rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warms_up_peaks_halves_and_stays_down() {
        let schedule = Schedule { learning_rate: 1e-3, min_learning_rate: 1e-4, warmup_steps: 9, decay_steps: 109 };
        assert!((schedule.learning_rate(0) - 1e-4).abs() < 1e-12);
        assert!((schedule.learning_rate(8) - 9e-4).abs() < 1e-12);
        assert_eq!(schedule.learning_rate(9), 1e-3);
        assert!((schedule.learning_rate(59) - 5.5e-4).abs() < 1e-12); // half way: the mean of the two
        assert_eq!(schedule.learning_rate(109), 1e-4);
        assert_eq!(schedule.learning_rate(1_000_000), 1e-4); // a cosine left alone would rise again
    }
}
