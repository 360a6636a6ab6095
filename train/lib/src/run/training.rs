//! The training loop: steps, and what is due between them.
//!
//! Read [`Trainer::train`] first; what a step is stands in [`crate::step`]. A run that was
//! interrupted anywhere and resumed goes through the same numbers as one that was not.

use std::time::Instant;

use ember_data::{prepare::Marks, tokenizer::Tokenizer, windows::ValWindows};
use ember_decoding::config::Sampling;
use ember_kernels::gpu::attention_report;
use ember_model::{Gpt, tuning};

use super::report::{Records, Reporter, Row};
use super::{
    card::Card, folder::RunFolder, schedule::learning_rate, speedometer::Speedometer, time_budget::TimeBudget,
};
use crate::config::TrainConfig;
use crate::step::{Attempt, Learner, MOST_IN_FLIGHT, StepResult, progress::Best};
use crate::{
    distributed::broadcast, error::Result, memory::keeping::give_back_freed_memory, note::Note, units::counted,
};

/// A run in progress: what learns, what is kept of it, and whom it tells.
pub struct Trainer<'a> {
    /// What learns, and from what.
    pub learner: Learner<'a>,
    /// The folder that this process owns, or the one that leads its group.
    pub folder: RunFolder,
    /// The step at which to stop as if interrupted.
    pub pause_at: Option<u64>,
    /// Windows to be judged on.
    pub val_windows: ValWindows,
    /// For samples, and saved with every checkpoint.
    pub tokenizer: Tokenizer,
    /// How texts are drawn, of which every checkpoint says the same.
    pub sampling: Sampling,
    /// What a nat per held-out token is in bits per byte, of a text that is not the built-in
    /// stories: their losses are compared with their marks.
    pub bits_per_nat: Option<f64>,
    /// The loss of the best n-gram model that counted the text, in nats per held-out token.
    pub ngram_loss: f64,
    /// What is known of the built-in corpus.
    pub marks: Option<Marks>,
    /// Floating-point operations a second that the device can do, where known.
    pub peak_flops: Option<f64>,
    /// Whether the weights that this session began with held values that are not finite.
    pub came_damaged: bool,
    /// What each checkpoint says of itself.
    pub card: Card,
    /// What the run keeps of itself.
    pub log: Records,
    /// What the run did beside learning since the last row.
    pub spent: Spent,
    /// How fast it learns.
    pub pace: Speedometer,
    /// The last step known, until it is reported.
    pub last: Option<StepResult>,
    /// The last evaluation of this session.
    pub evaluated: Option<Best>,
    /// The terminal.
    pub reporter: &'a mut dyn Reporter,
    /// Whether the caller wants the run to end; the terminal may want it too.
    pub stop: &'a dyn Fn() -> bool,
    /// Of a run that was promised to end at a time.
    pub time_budget: Option<TimeBudget>,
    /// Whether products may still be tuned: it is decided once, and only on a GPU.
    pub may_tune: bool,
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

impl Trainer<'_> {
    /// Trains `gpt`, which is on a device with automatic differentiation, to `max_steps`, or until it is
    /// asked to stop; saves before it returns.
    ///
    /// # Errors
    /// When a file cannot be written, the device failed or a process is gone: every checkpoint
    /// saved before is still there.
    pub fn train(&mut self, mut gpt: Gpt) -> Result<Ended> {
        let mut starts_gpu = !ember_kernels::is_cpu(&gpt.device());
        self.name_best()?; // a kill may have come between an evaluation and the pointer
        loop {
            let stopped = self.stops() || self.pause_at == Some(self.learner.progress.step);
            if stopped {
                gpt = self.drain(gpt, 0)?;
            }
            if let Some(ended) = self.between_steps(&gpt, stopped)? {
                return Ok(ended);
            }
            self.keep_time()?;
            let (began, before) = (Instant::now(), self.learner.progress.step);
            gpt = self.take_step(gpt, starts_gpu)?;
            if self.learner.progress.step == before {
                continue; // asked to stop before the step was taken
            }
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

    /// One optimizer step. A GPU is handed it and not waited for, so that what is known afterwards
    /// is often the step before; only the first is waited for, to tell how long a GPU takes to
    /// start.
    fn take_step(&mut self, gpt: Gpt, is_first: bool) -> Result<Gpt> {
        if self.learner.in_flight.is_none() {
            return self.step_and_wait(gpt);
        }
        let learning_rate = learning_rate(&self.learner.config, self.learner.progress.step);
        let asked = || (self.stop)() || self.reporter.stop_requested();
        let gpt = self.learner.enqueue_step(gpt, learning_rate, &asked)?;
        let most = if is_first || self.is_looked_at() { 0 } else { MOST_IN_FLIGHT };
        self.drain(gpt, most)
    }

    /// Waits until at most `most` steps are in flight. One that the device could not take is taken
    /// as on the CPU: there the guard looks at it, so that a run that meets such a batch goes
    /// through the same numbers.
    fn drain(&mut self, gpt: Gpt, most: usize) -> Result<Gpt> {
        let (results, rewound) = self.learner.drain(most)?;
        results.into_iter().for_each(|result| self.count(result));
        if rewound { self.step_and_wait(gpt) } else { Ok(gpt) }
    }

    /// One optimizer step, along the gradient of the first batch that the guard lets pass; none where
    /// it is asked to stop before there is one.
    fn step_and_wait(&mut self, mut gpt: Gpt) -> Result<Gpt> {
        let before = self.learner.progress.clone();
        let learning_rate = learning_rate(&self.learner.config, before.step);
        loop {
            let asked = || (self.stop)() || self.reporter.stop_requested();
            match self.learner.step(gpt, learning_rate, &asked)? {
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
                Attempt::Stopped(back) => gpt = back,
            }
            if self.stops() {
                // The step is not taken; a resume meets the same batches.
                self.learner.progress = before;
                return Ok(gpt);
            }
        }
    }

    /// Does what is due between two steps: first the save, then the evaluation and the sample, which
    /// could fail or be interrupted. How the run ends, where it does.
    fn between_steps(&mut self, gpt: &Gpt, stopped: bool) -> Result<Option<Ended>> {
        let step = self.learner.progress.step;
        let due = Due::at(step, &self.learner.config);
        let last = step >= self.learner.config.max_steps;
        self.learner.progress.elapsed_s = self.pace.elapsed_s();

        let is_saved = due.save || stopped;
        let looks = is_saved || due.sample;
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
        let is_new = self.learner.progress.evaluations.last != Some(step);
        if due.evaluation && is_new && !self.evaluate(gpt)? {
            self.save(gpt)?; // the save of this step may have found the disk full
            return Ok(Some(Ended::Interrupted)); // a resume evaluates what is saved
        }
        if looks {
            self.folder.ensure_there()?; // an evaluation takes long enough for it to go
        }
        let finished = last || self.is_out_of_patience();
        let samples = self.learner.config.sample_interval > 0 && self.learner.group.leads();
        if samples && (due.sample || finished) && !self.sample_or_say_why(gpt) {
            self.save(gpt)?; // it may not have been due
            return Ok(Some(Ended::Interrupted)); // a resume draws the samples of what is saved
        }
        if finished && !last {
            let evaluations = counted(self.learner.config.patience, "evaluation");
            let line = format!("no new best in {evaluations} (patience): the run ends at step {step}");
            self.reporter.note(line.into());
            self.save(gpt)?; // the save of this step may have found the disk full
        }
        if finished {
            self.log.sync()?; // what a full disk has kept waiting is written, or missed
        }
        if looks && !finished {
            give_back_freed_memory();
        }
        Ok(finished.then_some(Ended::Finished))
    }

    /// Samples text; `false` when interrupted. What goes wrong is said, and does not end the run: a
    /// sample is for people to look at, and learning does not depend on it.
    fn sample_or_say_why(&mut self, gpt: &Gpt) -> bool {
        self.sample(gpt).unwrap_or_else(|error| {
            self.reporter.note(Note::NoSample { step: self.learner.progress.step, error });
            true
        })
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
        let step = self.learner.progress.step;
        self.is_logged() || self.pause_at == Some(step) || Due::at(step, &self.learner.config).is_anything()
    }

    /// Whether the run is to end here. A process alone asks who watches it; those of a group go by
    /// what they agreed on.
    fn stops(&self) -> bool {
        if self.learner.group.size() > 1 { self.learner.stop_agreed } else { self.is_asked_to_stop() }
    }

    /// Whether who watches this process asks it to stop.
    pub(super) fn is_asked_to_stop(&self) -> bool {
        (self.stop)() || self.reporter.stop_requested()
    }

    /// The first step on a GPU takes far longer than the others: says why, and whether the next
    /// run's will.
    fn say_what_the_start_cost(&mut self, began: Instant) {
        self.reporter.note(Note::FirstStep { seconds: began.elapsed().as_secs_f64(), kept: tuning::file() });
        attention_report().iter().for_each(|line| self.reporter.note(line.to_string().into()));
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
        let Some(change) = broadcast(self.learner.group, &asked)? else { return Ok(()) };
        let was = self.learner.config.max_steps;
        self.learner.config = change.apply(&self.learner.config);
        self.card.take_recipe(&self.learner.config)?;
        let max_steps = self.learner.config.max_steps;
        self.reporter.note(format!("max_steps = {max_steps} instead of {was}, to end when promised").into());
        let logged = self.log.append(&Row { step, max_steps: Some(max_steps), ..Row::default() });
        self.go_on_if_full(logged.map_err(Into::into))
    }
}

/// What the configuration has done after so many steps, beside learning.
struct Due {
    save: bool,
    evaluation: bool,
    sample: bool,
}

impl Due {
    fn at(step: u64, config: &TrainConfig) -> Self {
        let is_last = step >= config.max_steps;
        // What began from a checkpoint is saved and judged before its first step: it never needs
        // that checkpoint again.
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

/// Whether something done every `interval` steps is due after `step` of them; an interval of 0
/// means never.
fn is_due(step: u64, interval: u64) -> bool {
    interval > 0 && step > 0 && step.is_multiple_of(interval)
}
