//! Where the time of a step goes. Each part is waited for before the next begins, so the parts may
//! come to more than a step of its own, in which a device works on while the host prepares what
//! comes next.

use std::time::Instant;

use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::{module::Module, tensor::Device};
use ember_data::windows::Batch;
use ember_decoding::bench::Spread;
use ember_model::Gpt;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::{ledger::meter::wait_for, plan::measure::Bench};
use ember_training::config::TrainConfig;
use ember_training::step::gradient::{Gradient, Passes, inputs, next_token_loss, pass};

/// Seconds of a step by part.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Parts {
    /// Cutting the windows out of the text.
    pub data_s: Spread,
    /// From the ids to the loss. Where a pass goes in segments it ends before the head: the head,
    /// the loss and what the segments compute again count to the backward.
    pub forward_s: Spread,
    /// From the loss to every parameter's gradient.
    pub backward_s: Spread,
    /// The global norm, clipping, the step.
    pub optimizer_s: Spread,
}

/// The times of all steps that were timed by part, in the order of [`Parts`].
#[derive(Debug, Default)]
pub struct PartTimes([Vec<f64>; 4]);

impl PartTimes {
    /// Takes one step, part by part.
    ///
    /// # Errors
    /// When the device fails.
    pub fn time_a_step(&mut self, bench: &mut Bench, config: &TrainConfig, device: &Device) -> Result<()> {
        let mut gradients = GradientsAccumulator::new();
        let [mut data, mut forward, mut backward] = [0.0; 3];
        let passes = Passes::new(config, 0, 1.0);
        let (windows, range) = bench.windows();
        let gpt = bench.gpt().ok_or(Error::NoModel)?;
        for first in range.step_by(config.micro_batch) {
            let began = Instant::now();
            let batch = windows.batch(first, config.micro_batch)?;
            data += began.elapsed().as_secs_f64();
            let [there, back] = there_and_back(gpt, &batch, &passes, &mut gradients, device)?;
            forward += there;
            backward += back;
        }
        let began = Instant::now();
        bench.follow(Gradient { loss: 0.0, gradients: gradients.grads() });
        wait_for(device)?;
        let step = [data, forward, backward, began.elapsed().as_secs_f64()];
        self.0.iter_mut().zip(step).for_each(|(times, time_s)| times.push(time_s));
        Ok(())
    }

    /// What they come to.
    pub fn spread(self) -> Parts {
        let [data_s, forward_s, backward_s, optimizer_s] = self.0.map(Spread::of);
        Parts { data_s, forward_s, backward_s, optimizer_s }
    }
}

/// Seconds of the forward and of the backward of one batch, whose gradient is added to `gradients`.
fn there_and_back(
    gpt: &Gpt,
    batch: &Batch,
    passes: &Passes,
    gradients: &mut GradientsAccumulator<Gpt>,
    device: &Device,
) -> Result<[f64; 2]> {
    wait_for(device)?;
    let began = Instant::now();
    let lap = || -> Result<f64> {
        wait_for(device)?;
        Ok(began.elapsed().as_secs_f64())
    };
    if !passes.in_segments(batch.inputs.len() * gpt.config().vocab_size) {
        let loss = next_token_loss(gpt, batch);
        let there = lap()?;
        gradients.accumulate(gpt, GradientsParams::from_grads(loss.backward(), gpt));
        return Ok([there, lap()? - there]);
    }
    // No parameter wants a gradient, so that no graph is left behind.
    let hidden = gpt.clone().no_grad().hidden(inputs(gpt, batch));
    let there = lap()?;
    drop(hidden);
    let again = lap()?;
    pass(gpt, batch, 0, 1.0, passes, gradients);
    // The forward inside the pass took a little more or less than the one before it.
    Ok([there, (lap()? - again - there).max(0.0)])
}
