//! The training loop.
//!
//! Read [`Trainer::train`] first: everything a run does is in it, in order. A step is [`Trainer::step`]: windows of the text,
//! forward, loss, backward, the guard's look, a clipped step of the optimizer; a GPU is handed one while it is at work on the
//! one before ([`crate::ahead`]). All of a step's randomness is named by (seed,
//! step, micro-batch), so that a run that was interrupted anywhere and resumed goes through the same numbers as one that was
//! not.

use std::time::Instant;

use burn::module::Module;
use burn::tensor::FloatDType;
use ember_data::prepare::Marks;
use ember_data::tokenizer::Tokenizer;
use ember_data::windows::{TrainWindows, ValWindows};
use ember_model::Gpt;
use ember_model::kernels::is_cpu;

use crate::ahead::Ahead;
use crate::checkpoint::{self, Progress};
use crate::clock::{Change, Clock};
use crate::config::TrainConfig;
use crate::error::Result;
use crate::evaluate::evaluate;
use crate::gradient::{Gradient, Passes, gradient};
use crate::guard::{Verdict, Weights};
use crate::memory;
use crate::memory::keeping::give_back_freed_memory;
use crate::note::Note;
use crate::optimizer::{Optimizer, global_norm};
use crate::report::{EvalReport, Records, Reporter, Row, StepReport};
use crate::run::Ended;
use crate::run_folder::{Pointer, RunFolder};
use crate::sample;
use crate::schedule::Schedule;
use crate::speedometer::Speedometer;
use crate::team::messages::{number_of_the_first, said_by_the_first};
use crate::team::{self, Team, exchange};

/// A run in progress: the model, what learns it, what it learns from, and whom it tells.
pub struct Trainer<'a> {
    /// The resolved configuration.
    pub config: TrainConfig,
    /// The folder that this process owns, or the one that leads its team.
    pub run: RunFolder,
    /// The processes that train this model, this one among them.
    pub team: Box<dyn Team>,
    /// Whether any of them was asked to stop, as they agreed in the last step.
    pub stop_agreed: bool,
    /// The optimizer and its moments.
    pub optimizer: Optimizer,
    /// On a GPU that decides by itself whether a step is taken.
    pub ahead: Option<Ahead>,
    /// Where the run stands.
    pub progress: Progress,
    /// The step at which to stop as if interrupted.
    pub pause_at: Option<u64>,
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
    /// What the run keeps of itself.
    pub log: Records,
    /// What the run did beside learning since the last row.
    pub spent: Spent,
    /// The terminal.
    pub reporter: &'a mut dyn Reporter,
    /// For a run that was promised to end at a time.
    pub clock: Option<Clock>,
}

/// Seconds that went into other things than learning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Saving checkpoints.
    pub save_s: f64,
    /// Sampling text.
    pub sample_s: f64,
}

/// What an evaluation found, in nats per token.
struct Losses {
    val_loss: f64,
    /// That of the averaged weights.
    ema_val_loss: Option<f64>,
    /// What it took.
    eval_s: f64,
}

/// What one step did.
pub(crate) struct StepResult {
    /// Mean loss of its micro-batches.
    pub loss: f64,
    /// Norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Whether the gradient was scaled down.
    pub clipped: bool,
    /// The rate it was taken with.
    pub learning_rate: f64,
}

impl Trainer<'_> {
    /// Trains `gpt`, which is on a device with automatic differentiation, to `max_steps`, or until `stop` says so; saves before
    /// it returns.
    ///
    /// # Errors
    /// When a file cannot be written, or the team is gone: every checkpoint saved before is still there.
    pub fn train(&mut self, mut gpt: Gpt, stop: &dyn Fn() -> bool) -> Result<Ended> {
        let began = Instant::now();
        let elapsed_before = self.progress.elapsed_s;
        let mut pace = Speedometer::new(self.progress.tokens);
        let mut schedule = self.schedule();
        let weights = Weights::at_the_start(&gpt, self.reporter);
        let mut starts_gpu = !is_cpu(&gpt.device());
        let mut heard;
        self.name_best()?; // a kill may have come between an evaluation and the pointer
        loop {
            let stopped = self.stops(stop) || self.pause_at == Some(self.progress.step);
            if stopped {
                (gpt, heard) = self.hear(gpt, 0, &schedule, weights, stop)?;
                self.count(&heard);
            }
            let step = self.progress.step;
            let last = step >= self.config.max_steps;
            self.progress.elapsed_s = elapsed_before + began.elapsed().as_secs_f64();

            // What began from a checkpoint is saved and judged before its first step: it never needs that checkpoint again.
            let begins = step == 0 && !self.config.init.is_empty();
            let is_evaluated = last || begins || is_due(step, self.config.eval_interval);

            let looks = is_evaluated || stopped || is_due(step, self.config.checkpoint_interval);
            let looks = looks || is_due(step, self.config.sample_interval);
            if looks {
                give_back_freed_memory();
            }
            // First the save, then the evaluation and the sample, which could fail or be interrupted.
            if is_evaluated || stopped || is_due(step, self.config.checkpoint_interval) {
                let saved = self.save(&gpt, weights);
                if last || stopped { saved? } else { self.go_on_if_full(saved)? }
            }
            if stopped {
                return Ok(Ended::Interrupted);
            }
            if is_evaluated && self.progress.evaluations.last != Some(step) {
                let Some(losses) = self.evaluate(&gpt, stop)? else {
                    self.save(&gpt, weights)?; // the save of this step may have found the disk full
                    return Ok(Ended::Interrupted); // a resume evaluates what is saved
                };
                let kept = self.keep(losses);
                self.go_on_if_full(kept)?;
            }
            let finished = last || self.is_out_of_patience();
            let is_sampled = finished || begins || is_due(step, self.config.sample_interval);
            if is_sampled
                && self.team.leads()
                && self.config.sample_interval > 0
                && let Err(error) = self.sample(&gpt)
            {
                // It is for people to look at: learning does not depend on it.
                self.reporter.note(Note::NoSample { step, error });
            }
            if finished && !last {
                let patience = self.config.patience;
                let line = format!("no new best in {patience} evaluations (patience): the run ends at step {step}");
                self.reporter.note(line.into());
                self.save(&gpt, weights)?; // the save of this step may have found the disk full
            }
            if finished {
                return Ok(Ended::Finished);
            }

            if looks {
                give_back_freed_memory();
            }
            self.keep_time(&mut schedule)?;
            let began_step = Instant::now();
            (gpt, heard) = self.step(gpt, &schedule, weights, stop)?;
            self.count(&heard);
            if std::mem::take(&mut starts_gpu) {
                self.say_what_the_start_cost(began_step.elapsed());
            }
            if let Some(result) = heard.last()
                && self.is_logged()
            {
                self.progress.elapsed_s = elapsed_before + began.elapsed().as_secs_f64();
                let reported = self.report(&gpt, result, &mut pace);
                self.go_on_if_full(reported)?;
            }
        }
    }

    /// Counts the losses of steps into the next report.
    fn count(&mut self, results: &[StepResult]) {
        self.progress.unreported_loss += results.iter().map(|result| result.loss).sum::<f64>();
        self.progress.unreported_steps += results.len() as u32;
    }

    /// Whether the step just taken gets a row of its own.
    pub(crate) fn is_logged(&self) -> bool {
        let step = self.progress.step;
        step == 1 || is_due(step, self.config.log_interval) || step == self.config.max_steps
    }

    /// Whether the run is to end here. A process alone asks who watches it; those of a team go by what they agreed on.
    fn stops(&self, stop: &dyn Fn() -> bool) -> bool {
        if self.team.size() > 1 { self.stop_agreed } else { stop() || self.reporter.stop_requested() }
    }

    /// Saves the checkpoint of this step, then removes those that are not to be kept; the process that leads does it for all.
    pub(crate) fn save(&mut self, gpt: &Gpt, weights: Weights) -> Result<()> {
        let began = Instant::now();
        exchange::ensure_same_weights(&*self.team, gpt)?;
        if self.team.leads() {
            if !self.run.checkpoint(self.progress.step).is_dir() {
                weights.ensure_whole(gpt, &self.run)?;
            }
            let synced = self.log.sync(); // a row of a step that is saved is never written again
            self.go_on_if_full(synced.map_err(Into::into))?;
            let sampling = sample::sampling(self.marks.as_ref());
            checkpoint::save(&self.run, gpt, &self.optimizer, &self.tokenizer, sampling, &self.progress)?;
            self.name_best()?;
            self.prune();
        }
        self.spent.save_s += began.elapsed().as_secs_f64();
        Ok(())
    }

    /// A full disk ends a run that has saved nothing yet; any other goes on, and writes again when it is due.
    pub(crate) fn go_on_if_full(&mut self, written: Result<()>) -> Result<()> {
        match written {
            Err(error) if error.is_full_disk() && self.run.pointed(Pointer::Latest)?.is_some() => {
                self.reporter.note(Note::DiskFull(error));
                Ok(())
            }
            other => other,
        }
    }

    /// One optimizer step, along the gradient of the first batch that the guard lets pass.
    pub(crate) fn step_and_wait(
        &mut self,
        gpt: Gpt,
        schedule: &Schedule,
        weights: Weights,
        stop: &dyn Fn() -> bool,
    ) -> Result<(Gpt, StepResult)> {
        let before = self.progress.clone();
        let step = before.step;
        let learning_rate = schedule.learning_rate(step);
        let count = self.config.windows_per_step() as u64;
        loop {
            let first = self.progress.windows;
            let (Gradient { loss, of: gradients }, grad_norm) = self.gradient(&gpt, first, stop)?;
            self.progress.windows += count;
            let mut result = StepResult { loss, grad_norm, clipped: false, learning_rate };

            let verdict = self.progress.guard.judge(loss, grad_norm, first, &self.config);
            let told = self.tell_of_spike(verdict, &result, first);
            self.go_on_if_full(told)?;
            match verdict {
                Verdict::Take { scale, .. } => {
                    let gpt = self.optimizer.step(gpt, gradients, scale, learning_rate);
                    result.clipped = scale < 1.0;
                    self.progress.step += 1;
                    self.progress.tokens += self.config.tokens_per_step();
                    return Ok((gpt, result));
                }
                Verdict::LeaveOutSpike(_) => {}
                Verdict::LeaveOutNotFinite => self.leave_out(&gpt, &gradients, &result, &before, weights)?,
            }
        }
    }

    /// The gradient of the step whose first window is `first`, over all processes, and its norm; in float16 at the largest scale
    /// of the loss that it bears.
    fn gradient(&mut self, gpt: &Gpt, first: u64, stop: &dyn Fn() -> bool) -> Result<(Gradient, f64)> {
        let count = self.config.windows_per_step();
        let (share, micro_batch) = team::share(&*self.team, first, count, self.config.micro_batch)?;
        let first_pass = (share.start - first) / micro_batch as u64;
        let precision = self.config.precision;
        loop {
            let scale = self.progress.loss_scale.scale(precision);
            let passes = Passes {
                micro_batch,
                first_pass,
                ..Passes::of(&self.config, self.progress.step, scale).on(&gpt.device())
            };
            let own = gradient(gpt, &self.windows, share.clone(), passes)?;
            let asked = stop() || self.reporter.stop_requested();
            let (gradient, stop_agreed) = exchange::mean_of_all(&*self.team, gpt, own, asked)?;
            self.stop_agreed = stop_agreed;
            let grad_norm = number_of_the_first(&*self.team, global_norm(gpt, &gradient.of))?;
            if !self.progress.loss_scale.overflowed(precision, grad_norm) {
                return Ok((gradient, grad_norm));
            }
        }
    }

    /// Measures the validation loss of the model as it is, and that of the averaged weights where there are any; `None` when
    /// interrupted, between the two as well.
    fn evaluate(&mut self, gpt: &Gpt, stop: &dyn Fn() -> bool) -> Result<Option<Losses>> {
        let began = Instant::now();
        let stop = || stop() || self.reporter.stop_requested();
        let measure = |gpt: &Gpt| evaluate(gpt, &self.val_windows, &*self.team, &stop);
        let Some(val_loss) = measure(&as_inference(gpt))? else { return Ok(None) };
        let average = self.optimizer.average().and_then(|average| average.model(gpt));
        let ema_val_loss = match average.map(|average| average.with_precision(FloatDType::F32)) {
            None => None,
            Some(average) => {
                let Some(loss) = measure(&average)? else { return Ok(None) };
                Some(loss)
            }
        };
        Ok(Some(Losses { val_loss, ema_val_loss, eval_s: began.elapsed().as_secs_f64() }))
    }

    /// Keeps what an evaluation of this step found: in the log, then beside the checkpoint, then in the name of the best, which
    /// goes by the trained weights. What a kill leaves undone on the way, a resume does.
    fn keep(&mut self, Losses { val_loss, ema_val_loss, eval_s }: Losses) -> Result<()> {
        let step = self.progress.step;
        let is_best = self.progress.evaluations.record(step, val_loss);
        let entropy_floor = self.marks.as_ref().map(|marks| marks.entropy_floor);
        let forgetful_loss = self.marks.as_ref().map(|marks| marks.forgetful_loss);
        self.reporter.evaluation(&EvalReport { step, val_loss, ema_val_loss, is_best, entropy_floor, forgetful_loss });
        let row = Row {
            step,
            val_loss: Some(val_loss),
            ema_val_loss,
            entropy_floor,
            forgetful_loss,
            eval_s: Some(eval_s),
            tokens: Some(self.progress.tokens),
            elapsed_s: Some(self.progress.elapsed_s),
            ..Row::default()
        };
        let logged = self.log.append(&row).and_then(|()| self.log.sync());
        if self.team.leads() {
            checkpoint::save_evaluations(&self.run, &self.progress)?;
            self.name_best()?;
            self.prune();
        }
        Ok(logged?)
    }

    /// Lets `best` name the step with the lowest loss, if it does not yet and a full disk did not keep that step from being saved.
    fn name_best(&self) -> Result<()> {
        match self.progress.evaluations.best {
            Some(best) if self.team.leads() => Ok(self.run.name_best(best.step)?),
            _ => Ok(()),
        }
    }

    /// Removes the checkpoints that are not to be kept.
    fn prune(&self) {
        let best = self.progress.evaluations.best.map(|best| best.step);
        self.run.prune(self.config.keep_checkpoints, best);
    }

    /// Whether the last `patience` evaluations were all above the best.
    fn is_out_of_patience(&self) -> bool {
        self.config.patience > 0 && self.progress.evaluations.since_best >= self.config.patience
    }

    /// Lets the model write, shows it and keeps it.
    fn sample(&mut self, gpt: &Gpt) -> Result<()> {
        let (began, step) = (Instant::now(), self.progress.step);
        let sampling = sample::sampling(self.marks.as_ref());
        let samples = sample::samples(&as_inference(gpt), &self.tokenizer, sampling, &self.config, step)?;
        if samples.is_empty() {
            return Ok(());
        }
        self.reporter.sample(step, &sample::page(&samples));
        self.log.keep(&samples, &self.run.sample(step))?;
        self.spent.sample_s += began.elapsed().as_secs_f64();
        Ok(())
    }

    fn report(&mut self, gpt: &Gpt, result: &StepResult, pace: &mut Speedometer) -> Result<()> {
        let Progress { step, tokens, elapsed_s, .. } = self.progress;
        let train_loss = self.progress.unreported_loss / f64::from(self.progress.unreported_steps.max(1));
        (self.progress.unreported_loss, self.progress.unreported_steps) = (0.0, 0);
        let spent = std::mem::take(&mut self.spent);
        let tokens_per_s = pace.since_last(tokens);
        let flops = gpt.config().training_flops_per_token();
        let mfu = self.peak_flops.map(|peak| tokens_per_s * flops / (peak * self.team.size() as f64));
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
            clipped: Some(result.clipped),
            save_s: Some(spent.save_s),
            sample_s: Some(spent.sample_s),
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

    /// Changes the length of a run that was promised to end at a time, where the clock of the process that leads asks for it.
    /// What changed is in the run's configuration before the next step: a resume goes on with the same numbers.
    fn keep_time(&mut self, schedule: &mut Schedule) -> Result<()> {
        let step = self.progress.step;
        let Some(clock) = &mut self.clock else { return Ok(()) };
        let mut asked = if self.team.leads() { clock.read(step, &self.config) } else { None };
        if let Some(change) = asked {
            let written = self.run.write_config(&change.of(&self.config));
            if written.is_err() {
                asked = None; // it stays as it was, and the clock will ask again
            }
            self.go_on_if_full(written)?;
        }
        let told = said_by_the_first(&*self.team, &asked.map(|change| change.to_string()).unwrap_or_default())?;
        let Some(change) = Change::parse(&told) else { return Ok(()) };
        let was = self.config.max_steps;
        self.config = change.of(&self.config);
        *schedule = self.schedule();
        let max_steps = self.config.max_steps;
        self.reporter.note(format!("max_steps = {max_steps} instead of {was}, to end when promised").into());
        let logged = self.log.append(&Row { step, max_steps: Some(max_steps), ..Row::default() });
        self.go_on_if_full(logged.map_err(Into::into))
    }

    fn schedule(&self) -> Schedule {
        Schedule {
            curve: self.config.schedule,
            learning_rate: self.config.learning_rate,
            min_learning_rate: self.config.min_learning_rate,
            warmup_steps: self.config.warmup_steps,
            decay_steps: self.config.lr_decay_steps,
            decay_fraction: self.config.decay_fraction,
        }
    }
}

/// The model as `ember-generate` will have it from the checkpoint: without a graph, in float32.
fn as_inference(gpt: &Gpt) -> Gpt {
    gpt.valid().with_precision(FloatDType::F32)
}

/// Whether something done every `interval` steps is due after `step` of them; an interval of 0 means never.
pub(crate) fn is_due(step: u64, interval: u64) -> bool {
    interval > 0 && step > 0 && step.is_multiple_of(interval)
}
