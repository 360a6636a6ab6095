//! A plan beside what is measured: a few steps of it, their time, and their memory by part.

use std::time::Duration;

use ember_data::prepare::Dataset;
use ember_model::device::Selected;
use serde::Serialize;

use super::{Proposal, measure::Bench};
use crate::batch::next_token_loss;
use crate::error::{Error, Result};
use crate::ledger::meter::{MeasuredBy, Meter, positive};
use ember_training::memory::prediction::{Kernels, Parts, training::Step};
use ember_training::{run::text::windows, step::gradient::Passes};

/// What was predicted of a step, and what it took.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Check {
    /// What the bytes are read from.
    pub measured_by: MeasuredBy,
    /// Of a step alone, not of an evaluation or a save. As in what is measured, activations and
    /// logits are 0 where a pass goes through the model in segments: no moment has all of them.
    pub predicted: Parts,
    /// By the meter.
    pub measured: Parts,
    /// Seconds of a step by the plan.
    pub predicted_step_s: f64,
    /// Mean seconds of some steps.
    pub measured_step_s: f64,
}

impl Check {
    /// Whether the peak is within 10% or 64 MiB of what was measured.
    pub fn holds(&self) -> bool {
        let off = self.predicted.peak_bytes.abs_diff(self.measured.peak_bytes);
        off <= (64 << 20).max(self.measured.peak_bytes / 10)
    }
}

/// Trains a few steps of the proposal; `go_on` is asked before each pass.
///
/// # Errors
/// When the device fails, nobody can say how much memory is in use, or `go_on` says to stop.
pub fn check(proposal: &Proposal, dataset: &Dataset, selected: &Selected, go_on: &dyn Fn() -> bool) -> Result<Check> {
    let Proposal { config, shape, .. } = proposal;
    let mut meter = Meter::new(&selected.device)?;
    let mut bench = Bench::new(config, shape, windows(config, dataset)?, selected, go_on)?;
    let weights = meter.live()?;

    // The first step makes the moments, and on a GPU compiles.
    bench.follow(bench.gradient()?)?;
    let moments = meter.live()? - weights;

    // Phase by phase, with the moments there as in every step but the first.
    let mut predicted = Step::new(config, shape, Kernels::on(&selected.device)).parts();
    let logits = config.micro_batch * config.context_length * shape.vocab_size;
    let [kept, logits_bytes] = if Passes::new(config, 0, 1.0).on(&selected.device).in_segments(logits) {
        (predicted.activations_bytes, predicted.logits_bytes) = (0, 0);
        [0, 0]
    } else {
        let before = meter.begin_peak()?;
        let (windows, _) = windows(config, dataset)?;
        let loss = next_token_loss(bench.gpt.as_ref().ok_or(Error::NoModel)?, &windows.batch(0, config.micro_batch)?);
        let kept = meter.live()? - before;
        // burn frees a graph in its backward, and not when the last tensor of it is dropped.
        drop(loss.backward());
        [kept, 4 * logits as i64]
    };

    let before = meter.begin_peak()?;
    let gradient = bench.gradient()?;
    let gradients = meter.live()? - before;
    bench.follow(gradient)?;
    // A device's pool is read at the ends of the phases, of which the forward pass is one.
    let peak = (meter.peak()? - before).max(kept);
    let timed = bench.time(Duration::from_secs(5))?;
    // The loss keeps the gradient of the logits in their place.
    let activations = kept - logits_bytes;
    Ok(Check {
        measured_by: meter.measured_by,
        predicted,
        measured: Parts {
            weights_bytes: positive(weights),
            gradients_bytes: positive(gradients),
            moments_bytes: positive(moments),
            activations_bytes: positive(activations),
            logits_bytes: positive(logits_bytes),
            cache_bytes: 0,
            peak_bytes: positive(weights + moments + peak),
        },
        predicted_step_s: proposal.step_s,
        measured_step_s: timed.step_s,
    })
}
