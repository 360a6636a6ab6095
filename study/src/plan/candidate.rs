//! The runs that a plan chooses from.

use ember_data::prepare::Dataset;
use ember_model::{GptConfig, device::Selected};

use super::speed::step_flops;
use crate::{error::Result, workbench::Bench};
use ember_training::config::TrainConfig;
use ember_training::memory::keeping::keep_where_there_is_room;
use ember_training::memory::prediction::{Kernels, training};
use ember_training::run::{text::windows, time_budget::Pace};

/// The sizes by which candidates differ, and by which one is known: a candidate that is resolved
/// again with another number of steps has the same sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Sizes {
    pub(super) n_layer: usize,
    pub(super) n_embd: usize,
    pub(super) context_length: usize,
    pub(super) batch_size: usize,
}

impl Sizes {
    /// The sizes in a configuration.
    pub(super) fn of(config: &TrainConfig) -> Self {
        let TrainConfig { n_layer, n_embd, context_length, batch_size, .. } = *config;
        Self { n_layer, n_embd, context_length, batch_size }
    }
}

/// A run under consideration.
pub struct Candidate {
    pub(super) config: TrainConfig,
    /// The share of it that this process computes.
    pub(super) share: TrainConfig,
    pub(super) shape: GptConfig,
    /// Memory limit of training in bytes, if known.
    pub(super) available: Option<u64>,
}

impl Candidate {
    /// Its sizes, by which it is known.
    pub(super) fn sizes(&self) -> Sizes {
        Sizes::of(&self.config)
    }

    /// Model FLOPs of a step in this process.
    pub(super) fn flops(&self) -> f64 {
        step_flops(&self.share, &self.shape)
    }

    /// Seconds of the whole run at this pace.
    pub(super) fn seconds(&self, pace: Pace) -> f64 {
        pace.seconds(0, self.config.max_steps, self.config.eval_interval)
    }

    /// The model, ready to be timed.
    pub(super) fn bench<'a>(
        &self,
        dataset: &Dataset,
        selected: &Selected,
        go_on: &'a dyn Fn() -> bool,
    ) -> Result<Bench<'a>> {
        let predicted = training(&self.share, &self.shape, Kernels::on(&selected.device)).peak_bytes;
        keep_where_there_is_room(predicted, self.available);
        Bench::new(&self.share, &self.shape, windows(&self.share, dataset)?, selected, go_on)
    }
}
