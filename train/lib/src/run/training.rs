//! The training loop: steps, and what is due between them.
//!
//! Read [`Trainer::train`] first; what a step is stands in [`crate::step`]. A run that was
//! interrupted anywhere and resumed goes through the same numbers as one that was not.

use std::time::Instant;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::FloatDType;
use ember_data::prepare::Marks;
use ember_data::tokenizer::Tokenizer;
use ember_data::windows::ValWindows;
use ember_kernels::gpu::attention_said;
use ember_model::{Gpt, tuning};

use super::checkpoint::{Checkpoint, save_evaluations};
use super::evaluate::evaluate;
use super::folder::{Pointer, RunFolder};
use super::report::{EvalReport, Records, Reporter, Row, StepReport};
use super::sample;
use super::schedule::Schedule;
use super::speedometer::Speedometer;
use super::time_budget::TimeBudget;
use super::weights::Weights;
use crate::distributed::{all_ok, broadcast, exchange};
use crate::error::{GuardError, Result};
use crate::memory;
use crate::memory::keeping::give_back_freed_memory;
use crate::note::Note;
use crate::step::guard::diagnosis::diagnose;
use crate::step::guard::report::{Report, windows_as_text};
use crate::step::progress::Progress;
use crate::step::{Attempt, Drained, Learner, MOST_IN_FLIGHT, StepResult};
use crate::units::grouped;

/// A run in progress: what learns, what is kept of it, and whom it tells.
pub struct Trainer<'a> {
    /// What learns, and from what.
    pub learner: Learner,
    /// The folder that this process owns, or the one that leads its group.
    pub folder: RunFolder,
    /// The step at which to stop as if interrupted.
    pub pause_at: Option<u64>,
    /// Windows to be judged on.
    pub val_windows: ValWindows,
    /// For samples, and saved with every checkpoint.
    pub tokenizer: Tokenizer,
    /// What is known of the built-in corpus.
    pub marks: Option<Marks>,
    /// Floating-point operations a second that the device can do, where known.
    pub peak_flops: Option<f64>,
    /// What is known of the weights that this session began with.
    pub weights: Weights,
    /// What the run keeps of itself.
    pub log: Records,
    /// What the run did beside learning since the last row.
    pub spent: Spent,
    /// How fast it learns.
    pub pace: Speedometer,
    /// The last step known, until it is reported.
    pub last: Option<StepResult>,
    /// The terminal.
    pub reporter: &'a mut dyn Reporter,
    /// Of a run that was promised to end at a time.
    pub time_budget: Option<TimeBudget>,
}

/// How training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All steps were taken, or there was no new best for long enough.
    Finished,
    /// Somebody asked it to stop, and what was learned is saved.
    Interrupted,
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

impl Trainer<'_> {
    /// Trains `gpt`, which is on a device with automatic differentiation, to `max_steps`, or until
    /// `stop` says so; saves before it returns.
    ///
    /// # Errors
    /// When a file cannot be written, the device failed or a process is gone: every checkpoint
    /// saved before is still there.
    pub fn train(&mut self, mut gpt: Gpt, stop: &dyn Fn() -> bool) -> Result<Ended> {
        let mut starts_gpu = !ember_kernels::is_cpu(&gpt.device());
        self.name_best()?; // a kill may have come between an evaluation and the pointer
        loop {
            let stopped = self.stops(stop) || self.pause_at == Some(self.learner.progress.step);
            if stopped {
                gpt = self.drain(gpt, 0, stop)?;
            }
            if let Some(ended) = self.between_steps(&gpt, stopped, stop)? {
                return Ok(ended);
            }
            self.keep_time()?;
            let began = Instant::now();
            gpt = self.take_step(gpt, starts_gpu, stop)?;
            if std::mem::take(&mut starts_gpu) {
                self.say_what_the_start_cost(began);
            }
            if let (Some(result), true) = (self.last, self.is_logged()) {
                self.learner.progress.elapsed_s = self.pace.elapsed_s();
                let reported = self.report(&gpt, &result);
                self.go_on_if_full(reported)?;
            }
        }
    }

    /// One optimizer step; a GPU is handed it, and often known afterwards is the one before. The
    /// first is waited for, to tell how long a GPU takes to start.
    fn take_step(&mut self, gpt: Gpt, is_first: bool, stop: &dyn Fn() -> bool) -> Result<Gpt> {
        if self.learner.in_flight.is_none() {
            return self.step_and_wait(gpt, stop);
        }
        let learning_rate = self.schedule().learning_rate(self.learner.progress.step);
        let gpt = self.learner.hand_over(gpt, learning_rate)?;
        let most = if is_first || self.is_looked_at() { 0 } else { MOST_IN_FLIGHT };
        self.drain(gpt, most, stop)
    }

    /// Waits until at most `most` steps are in flight. One that the device could not take is taken
    /// as on the CPU: there the guard looks at it, so that a run that meets such a batch goes
    /// through the same numbers.
    fn drain(&mut self, gpt: Gpt, most: usize, stop: &dyn Fn() -> bool) -> Result<Gpt> {
        let Drained { results, rewound } = self.learner.drain(most)?;
        results.into_iter().for_each(|result| self.count(result));
        if rewound { self.step_and_wait(gpt, stop) } else { Ok(gpt) }
    }

    /// One optimizer step, along the gradient of the first batch that the guard lets pass.
    fn step_and_wait(&mut self, mut gpt: Gpt, stop: &dyn Fn() -> bool) -> Result<Gpt> {
        let before = self.learner.progress.clone();
        let learning_rate = self.schedule().learning_rate(before.step);
        loop {
            let stop = || stop() || self.reporter.stop_requested();
            match self.learner.step(gpt, learning_rate, &stop)? {
                Attempt::Taken(gpt, result, spike) => {
                    if let Some(times) = spike {
                        self.tell_of_spike(&result, times, None)?;
                    }
                    self.count(result);
                    return Ok(gpt);
                }
                Attempt::Spike(back, result, times) => {
                    let skipped = self.learner.progress.guard.skipped();
                    self.tell_of_spike(&result, times, Some(skipped))?;
                    gpt = back;
                }
                Attempt::NotFinite(back, result, gradients) => {
                    self.leave_out(&back, &gradients, &result, &before)?;
                    gpt = back;
                }
            }
        }
    }

    /// What is due between two steps: first the save, then the evaluation and the sample, which
    /// could fail or be interrupted. How the run ends, where it does.
    fn between_steps(&mut self, gpt: &Gpt, stopped: bool, stop: &dyn Fn() -> bool) -> Result<Option<Ended>> {
        let config = &self.learner.config;
        let (eval_interval, sample_interval) = (config.eval_interval, config.sample_interval);
        let step = self.learner.progress.step;
        let last = step >= config.max_steps;
        self.learner.progress.elapsed_s = self.pace.elapsed_s();

        // What began from a checkpoint is saved and judged before its first step: it never needs
        // that checkpoint again.
        let begins = step == 0 && !config.init.is_empty();
        let is_evaluated = last || begins || is_due(step, eval_interval);
        let is_saved = is_evaluated || stopped || is_due(step, config.checkpoint_interval);
        let looks = is_saved || is_due(step, sample_interval);
        if looks {
            give_back_freed_memory();
        }
        if is_saved {
            let saved = self.save(gpt);
            if last || stopped { saved? } else { self.go_on_if_full(saved)? }
        }
        if stopped {
            return Ok(Some(Ended::Interrupted));
        }
        if is_evaluated && self.learner.progress.evaluations.last != Some(step) {
            let Some(losses) = self.evaluate(gpt, stop)? else {
                self.save(gpt)?; // the save of this step may have found the disk full
                return Ok(Some(Ended::Interrupted)); // a resume evaluates what is saved
            };
            let kept = self.keep(losses);
            self.go_on_if_full(kept)?;
        }
        let finished = last || self.is_out_of_patience();
        let is_sampled = finished || begins || is_due(step, sample_interval);
        if is_sampled
            && self.learner.group.leads()
            && sample_interval > 0
            && let Err(error) = self.sample(gpt)
        {
            // It is for people to look at: learning does not depend on it.
            self.reporter.note(Note::NoSample { step, error });
        }
        if finished && !last {
            let patience = self.learner.config.patience;
            let line = format!("no new best in {patience} evaluations (patience): the run ends at step {step}");
            self.reporter.note(line.into());
            self.save(gpt)?; // the save of this step may have found the disk full
        }
        if looks && !finished {
            give_back_freed_memory();
        }
        Ok(finished.then_some(Ended::Finished))
    }

    /// Counts the loss of a step into the next report.
    fn count(&mut self, result: StepResult) {
        self.learner.progress.unreported_loss += result.loss;
        self.learner.progress.unreported_steps += 1;
        self.last = Some(result);
    }

    /// Whether the step just taken gets a row of its own.
    fn is_logged(&self) -> bool {
        let step = self.learner.progress.step;
        step == 1 || is_due(step, self.learner.config.log_interval) || step == self.learner.config.max_steps
    }

    /// Whether something is done after the step just taken that must know how it went.
    fn is_looked_at(&self) -> bool {
        let config = &self.learner.config;
        let intervals = [config.eval_interval, config.checkpoint_interval, config.sample_interval];
        let step = self.learner.progress.step;
        self.is_logged() || self.pause_at == Some(step) || intervals.into_iter().any(|interval| is_due(step, interval))
    }

    /// Whether the run is to end here. A process alone asks who watches it; those of a group go by
    /// what they agreed on.
    fn stops(&self, stop: &dyn Fn() -> bool) -> bool {
        if self.learner.group.size() > 1 { self.learner.stop_agreed } else { stop() || self.reporter.stop_requested() }
    }

    /// The first step on a GPU takes far longer than the others: says why, and whether the next
    /// run's will.
    fn say_what_the_start_cost(&mut self, began: Instant) {
        self.reporter.note(Note::FirstStep { seconds: began.elapsed().as_secs_f64(), kept: tuning::file() });
        attention_said().iter().for_each(|line| self.reporter.note(line.to_string().into()));
    }

    /// Leaves out the batch that was just tried, whose loss or gradient is not finite: says so, and
    /// ends the run where that has happened too often. `before` is where the run stood when its
    /// step began.
    fn leave_out(
        &mut self,
        gpt: &Gpt,
        gradients: &GradientsParams,
        result: &StepResult,
        before: &Progress,
    ) -> Result<()> {
        let told = self.tell_of_not_finite(gpt, gradients, result);
        self.go_on_if_full(told)?;
        let leads = self.learner.group.leads();
        let whole = if leads { self.weights.ensure_whole(gpt, &self.folder) } else { Ok(()) };
        all_ok(&*self.learner.group, whole)?;
        let most = self.learner.config.max_skipped_batches;
        if self.learner.progress.guard.not_finite.len() as u64 <= most {
            return Ok(());
        }
        // Saved is where this step began, so that a resume meets the same batches.
        self.learner.progress = before.clone();
        let saved = self.save(gpt);
        // All processes end, and the one that leads says why.
        let step = self.learner.progress.step;
        let why = if leads { saved.and(Err(GuardError::SkippedTooMany { most, step }.into())) } else { saved };
        all_ok(&*self.learner.group, why)
    }

    /// Finds where a batch ceased to be finite, says so in one line, and keeps a report and a row.
    fn tell_of_not_finite(&mut self, gpt: &Gpt, gradients: &GradientsParams, result: &StepResult) -> Result<()> {
        if !self.learner.group.leads() {
            return Ok(());
        }
        let Learner { config, windows, progress, .. } = &self.learner;
        let (StepResult { step, window, loss, grad_norm, learning_rate, .. }, left_out) =
            (*result, &progress.guard.not_finite);
        let count = config.windows_per_step() as u64;
        let report = Report {
            step,
            loss,
            grad_norm,
            learning_rate,
            found: diagnose(gpt, gradients, windows, window, count)?,
            skipped: left_out.len() as u64,
            max_skipped_batches: config.max_skipped_batches,
            windows: windows_as_text(windows, window, count, &self.tokenizer)?,
        };
        // Windows only ever go forward, so the batches of this step are the last of those left out.
        let of_this_step = left_out.iter().rev().zip(0..).take_while(|(first, i)| **first + i * count == window);
        let file = self.folder.not_finite_report(step, of_this_step.count() as u64);
        self.reporter.note(report.line(&file).into());
        report.write(&file)?;
        let skipped = Some(self.learner.progress.guard.skipped());
        self.append_tried(result, Row { skipped, ..Row::default() })
    }

    /// Says what was done about a spike, and keeps a row; `skipped` are the batches left out so
    /// far, where it is one of them.
    fn tell_of_spike(&mut self, result: &StepResult, times: f64, skipped: Option<u64>) -> Result<()> {
        let what = if skipped.is_some() { "its batch is left out" } else { "it is scaled down to that" };
        let line = format!(
            "step {}: a gradient norm of {:.2}, {times:.1} times the median of the last 100; {what}",
            grouped(result.step),
            result.grad_norm
        );
        self.reporter.note(line.into());
        let told = self.append_tried(result, Row { spike: Some(times), skipped, ..Row::default() });
        self.go_on_if_full(told)
    }

    /// The row stands under the step that was tried, so that a resume from before it cuts it off
    /// and writes it again.
    fn append_tried(&mut self, result: &StepResult, row: Row) -> Result<()> {
        let StepResult { step, window, learning_rate, grad_norm, .. } = *result;
        let (learning_rate, grad_norm, window) = (Some(learning_rate), Some(grad_norm), Some(window));
        Ok(self.log.append(&Row { step, learning_rate, grad_norm, window, ..row })?)
    }

    /// Saves the checkpoint of this step, then removes those that are not to be kept; the process
    /// that leads does it for all.
    fn save(&mut self, gpt: &Gpt) -> Result<()> {
        let began = Instant::now();
        exchange::ensure_same_weights(&*self.learner.group, gpt)?;
        if self.learner.group.leads() {
            if !self.folder.checkpoint(self.learner.progress.step).is_dir() {
                self.weights.ensure_whole(gpt, &self.folder)?;
            }
            let synced = self.log.sync(); // a row of a step that is saved is never written again
            self.go_on_if_full(synced.map_err(Into::into))?;
            let Learner { optimizer, progress, .. } = &self.learner;
            let (tokenizer, sampling) = (&self.tokenizer, sample::sampling(self.marks.as_ref()));
            Checkpoint { gpt, optimizer, tokenizer, sampling, progress }.save(&self.folder)?;
            self.name_best()?;
            self.prune();
        }
        self.spent.save_s += began.elapsed().as_secs_f64();
        Ok(())
    }

    /// A full disk ends a run that has saved nothing yet; any other goes on, and writes again when
    /// it is due.
    fn go_on_if_full(&mut self, written: Result<()>) -> Result<()> {
        match written {
            Err(error) if error.is_full_disk() && self.folder.pointed(Pointer::Latest)?.is_some() => {
                self.reporter.note(Note::DiskFull(error));
                Ok(())
            }
            other => other,
        }
    }

    /// Measures the validation loss of the model as it is, and that of the averaged weights where
    /// there are any; `None` when interrupted, between the two as well.
    fn evaluate(&mut self, gpt: &Gpt, stop: &dyn Fn() -> bool) -> Result<Option<Losses>> {
        let began = Instant::now();
        let stop = || stop() || self.reporter.stop_requested();
        let measure = |gpt: &Gpt| evaluate(gpt, &self.val_windows, &*self.learner.group, &stop);
        let Some(val_loss) = measure(&as_inference(gpt))? else { return Ok(None) };
        let average = self.learner.optimizer.average().and_then(|average| average.model(gpt));
        let ema_val_loss = match average.map(|average| average.with_precision(FloatDType::F32)) {
            None => None,
            Some(average) => {
                let Some(loss) = measure(&average)? else { return Ok(None) };
                Some(loss)
            }
        };
        Ok(Some(Losses { val_loss, ema_val_loss, eval_s: began.elapsed().as_secs_f64() }))
    }

    /// Keeps what an evaluation of this step found: in the log, then beside the checkpoint, then in
    /// the name of the best, which goes by the trained weights. What a kill leaves undone on the
    /// way, a resume does.
    fn keep(&mut self, Losses { val_loss, ema_val_loss, eval_s }: Losses) -> Result<()> {
        let step = self.learner.progress.step;
        let is_best = self.learner.progress.evaluations.record(step, val_loss);
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
            tokens: Some(self.learner.progress.tokens),
            elapsed_s: Some(self.learner.progress.elapsed_s),
            ..Row::default()
        };
        let logged = self.log.append(&row).and_then(|()| self.log.sync());
        if self.learner.group.leads() {
            save_evaluations(&self.folder, &self.learner.progress)?;
            self.name_best()?;
            self.prune();
        }
        Ok(logged?)
    }

    /// Lets `best` name the step with the lowest loss, if it does not yet and a full disk did not
    /// keep that step from being saved.
    fn name_best(&self) -> Result<()> {
        match self.learner.progress.evaluations.best {
            Some(best) if self.learner.group.leads() => Ok(self.folder.name_best(best.step)?),
            _ => Ok(()),
        }
    }

    /// Removes the checkpoints that are not to be kept.
    fn prune(&self) {
        let best = self.learner.progress.evaluations.best.map(|best| best.step);
        self.folder.prune(self.learner.config.keep_checkpoints, best);
    }

    /// Whether the last `patience` evaluations were all above the best.
    fn is_out_of_patience(&self) -> bool {
        self.learner.config.patience > 0 && self.learner.progress.evaluations.since_best >= self.learner.config.patience
    }

    /// Lets the model write, shows it and keeps it.
    fn sample(&mut self, gpt: &Gpt) -> Result<()> {
        let (began, step) = (Instant::now(), self.learner.progress.step);
        let sampling = sample::sampling(self.marks.as_ref());
        let samples = sample::samples(&as_inference(gpt), &self.tokenizer, sampling, &self.learner.config, step)?;
        if samples.is_empty() {
            return Ok(());
        }
        self.reporter.sample(step, &sample::page(&samples));
        self.log.keep(&samples, &self.folder.sample(step))?;
        self.spent.sample_s += began.elapsed().as_secs_f64();
        Ok(())
    }

    /// Logs the steps since the last report, and shows them.
    fn report(&mut self, gpt: &Gpt, result: &StepResult) -> Result<()> {
        let Progress { step, tokens, elapsed_s, .. } = self.learner.progress;
        let train_loss =
            self.learner.progress.unreported_loss / f64::from(self.learner.progress.unreported_steps.max(1));
        (self.learner.progress.unreported_loss, self.learner.progress.unreported_steps) = (0.0, 0);
        let spent = std::mem::take(&mut self.spent);
        let tokens_per_s = self.pace.since_last(tokens);
        let flops = gpt.config().training_flops_per_token();
        let mfu = self.peak_flops.map(|peak| tokens_per_s * flops / (peak * self.learner.group.size() as f64));
        let memory_bytes = memory::in_use(&gpt.device());
        let steps_left = self.learner.config.max_steps.saturating_sub(step);
        let report = StepReport {
            step,
            max_steps: self.learner.config.max_steps,
            train_loss,
            learning_rate: result.learning_rate,
            grad_norm: result.grad_norm,
            tokens,
            tokens_per_s,
            mfu,
            memory_bytes,
            elapsed_s,
            remaining_s: (step > 1)
                .then(|| steps_left as f64 * self.learner.config.tokens_per_step() as f64 / self.pace.overall(tokens)),
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

    /// Changes the length of a run that was promised to end at a time, where the time budget of the
    /// process that leads asks for it. What changed is in the run's configuration before the next
    /// step: a resume goes on with the same numbers.
    fn keep_time(&mut self) -> Result<()> {
        let step = self.learner.progress.step;
        let Some(budget) = &mut self.time_budget else { return Ok(()) };
        let mut asked = if self.learner.group.leads() { budget.read(step, &self.learner.config) } else { None };
        if let Some(change) = asked {
            let written = self.folder.write_config(&change.apply(&self.learner.config));
            if written.is_err() {
                asked = None; // it stays as it was, and the clock will ask again
            }
            self.go_on_if_full(written)?;
        }
        let Some(change) = broadcast(&*self.learner.group, &asked)? else { return Ok(()) };
        let was = self.learner.config.max_steps;
        self.learner.config = change.apply(&self.learner.config);
        let max_steps = self.learner.config.max_steps;
        self.reporter.note(format!("max_steps = {max_steps} instead of {was}, to end when promised").into());
        let logged = self.log.append(&Row { step, max_steps: Some(max_steps), ..Row::default() });
        self.go_on_if_full(logged.map_err(Into::into))
    }

    fn schedule(&self) -> Schedule {
        Schedule {
            curve: self.learner.config.schedule,
            learning_rate: self.learner.config.learning_rate,
            min_learning_rate: self.learner.config.min_learning_rate,
            warmup_steps: self.learner.config.warmup_steps,
            decay_steps: self.learner.config.lr_decay_steps,
            decay_fraction: self.learner.config.decay_fraction,
        }
    }
}

/// The model as `ember-generate` will have it from the checkpoint: without a graph, in float32.
fn as_inference(gpt: &Gpt) -> Gpt {
    gpt.valid().with_precision(FloatDType::F32)
}

/// Whether something done every `interval` steps is due after `step` of them; an interval of 0
/// means never.
fn is_due(step: u64, interval: u64) -> bool {
    interval > 0 && step > 0 && step.is_multiple_of(interval)
}
