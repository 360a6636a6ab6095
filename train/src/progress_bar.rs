//! The progress of preparing text: bytes, rate and time left, as a bar on a terminal and as a line
//! every few seconds elsewhere.

use std::{io::IsTerminal, io::Write, sync::Mutex, sync::MutexGuard, sync::PoisonError, time::Duration, time::Instant};

use ember_cli::terminal;
use ember_data::prepare::Progress;
use ember_host::interrupt::Interrupt;
use indicatif::{ProgressBar, ProgressStyle};

use ember_training::units;

/// Time between two lines, where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Displays the progress that `ember_data::prepare` reports.
pub struct Bar {
    interrupt: Interrupt,
    /// None when quiet.
    state: Option<Mutex<State>>,
}

struct State {
    stage: String,
    /// Start of the current stage, and the bytes already done then.
    began: Instant,
    bytes_at_start: u64,
    /// Time of the last line.
    last_line: Instant,
    /// None if there is no terminal: then lines are written.
    bar: Option<ProgressBar>,
}

impl Bar {
    /// Shows a bar on a terminal, lines elsewhere, nothing if `quiet`.
    pub fn new(quiet: bool, interrupt: &Interrupt) -> Self {
        let now = Instant::now();
        let bar = std::io::stderr().is_terminal().then(ProgressBar::hidden);
        let state = State { stage: String::new(), began: now, bytes_at_start: 0, last_line: now, bar };
        Self { interrupt: interrupt.clone(), state: (!quiet).then(|| Mutex::new(state)) }
    }

    fn state(&self) -> Option<MutexGuard<'_, State>> {
        Some(self.state.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the bar off the screen.
    pub fn finish(&self) {
        if let Some(State { bar: Some(bar), .. }) = self.state().as_deref() {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Bar {
    fn update(&self, stage: &str, done_bytes: u64, total_bytes: Option<u64>) {
        let Some(mut state) = self.state() else { return };
        let State { stage: last_stage, began, bytes_at_start, last_line, bar } = &mut *state;
        let is_new_stage = last_stage != stage;
        if is_new_stage {
            *last_stage = stage.to_owned();
            (*began, *bytes_at_start, *last_line) = (Instant::now(), done_bytes, Instant::now());
        }
        if let Some(bar) = bar {
            if is_new_stage {
                bar.finish_and_clear();
                *bar = new_bar(stage, total_bytes);
            }
            bar.set_position(done_bytes);
        } else if last_line.elapsed() >= LINE_EVERY {
            *last_line = Instant::now();
            let rate = done_bytes.saturating_sub(*bytes_at_start) as f64 / began.elapsed().as_secs_f64();
            let left = total_bytes.map(|total| total.saturating_sub(done_bytes) as f64 / rate.max(1.0));
            let left = left.map_or_else(String::new, |left| format!(", {} left", units::duration(left)));
            let (done, rate) = (units::bytes(done_bytes), units::bytes(rate as u64));
            let _ = writeln!(terminal::stderr(), "{stage}: {done}, {rate}/s{left}");
        }
    }

    fn note(&self, line: &str) {
        let Some(state) = self.state() else { return };
        match &state.bar {
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
