//! The training loop: steps, and the work that is due between them.
//!
//! Read [`Trainer::train`] first; [`crate::step`] defines a step. A run that was interrupted
//! anywhere and resumed produces the same numbers as one that was not.

use std::time::Instant;

use ember_data::{prepare::Dataset, windows::ValWindows};
use ember_kernels::gpu::attention_report;
use ember_model::{Gpt, tuning};

use super::report::{Records, Reporter, Row};
use super::{card::Card, folder::RunFolder, schedule, speedometer::Speedometer, time_budget::TimeBudget};
use crate::config::TrainConfig;
use crate::step::progress::{Best, Progress};
use crate::step::{Attempt, Learner, MAX_IN_FLIGHT, StepResult};
use crate::{
    distributed::broadcast, error::Result, memory::keeping::give_back_freed_memory, note::Note, units::counted,
};

/// A run in progress: the learner, its text, its folder, its records and its reporter.
pub struct Trainer<'a> {
    /// The state of training, and its data.
    pub learner: Learner<'a>,
    /// The run's folder, owned by this process or by rank 0 of its group.
    pub folder: RunFolder,
    /// The text, with its tokenizer and its reference losses.
    pub dataset: Dataset,
    /// Windows of its validation split.
    pub val_windows: ValWindows,
    /// The model card of each checkpoint.
    pub card: Card,
    /// The run's logs and samples.
    pub log: Records,
    /// Shows the run, for example on a terminal.
    pub reporter: &'a mut dyn Reporter,
    /// Whether the caller requests a stop; the reporter may request one too.
    pub stop: &'a dyn Fn() -> bool,
    /// The step at which to stop as if interrupted.
    pub pause_at: Option<u64>,
    /// For a run that must end at a promised time.
    pub time_budget: Option<TimeBudget>,
    /// The state that is not saved.
    pub session: Session,
}

/// The state of a run that no checkpoint holds: it begins anew in each session.
pub struct Session {
    /// Whether the session began with weights that are not finite.
    pub began_damaged: bool,
    /// Whether matrix products may still be autotuned: decided once, and only on a GPU.
    pub may_tune: bool,
    /// The training speed.
    pub speedometer: Speedometer,
    /// Time spent on other work than learning since the last row.
    pub spent: Spent,
    /// The last finished step.
    pub last_step: Option<StepResult>,
    /// The last evaluation.
    pub last_evaluation: Option<Best>,
}

impl Session {
    /// A session that begins at `progress`, now, on a device with this peak in FLOP/s.
    pub fn new(progress: &Progress, peak_flops: Option<f64>, began_damaged: bool, may_tune: bool) -> Self {
        let speedometer = Speedometer::new(progress.tokens, progress.elapsed_s, peak_flops);
        Self { began_damaged, may_tune, speedometer, spent: Spent::default(), last_step: None, last_evaluation: None }
    }
}

/// How training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All steps were taken, or `patience` evaluations passed without a new best.
    Finished,
    /// A stop was requested; the progress is saved.
    Interrupted,
}

/// Seconds spent on other work than learning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// Saving checkpoints.
    pub save_s: f64,
    /// Sampling text.
    pub sample_s: f64,
}

impl Trainer<'_> {
    /// Trains `gpt`, which is on a device with automatic differentiation, to `max_steps` or until a
    /// stop is requested; saves before it returns.
    ///
    /// # Errors
    /// When a file cannot be written, the device fails or a process is gone. Every checkpoint saved
    /// before is still there.
    pub fn train(&mut self, mut gpt: Gpt) -> Result<Ended> {
        let mut starts_gpu = !ember_kernels::is_cpu(&gpt.device());
        self.point_best()?; // the process may have been killed between an evaluation and the pointer
        loop {
            let stopped = self.should_stop() || self.pause_at == Some(self.learner.progress.step);
            if stopped {
                gpt = self.drain(gpt, 0)?;
            }
            if let Some(ended) = self.between_steps(&gpt, stopped)? {
                return Ok(ended);
            }
            self.apply_time_budget()?;
            let (began, before) = (Instant::now(), self.learner.progress.step);
            gpt = self.take_step(gpt, starts_gpu)?;
            if self.learner.progress.step <= before {
                continue; // a stop was requested before a further step, or while the last one was repeated
            }
            if std::mem::take(&mut starts_gpu) {
                self.report_first_step(began);
            }
            if let (Some(result), true) = (self.session.last_step, self.is_logged()) {
                self.learner.progress.elapsed_s = self.session.speedometer.elapsed_s();
                let reported = self.report(&gpt, &result);
                self.tolerate_full_disk(reported)?;
            }
        }
    }

    /// One optimizer step. On a GPU it is only enqueued, so the newest result afterwards is often
    /// that of the previous step. The first step is waited for, to measure how long the GPU takes
    /// to start.
    fn take_step(&mut self, gpt: Gpt, is_first: bool) -> Result<Gpt> {
        if self.learner.in_flight.is_none() {
            return self.step_and_wait(gpt);
        }
        let learning_rate = schedule::learning_rate(&self.learner.config, self.learner.progress.step);
        let asked = || (self.stop)() || self.reporter.stop_requested();
        let gpt = self.learner.enqueue_step(gpt, learning_rate, &asked)?;
        let most = if is_first || self.needs_result() { 0 } else { MAX_IN_FLIGHT };
        self.drain(gpt, most)
    }

    /// Waits until at most `most` steps are in flight. A step that the device could not take is
    /// repeated with the guard, as on the CPU, so that both handle such a batch alike.
    fn drain(&mut self, gpt: Gpt, most: usize) -> Result<Gpt> {
        let (results, rewound) = self.learner.drain(most)?;
        results.into_iter().for_each(|result| self.count_loss(result));
        if rewound { self.step_and_wait(gpt) } else { Ok(gpt) }
    }

    /// One optimizer step, along the gradient of the first batch that the guard accepts; none if a
    /// stop is requested before there is one.
    fn step_and_wait(&mut self, mut gpt: Gpt) -> Result<Gpt> {
        let before = self.learner.progress.clone();
        let learning_rate = schedule::learning_rate(&self.learner.config, before.step);
        loop {
            let asked = || (self.stop)() || self.reporter.stop_requested();
            match self.learner.step(gpt, learning_rate, &asked)? {
                Attempt::Taken(gpt, result, spike) => {
                    if let Some(times) = spike {
                        self.report_spike(&result, times, None)?;
                    }
                    self.count_loss(result);
                    return Ok(gpt);
                }
                Attempt::Spike(back, result, times) => {
                    let skipped = self.learner.progress.guard.skipped();
                    self.report_spike(&result, times, Some(skipped))?;
                    gpt = back;
                }
                Attempt::NotFinite(back, result, gradients) => {
                    self.skip_batch(&back, &gradients, &result, &before)?;
                    gpt = back;
                }
                Attempt::Stopped(back) => gpt = back,
            }
            if self.should_stop() {
                // The step is not taken; a resumed run reads the same batches again.
                self.learner.progress = before;
                return Ok(gpt);
            }
        }
    }

    /// Does what is due between two steps, and returns how the run ended, if it did. The order is
    /// this; the save comes first, since an evaluation or a sample could fail or be interrupted:
    ///
    /// | what | when |
    /// |---|---|
    /// | the save | it is due, or a stop was requested |
    /// | the end, as interrupted | a stop was requested |
    /// | the evaluation, which comes with a save | it is due |
    /// | the sample | it is due, or the run is finished |
    /// | the end, as finished | the last step, or no patience is left after the evaluation |
    fn between_steps(&mut self, gpt: &Gpt, stopped: bool) -> Result<Option<Ended>> {
        let step = self.learner.progress.step;
        let due = Due::at(step, &self.learner.config);
        let is_last = step >= self.learner.config.max_steps;
        self.learner.progress.elapsed_s = self.session.speedometer.elapsed_s();

        let saves = due.save || stopped;
        let looks = saves || due.sample;
        if looks {
            give_back_freed_memory();
        }
        if saves {
            let saved = self.save(gpt);
            if is_last || stopped { saved? } else { self.tolerate_full_disk(saved)? }
        }
        if stopped {
            return Ok(Some(Ended::Interrupted));
        }
        if due.evaluation && !self.evaluate_once(gpt)? {
            return self.end_interrupted(gpt).map(Some);
        }
        if looks {
            self.folder.ensure_there()?; // it may have been removed during a long evaluation
        }
        let is_finished = is_last || self.is_out_of_patience();
        if (due.sample || is_finished) && !self.try_sample(gpt) {
            return self.end_interrupted(gpt).map(Some);
        }
        if is_finished {
            return self.end_finished(gpt, is_last).map(Some);
        }
        if looks {
            give_back_freed_memory();
        }
        Ok(None)
    }

    /// Evaluates this step unless it was before, by the run that is resumed; `false` when
    /// interrupted.
    fn evaluate_once(&mut self, gpt: &Gpt) -> Result<bool> {
        let is_evaluated = self.learner.progress.evaluations.last == Some(self.learner.progress.step);
        if is_evaluated { Ok(true) } else { self.evaluate(gpt) }
    }

    /// Ends a run whose evaluation or sample was interrupted. A resumed run does it again, from the
    /// checkpoint of this step, which is saved in case it is not there: the disk may have been
    /// full, or, with a sample alone, no save was due.
    fn end_interrupted(&mut self, gpt: &Gpt) -> Result<Ended> {
        self.save(gpt)?;
        Ok(Ended::Interrupted)
    }

    /// Ends the run after its last step, or because no patience is left.
    fn end_finished(&mut self, gpt: &Gpt, is_last: bool) -> Result<Ended> {
        if !is_last {
            let evaluations = counted(self.learner.config.patience, "evaluation");
            let step = self.learner.progress.step;
            let line = format!("no new best in {evaluations} (patience): the run ends at step {step}");
            self.reporter.note(line.into());
            self.save(gpt)?; // the save of this step may have found the disk full
        }
        self.log.sync()?; // the last chance for rows that a full disk delayed
        Ok(Ended::Finished)
    }

    /// Samples text, if the run has samples and this process leads; `false` when interrupted. An
    /// error is reported and does not end the run, since learning does not depend on samples.
    fn try_sample(&mut self, gpt: &Gpt) -> bool {
        if self.learner.config.sample_interval == 0 || !self.learner.group.leads() {
            return true;
        }
        self.sample(gpt).unwrap_or_else(|error| {
            self.reporter.note(Note::NoSample { step: self.learner.progress.step, error });
            true
        })
    }

    /// Adds a step's loss to the next report.
    fn count_loss(&mut self, result: StepResult) {
        self.learner.progress.unreported_loss += result.loss;
        self.learner.progress.unreported_steps += 1;
        self.session.last_step = Some(result);
    }

    /// Whether the step just taken gets a row in the log.
    fn is_logged(&self) -> bool {
        let step = self.learner.progress.step;
        step == 1 || is_due(step, self.learner.config.log_interval) || step == self.learner.config.max_steps
    }

    /// Whether the result of the step just taken is needed before the next step.
    fn needs_result(&self) -> bool {
        let step = self.learner.progress.step;
        self.is_logged() || self.pause_at == Some(step) || Due::at(step, &self.learner.config).is_anything()
    }

    /// Whether the run should end here. A single process checks its own requests; a group uses the
    /// decision that its processes agreed on.
    fn should_stop(&self) -> bool {
        if self.learner.group.size() > 1 { self.learner.stop_agreed } else { self.stop_requested_here() }
    }

    /// Whether the caller or the reporter requests a stop.
    pub(super) fn stop_requested_here(&self) -> bool {
        (self.stop)() || self.reporter.stop_requested()
    }

    /// The first step on a GPU takes far longer than the others: reports why, and whether the next
    /// run's will too.
    fn report_first_step(&mut self, began: Instant) {
        self.reporter.note(Note::FirstStep { seconds: began.elapsed().as_secs_f64(), kept: tuning::file() });
        attention_report().iter().for_each(|line| self.reporter.note(line.to_string().into()));
    }

    /// Changes the length of the run if rank 0's time budget requires it. The changed configuration
    /// is written before the next step, so that a resumed run produces the same numbers.
    fn apply_time_budget(&mut self) -> Result<()> {
        let step = self.learner.progress.step;
        let Some(budget) = &mut self.time_budget else { return Ok(()) };
        let mut asked = if self.learner.group.leads() { budget.read(step, &self.learner.config) } else { None };
        if let Some(change) = asked {
            let written = self.folder.write_config(&change.apply(&self.learner.config));
            if written.is_err() {
                asked = None; // no change now; the budget will ask again
            }
            self.tolerate_full_disk(written)?;
        }
        let Some(change) = broadcast(self.learner.group, &asked)? else { return Ok(()) };
        let was = self.learner.config.max_steps;
        self.learner.config = change.apply(&self.learner.config);
        self.card.take_recipe(&self.learner.config)?;
        let max_steps = self.learner.config.max_steps;
        self.reporter.note(format!("max_steps = {max_steps} instead of {was}, to end on time").into());
        let logged = self.log.append(&Row { step, max_steps: Some(max_steps), ..Row::default() });
        // On the disk like the configuration: a resume from an earlier step tells of the length by it.
        let logged = logged.and_then(|()| self.log.sync());
        self.tolerate_full_disk(logged.map_err(Into::into))
    }
}

/// The work that is due after a step.
struct Due {
    save: bool,
    evaluation: bool,
    sample: bool,
}

impl Due {
    fn at(step: u64, config: &TrainConfig) -> Self {
        let is_last = step >= config.max_steps;
        // A run with an initial checkpoint is saved and evaluated before its first step: it never
        // needs that checkpoint again.
        let begins = step == 0 && !config.init.is_empty();
        let is_an_end = is_last || begins;
        let evaluation = is_an_end || is_due(step, config.eval_interval);
        let save = evaluation || is_due(step, config.checkpoint_interval);
        let sample = is_an_end || is_due(step, config.sample_interval);
        Self { save, evaluation, sample }
    }

    fn is_anything(&self) -> bool {
        self.save || self.evaluation || self.sample
    }
}

/// Whether something done every `interval` steps is due after step `step`; an interval of 0 means
/// never.
fn is_due(step: u64, interval: u64) -> bool {
    interval > 0 && step > 0 && step.is_multiple_of(interval)
}
