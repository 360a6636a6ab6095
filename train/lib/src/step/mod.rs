//! One optimizer step: windows of the text, forward, loss, backward, clip, step. Read
//! [`Learner::step`] first.
//!
//! On the CPU and among several processes every step is waited for. A GPU by itself is handed the
//! next step while it is at work on the one before, and decides itself whether a step is taken:
//! [`Learner::hand_over`] and [`Learner::drain`]. All of a step's randomness is named by (seed,
//! step, micro-batch, segment). Nothing here saves or tells anything: what there is to tell is in
//! what a step returns.

pub mod gradient;
pub mod guard;
pub mod optimizer;
pub mod progress;

use std::collections::VecDeque;

use burn::{optim::GradientsParams, tensor::Device};
use ember_data::windows::TrainWindows;
use ember_kernels::is_cpu;
use ember_model::Gpt;

use crate::config::{Precision, Spikes, TrainConfig};
use crate::distributed::{ProcessGroup, broadcast_number, exchange, share};
use crate::error::Result;
use gradient::{Enqueued, Gradient, Passes, enqueue, gradient};
use guard::Verdict;
use optimizer::{Decided, Decision, Halt, Optimizer, global_norm};
use progress::Progress;

/// What learns: all that a step reads and changes beside the model.
pub struct Learner<'a> {
    /// The resolved configuration.
    pub config: TrainConfig,
    /// The processes that train this model, this one among them.
    pub group: &'a dyn ProcessGroup,
    /// Windows to learn from.
    pub windows: TrainWindows,
    /// The optimizer and its moments.
    pub optimizer: Optimizer,
    /// Where the run stands.
    pub progress: Progress,
    /// Of a GPU that decides by itself whether a step is taken.
    pub in_flight: Option<InFlight>,
    /// Whether any process was asked to stop, as all of them learned in the last step.
    pub stop_agreed: bool,
}

/// What one step did, or would have done.
#[derive(Clone, Copy, Debug)]
pub struct StepResult {
    /// The step, from 1.
    pub step: u64,
    /// Its first window.
    pub window: u64,
    /// Mean loss of its micro-batches.
    pub loss: f64,
    /// Norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Whether the gradient was scaled down.
    pub clipped: bool,
    /// The rate it was taken with.
    pub learning_rate: f64,
}

/// What came of one batch.
pub enum Attempt {
    /// A step along its gradient; where that was a spike, how many times the usual length.
    Taken(Gpt, StepResult, Option<f64>),
    /// No step: the gradient is so many times as long as usual.
    Spike(Gpt, StepResult, f64),
    /// No step: the loss or the gradient is not finite.
    NotFinite(Gpt, StepResult, GradientsParams),
    /// No step: it was asked to stop before the gradient was whole.
    Stopped(Gpt),
}

/// Steps in flight when the next is handed over. One keeps the device busy; more would only delay
/// the news.
pub const MOST_IN_FLIGHT: usize = 1;

/// Steps in flight, oldest first: those that a GPU was handed before the host knows how the last
/// one went. A GPU whose host waits for each step before it prepares the next stands still in
/// between. So the device decides by itself whether a step is taken ([`Halt`]), and the host reads
/// of a step while the device is at work on the one after it; of a step that is logged, saved,
/// evaluated or sampled it reads at once.
pub struct InFlight {
    halt: Halt,
    queue: VecDeque<Handed>,
}

/// A step that was handed over, with its outcome on the way.
struct Handed {
    /// Steps that the run had taken before it.
    step: u64,
    /// The windows that it had read.
    windows: u64,
    /// The tokens that it had learned from.
    tokens: u64,
    learning_rate: f64,
    decision: Decision,
}

impl InFlight {
    /// For a run whose steps the device can decide on by itself; `None` where the host must: on the
    /// CPU, whose results are there anyway; among several processes, which add up gradients by way
    /// of the hosts; with `spikes`, which go by the norms before; and in float16, whose scale of the
    /// loss does.
    pub fn new(config: &TrainConfig, group: &dyn ProcessGroup, device: &Device) -> Option<Self> {
        let alone = !is_cpu(device) && group.size() == 1;
        let decides = config.spikes == Spikes::Off && config.precision != Precision::F16;
        (alone && decides).then(|| Self { halt: Halt::new(device), queue: VecDeque::new() })
    }
}

impl Learner<'_> {
    /// Learns from the next batch, if the guard lets it pass; `stop` is asked before each pass.
    ///
    /// # Errors
    /// When the tokens cannot be read, the device failed or a process is gone.
    pub fn step(&mut self, gpt: Gpt, learning_rate: f64, stop: &dyn Fn() -> bool) -> Result<Attempt> {
        let (step, window) = (self.progress.step + 1, self.progress.windows);
        let Some((Gradient { loss, gradients }, grad_norm)) = self.gradient(&gpt, stop)? else {
            return Ok(Attempt::Stopped(gpt));
        };
        self.progress.windows += self.config.windows_per_step() as u64;
        let mut result = StepResult { step, window, loss, grad_norm, clipped: false, learning_rate };

        let (scale, spike) = match self.progress.guard.judge(loss, grad_norm, window, &self.config) {
            Verdict::Take { scale, spike } => (scale, spike),
            Verdict::LeaveOutSpike(times) => return Ok(Attempt::Spike(gpt, result, times)),
            Verdict::LeaveOutNotFinite => return Ok(Attempt::NotFinite(gpt, result, gradients)),
        };
        result.clipped = scale < 1.0;
        let gpt = self.optimizer.step(gpt, gradients, scale, learning_rate);
        self.progress.step = step;
        self.progress.tokens += self.config.tokens_per_step();
        Ok(Attempt::Taken(gpt, result, spike))
    }

    /// The gradient of the next batch, over all processes, and its norm; in float16 at the largest
    /// scale of the loss that it bears. None where a process alone is asked to stop on the way; those
    /// of a group agree on it once a gradient is whole, or some would wait for the others forever.
    fn gradient(&mut self, gpt: &Gpt, stop: &dyn Fn() -> bool) -> Result<Option<(Gradient, f64)>> {
        let Self { config, group, windows, progress, stop_agreed, .. } = self;
        let first = progress.windows;
        let (share, micro_batch) = share(&**group, first, config.windows_per_step(), config.micro_batch)?;
        let first_pass = (share.start - first) / micro_batch as u64;
        let alone = group.size() == 1;
        loop {
            let scale = progress.loss_scale.scale(config.precision);
            let passes = Passes::new(config, progress.step, scale).on(&gpt.device());
            let passes = Passes { micro_batch, first_pass, ..passes };
            // Forward, loss, backward.
            let whole = gradient(gpt, windows, share.clone(), passes, &|| alone && stop())?;
            let Some(Gradient { loss, gradients }) = whole else { return Ok(None) };
            let (loss, gradients, stopped) = exchange::all_reduce_mean(&**group, gpt, loss, gradients, stop())?;
            *stop_agreed = stopped;
            let grad_norm = broadcast_number(&**group, global_norm(gpt, &gradients))?;
            if !progress.loss_scale.overflowed(config.precision, grad_norm) {
                return Ok(Some((Gradient { loss, gradients }, grad_norm)));
            }
        }
    }

    /// Hands a GPU the next step without waiting for it; does nothing where steps are waited for, or
    /// where `stop` says so before a pass.
    ///
    /// # Errors
    /// When the tokens cannot be read.
    pub fn hand_over(&mut self, gpt: Gpt, learning_rate: f64, stop: &dyn Fn() -> bool) -> Result<Gpt> {
        let Some(in_flight) = &mut self.in_flight else { return Ok(gpt) };
        let (config, progress) = (&self.config, &mut self.progress);
        let next = progress.windows + config.windows_per_step() as u64;
        let passes = Passes::new(config, progress.step, 1.0).on(&gpt.device());
        let whole = enqueue(&gpt, &self.windows, progress.windows..next, passes, stop)?;
        let Some(Enqueued { losses, gradients }) = whole else { return Ok(gpt) };
        let decision = in_flight.halt.decide(&gpt, &gradients, losses, config.grad_clip);
        let gpt = self.optimizer.step_as_decided(gpt, gradients, &decision, learning_rate);
        let Progress { step, windows, tokens, .. } = *progress;
        in_flight.queue.push_back(Handed { step, windows, tokens, learning_rate, decision });
        progress.step += 1;
        progress.windows = next;
        progress.tokens += config.tokens_per_step();
        Ok(gpt)
    }

    /// Waits until at most `most` steps are in flight: what those that were waited for did, in
    /// order, and whether the one after them could not be taken.
    ///
    /// Where a loss or a norm was not finite, the device has changed nothing since: the run goes
    /// back to where that step began, to take it again by [`Self::step`].
    ///
    /// # Errors
    /// When the device failed.
    pub fn drain(&mut self, most: usize) -> Result<(Vec<StepResult>, bool)> {
        let mut results = Vec::new();
        while let Some(in_flight) = self.in_flight.as_mut().filter(|in_flight| in_flight.queue.len() > most)
            && let Some(handed) = in_flight.queue.pop_front()
        {
            let Handed { step, windows, tokens, learning_rate, decision } = handed;
            let Decided { loss, grad_norm, scale, taken } = decision.wait()?;
            if !taken {
                (self.progress.step, self.progress.windows, self.progress.tokens) = (step, windows, tokens);
                self.optimizer.rewind(step);
                in_flight.queue.clear();
                in_flight.halt.release();
                return Ok((results, true));
            }
            // The guard would have said the same of a step that is finite; it remembers the norm.
            self.progress.guard.judge(loss, grad_norm, windows, &self.config);
            let (step, window, clipped) = (step + 1, windows, scale < 1.0);
            results.push(StepResult { step, window, loss, grad_norm, clipped, learning_rate });
        }
        Ok((results, false))
    }
}
