//! The guard: checks every gradient before a step is taken along it.
//!
//! A loss or a gradient that is not finite stops the step and not the run: the batch is skipped, a
//! report says where the first value that is not finite came from ([`diagnosis`]), and the run goes
//! on from the same weights with the next batch, at most `max_skipped_batches` times. A spike, a
//! gradient that is finite but unusually long, is scaled down or skipped as `spikes` says.
//!
//! The guard's state is part of a checkpoint, so that a resumed run judges like one never
//! interrupted. The guard never sees an overflow under float16's loss scaling: that is handled
//! before [`Guard::judge`], by lowering the scale.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::optimizer::clip_scale;
use crate::config::{Spikes, TrainConfig};

pub mod diagnosis;
pub mod report;

/// Gradient norms over which the median is taken.
const REMEMBERED: usize = 100;
/// Fewest norms for a median.
const ENOUGH: usize = 20;

/// The guard's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Guard {
    /// The first window of each batch skipped because its loss or gradient was not finite.
    pub not_finite: Vec<u64>,
    /// Number of batches skipped because their gradient was a spike.
    pub spikes_skipped: u64,
    /// The last 100 finite gradient norms, oldest first, including those of spikes: if long
    /// gradients become the rule, they stop being spikes.
    pub norms: VecDeque<f64>,
}

/// What to do with a gradient.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// Take a step along it times `scale`, the clipping factor. For a spike, `spike` is its norm
    /// divided by the usual one.
    #[allow(missing_docs)]
    Take { scale: f64, spike: Option<f64> },
    /// No step: its norm is this many times the usual one.
    LeaveOutSpike(f64),
    /// No step: the gradient or the loss is not finite.
    LeaveOutNotFinite,
}

impl Guard {
    /// Batches skipped so far.
    pub fn skipped(&self) -> u64 {
        self.not_finite.len() as u64 + self.spikes_skipped
    }

    /// Judges and records the gradient norm of the batch that begins at window `window`.
    ///
    /// A spike is a norm above `spike_factor` times the median of the last 100, once there are 20.
    /// `spikes = "clip"` scales the gradient to that median (at most to `grad_clip`), `"skip"`
    /// takes no step.
    pub fn judge(&mut self, loss: f64, grad_norm: f64, window: u64, config: &TrainConfig) -> Verdict {
        if !loss.is_finite() || !grad_norm.is_finite() {
            self.not_finite.push(window);
            return Verdict::LeaveOutNotFinite;
        }
        let usual = self.usual_norm();
        if self.norms.len() == REMEMBERED {
            self.norms.pop_front();
        }
        self.norms.push_back(grad_norm);
        let scale = clip_scale(grad_norm, config.grad_clip);
        let spike = usual.filter(|usual| config.spikes != Spikes::Off && grad_norm > config.spike_factor * usual);
        match spike {
            None => Verdict::Take { scale, spike: None },
            Some(usual) if config.spikes == Spikes::Clip => {
                Verdict::Take { scale: scale.min(usual / grad_norm), spike: Some(grad_norm / usual) }
            }
            Some(usual) => {
                self.spikes_skipped += 1;
                Verdict::LeaveOutSpike(grad_norm / usual)
            }
        }
    }

    /// The median of the recorded norms (the upper of the two in the middle), once there are
    /// enough.
    fn usual_norm(&self) -> Option<f64> {
        let mut norms: Vec<f64> = self.norms.iter().copied().collect();
        norms.sort_by(f64::total_cmp);
        if norms.len() < ENOUGH { None } else { norms.get(norms.len() / 2).copied().filter(|median| *median > 0.0) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::config::{DeviceKind, Settings, TextFacts};

    fn config(spikes: Spikes) -> TrainConfig {
        let facts = TextFacts { train_tokens: 100_000, val_tokens: 10_000, vocab_size: 64 };
        let (mut config, _) = Settings::default().resolve(&facts, DeviceKind::Cpu).unwrap();
        config.spikes = spikes;
        config
    }

    /// A guard after `count` gradients of norm 1, 2, 3, 1, 2, 3, ...
    fn after(count: u64, config: &TrainConfig) -> Guard {
        let mut guard = Guard::default();
        for i in 0..count {
            guard.judge(2.0, 1.0 + (i % 3) as f64, i, config);
        }
        guard
    }

    #[test]
    fn what_is_not_finite_is_left_out_and_its_place_kept() {
        let config = config(Spikes::Off);
        let mut guard = after(30, &config);
        let norms = guard.norms.clone();
        assert_eq!(guard.judge(f64::NAN, 1.0, 30, &config), Verdict::LeaveOutNotFinite);
        assert_eq!(guard.judge(2.0, f64::INFINITY, 34, &config), Verdict::LeaveOutNotFinite);
        assert_eq!((guard.not_finite.clone(), guard.skipped()), (vec![30, 34], 2));
        assert_eq!(guard.norms, norms, "what is not finite is no norm to go by");
    }

    #[test]
    fn a_spike_is_so_many_times_the_median_and_dealt_with_as_asked() {
        // The median is 2 and the factor 10: 20 is the largest norm that passes.
        for (spikes, norm, expected) in [
            (Spikes::Off, 30.0, Verdict::Take { scale: clip_scale(30.0, 1.0), spike: None }),
            (Spikes::Clip, 20.0, Verdict::Take { scale: clip_scale(20.0, 1.0), spike: None }),
            (Spikes::Clip, 30.0, Verdict::Take { scale: clip_scale(30.0, 1.0), spike: Some(15.0) }),
            (Spikes::Skip, 20.0, Verdict::Take { scale: clip_scale(20.0, 1.0), spike: None }),
            (Spikes::Skip, 30.0, Verdict::LeaveOutSpike(15.0)),
        ] {
            let config = config(spikes);
            assert_eq!(after(60, &config).judge(2.0, norm, 60, &config), expected, "{spikes:?} {norm}");
            let early = after(19, &config).judge(2.0, norm, 60, &config);
            assert_eq!(early, Verdict::Take { scale: clip_scale(norm, 1.0), spike: None }, "too early to know");
        }
        let unclipped = TrainConfig { grad_clip: 0.0, ..config(Spikes::Clip) };
        let verdict = after(60, &unclipped).judge(2.0, 30.0, 60, &unclipped);
        assert_eq!(verdict, Verdict::Take { scale: 2.0 / 30.0, spike: Some(15.0) }, "scaled to the median");
    }

    #[test]
    fn long_gradients_that_stay_become_the_rule() {
        let config = config(Spikes::Skip);
        let mut guard = after(100, &config);
        let left_out = (0..100).take_while(|i| guard.judge(2.0, 500.0, *i, &config) == Verdict::LeaveOutSpike(250.0));
        assert!(left_out.count() <= 51);
        assert_eq!(guard.norms.len(), 100);
    }

    proptest! {
        /// Saved and loaded, a guard is the same to the bit.
        #[test]
        fn a_stored_guard_judges_alike(norms in prop::collection::vec(1e-9f64..1e9, 0..150), windows in prop::collection::vec(any::<u64>(), 0..4)) {
            let config = config(Spikes::Skip);
            let mut guard = Guard { not_finite: windows, ..Guard::default() };
            for norm in norms {
                guard.judge(1.0, norm, 0, &config);
            }
            let stored = serde_json::to_string(&guard).unwrap();
            prop_assert_eq!(serde_json::from_str::<Guard>(&stored).unwrap(), guard);
        }
    }
}
