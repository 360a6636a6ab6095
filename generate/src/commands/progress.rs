//! Progress of long work: a bar on a terminal, nothing elsewhere.

use std::{cell::Cell, cell::RefCell, ops::ControlFlow, time::Duration};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use ember_cli::{compile_progress::CompileProgress, program::Notes};
use ember_host::interrupt::Interrupt;

/// Tokens scored between two outputs of results; within them, texts are batched by similar length.
pub(super) const SCORED_BETWEEN_RESULTS: usize = 1 << 16;

/// Shorter work needs no bar.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// A bar on standard error that appears once the work takes longer than a second; dropping this
/// removes it.
pub(super) struct Progress {
    bar: ProgressBar,
    shown: Cell<bool>,
    /// Shown until the first results.
    wait: RefCell<Option<CompileProgress>>,
}

impl Progress {
    /// A bar up to `total` units, such as "tokens"; none if notes are hidden or standard error is
    /// not a terminal.
    pub(super) fn new(unit: &'static str, total: usize, notes: &Notes) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} {msg}, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(unit);
        Self { bar, shown: Cell::new(!notes.are_shown()), wait: RefCell::new(None) }
    }

    /// Shows `wait` until the first units are done.
    pub(super) fn after(self, wait: CompileProgress) -> Self {
        self.wait.replace(Some(wait));
        self
    }

    /// Adds `done` units.
    pub(super) fn advance(&self, done: usize) {
        self.wait.take();
        self.bar.inc(done as u64);
        if !self.shown.get() && self.bar.elapsed() >= SHOWN_AFTER {
            self.shown.set(true);
            // Draws nothing if standard error is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// A callback that takes the number of units just done and returns whether to continue.
    pub(super) fn or_interrupt(&self, interrupt: &Interrupt) -> impl FnMut(usize) -> ControlFlow<()> {
        |done| {
            self.advance(done);
            if interrupt.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }

    /// Hides the bar while `write` prints results.
    pub(super) fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bar.suspend(write)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_and_lets_results_through() {
        let progress = Progress::new("tokens", 10, &Notes::new(true));
        progress.advance(4);
        progress.advance(3);
        assert_eq!((progress.bar.position(), progress.bar.length()), (7, Some(10)));
        assert!(progress.bar.is_hidden());
        assert_eq!(progress.aside(|| "written"), "written");
    }
}
