//! Ends a run at the promised time.
//!
//! The length of the run is chosen from measured speed before it begins. While it runs, the budget
//! compares the measured time of steps and looks (evaluation, save, sample) with the time left, and
//! changes `max_steps`. It does so after an evaluation, when the checkpoint of that step is already
//! saved, so that a resumed run produces the same numbers. Between evaluations only the end moves,
//! not the schedule: a run that would take too long stops after the current step, and one that
//! would end too early goes on.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::config::TrainConfig;

/// The share of the promised time that the run aims at: little is unforeseen at its end, and late
/// is worse than early.
const AIM: f64 = 0.98;

/// The share of the promised time after which a run that is still training is ended.
const LATEST: f64 = 1.06;

/// A run that would end before this share of the promised time goes on, at the final rate of its
/// schedule.
const EARLIEST: f64 = 0.95;

/// Smallest change of the length that is made, as a share of it.
const MIN_CHANGE: f64 = 0.03;

/// Seconds for drawing the losses and the final output.
const CONCLUDING_S: f64 = 0.1;

/// The time that steps and looks take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pace {
    /// Seconds of a step.
    pub step_s: f64,
    /// Seconds of a look: save, evaluation, sample.
    pub look_s: f64,
}

impl Pace {
    /// Seconds from step `from` to the end of a run of `to` steps, with a look every
    /// `eval_interval` steps and at the end.
    pub fn seconds(&self, from: u64, to: u64, eval_interval: u64) -> f64 {
        let interval = eval_interval.max(1);
        let looks = (to / interval).saturating_sub(from / interval) + u64::from(!to.is_multiple_of(interval));
        to.saturating_sub(from) as f64 * self.step_s + looks as f64 * self.look_s
    }

    /// The last step of the longest run that ends within `left_s` seconds from step `from`; at
    /// least `from + 1`.
    pub fn longest(&self, from: u64, left_s: f64, eval_interval: u64) -> u64 {
        let most = (left_s.max(0.0) / self.step_s.max(1e-9)).min(1e12) as u64;
        let (mut low, mut high) = (0, most + 1);
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            if self.seconds(from, from + middle, eval_interval) <= left_s { low = middle } else { high = middle }
        }
        from + low.max(1)
    }
}

/// A change of the run's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Move the end of the run and of its schedule to this step.
    Length(u64),
    /// End at this step without changing the schedule. This is possible at any time, since no
    /// earlier learning rate changes.
    End(u64),
}

impl Change {
    /// The configuration with this change. The schedule moves with the length if both ended at the
    /// same step.
    pub fn apply(self, config: &TrainConfig) -> TrainConfig {
        let ends_with_the_schedule = config.lr_decay_steps == config.max_steps;
        let (max_steps, lr_decay_steps) = match self {
            Self::Length(steps) if ends_with_the_schedule => (steps, steps),
            Self::Length(steps) | Self::End(steps) => (steps, config.lr_decay_steps),
        };
        TrainConfig { max_steps, lr_decay_steps, ..config.clone() }
    }
}

/// The time budget of one run.
#[derive(Debug)]
pub struct TimeBudget {
    /// When the command began.
    began: Instant,
    /// Seconds it may take from then on.
    promised_s: f64,
    /// The run ends at this step even if there is time left.
    most_steps: u64,
    /// Predicted at first, then measured.
    pace: Pace,
    /// The last [`Self::read`].
    last: Option<Reading>,
    /// The steps since the last look.
    recent: Measured,
    /// The steps before it.
    earlier: Measured,
}

/// One reading of the clock.
#[derive(Clone, Copy, Debug)]
struct Reading {
    /// The step that it followed.
    step: u64,
    at: Instant,
}

/// Measured steps, without looks.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    steps: u64,
    /// Their total time.
    seconds: f64,
}

impl Measured {
    /// Seconds of a step; `None` without steps.
    fn mean(self) -> Option<f64> {
        (self.steps > 0).then_some(self.seconds / self.steps as f64)
    }

    /// These steps and others.
    fn plus(self, other: Self) -> Self {
        Self { steps: self.steps + other.steps, seconds: self.seconds + other.seconds }
    }
}

impl TimeBudget {
    /// The budget of a command that began at `began` and must end `promised_s` seconds later, or
    /// after `most_steps`.
    pub fn new(began: Instant, promised_s: f64, most_steps: u64, foreseen: Pace) -> Self {
        let (recent, earlier) = (Measured::default(), Measured::default());
        Self { began, promised_s, most_steps, pace: foreseen, last: None, recent, earlier }
    }

    /// The seconds that a run aims at, of the seconds promised.
    pub fn aim(promised_s: f64) -> f64 {
        AIM * promised_s - CONCLUDING_S
    }

    /// Reads the clock after all work at `step` and before the next step; returns a change if the
    /// run needs one.
    pub fn read(&mut self, step: u64, config: &TrainConfig) -> Option<Change> {
        let now = Instant::now();
        let looked = step > 0 && step.is_multiple_of(config.eval_interval);
        // The first step does not count: it compiles kernels and fills caches.
        if let Some(last) = self.last.replace(Reading { step, at: now })
            && last.step > 0
        {
            self.record((now - last.at).as_secs_f64(), looked);
        }
        self.change((now - self.began).as_secs_f64(), step, looked, config)
    }

    /// The change for a run at `step` after `elapsed_s` seconds; `looked` says whether the
    /// checkpoint of that step is saved.
    fn change(&self, elapsed_s: f64, step: u64, looked: bool, config: &TrainConfig) -> Option<Change> {
        let Self { promised_s, most_steps, pace, .. } = *self;
        let left_s = Self::aim(promised_s) - elapsed_s;
        let fits = pace.longest(step, left_s, config.eval_interval).min(most_steps.max(step + 1));
        // When the run would be over if the next step were its last.
        let ended_s = elapsed_s + pace.step_s + pace.look_s + CONCLUDING_S;
        if step + 1 >= config.max_steps {
            return (ended_s < EARLIEST * promised_s && fits > config.max_steps).then_some(Change::End(fits));
        }
        if ended_s > LATEST * promised_s {
            return Some(Change::End(step + 1));
        }
        if !looked {
            return None;
        }
        let off = fits.abs_diff(config.max_steps) as f64 / config.max_steps as f64;
        (off > MIN_CHANGE).then_some(Change::Length(fits))
    }

    /// Updates the pace with the `seconds` of one step and, if `looked`, of the look after it. Only
    /// the two together are measured then: the look is what remains after the mean step. Of 10
    /// steps of 0.1 s and then one with a look in 1.1 s, the look took 1.0 s.
    fn record(&mut self, seconds: f64, looked: bool) {
        if !looked {
            self.recent = self.recent.plus(Measured { steps: 1, seconds });
            return;
        }
        self.pace.step_s = match (self.recent.mean(), self.earlier.mean()) {
            (None, _) => self.pace.step_s,
            (Some(recent_s), None) => recent_s,
            // The recent steps get half the weight, not all: a short disturbance counts less.
            (Some(recent_s), Some(earlier_s)) => (recent_s + earlier_s) / 2.0,
        };
        self.pace.look_s = (seconds - self.pace.step_s).max(0.0);
        self.earlier = self.earlier.plus(std::mem::take(&mut self.recent));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::config::{DeviceKind, Settings, TextFacts};

    fn config(max_steps: u64, eval_interval: u64) -> TrainConfig {
        let facts = TextFacts { train_tokens: 1_000_000, val_tokens: 100_000, vocab_size: 65 };
        let settings = format!("max_steps = {max_steps}\neval_interval = {eval_interval}");
        Settings::from_toml_str(&settings).unwrap().resolve(&facts, DeviceKind::Cpu).unwrap().0
    }

    #[test]
    fn a_run_by_hand() {
        let pace = Pace { step_s: 0.1, look_s: 2.0 };
        // 100 steps, evaluations after 50 and 100.
        assert!((pace.seconds(0, 100, 50) - 14.0).abs() < 1e-9);
        assert!((pace.seconds(50, 100, 50) - 7.0).abs() < 1e-9);
        assert!((pace.seconds(0, 101, 50) - 16.1).abs() < 1e-9);
        assert_eq!(pace.longest(0, 14.05, 50), 100);
        assert_eq!(pace.longest(30, 0.0, 50), 31);
    }

    #[test]
    fn slower_than_foreseen_is_shortened_and_faster_is_lengthened() {
        let config = config(1000, 50);
        let budget = |most, step_s| TimeBudget::new(Instant::now(), 100.0, most, Pace { step_s, look_s: 0.5 });
        let at = |elapsed, looked, step_s| budget(u64::MAX, step_s).change(elapsed, 50, looked, &config);
        assert_eq!(at(5.0, true, 0.0885), None, "as foreseen");
        assert!(matches!(at(10.0, true, 0.2), Some(Change::Length(steps)) if steps < 500));
        assert!(matches!(at(3.0, true, 0.05), Some(Change::Length(steps)) if steps > 1500));
        assert_eq!(at(10.0, false, 0.2), None, "only where a checkpoint is");
        assert_eq!(at(105.6, false, 0.2), Some(Change::End(51)));
        let last = |elapsed, most| budget(most, 0.1).change(elapsed, 999, false, &config);
        assert!(matches!(last(80.0, u64::MAX), Some(Change::End(steps)) if steps > 1100));
        assert_eq!(last(97.0, u64::MAX), None);
        assert_eq!(last(80.0, 1050), Some(Change::End(1050)));
        assert_eq!(last(80.0, 1000), None, "the text is worth no more");
    }

    #[test]
    fn steps_and_looks_are_told_apart() {
        let mut clock = TimeBudget::new(Instant::now(), 60.0, u64::MAX, Pace { step_s: 9.0, look_s: 9.0 });
        for _ in 0..10 {
            clock.record(0.1, false);
        }
        clock.record(1.1, true);
        assert!((clock.pace.step_s - 0.1).abs() < 1e-9 && (clock.pace.look_s - 1.0).abs() < 1e-9);
        for _ in 0..10 {
            clock.record(0.3, false);
        }
        clock.record(1.2, true);
        assert!((clock.pace.step_s - 0.2).abs() < 1e-9 && (clock.pace.look_s - 1.0).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn the_longest_run_fits_and_the_next_does_not(
            step_s in 1e-4f64..2.0, look_s in 0.0f64..5.0, left_s in 0.0f64..3e3, from in 0u64..5000, interval in 1u64..400,
        ) {
            let pace = Pace { step_s, look_s };
            let to = pace.longest(from, left_s, interval);
            prop_assert!(to > from);
            prop_assert!(to == from + 1 || pace.seconds(from, to, interval) <= left_s);
            prop_assert!(pace.seconds(from, to + 1, interval) > left_s);
        }

        /// At any actual speed, a run with a time budget ends within a tenth of it.
        #[test]
        fn the_promise_is_kept_at_any_speed(
            foreseen in 0.01f64..0.3, truly in 0.01f64..0.3, look_s in 0.0f64..0.5, promised_s in 40.0f64..400.0,
        ) {
            let mut config = config(1000, 1);
            config.max_steps = Pace { step_s: foreseen, look_s }.longest(0, AIM * promised_s, 1_000_000);
            config.eval_interval = (config.max_steps / 20).max(1);
            config.max_steps = Pace { step_s: foreseen, look_s }.longest(0, AIM * promised_s, config.eval_interval);
            let budget = TimeBudget::new(Instant::now(), promised_s, u64::MAX, Pace { step_s: truly, look_s });
            let (mut step, mut elapsed) = (0, 0.0);
            while step < config.max_steps {
                let looked = step > 0 && step.is_multiple_of(config.eval_interval);
                if looked {
                    elapsed += look_s;
                }
                match budget.change(elapsed, step, looked, &config) {
                    Some(Change::Length(steps)) => config.max_steps = steps,
                    Some(Change::End(steps)) => config.max_steps = steps,
                    None => {}
                }
                step += 1;
                elapsed += truly;
            }
            elapsed += look_s + CONCLUDING_S;
            let share = elapsed / promised_s;
            prop_assert!((0.9..1.1).contains(&share), "{share}: {step} steps of {truly} s, looks of {look_s} s");
        }
    }
}
