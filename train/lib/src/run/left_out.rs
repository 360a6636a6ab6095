//! Skipped batches (their loss or gradient is not finite) and spikes: reports them, and ends a run
//! that has skipped too many. Also checks for weights that are not finite.

use burn::optim::GradientsParams;
use ember_model::Gpt;

use super::{folder::Pointer, folder::RunFolder, report::Reporter, report::Row, training::Trainer};
use crate::error::{GuardError, Result};
use crate::step::guard::diagnosis::{diagnose, weight_not_finite};
use crate::step::guard::report::{Report, windows_as_text};
use crate::step::{Learner, StepResult};
use crate::{distributed::all_ok, step::progress::Progress, units::grouped};

/// Most reports kept for one step; later ones replace the last.
const MAX_REPORTS: u64 = 32;

impl Trainer<'_> {
    /// Skips the batch that was just tried, whose loss or gradient is not finite: reports it, and
    /// ends the run if too many were skipped. `before` is the run's progress at the beginning of
    /// the step.
    pub(super) fn skip_batch(
        &mut self,
        gpt: &Gpt,
        gradients: &GradientsParams,
        result: &StepResult,
        before: &Progress,
    ) -> Result<()> {
        let reported = self.report_not_finite(gpt, gradients, result, before.windows);
        self.tolerate_full_disk(reported)?;
        let leads = self.learner.group.leads();
        let whole = if leads && !self.session.began_damaged { ensure_finite(gpt, &self.folder) } else { Ok(()) };
        all_ok(self.learner.group, whole)?;
        let most = self.learner.config.max_skipped_batches;
        if self.learner.progress.guard.not_finite.len() as u64 <= most {
            return Ok(());
        }
        // Saves the progress from the beginning of this step, so that a resumed run reads the same
        // batches.
        self.learner.progress = before.clone();
        let saved = self.save(gpt);
        // All processes end, and rank 0 reports why.
        let step = self.learner.progress.step;
        let why = if leads { saved.and(Err(GuardError::SkippedTooMany { most, step }.into())) } else { saved };
        all_ok(self.learner.group, why)
    }

    /// Finds the first value that is not finite, reports it in one line, and writes a report file
    /// and a row. The step began at window `first_window`.
    fn report_not_finite(
        &mut self,
        gpt: &Gpt,
        gradients: &GradientsParams,
        result: &StepResult,
        first_window: u64,
    ) -> Result<()> {
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
            windows: windows_as_text(windows, window, count, &self.dataset.tokenizer)?,
        };
        let file = self.folder.not_finite_report(step, report_number(left_out, first_window));
        self.reporter.note(report.line(&file).into());
        self.folder.ensure_there()?;
        let written = report.write(&file);
        // Appended even if the report found the disk full: the log keeps the row until there is
        // room, and nothing else would write it.
        let skipped = Some(self.learner.progress.guard.skipped());
        let logged = self.append_attempt(result, Row { skipped, ..Row::default() });
        written.and(logged)
    }

    /// Reports a spike, and writes a row. `skipped` is the number of batches skipped so far, if the
    /// spike's batch is one of them.
    pub(super) fn report_spike(&mut self, result: &StepResult, times: f64, skipped: Option<u64>) -> Result<()> {
        let what = if skipped.is_some() { "its batch is skipped" } else { "it is scaled down to that" };
        let line = format!(
            "step {}: a gradient norm of {:.2}, {times:.1} times the median of the last 100; {what}",
            grouped(result.step),
            result.grad_norm
        );
        self.reporter.note(line.into());
        let logged = self.append_attempt(result, Row { spike: Some(times), skipped, ..Row::default() });
        self.tolerate_full_disk(logged)
    }

    /// Appends a row for the attempted step, so that a resume from an earlier step removes it and
    /// writes it again.
    fn append_attempt(&mut self, result: &StepResult, row: Row) -> Result<()> {
        let StepResult { step, window, learning_rate, grad_norm, .. } = *result;
        let (learning_rate, grad_norm, window) = (Some(learning_rate), Some(grad_norm), Some(window));
        Ok(self.log.append(&Row { step, learning_rate, grad_norm, window, ..row })?)
    }
}

/// The number, within its step, of the report about the batch that was left out last. The step
/// began at window `first_window`; window numbers only increase; skipped spikes may lie between.
fn report_number(left_out: &[u64], first_window: u64) -> u64 {
    let of_this_step = left_out.iter().filter(|&&window| window >= first_window);
    (of_this_step.count() as u64).min(MAX_REPORTS)
}

/// Warns if the weights that a session begins with are not finite, and returns whether they are
/// not. The user chose to train them, so they may be saved.
pub fn warn_if_damaged(gpt: &Gpt, reporter: &mut dyn Reporter) -> bool {
    let found = weight_not_finite(gpt);
    if let Some((name, place)) = &found {
        let line = "is not finite in the checkpoint that training starts from: batches that use it will be skipped";
        reporter.note(format!("{name} {place:?} {line}").into());
    }
    found.is_some()
}

/// Checks that all weights are finite. Every gradient was finite, so only a device fault or an
/// extreme step makes a weight non-finite; a resume from the last checkpoint recovers.
///
/// # Errors
/// Names the first such weight and that checkpoint.
pub fn ensure_finite(gpt: &Gpt, run: &RunFolder) -> Result<()> {
    let Some((parameter, place)) = weight_not_finite(gpt) else { return Ok(()) };
    Err(GuardError::DamagedWeights { parameter, place, saved: run.pointed(Pointer::Latest)? }.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::{module::ParamId, tensor::Tensor};
    use ember_model::ParameterMapper;

    use super::*;
    use crate::distributed::Alone;
    use crate::run::folder::{METRICS, REPORTS};
    use crate::run::report::{Silent, jsonl};
    use crate::run::{Run, small_run};

    struct ToNan;

    impl ParameterMapper for ToNan {
        fn map<const D: usize>(&mut self, _: &str, _: ParamId, tensor: Tensor<D>) -> Tensor<D> {
            tensor * f32::NAN
        }
    }

    #[test]
    fn each_batch_that_a_step_leaves_out_has_its_report_whatever_lies_between() {
        let count = |left_out: &[u64]| report_number(left_out, 640);
        assert_eq!([&[0, 640][..], &[0, 64, 640, 704], &[640, 768]].map(count), [1, 2, 2]);
        assert_eq!(count(&(0..100).map(|i| 640 + 64 * i).collect::<Vec<u64>>()), MAX_REPORTS);
    }

    #[test]
    fn a_batch_whose_report_cannot_be_written_has_its_row() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("run");
        let run = small_run::begin(&path, "max_steps = 2\nsample_interval = 0\n");
        let gpt = run.gpt.clone().map_parameters(&mut ToNan);
        std::fs::write(path.join(REPORTS), "no folder").unwrap();
        let ended = Run { gpt, ..run }.train(&Alone, &mut Silent, &|| false);
        let error = crate::note::line(&ended.map(drop).unwrap_err());
        assert!(error.contains(REPORTS), "{error}");
        let rows: Vec<Row> = jsonl::read(&path.join(METRICS)).unwrap();
        let skipped: Vec<_> = rows.iter().filter_map(|row| Some((row.step, row.skipped?))).collect();
        assert_eq!(skipped, [(1, 1)]);
    }
}
