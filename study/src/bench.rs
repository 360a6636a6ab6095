//! How fast a model trains on this machine, beside what the machine can do.
//!
//! Timed are whole steps as training takes them, the device's work waited for after each. A step's
//! parts are timed in steps of their own ([`Parts`]), since waiting between the parts would slow
//! the whole down. Every few steps a large matrix product and a copy are timed in the same process:
//! what a machine can do varies from moment to moment, the ratio hardly. Memory is measured in the
//! first steps, before anything is timed, since counting takes time too.

use std::time::Instant;

use burn::{module::Module, optim::GradientsAccumulator, optim::GradientsParams};
use ember_data::windows::{Batch, TrainWindows, ValWindows};
use ember_decoding::{bench::Spread, bench::arithmetic::Copy, bench::arithmetic::Product};
use ember_kernels::gpu::products;
use ember_model::{Gpt, GptConfig, device::Selected};
use serde::Serialize;

use crate::batch::next_token_loss;
use crate::error::{Error, Result};
use crate::ledger::meter::{MeasuredBy, Meter, positive};
use crate::plan::{measure::Bench, speed::step_flops};
use ember_training::step::gradient::{Passes, inputs, pass};
use ember_training::{config::TrainConfig, config::precision::float_dtype, memory::counting};

/// What is measured.
pub struct Task<'a> {
    /// How a step is taken.
    pub config: &'a TrainConfig,
    /// The model, which gets random weights.
    pub shape: &'a GptConfig,
    /// What it learns from.
    pub windows: (TrainWindows, ValWindows),
    /// Steps before the timed ones.
    pub warmup: u32,
    /// Steps that are timed; where nobody says, as many as [`ENOUGH_S`] suffice for.
    pub steps: Option<u32>,
}

/// Seconds that the timed steps may take where nobody says how many there are.
pub const ENOUGH_S: f64 = 10.0;
/// How many there are then at least and at most.
pub const STEPS: [f64; 2] = [5.0, 100.0];

/// Steps that only measure memory: the first makes the moments, the second finds them there.
const COUNTED: u32 = 2;

/// How often the machine's own limits are measured among the steps.
const ROUNDS: usize = 5;

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct Speed {
    /// Seconds of a step.
    pub step_s: Spread,
    /// Tokens a second.
    pub tokens_per_s: f64,
    /// Seconds by part, from steps of their own.
    pub parts: Parts,
    /// Seconds of the model's making.
    pub model_s: f64,
    /// Seconds of the first step, with all that is compiled and chosen in it.
    pub first_step_s: f64,
    /// Most bytes that were there at once: weights, moments, gradients and what a step needs.
    pub peak_bytes: u64,
    /// What says so.
    pub measured_by: MeasuredBy,
    /// Bytes that the pool of a GPU holds.
    pub reserved_bytes: Option<u64>,
    /// Model FLOPs of a token, `6 N + 12 n_layer n_embd context_length`.
    pub flops_per_token: f64,
    /// Model FLOPs a second.
    pub flops_per_s: f64,
    /// Rows, columns and depth of the matrix product beside it.
    pub product_size: usize,
    /// FLOPs a second of that product, in the type that the run multiplies in: the median of all
    /// rounds.
    pub product_flops_per_s: f64,
    /// A step's model FLOPs a second as a share of the product's a moment before.
    pub utilisation: Spread,
    /// Bytes a second of a copy, read and written: the median of all rounds.
    pub copy_bytes_per_s: f64,
    /// Seconds of every timed step, in order.
    pub steps_s: Vec<f64>,
}

/// Seconds of a step by part. Each part is waited for before the next begins, so the parts may come
/// to more than a step of its own, in which a device works on while the host prepares what comes
/// next.
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

/// Measures; `go_on` is asked before each pass of a step.
///
/// # Errors
/// When the device fails, or `go_on` says to stop.
pub fn measure(task: Task, selected: &Selected, go_on: &dyn Fn() -> bool) -> Result<Speed> {
    let Task { config, shape, windows, warmup, steps } = task;
    let device = &selected.device;
    let mut meter = Meter::new(device)?;
    if selected.gpu {
        products::tune(device); // as a run that is worth measuring for does
    }
    let (mut bench, model_s) = meter.time(|| Bench::new(config, shape, windows, selected, go_on))?;
    let (first_step_s, peak_bytes) = first_steps(&mut bench, &mut meter)?;
    let reserved_bytes = device.memory_pool_usage().map(|usage| usage.bytes_reserved);
    counting::stop();

    let mut warm_s = f64::INFINITY;
    for _ in COUNTED..warmup.max(COUNTED + 1) {
        warm_s = warm_s.min(meter.time(|| bench.timed_step())?.1);
    }
    let enough = (ENOUGH_S / warm_s).clamp(STEPS[0], STEPS[1]);
    let steps = steps.map_or(enough as usize, |steps| steps as usize);
    let step_flops = step_flops(config, shape);

    let product = Product::new(float_dtype(config.precision), selected)?;
    let mut copy = Copy::new(selected)?;
    let [mut steps_s, mut shares, mut products, mut copies] = [const { Vec::new() }; 4];
    let mut part_times = [const { Vec::new() }; 4];
    let rounds = ROUNDS.min(steps);
    for round in 0..rounds {
        copies.push(copy.bytes_per_s()?);
        let product = product.flops_per_s()?;
        products.push(product);
        // After the large arrays the caches are the step's own again.
        let step = step_by_part(&mut bench, config, &meter)?;
        part_times.iter_mut().zip(step).for_each(|(times, time_s)| times.push(time_s));
        for _ in steps * round / rounds..steps * (round + 1) / rounds {
            let step_s = meter.time(|| bench.timed_step())?.1;
            shares.push(step_flops / step_s / product);
            steps_s.push(step_s);
        }
    }
    let step_s = Spread::of(steps_s.clone());
    let [data_s, forward_s, backward_s, optimizer_s] = part_times.map(Spread::of);
    let tokens = config.tokens_per_step() as f64;
    Ok(Speed {
        step_s,
        tokens_per_s: tokens / step_s.median,
        parts: Parts { data_s, forward_s, backward_s, optimizer_s },
        model_s,
        first_step_s,
        peak_bytes,
        measured_by: meter.measured_by,
        reserved_bytes,
        flops_per_token: shape.training_flops_per_token(),
        flops_per_s: step_flops / step_s.median,
        product_size: product.size(),
        product_flops_per_s: Spread::of(products).median,
        utilisation: Spread::of(shares),
        copy_bytes_per_s: Spread::of(copies).median,
        steps_s,
    })
}

/// Seconds of the very first step, and the most bytes that were there at once in the first two.
fn first_steps(bench: &mut Bench, meter: &mut Meter) -> Result<(f64, u64)> {
    let mut first_s = 0.0;
    for number in 0..COUNTED {
        let began = Instant::now();
        let gradient = bench.gradient()?;
        meter.live()?;
        bench.follow(gradient)?;
        meter.live()?;
        if number == 0 {
            first_s = began.elapsed().as_secs_f64();
        }
    }
    Ok((first_s, positive(meter.peak()?)))
}

/// Takes one step, each part waited for before the next begins: seconds in the order of [`Parts`].
fn step_by_part(bench: &mut Bench, config: &TrainConfig, meter: &Meter) -> Result<[f64; 4]> {
    let mut gradients = GradientsAccumulator::new();
    let [mut data, mut forward, mut backward] = [0.0; 3];
    let (windows, range) = bench.windows();
    let gpt = bench.gpt.as_ref().ok_or(Error::NoModel)?;
    let passes = Passes::new(config, 0, 1.0).on(&gpt.device());
    for first in range.step_by(config.micro_batch) {
        let began = Instant::now();
        let batch = windows.batch(first, config.micro_batch)?;
        data += began.elapsed().as_secs_f64();
        let [forward_s, backward_s] = forward_and_backward(gpt, &batch, &passes, &mut gradients, meter)?;
        forward += forward_s;
        backward += backward_s;
    }
    let gradients = gradients.grads();
    let ((), optimizer) = meter.time(|| bench.follow(gradients))?;
    Ok([data, forward, backward, optimizer])
}

/// Seconds of the forward and of the backward of one batch, whose gradient is added to `gradients`.
fn forward_and_backward(
    gpt: &Gpt,
    batch: &Batch,
    passes: &Passes,
    gradients: &mut GradientsAccumulator<Gpt>,
    meter: &Meter,
) -> Result<[f64; 2]> {
    if !passes.in_segments(batch.inputs.len() * gpt.config().vocab_size) {
        let (loss, there) = meter.time(|| Ok(next_token_loss(gpt, batch)))?;
        let ((), back) = meter.time(|| {
            gradients.accumulate(gpt, GradientsParams::from_grads(loss.backward(), gpt));
            Ok(())
        })?;
        return Ok([there, back]);
    }
    // No parameter wants a gradient, so that no graph is left behind.
    let (hidden, there) = meter.time(|| Ok(gpt.clone().no_grad().hidden(inputs(gpt, batch))))?;
    drop(hidden);
    let (_, both) = meter.time(|| Ok(pass(gpt, batch, 0, 1.0, passes, gradients)))?;
    // The forward inside the pass took a little more or less than the one before it.
    Ok([there, (both - there).max(0.0)])
}
