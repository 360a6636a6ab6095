//! The wait for a GPU's first step: a bar of the kernels that its driver compiles, or a line now and
//! then where there is no terminal.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ember_kernels::gpu::compiling::{count, counted};
use indicatif::{ProgressBar, ProgressStyle};

use crate::terminal;

/// What is shown until it is dropped. On the CPU, where nothing is compiled, that is nothing.
pub struct Wait {
    ended: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// How often the count is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the wait is before the first line, and between two.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Kernels compiled before anything is shown: a warm device test compiles fewer.
const FEW: usize = 3;

impl Wait {
    /// For about so many kernels; nothing when `quiet`.
    pub fn begin(expected: usize, quiet: bool) -> Self {
        if quiet {
            return Self { ended: None, thread: None };
        }
        count();
        let (ended, end) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut shown = Shown::new(expected);
            while end.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                shown.look();
            }
            if let Some(bar) = shown.bar {
                bar.finish_and_clear();
            }
        });
        Self { ended: Some(ended), thread: Some(thread) }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        drop(self.ended.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Shown {
    expected: usize,
    first: usize,
    began: Instant,
    /// When the last line was written.
    last: Instant,
    /// On a terminal, instead of lines.
    bar: Option<ProgressBar>,
    is_terminal: bool,
}

impl Shown {
    fn new(expected: usize) -> Self {
        let now = Instant::now();
        let is_terminal = std::io::stderr().is_terminal();
        Self { expected, first: counted(), began: now, last: now, bar: None, is_terminal }
    }

    fn look(&mut self) {
        let done = counted() - self.first;
        if done < FEW {
            return;
        }
        // What is expected is what usual models take.
        let expected = self.expected.max(done);
        // Kernels differ too much for a bar's own estimate, which goes by the last few.
        let left = self.began.elapsed().as_secs_f64() / done as f64 * (expected - done) as f64;
        if self.is_terminal {
            let bar = self.bar.get_or_insert_with(|| new_bar(expected));
            bar.set_length(expected as u64);
            bar.set_position(done as u64);
            bar.set_message(format!("some {left:.0} s left"));
        } else if self.last.elapsed() >= LINE_EVERY {
            self.last = Instant::now();
            let line = format!("the GPU compiles its kernels: {done} of about {expected}, some {left:.0} s left");
            let _ = writeln!(terminal::stderr(), "{line}");
        }
    }
}

fn new_bar(expected: usize) -> ProgressBar {
    let bar = ProgressBar::new(expected as u64);
    let template = "the GPU compiles its kernels {wide_bar} {pos} of about {len}, {msg}";
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}
