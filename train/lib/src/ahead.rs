//! Steps that a GPU was handed before the host has heard how the last one went.
//!
//! A GPU whose host waits for each step before it prepares the next stands still in between. So the device decides by itself
//! whether a step is taken ([`Judge`]), and the host hears of a step while the device is at work on the one after it; of a step that
//! is logged, saved, evaluated or sampled it hears at once.
//!
//! Where a loss or a norm was not finite, the device has changed nothing since. The run goes back to where that step began, and takes
//! it again with the host waiting for it, as on the CPU: there the guard looks at it. So a run that meets such a batch goes through the
//! same numbers, and what was handed over too early is the only loss.

use std::collections::VecDeque;
use std::time::Duration;

use burn::tensor::Device;
use ember_model::kernels::gpu::attention_said;
use ember_model::kernels::is_cpu;
use ember_model::{Gpt, tuning};

use crate::config::{Precision, Spikes, TrainConfig};
use crate::error::Result;
use crate::gradient::{Enqueued, Passes, enqueue};
use crate::guard::Weights;
use crate::note::Note;
use crate::optimizer::{Coming, Judge, Optimizer};
use crate::schedule::Schedule;
use crate::team::Team;
use crate::trainer::{StepResult, Trainer, is_due};

/// Steps that may be unheard of when the next is handed over. One keeps the device busy; more would only delay the news.
const UNHEARD: usize = 1;

/// A GPU's judge, and the steps that the host has not heard of.
pub struct Ahead {
    judge: Judge,
    unheard: VecDeque<Unheard>,
    /// Whether a step was handed over: the first is waited for, to tell how long a GPU takes to start.
    has_begun: bool,
}

/// A step that was handed over: where the run stood before it, and its outcome on the way.
struct Unheard {
    step: u64,
    windows: u64,
    tokens: u64,
    learning_rate: f64,
    coming: Coming,
}

impl Ahead {
    /// For a run whose steps the device can decide on by itself; `None` where the host must: on the CPU, whose results are there
    /// anyway; in a team, which adds up gradients by way of the hosts; with Muon; with `spikes`, which go by the norms before; and in
    /// float16, whose scale of the loss does.
    pub fn of(config: &TrainConfig, optimizer: &Optimizer, team: &dyn Team, device: &Device) -> Option<Self> {
        let alone = !is_cpu(device) && team.size() == 1;
        let decides = config.spikes == Spikes::Off && config.precision != Precision::F16;
        (alone && decides && optimizer.can_follow_a_verdict()).then(|| Self {
            judge: Judge::new(device),
            unheard: VecDeque::new(),
            has_begun: false,
        })
    }

    /// The oldest step unheard of, where there are more than `most`.
    fn oldest_beyond(&mut self, most: usize) -> Option<Unheard> {
        if self.unheard.len() > most { self.unheard.pop_front() } else { None }
    }
}

impl Trainer<'_> {
    /// One optimizer step; the results of the steps that are known by now, in order: on the CPU this one's; a GPU is handed the step,
    /// and often known is that of the one before.
    ///
    /// # Errors
    /// When the device failed or the tokens cannot be read, or as [`Trainer::step_and_wait`].
    pub(crate) fn step(
        &mut self,
        gpt: Gpt,
        schedule: &Schedule,
        weights: Weights,
        stop: &dyn Fn() -> bool,
    ) -> Result<(Gpt, Vec<StepResult>)> {
        let Some(ahead) = &mut self.ahead else {
            let (gpt, result) = self.step_and_wait(gpt, schedule, weights, stop)?;
            return Ok((gpt, vec![result]));
        };
        let (step, windows, tokens) = (self.progress.step, self.progress.windows, self.progress.tokens);
        let next = windows + self.config.windows_per_step() as u64;
        let learning_rate = schedule.learning_rate(step);
        let passes = Passes::of(&self.config, step, 1.0).on(&gpt.device());
        let Enqueued { losses, of } = enqueue(&gpt, &self.windows, windows..next, passes)?;
        let (verdict, coming) = ahead.judge.judge(&gpt, &of, losses, self.config.grad_clip);
        let gpt = self.optimizer.step_as_judged(gpt, of, &verdict, learning_rate);
        ahead.unheard.push_back(Unheard { step, windows, tokens, learning_rate, coming });
        let begins = !std::mem::replace(&mut ahead.has_begun, true);

        self.progress.step += 1;
        self.progress.windows = next;
        self.progress.tokens += self.config.tokens_per_step();
        let unheard = if begins || self.is_looked_at() { 0 } else { UNHEARD };
        self.hear(gpt, unheard, schedule, weights, stop)
    }

    /// Waits until at most `most` steps are unheard of: the results of those heard of now, in order. Goes back where one was not taken.
    ///
    /// # Errors
    /// When the device failed, or as [`Trainer::step_and_wait`].
    pub(crate) fn hear(
        &mut self,
        gpt: Gpt,
        most: usize,
        schedule: &Schedule,
        weights: Weights,
        stop: &dyn Fn() -> bool,
    ) -> Result<(Gpt, Vec<StepResult>)> {
        let mut heard = Vec::new();
        while let Some(unheard) = self.ahead.as_mut().and_then(|ahead| ahead.oldest_beyond(most)) {
            let Unheard { step, windows, tokens, learning_rate, coming } = unheard;
            let found = coming.wait()?;
            if !found.taken {
                (self.progress.step, self.progress.windows, self.progress.tokens) = (step, windows, tokens);
                self.optimizer.rewind(step);
                if let Some(ahead) = &mut self.ahead {
                    ahead.unheard.clear();
                    ahead.judge.resume();
                }
                let (gpt, result) = self.step_and_wait(gpt, schedule, weights, stop)?;
                heard.push(result);
                return Ok((gpt, heard));
            }
            // The guard would have said the same of a step that is finite; it remembers the norm.
            self.progress.guard.judge(found.loss, found.grad_norm, windows, &self.config);
            let clipped = found.scale < 1.0;
            heard.push(StepResult { loss: found.loss, grad_norm: found.grad_norm, clipped, learning_rate });
        }
        Ok((gpt, heard))
    }

    /// The first step on a GPU takes far longer than the others: says why, and whether the next run's will.
    pub(crate) fn say_what_the_start_cost(&mut self, took: Duration) {
        let kept = tuning::file();
        self.reporter.note(Note::FirstStep { seconds: took.as_secs_f64(), kept });
        attention_said().iter().for_each(|line| self.reporter.note(line.to_string().into()));
    }

    /// Whether something is done after the step just taken that must know how it went.
    fn is_looked_at(&self) -> bool {
        let intervals = [self.config.eval_interval, self.config.checkpoint_interval, self.config.sample_interval];
        let step = self.progress.step;
        self.is_logged() || self.pause_at == Some(step) || intervals.into_iter().any(|interval| is_due(step, interval))
    }
}
