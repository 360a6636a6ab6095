//! Measures how fast the device trains: short steps of a few candidates, timed.

use std::time::{Duration, Instant};

use burn::{module::Module, tensor::FloatDType};
use ember_data::prepare::Dataset;
use ember_decoding::bench::median;
use ember_model::device::Selected;

use crate::error::{Error, Result};
use crate::workbench::Bench;
use ember_training::config::TrainConfig;
use ember_training::distributed::Alone;
use ember_training::run::evaluate::{evaluate, evaluate_confidence};
use ember_training::run::sample;

use super::candidate::Candidate;
use super::speed::{Looking, Speed, Timed, step_flops};

/// Timed steps after the first, if there is time for so many.
const STEPS: usize = 12;

/// Times steps until `limit` has passed, at least three unless the device is very slow; on a GPU,
/// steps that compile kernels do not count.
///
/// # Errors
/// As [`Bench::gradient`].
pub(super) fn time(bench: &mut Bench, limit: Duration) -> Result<Timed> {
    let mut began = Instant::now();
    let mut first_s = bench.timed_step()?;
    if bench.on_gpu {
        // The moments exist from the second step on, and the kernels that update them are compiled
        // then.
        first_s += bench.timed_step()?;
        began = Instant::now();
    }
    let (mut steps_s, mut total_s) = (Vec::new(), 0.0);
    while steps_s.len() < STEPS
        && (steps_s.is_empty() || began.elapsed() + Duration::from_secs_f64(total_s / steps_s.len() as f64) < limit)
    {
        let step_s = bench.timed_step()?;
        steps_s.push(step_s);
        total_s += step_s;
    }
    // On a GPU, single steps may still compile kernels.
    let step_s = if bench.on_gpu { median(&steps_s).unwrap_or(0.0) } else { total_s / steps_s.len() as f64 };
    let config = bench.config();
    let TrainConfig { n_layer, n_embd, context_length, .. } = *config;
    let (windows, flops) = (config.windows_per_step(), step_flops(config, &bench.shape));
    Ok(Timed { n_layer, n_embd, context_length, windows, flops, first_s, step_s })
}

/// Times an evaluation and a sample, and returns also the seconds spent compiling a GPU's kernels
/// for them.
///
/// # Errors
/// When the model cannot score.
fn time_looking(bench: &Bench, dataset: &Dataset) -> Result<(Looking, f64)> {
    let Some(gpt) = &bench.gpt else { return Err(Error::NoModel) };
    let config = bench.config();
    let plain = gpt.valid().with_precision(FloatDType::F32);
    let windows = if bench.on_gpu { EVALUATED_ON_GPU.div_ceil(config.context_length) } else { 4 };
    let some = bench.val_windows.evenly_spaced(windows);
    let evaluate = || match config.calibrate {
        true => evaluate_confidence(&plain, &some, &Alone, &|| false).map(drop),
        false => evaluate(&plain, &some, &Alone, &|| false).map(drop),
    };
    let sampling = sample::sampling(&dataset.manifest, &dataset.tokenizer);
    let few = TrainConfig { sample_tokens: 8, sample_prompts: vec![String::new()], ..config.clone() };
    let write = || sample::samples(&plain, &dataset.tokenizer, sampling, &few, 0, &|| false).map(drop);
    let began = Instant::now();
    if bench.on_gpu {
        evaluate()?;
        write()?;
    }
    let compiled_s = began.elapsed().as_secs_f64();
    let began = Instant::now();
    evaluate()?;
    let evaluate_token_s = began.elapsed().as_secs_f64() / (some.len() as f64 * some.context_length() as f64);
    let began = Instant::now();
    write()?;
    let sample_token_s = began.elapsed().as_secs_f64() / few.sample_tokens as f64;
    Ok((Looking { evaluate_token_s, sample_token_s }, compiled_s))
}

/// Tokens evaluated in a measurement on a GPU: with fewer, most of the time would be overhead.
const EVALUATED_ON_GPU: usize = 16 << 10;

/// Longest time of a single token: the slowest adapter that was seen, a software one, launches its
/// some forty kernels within that.
const MAX_TOKEN_S: f64 = 0.02;

/// As [`time_looking`], without running what would compile for minutes: a forward pass is a third
/// of a step, and a token of one row takes as long as one of a few rows, since nearly all of it is
/// overhead.
fn guess_looking(timed: &Timed) -> Looking {
    let tokens = (timed.windows * timed.context_length) as f64;
    let forward_s = timed.step_s / 3.0;
    Looking { evaluate_token_s: forward_s / tokens, sample_token_s: forward_s.min(MAX_TOKEN_S) }
}

/// Time limits for measuring the device.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For timing steps.
    pub timing: Duration,
    /// For compiling a GPU's kernels, which every shape needs anew: once this much is spent, no
    /// other shape is tried.
    pub compiling: Duration,
}

/// Times a few `candidates`, in their order, leaving out those that would take too long at the rate
/// of the others; `go_on` is called before each pass.
///
/// # Errors
/// When not even the first can be trained, or `go_on` says to stop.
pub fn speed(
    candidates: &[&Candidate],
    dataset: &Dataset,
    selected: &Selected,
    limits: Limits,
    go_on: &dyn Fn() -> bool,
) -> Result<Speed> {
    let began = Instant::now();
    let mut speed = Speed::default();
    for (number, candidate) in candidates.iter().enumerate() {
        let timing_s = began.elapsed().as_secs_f64() - speed.compiled_s;
        let left = limits.timing.saturating_sub(Duration::from_secs_f64(timing_s.max(0.0)));
        let share = left / (candidates.len() - number) as u32;
        let compiled = speed.compiled_s >= limits.compiling.as_secs_f64();
        // There must be time for at least two steps.
        if number > 0 && (compiled || 2.0 * speed.step_s(candidate.flops()) > left.as_secs_f64()) {
            continue;
        }
        let mut bench = candidate.bench(dataset, selected, go_on)?;
        let timed = time(&mut bench, share)?;
        if bench.on_gpu {
            speed.compiled_s += timed.first_s;
        }
        if number == 0 {
            let (looking, compiled_s) = match speed.compiled_s < limits.compiling.as_secs_f64() {
                true => time_looking(&bench, dataset)?,
                false => (guess_looking(&timed), 0.0),
            };
            speed.looking = looking;
            speed.looked_token_s = timed.token_s();
            speed.compiled_s += compiled_s;
        }
        speed.add(timed);
    }
    speed.measured_s = began.elapsed().as_secs_f64();
    Ok(speed)
}
