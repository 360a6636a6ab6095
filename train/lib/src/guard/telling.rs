//! What a run says and keeps of batches that were left out and of spikes.

use burn::optim::GradientsParams;
use ember_model::Gpt;

use super::diagnosis::diagnose;
use super::report::{Report, windows_as_text};
use super::{Error, Verdict, Weights};
use crate::checkpoint::Progress;
use crate::error::Result;
use crate::report::Row;
use crate::report::units::grouped;
use crate::team::messages::agree;
use crate::trainer::{StepResult, Trainer};

impl Trainer<'_> {
    /// Leaves out the batch that was just tried, whose loss or gradient is not finite: says so, and ends the run where that has
    /// happened too often. `before` is where the run stood when its step began.
    pub(crate) fn leave_out(
        &mut self,
        gpt: &Gpt,
        gradients: &GradientsParams,
        result: &StepResult,
        before: &Progress,
        weights: Weights,
    ) -> Result<()> {
        let first = self.progress.windows - self.config.windows_per_step() as u64;
        let told = self.tell_of_not_finite(gpt, gradients, result, first);
        self.go_on_if_full(told)?;
        let whole = if self.team.leads() { weights.ensure_whole(gpt, &self.run) } else { Ok(()) };
        agree(&*self.team, whole)?;
        if self.progress.guard.not_finite.len() as u64 <= self.config.max_skipped_batches {
            return Ok(());
        }
        // Saved is where this step began, so that a resume meets the same batches.
        self.progress = before.clone();
        let saved = self.save(gpt, weights);
        // All processes end, and the one that leads says why.
        let why = if self.team.leads() { saved.and(Err(self.skipped_too_many())) } else { saved };
        agree(&*self.team, why)
    }

    fn skipped_too_many(&self) -> crate::error::Error {
        Error::SkippedTooMany { most: self.config.max_skipped_batches, step: self.progress.step }.into()
    }

    /// Finds where the batch from window `first` on ceased to be finite, says so in one line, and keeps a report and a row.
    fn tell_of_not_finite(
        &mut self,
        gpt: &Gpt,
        gradients: &GradientsParams,
        result: &StepResult,
        first: u64,
    ) -> Result<()> {
        if !self.team.leads() {
            return Ok(());
        }
        let (step, count) = (self.progress.step + 1, self.config.windows_per_step() as u64);
        let left_out = &self.progress.guard.not_finite;
        let report = Report {
            step,
            loss: result.loss,
            grad_norm: result.grad_norm,
            learning_rate: result.learning_rate,
            found: diagnose(gpt, gradients, &self.windows, first, count)?,
            skipped: left_out.len() as u64,
            max_skipped_batches: self.config.max_skipped_batches,
            windows: windows_as_text(&self.windows, first, count, &self.tokenizer)?,
        };
        // Windows only ever go forward, so the batches of this step are the last of those left out.
        let of_this_step = left_out.iter().rev().zip(0..).take_while(|(window, i)| **window + i * count == first);
        let file = self.run.not_finite_report(step, of_this_step.count() as u64);
        self.reporter.note(report.line(&file).into());
        report.write(&file)?;
        let skipped = Some(self.progress.guard.skipped());
        self.append_tried(result, Row { skipped, window: Some(first), ..Row::default() })
    }

    /// Says what was done about a spike in the batch from window `first` on, and keeps a row.
    pub(crate) fn tell_of_spike(&mut self, verdict: Verdict, result: &StepResult, first: u64) -> Result<()> {
        let (times, what, skipped) = match verdict {
            Verdict::LeaveOutSpike(times) => (times, "its batch is left out", Some(self.progress.guard.skipped())),
            Verdict::Take { spike: Some(times), .. } => (times, "it is scaled down to that", None),
            _ => return Ok(()),
        };
        let line = format!(
            "step {}: a gradient norm of {:.2}, {times:.1} times the median of the last 100; {what}",
            grouped(self.progress.step + 1),
            result.grad_norm
        );
        self.reporter.note(line.into());
        self.append_tried(result, Row { spike: Some(times), skipped, window: Some(first), ..Row::default() })
    }

    /// The row stands under the step that was tried, so that a resume from before it cuts it off and writes it again.
    fn append_tried(&mut self, result: &StepResult, row: Row) -> Result<()> {
        let (learning_rate, grad_norm) = (Some(result.learning_rate), Some(result.grad_norm));
        Ok(self.log.append(&Row { step: self.progress.step + 1, learning_rate, grad_norm, ..row })?)
    }
}
