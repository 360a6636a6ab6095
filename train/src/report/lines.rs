//! Reports a run as plain lines, for logs and pipes: some of the steps, every evaluation and every
//! sample.

use std::{io::Write, time::Duration, time::Instant};

use ember_training::run::report::{EvalReport, Reporter, StepReport};
use ember_training::{note::Note, units::bytes, units::duration, units::grouped};

use crate::wording;

/// Writes lines; write errors are ignored, so they do not stop the run.
pub struct Lines<W> {
    out: W,
    opened: Instant,
    last: Option<Instant>,
}

impl<W: Write> Lines<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Self {
        Self { out, opened: Instant::now(), last: None }
    }

    fn line(&mut self, line: &str) {
        let _ = self.out.write_all(format!("{line}\n").as_bytes());
    }

    /// Whether the next step is to be reported. The interval is a tenth of the elapsed time, from 2
    /// to 60 seconds: often at first, when somebody is watching, then seldom.
    fn is_due(&self) -> bool {
        let pause = (self.opened.elapsed() / 10).clamp(Duration::from_secs(2), Duration::from_secs(60));
        self.last.is_none_or(|last| last.elapsed() >= pause)
    }
}

impl<W: Write> Reporter for Lines<W> {
    fn step(&mut self, report: &StepReport) {
        if !self.is_due() && report.step != report.max_steps {
            return;
        }
        self.last = Some(Instant::now());
        let StepReport { train_loss, learning_rate, grad_norm, .. } = report;
        let [step, most, speed] = [report.step, report.max_steps, report.tokens_per_s as u64].map(grouped);
        let mfu = report.mfu.map(|mfu| format!("  MFU {:.1}%", 100.0 * mfu)).unwrap_or_default();
        let memory = report.memory_bytes.map(|memory| format!("  {}", bytes(memory))).unwrap_or_default();
        let elapsed = duration(report.elapsed_s);
        let left = report.remaining_s.map(|remaining| format!(", {} left", duration(remaining))).unwrap_or_default();
        self.line(&format!(
            "step {step}/{most}  loss {train_loss:.4}  lr {learning_rate:.2e}  grad norm {grad_norm:.2}  {speed} tokens/s\
             {mfu}{memory}  {elapsed} elapsed{left}"
        ));
    }

    fn evaluation(&mut self, report: &EvalReport) {
        let (step, loss, perplexity) = (grouped(report.step), report.val_loss, report.val_loss.exp());
        let bits = report.bits_per_byte.map(|bits| format!(", {bits:.3} bits per byte")).unwrap_or_default();
        let best = if report.is_best { ", the best so far" } else { "" };
        let averaged = report.ema_val_loss.map(|loss| format!("; averaged weights {loss:.4}")).unwrap_or_default();
        let marks = report.entropy_floor.zip(report.forgetful_loss);
        let marks = marks.map(|(floor, forgetful)| format!("; floor {floor:.4}, forgetful predictor {forgetful:.4}"));
        self.line(&format!(
            "step {step}  validation loss {loss:.4} (perplexity {perplexity:.2}{bits}){best}{averaged}{}",
            marks.unwrap_or_default()
        ));
    }

    fn sample(&mut self, step: u64, text: &str) {
        self.line(&format!("step {}  sample:", grouped(step)));
        for line in text.trim().lines() {
            self.line(&format!("    {line}"));
        }
    }

    fn note(&mut self, note: Note) {
        self.line(&wording::note(&note));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lines_hold_the_numbers_and_the_samples() {
        let mut out = Vec::new();
        let mut lines = Lines::new(&mut out);
        let step = StepReport {
            step: 1_200,
            max_steps: 3_000,
            train_loss: 1.23456,
            learning_rate: 0.0019,
            grad_norm: 0.5,
            tokens_per_s: 35_200.7,
            mfu: Some(0.412),
            memory_bytes: Some(3_100_000_000),
            elapsed_s: 125.0,
            remaining_s: Some(190.0),
            ..StepReport::default()
        };
        lines.step(&step);
        lines.step(&step); // not due yet
        lines.evaluation(&EvalReport { step: 1_200, val_loss: 0.0, is_best: true, ..EvalReport::default() });
        lines.sample(1_200, "Mia ran.\r\nThe end.\n");
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "step 1,200/3,000  loss 1.2346  lr 1.90e-3  grad norm 0.50  35,200 tokens/s  MFU 41.2%  3.1 GB  \
             2m05s elapsed, 3m10s left\n\
             step 1,200  validation loss 0.0000 (perplexity 1.00), the best so far\n\
             step 1,200  sample:\n    Mia ran.\n    The end.\n"
        );
    }
}
