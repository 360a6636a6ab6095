//! Runs that are considered, and how fast a few of them train here.

use std::time::{Duration, Instant};

use ember_data::prepare::Dataset;
use ember_model::{GptConfig, device::Selected, kernels::is_cpu};
use ember_training::memory::prediction::{Kernels, training};
use ember_training::{config::TrainConfig, memory::keeping::keep_where_there_is_room};

use super::measure::Bench;
use super::speed::{Speed, Timed, step_flops};
use crate::error::Result;

/// A step whose first run takes longer than this share of the time is not tried at other shapes: on
/// a GPU nearly all of it is the compiling of kernels, which every shape needs anew.
const SLOW_SHARE: f64 = 0.2;

/// A run that is considered.
pub struct Candidate {
    pub(super) config: TrainConfig,
    /// What this process computes of it.
    pub(super) share: TrainConfig,
    pub(super) shape: GptConfig,
    /// Bytes that training may take, where that is known.
    pub(super) available: Option<u64>,
}

impl Candidate {
    /// Model FLOPs of a step in this process.
    pub(super) fn flops(&self) -> f64 {
        step_flops(&self.share, &self.shape)
    }

    pub(super) fn bench(&self, dataset: &Dataset, selected: &Selected) -> Result<Bench> {
        let predicted = training(&self.share, &self.shape, Kernels::on(&selected.device)).peak_bytes;
        keep_where_there_is_room(predicted, self.available);
        Bench::new(&self.share, &self.shape, dataset, selected)
    }

    pub(super) fn has_the_sizes_of(&self, other: &TrainConfig) -> bool {
        let sizes = |c: &TrainConfig| (c.n_layer, c.n_embd, c.context_length, c.batch_size, c.grad_accum_steps);
        sizes(&self.config) == sizes(other)
    }
}

/// The same where trying would compile for minutes: a forward pass is a third of a step, and takes
/// as long for one row's token as for a few, since nearly all of it is overhead.
fn looking_guessed(timed: &Timed) -> [f64; 2] {
    let tokens = (timed.windows * timed.context_length) as f64;
    [timed.step_s / 3.0 / tokens, timed.step_s / 3.0]
}

/// Times a few `candidates`, from small to large, for at most `limit` together, the compiling of a
/// GPU's kernels not counted.
///
/// # Errors
/// When not even the first can be trained.
pub fn speed(candidates: &[&Candidate], dataset: &Dataset, selected: &Selected, limit: Duration) -> Result<Speed> {
    let began = Instant::now();
    let mut speed = Speed::default();
    for (number, candidate) in candidates.iter().enumerate() {
        let left = limit.saturating_sub(began.elapsed());
        let share = left / (candidates.len() - number) as u32;
        // By the rate of the smaller ones, so that it will hardly take longer: two steps at least
        // must be possible.
        if number > 0 && 2.0 * speed.step_s(candidate.flops()) > left.as_secs_f64() {
            break;
        }
        let mut bench = candidate.bench(dataset, selected)?;
        let timed = bench.time(share)?;
        let slow = !is_cpu(&selected.device) && timed.first_s > SLOW_SHARE * limit.as_secs_f64();
        if number == 0 {
            [speed.evaluate_token_s, speed.sample_token_s] =
                if slow { looking_guessed(&timed) } else { bench.time_looking(dataset)? };
        }
        speed.add(timed);
        if slow {
            break;
        }
    }
    speed.measured_s = began.elapsed().as_secs_f64();
    Ok(speed)
}
