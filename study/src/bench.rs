//! How fast a model trains on this machine, compared with what the machine can do.
//!
//! Whole steps are timed as training runs them, waiting for the device after each. The parts of a
//! step are timed in separate steps ([`Parts`]), since waiting between the parts would slow down
//! the whole. Every few steps a large matrix product and a copy are timed in the same process: a
//! machine's speed varies from moment to moment, but the ratio hardly does. Memory is measured in
//! the first steps, before anything is timed, since counting takes time too.

use std::time::Instant;

use burn::{module::Module, optim::GradientsAccumulator, optim::GradientsParams, tensor::Device};
use ember_data::windows::{Batch, TrainWindows, ValWindows};
use ember_decoding::{bench::Spread, bench::arithmetic::Copy, bench::arithmetic::Product};
use ember_kernels::gpu::products;
use ember_model::{Gpt, GptConfig, device::Selected};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::ledger::meter::{MeasuredBy, Meter, positive, timed};
use crate::plan::speed::step_flops;
use crate::workbench::Bench;
use ember_training::step::gradient::{Passes, accumulated, inputs, pass, pass_backward, pass_forward};
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
        let step = step_by_part(&mut bench, device)?;
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
        let mut is_taken = false;
        while !is_taken {
            let gradient = bench.gradient()?;
            meter.live()?;
            is_taken = bench.follow(gradient)?;
            meter.live()?;
        }
        if number == 0 {
            first_s = began.elapsed().as_secs_f64();
        }
    }
    Ok((first_s, positive(meter.peak()?)))
}

/// Takes one step, waiting for each part before the next begins: seconds in the order of [`Parts`].
/// If its gradient must be computed again, those of the last time.
fn step_by_part(bench: &mut Bench, device: &Device) -> Result<[f64; 4]> {
    loop {
        let (gradients, [data_s, forward_s, backward_s]) = gradient_by_part(bench, device)?;
        let (is_taken, optimizer_s) = timed(device, || bench.follow(gradients))?;
        if is_taken {
            return Ok([data_s, forward_s, backward_s, optimizer_s]);
        }
    }
}

/// The same gradient as [`Bench::gradient`], with the seconds of its parts: data, forward and
/// backward. As there, `go_on` is called before each pass.
fn gradient_by_part(bench: &Bench, device: &Device) -> Result<(GradientsParams, [f64; 3])> {
    let mut gradients = GradientsAccumulator::new();
    let [mut data_s, mut forward_s, mut backward_s] = [0.0; 3];
    let (windows, range) = bench.windows();
    let gpt = bench.gpt.as_ref().ok_or(Error::NoModel)?;
    let passes = bench.passes()?;
    let divisor = passes.divisor(passes.count(range.end - range.start));
    for (number, first) in (passes.first_pass..).zip(range.step_by(passes.micro_batch)) {
        bench.proceed()?;
        let began = Instant::now();
        let batch = windows.batch(first, passes.micro_batch)?;
        data_s += began.elapsed().as_secs_f64();
        let pass = Pass { gpt, batch: &batch, number, divisor, passes: &passes };
        let [forward, backward] = pass.by_part(&mut gradients, device)?;
        forward_s += forward;
        backward_s += backward;
    }
    let (gradients, scaling_s) = timed(device, || Ok(accumulated(gpt, gradients, &passes)))?;
    Ok((gradients, [data_s, forward_s, backward_s + scaling_s]))
}

/// One pass of a step.
struct Pass<'a> {
    gpt: &'a Gpt,
    batch: &'a Batch,
    number: u64,
    divisor: f64,
    passes: &'a Passes,
}

impl Pass<'_> {
    /// Seconds of forward and backward. Adds its gradient to `gradients`.
    fn by_part(&self, gradients: &mut GradientsAccumulator<Gpt>, device: &Device) -> Result<[f64; 2]> {
        let Self { gpt, batch, number, divisor, passes } = *self;
        if !passes.in_segments(batch.inputs.len() * gpt.config().vocab_size) {
            let (loss, forward_s) = timed(device, || Ok(pass_forward(gpt, batch, number, divisor, passes)))?;
            let ((), backward_s) = timed(device, || {
                pass_backward(gpt, loss.objective, gradients);
                Ok(())
            })?;
            return Ok([forward_s, backward_s]);
        }
        // No parameter requires a gradient, so no graph is left behind.
        let (hidden, forward_s) = timed(device, || Ok(gpt.clone().no_grad().hidden(inputs(gpt, batch))))?;
        drop(hidden);
        let (_, both_s) = timed(device, || Ok(pass(gpt, batch, number, divisor, passes, gradients)))?;
        // The forward inside the pass may have taken a little more or less than the one before it.
        Ok([forward_s, (both_s - forward_s).max(0.0)])
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::Cell;

    use ember_data::{tokens::TokenFile, windows::WindowRule};
    use ember_model::device::{DeviceChoice, select};
    use ember_training::step::gradient::{self, LossScale};

    use super::*;
    use crate::stepper::tests::{VOCAB, bits, config, windows};

    /// The windows of both splits.
    fn both(config: &TrainConfig) -> (TrainWindows, ValWindows) {
        let tokens = TokenFile::from_ids(&[0; 100], VOCAB).unwrap();
        let held_out = ValWindows::new(&tokens, config.context_length, WindowRule::Anywhere, None).unwrap();
        (windows(config), held_out)
    }

    #[test]
    fn the_parts_compute_the_gradient_of_a_run() {
        let selected = select(DeviceChoice::Cpu).unwrap();
        for keys in [
            "precision = \"f32\"\nz_loss = 0.1\nlabel_smoothing = 0.2\ngrad_accum_steps = 2",
            "precision = \"f16\"\nz_loss = 0.1",
            "precision = \"f32\"\nz_loss = 0.1\nactivation_checkpointing = true",
        ] {
            let config = config(keys);
            let training = windows(&config);
            let bench = Bench::new(&config, &config.shape(VOCAB), both(&config), &selected, &|| true).unwrap();
            let gpt = bench.gpt.as_ref().unwrap();

            let scale = LossScale::default().scale(config.precision);
            let passes = Passes::new(&config, 0, scale).on(&gpt.device());
            let step = 0..config.windows_per_step() as u64;
            let of_run = gradient::of_windows(gpt, &training, step, passes, &|| false).unwrap().unwrap().gradients;
            let (by_part, _) = gradient_by_part(&bench, &selected.device).unwrap();
            for own in [by_part, bench.gradient().unwrap()] {
                assert!(bits(gpt, &own) == bits(gpt, &of_run), "{keys}");
            }
        }
    }

    #[test]
    fn a_step_by_part_ends_between_two_passes_when_asked_to() {
        let selected = select(DeviceChoice::Cpu).unwrap();
        let config = config("precision = \"f32\"\nmicro_batch = 1");
        let asked = Cell::new(0);
        let go_on = || {
            asked.set(asked.get() + 1);
            asked.get() < 2
        };
        let bench = Bench::new(&config, &config.shape(VOCAB), both(&config), &selected, &go_on).unwrap();
        let stopped = gradient_by_part(&bench, &selected.device).map(drop);
        assert!(matches!(stopped, Err(Error::Stopped)) && asked.get() == 2);
    }
}
