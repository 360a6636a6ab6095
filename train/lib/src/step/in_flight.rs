//! Steps in flight: those that a GPU was handed before the host knows how the last one went.
//!
//! A GPU whose host waits for each step before it prepares the next stands still in between. So the
//! device decides by itself whether a step is taken ([`Halt`]), and the host reads of a step while
//! the device is at work on the one after it; of a step that is logged, saved, evaluated or sampled
//! it reads at once.

use std::collections::VecDeque;

use burn::tensor::Device;
use ember_kernels::is_cpu;

use super::optimizer::{Decision, Halt, Optimizer};
use crate::config::{Precision, Spikes, TrainConfig};
use crate::distributed::ProcessGroup;

/// Steps in flight when the next is handed over. One keeps the device busy; more would only delay
/// the news.
pub const MOST_IN_FLIGHT: usize = 1;

/// The steps in flight, oldest first.
pub struct InFlight {
    pub(super) halt: Halt,
    pub(super) queue: VecDeque<Handed>,
}

/// A step that was handed over, with its outcome on the way.
pub(super) struct Handed {
    /// Where the run stood before it: steps, windows and tokens.
    pub(super) before: [u64; 3],
    pub(super) learning_rate: f64,
    pub(super) decision: Decision,
}

impl InFlight {
    /// For a run whose steps the device can decide on by itself; `None` where the host must: on the
    /// CPU, whose results are there anyway; among several processes, which add up gradients by way
    /// of the hosts; with Muon; with `spikes`, which go by the norms before; and in float16, whose
    /// scale of the loss does.
    pub fn new(config: &TrainConfig, optimizer: &Optimizer, group: &dyn ProcessGroup, device: &Device) -> Option<Self> {
        let alone = !is_cpu(device) && group.size() == 1;
        let decides = config.spikes == Spikes::Off && config.precision != Precision::F16;
        (alone && decides && optimizer.can_follow_a_decision())
            .then(|| Self { halt: Halt::new(device), queue: VecDeque::new() })
    }
}
