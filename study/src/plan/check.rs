//! Compares a plan with measurements: a few of its steps, their time, and their memory by part.

use std::time::Duration;

use ember_data::prepare::Dataset;
use ember_model::device::Selected;
use serde::Serialize;

use super::{Proposal, measure};
use crate::error::{Error, Result};
use crate::ledger::meter::{MeasuredBy, Meter, positive};
use crate::workbench::Bench;
use ember_training::memory::prediction::{Kernels, Parts, training::Step};
use ember_training::{run::text::windows, step::gradient::pass_forward};

/// Predictions and measurements of a step.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Check {
    /// Where the byte counts come from.
    pub measured_by: MeasuredBy,
    /// Predicted memory of a step alone, without evaluation or checkpoint. As in the measurement,
    /// activations and logits are 0 if a pass runs in segments, which never keeps all of them at
    /// once.
    pub predicted: Parts,
    /// Memory by the meter.
    pub measured: Parts,
    /// Seconds of a step according to the plan.
    pub predicted_step_s: f64,
    /// Mean seconds of a few steps.
    pub measured_step_s: f64,
}

impl Check {
    /// Whether the predicted peak is within 10% or 64 MiB of the measured one.
    pub fn holds(&self) -> bool {
        let off = self.predicted.peak_bytes.abs_diff(self.measured.peak_bytes);
        off <= (64 << 20).max(self.measured.peak_bytes / 10)
    }
}

/// Trains a few steps of the proposal; `go_on` is called before each pass.
///
/// # Errors
/// When the device fails, the memory in use is unknown, or `go_on` says to stop.
pub fn check(proposal: &Proposal, dataset: &Dataset, selected: &Selected, go_on: &dyn Fn() -> bool) -> Result<Check> {
    let Proposal { config, shape, .. } = proposal;
    let mut meter = Meter::new(&selected.device)?;
    let mut bench = Bench::new(config, shape, windows(config, dataset)?, selected, go_on)?;
    let weights = meter.live()?;

    // The first step creates the moments, and on a GPU compiles kernels.
    bench.timed_step()?;
    let moments = meter.live()? - weights;

    // Phase by phase, with the moments in memory as in every step but the first.
    let mut predicted = Step::new(config, shape, Kernels::on(&selected.device)).parts();
    let passes = bench.passes()?;
    let kept = if passes.in_segments(config.micro_batch * config.context_length * shape.vocab_size) {
        (predicted.activations_bytes, predicted.logits_bytes) = (0, 0);
        0
    } else {
        let (windows, range) = bench.windows();
        let batch = windows.batch(range.start, config.micro_batch)?;
        let gpt = bench.gpt.as_ref().ok_or(Error::NoModel)?;
        let divisor = passes.divisor(passes.count(range.end - range.start));
        let before = meter.begin_peak()?;
        let loss = pass_forward(gpt, &batch, passes.first_pass, divisor, &passes);
        let kept = meter.live()? - before;
        // burn frees a graph in its backward, not when its last tensor is dropped.
        drop(loss.objective.backward());
        kept
    };

    let before = meter.begin_peak()?;
    let gradients = loop {
        let gradient = bench.gradient()?;
        let gradients = meter.live()? - before;
        if bench.follow(gradient)? {
            break gradients;
        }
    };
    // A device's pool is read at the end of each phase, and the forward pass is one of them.
    let peak = (meter.peak()? - before).max(kept);
    let timed = measure::time(&mut bench, Duration::from_secs(5))?;
    // The loss keeps the logits' gradient in place of the logits, and of the same size.
    let logits_bytes = predicted.logits_bytes as i64;
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
