//! How fast a model trains on this machine, compared with what the machine can do.
//!
//! Whole steps are timed as training runs them, waiting for the device after each. The parts of a
//! step are timed in separate steps ([`Parts`]), since waiting between the parts would slow down
//! the whole. Every few steps a large matrix product and a copy are timed in the same process: a
//! machine's speed varies from moment to moment, but the ratio hardly does. Memory is measured in
//! the first steps, before anything is timed, since counting takes time too.

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

/// The task to measure.
pub struct Task<'a> {
    /// The configuration of a step.
    pub config: &'a TrainConfig,
    /// The model's shape; it gets random weights.
    pub shape: &'a GptConfig,
    /// The training data.
    pub windows: (TrainWindows, ValWindows),
    /// Number of untimed steps before the timed ones.
    pub warmup: u32,
    /// Number of timed steps; by default as many as fit into [`ENOUGH_S`].
    pub steps: Option<u32>,
}

/// Seconds that the timed steps may take by default.
pub const ENOUGH_S: f64 = 10.0;
/// The minimal and maximal number of timed steps by default.
pub const STEPS: [f64; 2] = [5.0, 100.0];

/// Steps that only measure memory: the first creates the moments, the second has them already.
const COUNTED: u32 = 2;

/// How often the machine's own limits are measured between steps.
const ROUNDS: usize = 5;

/// The measurements.
#[derive(Clone, Debug, Serialize)]
pub struct Speed {
    /// Seconds of a step.
    pub step_s: Spread,
    /// Tokens per second.
    pub tokens_per_s: f64,
    /// Seconds by part, from separate steps.
    pub parts: Parts,
    /// Seconds to create the model.
    pub model_s: f64,
    /// Seconds of the first step, including all compilation and kernel selection.
    pub first_step_s: f64,
    /// Peak memory: weights, moments, gradients and what a step needs.
    pub peak_bytes: u64,
    /// Where that number comes from.
    pub measured_by: MeasuredBy,
    /// Bytes that a GPU's pool has reserved.
    pub reserved_bytes: Option<u64>,
    /// Model FLOPs per token, `6 N + 12 n_layer n_embd context_length`.
    pub flops_per_token: f64,
    /// Model FLOPs per second.
    pub flops_per_s: f64,
    /// Rows, columns and depth of the matrix product for comparison.
    pub product_size: usize,
    /// FLOPs per second of that product, in the run's compute type: the median of all rounds.
    pub product_flops_per_s: f64,
    /// A step's model FLOPs per second, as a share of the product's just before.
    pub utilisation: Spread,
    /// Bytes per second of a copy, read and written: the median of all rounds.
    pub copy_bytes_per_s: f64,
    /// Seconds of every timed step, in order.
    pub steps_s: Vec<f64>,
}

/// Seconds of a step by part. Each part is awaited before the next begins, so the parts may add up
/// to more than a normal step, in which the device works while the host prepares what comes next.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Parts {
    /// Cutting the windows out of the text.
    pub data_s: Spread,
    /// From ids to loss. If a pass runs in segments, this ends before the head: the head, the loss
    /// and what the segments recompute count as backward.
    pub forward_s: Spread,
    /// From the loss to all parameters' gradients.
    pub backward_s: Spread,
    /// The global norm, clipping, and the optimizer's step.
    pub optimizer_s: Spread,
}

/// Measures the task; `go_on` is called before each pass of a step.
///
/// # Errors
/// When the device fails, or `go_on` says to stop.
pub fn measure(task: Task, selected: &Selected, go_on: &dyn Fn() -> bool) -> Result<Speed> {
    let Task { config, shape, windows, warmup, steps } = task;
    let device = &selected.device;
    let mut meter = Meter::new(device)?;
    if selected.gpu {
        products::tune(device); // as a run long enough to be worth it does
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
        // After the large arrays, this brings a step's own data back into the caches.
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

/// Seconds of the very first step, and the peak memory of the first two.
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

/// Takes one step, waiting for each part before the next begins: seconds in the order of [`Parts`].
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

/// Seconds of forward and backward of one batch, whose gradient is added to `gradients`.
fn forward_and_backward(
    gpt: &Gpt,
    batch: &Batch,
    passes: &Passes,
    gradients: &mut GradientsAccumulator<Gpt>,
    meter: &Meter,
) -> Result<[f64; 2]> {
    if !passes.in_segments(batch.inputs.len() * gpt.config().vocab_size) {
        let (loss, forward_s) = meter.time(|| Ok(next_token_loss(gpt, batch)))?;
        let ((), backward_s) = meter.time(|| {
            gradients.accumulate(gpt, GradientsParams::from_grads(loss.backward(), gpt));
            Ok(())
        })?;
        return Ok([forward_s, backward_s]);
    }
    // No parameter requires a gradient, so no graph is left behind.
    let (hidden, forward_s) = meter.time(|| Ok(gpt.clone().no_grad().hidden(inputs(gpt, batch))))?;
    drop(hidden);
    let (_, both_s) = meter.time(|| Ok(pass(gpt, batch, 0, 1.0, passes, gradients)))?;
    // The forward inside the pass may have taken a little more or less than the one before it.
    Ok([forward_s, (both_s - forward_s).max(0.0)])
}
