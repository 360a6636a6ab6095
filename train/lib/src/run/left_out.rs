//! Batches that are left out since their loss or gradient is not finite, and spikes: what is told
//! of them, and when there are too many; and weights that are not finite, from the start or since.

use burn::optim::GradientsParams;
use ember_model::Gpt;

use super::{folder::Pointer, folder::RunFolder, report::Reporter, report::Row, training::Trainer};
use crate::error::{GuardError, Result};
use crate::step::guard::diagnosis::{diagnose, weight_not_finite};
use crate::step::guard::report::{Report, windows_as_text};
use crate::step::{Learner, StepResult};
use crate::{distributed::all_ok, step::progress::Progress, units::grouped};

/// So many reports are kept of one step; later ones take the place of the last.
const MOST_REPORTS: u64 = 32;

impl Trainer<'_> {
    /// Leaves out the batch that was just tried, whose loss or gradient is not finite: says so, and
    /// ends the run where that has happened too often. `before` is where the run stood when its
    /// step began.
    pub(super) fn leave_out(
        &mut self,
        gpt: &Gpt,
        gradients: &GradientsParams,
        result: &StepResult,
        before: &Progress,
    ) -> Result<()> {
        let told = self.tell_of_not_finite(gpt, gradients, result);
        self.go_on_if_full(told)?;
        let leads = self.learner.group.leads();
        let whole = if leads && !self.came_damaged { ensure_whole(gpt, &self.folder) } else { Ok(()) };
        all_ok(self.learner.group, whole)?;
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
        all_ok(self.learner.group, why)
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
        let file = self.folder.not_finite_report(step, (of_this_step.count() as u64).min(MOST_REPORTS));
        self.reporter.note(report.line(&file).into());
        self.folder.ensure_there()?;
        report.write(&file)?;
        let skipped = Some(self.learner.progress.guard.skipped());
        self.append_tried(result, Row { skipped, ..Row::default() })
    }

    /// Says what was done about a spike, and keeps a row; `skipped` are the batches left out so
    /// far, where it is one of them.
    pub(super) fn tell_of_spike(&mut self, result: &StepResult, times: f64, skipped: Option<u64>) -> Result<()> {
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
}

/// Looks at the weights that a session begins with, and says where they are not finite: a person
/// chose to train them, so they may be saved.
pub fn come_damaged(gpt: &Gpt, reporter: &mut dyn Reporter) -> bool {
    let found = weight_not_finite(gpt);
    if let Some((name, place)) = &found {
        let line = "is not finite in the checkpoint that this begins with: batches that meet it will be left out";
        reporter.note(format!("{name} {place:?} {line}").into());
    }
    found.is_some()
}

/// Makes sure that no weight ceased to be finite in this session. Every gradient was finite, so it
/// takes a fault of the device or a step beyond all measure; the way back is the last checkpoint,
/// which a resume takes.
///
/// # Errors
/// Names the first such weight and the way back.
pub fn ensure_whole(gpt: &Gpt, run: &RunFolder) -> Result<()> {
    let Some((parameter, place)) = weight_not_finite(gpt) else { return Ok(()) };
    Err(GuardError::DamagedWeights { parameter, place, saved: run.pointed(Pointer::Latest)? }.into())
}
