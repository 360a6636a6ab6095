//! One optimizer step: windows of the text, forward, loss, backward, clip, step. Read
//! [`Learner::step`] first.
//!
//! On the CPU and in a group of processes, the host waits for every step. A single GPU receives the
//! next step while it still computes the previous one, and decides itself whether a step is taken:
//! [`Learner::enqueue_step`] and [`Learner::drain`]. All randomness of a step follows from (seed,
//! step, micro-batch, segment). Nothing here saves or reports anything: a step returns its result.

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
use gradient::{Enqueued, Gradient, Passes, enqueue};
use guard::Verdict;
use optimizer::{Decided, Decision, Halt, Optimizer, global_norm};
use progress::Progress;

/// The state of training: everything a step reads and changes, except the model.
pub struct Learner<'a> {
    /// The resolved configuration.
    pub config: TrainConfig,
    /// The processes that train this model together, including this one.
    pub group: &'a dyn ProcessGroup,
    /// The windows of the training split.
    pub windows: TrainWindows,
    /// The optimizer and its moments.
    pub optimizer: Optimizer,
    /// Where the run stands.
    pub progress: Progress,
    /// Steps queued on a GPU that decides itself whether they are taken; `None` where the host
    /// waits for each step.
    pub in_flight: Option<InFlight>,
    /// Whether any process was asked to stop; the processes exchange this in every step.
    pub stop_agreed: bool,
}

/// The numbers of one step, taken or not.
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
    /// Its learning rate.
    pub learning_rate: f64,
}

/// The outcome of one batch.
pub enum Attempt {
    /// A step was taken. If the gradient was a spike, the number says how many times the usual norm
    /// it had.
    Taken(Gpt, StepResult, Option<f64>),
    /// No step: the gradient's norm is this many times the usual one.
    Spike(Gpt, StepResult, f64),
    /// No step: the loss or the gradient is not finite.
    NotFinite(Gpt, StepResult, GradientsParams),
    /// No step: `stop` was requested before the gradient was complete.
    Stopped(Gpt),
}

/// Steps in flight when the next one is enqueued. One keeps the device busy; more would only delay
/// the results.
pub const MAX_IN_FLIGHT: usize = 1;

/// Steps in flight, oldest first: steps given to a GPU before the host knows the outcome of the
/// previous one. If the host waited for each step before it prepared the next, the GPU would idle
/// in between. So the device decides itself whether a step is taken ([`Halt`]), and the host reads
/// a step's result while the device computes the following step. A step that is logged, saved,
/// evaluated or sampled is read at once.
pub struct InFlight {
    halt: Halt,
    queue: VecDeque<EnqueuedStep>,
}

/// A step given to the device whose outcome the host has not read yet.
struct EnqueuedStep {
    /// Steps that the run had taken before it.
    step: u64,
    /// Windows that the run had read before it.
    windows: u64,
    /// Tokens that the run had learned from before it.
    tokens: u64,
    learning_rate: f64,
    decision: Decision,
}

impl InFlight {
    /// For a run whose steps the device can decide on itself. `None` where the host must decide: on
    /// the CPU, whose results are available anyway; with several processes, whose hosts add up the
    /// gradients; with `spikes`, which compares with earlier norms; and in float16, where a batch that
    /// overflows is computed again with a smaller loss scale.
    pub fn new(config: &TrainConfig, group: &dyn ProcessGroup, device: &Device) -> Option<Self> {
        let alone = !is_cpu(device) && group.size() == 1;
        let device_decides = config.spikes == Spikes::Off && config.precision != Precision::F16;
        (alone && device_decides).then(|| Self { halt: Halt::new(device), queue: VecDeque::new() })
    }
}

impl Learner<'_> {
    /// Takes a step along the gradient of the next batch, if the guard accepts it. `stop` is called
    /// before each pass.
    ///
    /// # Errors
    /// When the tokens cannot be read, the device fails or a process is gone.
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

    /// The gradient of the next batch, averaged over all processes, and its norm. In float16 the
    /// loss scale is halved until the gradient is finite. `None` if a single process is asked to
    /// stop in between. The processes of a group agree on stopping once the gradient is complete:
    /// otherwise some would wait for the others forever.
    fn gradient(&mut self, gpt: &Gpt, stop: &dyn Fn() -> bool) -> Result<Option<(Gradient, f64)>> {
        let Self { config, group, windows, progress, stop_agreed, .. } = self;
        let first = progress.windows;
        let (own_windows, micro_batch) = share(&**group, first, config.windows_per_step(), config.micro_batch)?;
        let first_pass = (own_windows.start - first) / micro_batch as u64;
        let alone = group.size() == 1;
        loop {
            let scale = progress.loss_scale.scale(config.precision);
            let passes = Passes::new(config, progress.step, scale).on(&gpt.device());
            let passes = Passes { micro_batch, first_pass, ..passes };
            // Forward, loss, backward.
            let own = gradient::of_windows(gpt, windows, own_windows.clone(), passes, &|| alone && stop())?;
            let Some(Gradient { loss, gradients }) = own else { return Ok(None) };
            let (loss, gradients, stopped) = exchange::all_reduce_mean(&**group, gpt, loss, gradients, stop())?;
            *stop_agreed = stopped;
            let grad_norm = broadcast_number(&**group, global_norm(gpt, &gradients))?;
            if !progress.loss_scale.overflowed(config.precision, grad_norm) {
                return Ok(Some((Gradient { loss, gradients }, grad_norm)));
            }
        }
    }

    /// Gives a GPU the next step without waiting for it. Does nothing where the host waits for each
    /// step, or if `stop` returns true before a pass.
    ///
    /// # Errors
    /// When the tokens cannot be read.
    pub fn enqueue_step(&mut self, gpt: Gpt, learning_rate: f64, stop: &dyn Fn() -> bool) -> Result<Gpt> {
        let Some(in_flight) = &mut self.in_flight else { return Ok(gpt) };
        let (config, progress) = (&self.config, &mut self.progress);
        let next = progress.windows + config.windows_per_step() as u64;
        let passes = Passes::new(config, progress.step, 1.0).on(&gpt.device());
        let enqueued = enqueue(&gpt, &self.windows, progress.windows..next, passes, stop)?;
        let Some(Enqueued { losses, gradients }) = enqueued else { return Ok(gpt) };
        let decision = in_flight.halt.decide(&gpt, &gradients, losses, config.grad_clip);
        let gpt = self.optimizer.step_as_decided(gpt, gradients, &decision, learning_rate);
        let Progress { step, windows, tokens, .. } = *progress;
        in_flight.queue.push_back(EnqueuedStep { step, windows, tokens, learning_rate, decision });
        progress.step += 1;
        progress.windows = next;
        progress.tokens += config.tokens_per_step();
        Ok(gpt)
    }

    /// Waits until at most `most` steps are in flight. Returns the results of the finished steps,
    /// in order, and whether the step after them could not be taken.
    ///
    /// If a loss or a norm was not finite, the device has changed nothing since: the run is rewound
    /// to the beginning of that step, so that [`Self::step`] can take it again.
    ///
    /// # Errors
    /// When the device fails.
    pub fn drain(&mut self, most: usize) -> Result<(Vec<StepResult>, bool)> {
        let mut results = Vec::new();
        while let Some(in_flight) = self.in_flight.as_mut().filter(|in_flight| in_flight.queue.len() > most)
            && let Some(oldest) = in_flight.queue.pop_front()
        {
            let EnqueuedStep { step, windows, tokens, learning_rate, decision } = oldest;
            let Decided { loss, grad_norm, scale, taken } = decision.wait()?;
            if !taken {
                (self.progress.step, self.progress.windows, self.progress.tokens) = (step, windows, tokens);
                self.optimizer.rewind(step);
                in_flight.queue.clear();
                in_flight.halt.release();
                return Ok((results, true));
            }
            // The device has taken the step; the guard, which would have too, records the norm.
            self.progress.guard.judge(loss, grad_norm, windows, &self.config);
            let (step, window, clipped) = (step + 1, windows, scale < 1.0);
            results.push(StepResult { step, window, loss, grad_norm, clipped, learning_rate });
        }
        Ok((results, false))
    }
}
