//! The training loop.
//!
//! Read [`Trainer::train`] first: everything a run does is in it, in order. A step is [`Trainer::step`]: windows of the text,
//! forward, loss, backward, clipped AdamW. All of a step's randomness is named by (seed, step, micro-batch), so that a run
//! that was interrupted anywhere and resumed goes through the same numbers as one that was not.

use std::time::Instant;

use anyhow::Result;
use burn::module::Module;
use ember_data::prepare::Marks;
use ember_data::tokenizer::Tokenizer;
use ember_data::windows::{TrainWindows, ValWindows};
use ember_generate::program::Outcome;
use ember_model::Gpt;

use crate::checkpoint::{self, Progress};
use crate::clock::{Change, Clock};
use crate::config::TrainConfig;
use crate::evaluate::evaluate;
use crate::gradient::{Gradient, Passes, gradient};
use crate::memory;
use crate::optimizer::{AdamW, clip_scale, global_norm};
use crate::report::{EvalReport, MetricsLog, Reporter, Row, StepReport};
use crate::run_folder::{Pointer, RunFolder};
use crate::sample;
use crate::schedule::Schedule;

/// A run in progress: the model, what learns it, what it learns from, and whom it tells.
pub struct Trainer {
    /// The resolved configuration.
    pub config: TrainConfig,
    /// The folder that this process owns.
    pub run: RunFolder,
    /// AdamW and its moments.
    pub optimizer: AdamW,
    /// Where the run stands.
    pub progress: Progress,
    /// The lowest validation loss so far, in nats per token.
    pub best: Option<f64>,
    /// The step last evaluated.
    pub evaluated: Option<u64>,
    /// Windows to learn from.
    pub windows: TrainWindows,
    /// Windows to be judged on.
    pub val_windows: ValWindows,
    /// For samples, and saved with every checkpoint.
    pub tokenizer: Tokenizer,
    /// What is known of the built-in corpus.
    pub marks: Option<Marks>,
    /// Floating-point operations a second that the device can do, where known.
    pub peak_flops: Option<f64>,
    /// `metrics.jsonl`.
    pub log: MetricsLog,
    /// The terminal.
    pub reporter: Box<dyn Reporter>,
    /// For a run that was promised to end at a time.
    pub clock: Option<Clock>,
}

/// What one step did.
struct StepResult {
    /// Mean loss of its micro-batches.
    loss: f64,
    /// Norm of the gradient before clipping.
    grad_norm: f64,
    /// The rate it was taken with.
    learning_rate: f64,
}

impl Trainer {
    /// Trains `gpt`, which is on a device with automatic differentiation, to `max_steps`, or until `stop` says so; saves before
    /// it returns.
    ///
    /// # Errors
    /// When a file cannot be written: every checkpoint saved before is still there.
    pub fn train(&mut self, mut gpt: Gpt, stop: &dyn Fn() -> bool) -> Result<Outcome> {
        let began = Instant::now();
        let elapsed_before = self.progress.elapsed_s;
        let mut pace = Pace::new(self.progress.tokens);
        let mut schedule = self.schedule();
        loop {
            let step = self.progress.step;
            let finished = step >= self.config.max_steps;
            let stopped = stop() || self.reporter.stop_requested();
            self.progress.elapsed_s = elapsed_before + began.elapsed().as_secs_f64();

            // First the save, then the evaluation and the sample, which could fail or be interrupted.
            if finished
                || stopped
                || is_due(step, self.config.checkpoint_interval)
                || is_due(step, self.config.eval_interval)
            {
                checkpoint::save(&self.run, &gpt, &self.optimizer, &self.tokenizer, &self.progress)?;
            }
            if stopped {
                return Ok(Outcome::Interrupted);
            }
            if (finished || is_due(step, self.config.eval_interval)) && self.evaluated != Some(step) {
                self.evaluate(&gpt, stop)?;
            }
            if finished || is_due(step, self.config.sample_interval) {
                self.sample(&gpt)?;
            }
            if finished {
                return Ok(Outcome::Done);
            }

            self.keep_time(&mut schedule)?;
            let result;
            (gpt, result) = self.step(gpt, &schedule);
            self.progress.unreported_loss += result.loss;
            self.progress.unreported_steps += 1;
            if step == 0
                || is_due(self.progress.step, self.config.log_interval)
                || self.progress.step == self.config.max_steps
            {
                self.progress.elapsed_s = elapsed_before + began.elapsed().as_secs_f64();
                self.report(&gpt, &result, &mut pace)?;
            }
        }
    }

    /// One optimizer step.
    fn step(&mut self, gpt: Gpt, schedule: &Schedule) -> (Gpt, StepResult) {
        let Progress { step, windows, .. } = self.progress;
        let count = self.config.windows_per_step() as u64;
        let passes = Passes { micro_batch: self.config.micro_batch, seed: self.config.seed, step };
        let Gradient { loss, of: gradients } = gradient(&gpt, &self.windows, windows..windows + count, passes);

        let grad_norm = global_norm(&gpt, &gradients);
        let scale = clip_scale(grad_norm, self.config.grad_clip);
        let learning_rate = schedule.learning_rate(step);
        let gpt = self.optimizer.step(gpt, gradients, scale, learning_rate);

        self.progress.step += 1;
        self.progress.windows += count;
        self.progress.tokens += self.config.tokens_per_step();
        (gpt, StepResult { loss, grad_norm, learning_rate })
    }

    /// Measures the validation loss of the model as it is, and lets `best` name its checkpoint if it is the lowest.
    fn evaluate(&mut self, gpt: &Gpt, stop: &dyn Fn() -> bool) -> Result<()> {
        let step = self.progress.step;
        let Some(val_loss) = evaluate(&gpt.valid(), &self.val_windows, stop)? else { return Ok(()) };
        self.evaluated = Some(step);
        let is_best = self.best.is_none_or(|best| val_loss < best);
        if is_best {
            self.best = Some(val_loss);
            self.run.point(Pointer::Best, step)?;
        }
        self.run.prune()?;
        let entropy_floor = self.marks.as_ref().map(|marks| marks.entropy_floor);
        let forgetful_loss = self.marks.as_ref().map(|marks| marks.forgetful_loss);
        self.log.append(&Row {
            step,
            val_loss: Some(val_loss),
            entropy_floor,
            forgetful_loss,
            tokens: Some(self.progress.tokens),
            elapsed_s: Some(self.progress.elapsed_s),
            ..Row::default()
        })?;
        self.reporter.evaluation(&EvalReport { step, val_loss, is_best, entropy_floor, forgetful_loss });
        Ok(())
    }

    /// Lets the model write, shows it and keeps it.
    fn sample(&mut self, gpt: &Gpt) -> Result<()> {
        let text = sample::text(&gpt.valid(), &self.tokenizer, &self.config)?;
        self.reporter.sample(self.progress.step, &text);
        sample::keep(&self.run.sample(self.progress.step), &text)
    }

    fn report(&mut self, gpt: &Gpt, result: &StepResult, pace: &mut Pace) -> Result<()> {
        let Progress { step, tokens, elapsed_s, .. } = self.progress;
        let train_loss = self.progress.unreported_loss / f64::from(self.progress.unreported_steps.max(1));
        (self.progress.unreported_loss, self.progress.unreported_steps) = (0.0, 0);
        let tokens_per_s = pace.since_last(tokens);
        let flops = gpt.config().training_flops_per_token();
        let mfu = self.peak_flops.map(|peak| tokens_per_s * flops / peak);
        let memory_bytes = memory::in_use(&gpt.device());
        let steps_left = self.config.max_steps.saturating_sub(step);
        let report = StepReport {
            step,
            max_steps: self.config.max_steps,
            train_loss,
            learning_rate: result.learning_rate,
            grad_norm: result.grad_norm,
            tokens,
            tokens_per_s,
            mfu,
            memory_bytes,
            elapsed_s,
            remaining_s: (step > 1)
                .then(|| steps_left as f64 * self.config.tokens_per_step() as f64 / pace.overall(tokens)),
        };
        self.log.append(&Row {
            step,
            train_loss: Some(train_loss),
            learning_rate: Some(result.learning_rate),
            grad_norm: Some(result.grad_norm),
            tokens: Some(tokens),
            tokens_per_s: Some(tokens_per_s),
            mfu,
            memory_bytes,
            elapsed_s: Some(elapsed_s),
            ..Row::default()
        })?;
        self.reporter.step(&report);
        Ok(())
    }

    /// Changes the length of a run that was promised to end at a time, where the clock asks for it. What changed is in the
    /// run's configuration before the next step: a resume goes on with the same numbers.
    fn keep_time(&mut self, schedule: &mut Schedule) -> Result<()> {
        let step = self.progress.step;
        let Some(change) = self.clock.as_mut().and_then(|clock| clock.read(step, &self.config)) else { return Ok(()) };
        let was = self.config.max_steps;
        self.config.max_steps = match change {
            Change::Length(steps) => {
                if self.config.lr_decay_steps == was {
                    self.config.lr_decay_steps = steps;
                }
                steps
            }
            Change::End(steps) => steps,
        };
        self.run.write_config(&self.config)?;
        *schedule = self.schedule();
        let max_steps = self.config.max_steps;
        self.log.append(&Row { step, max_steps: Some(max_steps), ..Row::default() })?;
        self.reporter.note(&format!("max_steps = {max_steps} instead of {was}, to end when promised"));
        Ok(())
    }

    fn schedule(&self) -> Schedule {
        Schedule {
            learning_rate: self.config.learning_rate,
            min_learning_rate: self.config.min_learning_rate,
            warmup_steps: self.config.warmup_steps,
            decay_steps: self.config.lr_decay_steps,
        }
    }
}

/// Whether something done every `interval` steps is due after `step` of them; an interval of 0 means never.
fn is_due(step: u64, interval: u64) -> bool {
    interval > 0 && step > 0 && step.is_multiple_of(interval)
}

/// Speed since the last report, and since this session began.
struct Pace {
    began: Instant,
    tokens_at_start: u64,
    last: Instant,
    tokens_at_last: u64,
}

impl Pace {
    fn new(tokens: u64) -> Self {
        let now = Instant::now();
        Self { began: now, tokens_at_start: tokens, last: now, tokens_at_last: tokens }
    }

    /// Tokens a second since the last call.
    fn since_last(&mut self, tokens: u64) -> f64 {
        let now = Instant::now();
        let rate = (tokens - self.tokens_at_last) as f64 / (now - self.last).as_secs_f64().max(1e-9);
        (self.last, self.tokens_at_last) = (now, tokens);
        rate
    }

    /// Tokens a second of this session, evaluations and saves included.
    fn overall(&self, tokens: u64) -> f64 {
        (tokens - self.tokens_at_start) as f64 / self.began.elapsed().as_secs_f64().max(1e-9)
    }
}
