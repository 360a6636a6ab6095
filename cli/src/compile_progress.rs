//! Progress while a GPU's driver compiles kernels: a bar, or lines where there is no terminal.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ember_kernels::gpu::compiling::{count, counted};
use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal;

/// Kernels compiled by a training step of a usual model.
pub const KERNELS_OF_A_STEP: usize = 41;
/// Kernels compiled by a prompt and its first new tokens.
pub const KERNELS_OF_A_TEXT: usize = 20;
/// Matrix-product kernels compiled for timing, with a usual model's shapes.
pub const KERNELS_TIMED: usize = 33;

/// Shows the progress of compilation until dropped; nothing if nothing compiles, as on the CPU.
pub struct CompileProgress {
    ended: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How often the count is polled.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// Time before the first line, and between lines.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Kernels compiled before anything is shown: a device test with a warm cache compiles fewer.
const FEW: usize = 3;
/// If no kernel is compiled for this long, the wait is over until there are new ones.
const OVER_AFTER: Duration = Duration::from_secs(5);

impl CompileProgress {
    /// For about `expected` kernels; shows nothing when `quiet`.
    pub fn begin(expected: usize, quiet: bool) -> Self {
        Self::start(expected, quiet, std::io::stderr().is_terminal())
    }

    /// As [`Self::begin`], but with lines even on a terminal, for a program that logs there.
    pub fn in_lines(expected: usize, quiet: bool) -> Self {
        Self::start(expected, quiet, false)
    }

    fn start(expected: usize, quiet: bool, as_bar: bool) -> Self {
        if quiet {
            return Self { ended: None, thread: None };
        }
        count();
        let (ended, end) = mpsc::channel();
        let show = move || {
            let mut shown = ProgressView::new(expected, as_bar);
            while end.recv_timeout(POLL_EVERY) == Err(RecvTimeoutError::Timeout) {
                shown.update(counted(), Instant::now());
            }
            shown.clear();
        };
        // If the system has no thread left, the work goes on without progress.
        Self { ended: Some(ended), thread: thread::Builder::new().spawn(show).ok() }
    }
}

impl Drop for CompileProgress {
    fn drop(&mut self) {
        drop(self.ended.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What a terminal shows, and the counts that it follows from.
struct ProgressView {
    /// Kernels still expected when this wait began, and how many were compiled by then.
    expected: usize,
    first: usize,
    began: Instant,
    /// The count at the last compiled kernel, and its time.
    compiled: (usize, Instant),
    /// When the last line was written.
    last: Instant,
    as_bar: bool,
    bar: Option<ProgressBar>,
}

impl ProgressView {
    fn new(expected: usize, as_bar: bool) -> Self {
        let (first, now) = (counted(), Instant::now());
        Self { expected, first, began: now, compiled: (first, now), last: now, as_bar, bar: None }
    }

    /// Takes the count of kernels compiled by `now`.
    fn update(&mut self, counted: usize, now: Instant) {
        let done = counted - self.first;
        if counted > self.compiled.0 {
            self.compiled = (counted, now);
        } else if now - self.compiled.1 >= OVER_AFTER {
            // Kernels compiled later start a new wait.
            self.clear();
            self.expected = self.expected.saturating_sub(done);
            (self.first, self.began, self.last) = (counted, now, now);
            return;
        }
        if done < FEW {
            return;
        }
        // The expectation is for usual models, and may be exceeded.
        let expected = self.expected.max(done);
        // Kernels differ too much for the bar's own estimate, which uses the last few.
        let left = (now - self.began).as_secs_f64() / done as f64 * (expected - done) as f64;
        if self.as_bar {
            let bar = self.bar.get_or_insert_with(|| new_bar(expected));
            // The message comes first, so that the first frame has it.
            bar.set_message(format!("about {left:.0} s left"));
            bar.set_length(expected as u64);
            bar.set_position(done as u64);
        } else if now - self.last >= LINE_EVERY {
            self.last = now;
            let line = format!("compiling GPU kernels: {done} of about {expected}, about {left:.0} s left");
            let _ = writeln!(terminal::stderr(), "{line}");
        }
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(expected: usize) -> ProgressBar {
    let bar = ProgressBar::new(expected as u64);
    let template = "compiling GPU kernels {wide_bar} {pos} of about {len}, {msg}";
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_where_nothing_is_compiled_and_begins_again() {
        let mut shown = ProgressView::new(20, true);
        let (first, now) = (shown.first, shown.began);
        let mut look = |kernels, seconds| {
            shown.update(first + kernels, now + Duration::from_secs(seconds));
            shown.bar.as_ref().map(|bar| (bar.position(), bar.length().unwrap_or(0)))
        };
        assert_eq!(look(FEW - 1, 1), None, "a few are not worth a bar");
        assert_eq!(look(12, 2), Some((12, 20)));
        assert_eq!(look(12, 6), Some((12, 20)), "one may take its time");
        assert_eq!(look(12, 7), None);
        assert_eq!(look(13, 60), None);
        assert_eq!(look(16, 61), Some((4, 8)), "what was done is not done again");
        assert_eq!(look(30, 62), Some((18, 18)), "more than was expected");
    }
}
