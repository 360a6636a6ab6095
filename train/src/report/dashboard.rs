//! A run on a terminal: burn-train's dashboard, driven without its learner.
//!
//! The dashboard puts the terminal into another mode, so whatever ends a run must give it back:
//! `finish` and `drop` do, a panic does (burn-train's hook), and a program that exits without
//! unwinding calls [`restore_terminal`] first.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{io, sync::Arc, thread, time::Duration, time::Instant};

use burn_train::metric::{
    MetricAttributes, MetricDefinition, MetricEntry, MetricId, NumericAttributes, NumericEntry, SerializedEntry,
};
use burn_train::renderer::{MetricState, MetricsRenderer, MetricsRendererTraining, tui::TuiMetricsRendererWrapper};
use burn_train::{Interrupter, logger::TrainingProgressLogger};
use crossterm::{cursor, event::DisableMouseCapture, execute, terminal, terminal::LeaveAlternateScreen};

use ember_cli::terminal::{printable, say};
use ember_training::units::{bytes, duration, grouped, short};
use ember_training::{note::Note, run::report::EvalReport, run::report::Reporter, run::report::StepReport};

use crate::wording;

const LOSS: &str = "Loss";
const SPEED: &str = "Tokens/s";
const LEARNING_RATE: &str = "Learning rate";
const MFU: &str = "MFU";
const SAMPLE: &str = "Sample";

/// The longest sample shown, in characters; the whole text is in the run folder.
const SAMPLE_CHARACTERS: usize = 600;

/// Loss curves, speed, rate, progress and the latest sample, full screen; `q` asks the run to save
/// and end.
pub struct Dashboard {
    /// None once the terminal was given back.
    screen: Option<TuiMetricsRendererWrapper>,
    interrupter: Interrupter,
    notes: Vec<String>,
}

impl Dashboard {
    /// Takes the terminal over; None where there is none that can show a dashboard, or where it is
    /// somebody else's turn to use it.
    pub fn open(run_name: &str, first_step: u64, max_steps: u64) -> Option<Self> {
        // The renderer's own thread would panic where these fail, so they are tried first.
        let (columns, rows) = terminal::size().ok()?;
        if columns < 40 || rows < 20 || std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
            return None;
        }
        if !is_in_front() {
            return None;
        }
        terminal::enable_raw_mode().and_then(|()| terminal::disable_raw_mode()).ok()?;

        outlive_the_terminal();
        let interrupter = Interrupter::new();
        let screen = TuiMetricsRendererWrapper::new(interrupter.clone(), None);
        let mut dashboard = Self { screen: Some(screen), interrupter, notes: Vec::new() };
        dashboard.show(|screen| {
            for name in [LOSS, SPEED, LEARNING_RATE] {
                screen.register_metric(definition(name, MetricAttributes::Numeric(NumericAttributes::default())));
            }
            screen.register_metric(definition(SAMPLE, MetricAttributes::None));
            // The dashboard counts epochs of items; a run is one epoch of max_steps items.
            screen.start(1, 1, Some(max_steps as usize), Some(run_name));
            screen.start_split("train", max_steps as usize);
            screen.update_split(first_step as usize);
        });
        let waited = Instant::now();
        while !terminal::is_raw_mode_enabled().unwrap_or(true) && waited.elapsed() < Duration::from_secs(2) {
            thread::sleep(Duration::from_millis(5));
        }
        keep_interrupt_key();
        Some(dashboard)
    }

    /// Sends something to the screen. The renderer panics on purpose when its "stop immediately" is
    /// chosen; that ends the run like any other request, so that what was learned is saved.
    fn show(&mut self, draw: impl FnOnce(&mut TuiMetricsRendererWrapper)) {
        let Some(screen) = &mut self.screen else { return };
        if catch_unwind(AssertUnwindSafe(|| draw(screen))).is_err() {
            self.interrupter.stop(Some("asked to stop immediately"));
            self.finish();
        }
    }
}

impl Reporter for Dashboard {
    fn step(&mut self, report: &StepReport) {
        self.show(|screen| {
            screen.update_train(numeric(LOSS, report.train_loss, format!("{:.4}", report.train_loss)));
            let mut speed = short(report.tokens_per_s);
            if let Some(remaining) = report.remaining_s {
                speed += &format!(", {} left", duration(remaining));
            }
            if let Some(memory) = report.memory_bytes {
                speed += &format!(", {}", bytes(memory));
            }
            screen.update_train(numeric(SPEED, report.tokens_per_s, speed));
            screen.update_train(numeric(LEARNING_RATE, report.learning_rate, format!("{:.2e}", report.learning_rate)));
            if let Some(mfu) = report.mfu {
                // Again each time, which changes nothing; where it is unknown it must have no place
                // on the screen.
                screen.register_metric(definition(MFU, MetricAttributes::Numeric(NumericAttributes::default())));
                screen.update_train(numeric(MFU, 100.0 * mfu, format!("{:.1}%", 100.0 * mfu)));
            }
            // How many steps there are is found out on the way, where a run ends by the clock.
            screen.start_split("train", report.max_steps as usize);
            screen.update_split(report.step as usize);
        });
    }

    fn evaluation(&mut self, report: &EvalReport) {
        let averaged = report.ema_val_loss.map(|averaged| format!(" (averaged {averaged:.4})")).unwrap_or_default();
        let marks = [("n-grams", report.ngram_loss), ("floor", report.entropy_floor)];
        let marks = marks.into_iter().filter_map(|(name, loss)| Some(format!("{name} {:.4}", loss?)));
        let marks = marks.collect::<Vec<_>>().join(", ");
        let bits = report.bits_per_byte.map(|bits| format!(", {bits:.3} bits a byte")).unwrap_or_default();
        let text = format!("{:.4}{bits}{averaged} ({marks})", report.val_loss);
        self.show(|screen| screen.update_valid(numeric(LOSS, report.val_loss, text)));
    }

    fn sample(&mut self, step: u64, text: &str) {
        let words = printable(text).split_whitespace().collect::<Vec<_>>().join(" ");
        let shown: String = words.chars().take(SAMPLE_CHARACTERS).collect();
        let text = format!("step {}: {shown}", grouped(step));
        self.show(|screen| screen.update_valid(MetricState::Generic(entry(SAMPLE, text))));
    }

    fn note(&mut self, note: Note) {
        let line = wording::note(&note);
        // On the dashboard's screen a note would be lost, so it waits for the terminal's own.
        if self.screen.is_some() {
            self.notes.push(line);
        } else {
            say(line);
        }
    }

    fn stop_requested(&self) -> bool {
        self.interrupter.should_stop()
    }

    fn finish(&mut self) {
        if let Some(screen) = self.screen.take() {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(screen)));
            give_back_terminal();
            self.notes.drain(..).for_each(say);
        }
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Gives the terminal back if a dashboard has it; for a program about to exit without unwinding.
pub fn restore_terminal() {
    if terminal::is_raw_mode_enabled().unwrap_or(false) {
        give_back_terminal();
    }
}

fn give_back_terminal() {
    let _ = terminal::disable_raw_mode();
    // Harmless where it was done before; burn-train's panic hook leaves the cursor hidden.
    let _ = execute!(io::stdout(), DisableMouseCapture, LeaveAlternateScreen, cursor::Show);
}

/// Whether this program may use its terminal: in the background (`&` in a shell) the system would stop it for that.
#[cfg(unix)]
fn is_in_front() -> bool {
    // A terminal that controls no jobs is everybody's.
    rustix::termios::tcgetpgrp(io::stdin()).map_or(true, |front| front == rustix::process::getpgrp())
}

#[cfg(not(unix))]
fn is_in_front() -> bool {
    true
}

/// Lets a run live on when its terminal is gone, as when its window was closed. The renderer's thread panics then; what its parts write
/// on their way out would fail and panic again, which ends the process at once, so it is sent nowhere before they do.
#[cfg(unix)]
fn outlive_the_terminal() {
    use rustix::{io::Errno, stdio, termios::tcgetattr};
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if let Ok(nowhere) = std::fs::File::options().write(true).open("/dev/null") {
            if tcgetattr(io::stdout()).is_err_and(|error| error == Errno::IO) {
                let _ = stdio::dup2_stdout(&nowhere);
            }
            if tcgetattr(io::stderr()).is_err_and(|error| error == Errno::IO) {
                let _ = stdio::dup2_stderr(&nowhere);
            }
        }
        before(info);
    }));
}

#[cfg(not(unix))]
fn outlive_the_terminal() {}

/// Lets Ctrl-C be a signal again, which the dashboard's raw mode turns into a key that it ignores.
#[cfg(unix)]
fn keep_interrupt_key() {
    use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
    let input = io::stdin();
    if let Ok(mut mode) = tcgetattr(&input) {
        mode.local_modes |= LocalModes::ISIG;
        // Stopping or dumping the program would leave the shell with the dashboard's screen.
        let disabled = if cfg!(target_os = "linux") { 0 } else { 0xff };
        mode.special_codes[SpecialCodeIndex::VSUSP] = disabled;
        mode.special_codes[SpecialCodeIndex::VQUIT] = disabled;
        let _ = tcsetattr(&input, OptionalActions::Now, &mode);
    }
}

#[cfg(not(unix))]
fn keep_interrupt_key() {}

fn definition(name: &str, attributes: MetricAttributes) -> MetricDefinition {
    MetricDefinition { metric_id: id(name), name: Arc::new(name.into()), description: None, attributes }
}

fn id(name: &str) -> MetricId {
    MetricId::new(Arc::new(name.into()))
}

fn entry(name: &str, shown: String) -> MetricEntry {
    MetricEntry::new(id(name), SerializedEntry::new(shown.clone(), shown))
}

fn numeric(name: &str, value: f64, shown: String) -> MetricState {
    MetricState::Numeric(entry(name, shown), value.is_finite().then_some(NumericEntry::Value(value)))
}
