//! Preparing text on the terminal: bytes, rate and time left; a line now and then where there is no
//! terminal.

use std::{io::IsTerminal, io::Write, sync::Mutex, sync::MutexGuard, sync::PoisonError, time::Duration, time::Instant};

use ember_cli::terminal;
use ember_data::prepare::Progress;
use ember_host::interrupt::Interrupt;
use indicatif::{ProgressBar, ProgressStyle};

use ember_training::units;

/// Seconds between two lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Draws what `ember_data::prepare` reports.
pub struct Bar {
    interrupt: Interrupt,
    /// Nothing when quiet.
    shown: Option<Mutex<Shown>>,
}

struct Shown {
    stage: String,
    /// When the stage began, and how far it was then.
    began: Instant,
    began_at: u64,
    /// When the last line was written.
    last: Instant,
    /// On a terminal, instead of lines.
    bar: Option<ProgressBar>,
}

impl Bar {
    /// A bar on a terminal, lines elsewhere, nothing when `quiet`.
    pub fn new(quiet: bool, interrupt: &Interrupt) -> Self {
        let now = Instant::now();
        let bar = std::io::stderr().is_terminal().then(ProgressBar::hidden);
        let shown = Shown { stage: String::new(), began: now, began_at: 0, last: now, bar };
        Self { interrupt: interrupt.clone(), shown: (!quiet).then(|| Mutex::new(shown)) }
    }

    fn shown(&self) -> Option<MutexGuard<'_, Shown>> {
        Some(self.shown.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the bar off the screen.
    pub fn finish(&self) {
        if let Some(Shown { bar: Some(bar), .. }) = self.shown().as_deref() {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Bar {
    fn update(&self, stage: &str, done_bytes: u64, total_bytes: Option<u64>) {
        let Some(mut shown) = self.shown() else { return };
        let Shown { stage: last_stage, began, began_at, last, bar } = &mut *shown;
        let begins = last_stage != stage;
        if begins {
            *last_stage = stage.to_owned();
            (*began, *began_at, *last) = (Instant::now(), done_bytes, Instant::now());
        }
        if let Some(bar) = bar {
            if begins {
                bar.finish_and_clear();
                *bar = new_bar(stage, total_bytes);
            }
            bar.set_position(done_bytes);
        } else if last.elapsed() >= LINE_EVERY {
            *last = Instant::now();
            let rate = done_bytes.saturating_sub(*began_at) as f64 / began.elapsed().as_secs_f64();
            let left = total_bytes.map(|total| total.saturating_sub(done_bytes) as f64 / rate.max(1.0));
            let left = left.map_or_else(String::new, |left| format!(", {} left", units::duration(left)));
            let (done, rate) = (units::bytes(done_bytes), units::bytes(rate as u64));
            let _ = writeln!(terminal::stderr(), "{stage}: {done}, {rate}/s{left}");
        }
    }

    fn note(&self, line: &str) {
        let Some(shown) = self.shown() else { return };
        match &shown.bar {
            Some(bar) => bar.suspend(|| terminal::say(line)),
            None => terminal::say(line),
        }
    }

    fn interrupted(&self) -> bool {
        self.interrupt.requested()
    }
}

fn new_bar(stage: &str, total_bytes: Option<u64>) -> ProgressBar {
    let (bar, template) = match total_bytes {
        Some(total) => (ProgressBar::new(total), "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta} left"),
        None => (ProgressBar::new_spinner(), "{msg} {bytes} {bytes_per_sec}"),
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    bar.set_message(stage.to_owned());
    bar
}
