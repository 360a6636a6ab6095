//! The full-screen dashboard of a run: its progress, loss curves, metrics, the latest sample and
//! the notes.
//!
//! The run only updates the state to show ([`View`]); a separate thread draws it and reads the
//! keys. A terminal that blocks, or is gone, therefore delays no step.

mod curve;
mod draw;
mod terminal;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{io, mem};

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::DefaultTerminal;

use ember_cli::terminal::say;
use ember_training::note::Note;
use ember_training::run::report::{EvalReport, Reporter, StepReport};

use crate::wording;
use curve::Curve;
pub use terminal::restore_terminal;

/// Interval at which keys are polled, and the screen is redrawn if the view changed.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long the end of a run waits for the drawing thread, which the terminal may block.
const JOIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The dashboard; `q` asks the run to save and end.
pub struct Dashboard {
    shared: Arc<Shared>,
    /// The drawing thread; None once the terminal is restored.
    thread: Option<JoinHandle<()>>,
    notes: Vec<String>,
}

/// State shared by the run and the drawing thread.
#[derive(Default)]
struct Shared {
    view: Mutex<View>,
    /// Whether `view` changed since it was last drawn.
    needs_redraw: AtomicBool,
    stop_requested: AtomicBool,
    is_over: AtomicBool,
}

/// Everything the dashboard shows.
#[derive(Clone, Default)]
struct View {
    run: String,
    step: StepReport,
    evaluation: Option<EvalReport>,
    training: Curve,
    validation: Curve,
    /// The latest sample, and the step after which it was generated.
    sample: Option<(u64, String)>,
    notes: Vec<String>,
    is_ending: bool,
}

impl Dashboard {
    /// Takes over the terminal; None if it cannot show the dashboard, or if this program runs in
    /// the background.
    pub fn open(run: &str, first_step: u64, max_steps: u64) -> Option<Self> {
        let mut terminal = terminal::take()?;
        let step = StepReport { step: first_step, max_steps, ..StepReport::default() };
        let view = View { run: run.to_owned(), step, ..View::default() };
        let shared = Arc::new(Shared { view: Mutex::new(view), needs_redraw: true.into(), ..Shared::default() });
        let drawn = Arc::clone(&shared);
        let draw = move || {
            if drawn.draw_until_over(&mut terminal).is_err() {
                // The terminal is gone. ratatui's drop would report that on standard error, and
                // panic if that is gone too.
                mem::forget(terminal);
            }
        };
        let thread = thread::Builder::new().spawn(draw).ok();
        if thread.is_none() {
            restore_terminal();
        }
        Some(Self { shared, thread: Some(thread?), notes: Vec::new() })
    }
}

impl Reporter for Dashboard {
    fn step(&mut self, report: &StepReport) {
        self.shared.change(|view| {
            view.training.add(report.step, report.train_loss);
            // `max_steps` may have changed too: a run with a time limit adjusts its length.
            view.step = report.clone();
        });
    }

    fn evaluation(&mut self, report: &EvalReport) {
        self.shared.change(|view| {
            view.validation.add(report.step, report.val_loss);
            view.evaluation = Some(report.clone());
        });
    }

    fn sample(&mut self, step: u64, text: &str) {
        self.shared.change(|view| view.sample = Some((step, text.to_owned())));
    }

    fn note(&mut self, note: Note) {
        let line = wording::note(&note);
        if self.thread.is_none() {
            return say(line);
        }
        self.shared.change(|view| view.notes.push(line.clone()));
        // Repeated when the run ends, since the dashboard disappears then.
        self.notes.push(line);
    }

    fn stop_requested(&self) -> bool {
        self.shared.stop_requested.load(Ordering::Relaxed)
    }

    fn finish(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.is_over.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + JOIN_TIMEOUT;
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        restore_terminal();
        self.notes.drain(..).for_each(say);
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut View)) {
        change(&mut self.view.lock().unwrap_or_else(PoisonError::into_inner));
        self.needs_redraw.store(true, Ordering::Relaxed);
    }

    /// Draws and reads keys until the run is over; an error means that the terminal is gone.
    fn draw_until_over(&self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        while !self.is_over.load(Ordering::Relaxed) {
            self.draw_and_read(terminal)?;
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Redraws the screen if the view changed, and handles the pending key events.
    fn draw_and_read(&self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        if self.needs_redraw.swap(false, Ordering::Relaxed) {
            let view = self.view.lock().unwrap_or_else(PoisonError::into_inner).clone();
            terminal.draw(|frame| view.draw(frame))?;
        }
        while terminal::has_input()? && event::poll(Duration::ZERO)? {
            self.handle_event(&event::read()?);
        }
        // After a resize it is redrawn.
        if terminal.size()? != terminal.get_frame().area().as_size() {
            self.needs_redraw.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn handle_event(&self, event: &Event) {
        let Event::Key(key) = event else { return };
        let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        let is_end = is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc);
        if is_end && key.kind != KeyEventKind::Release {
            self.stop_requested.store(true, Ordering::Relaxed);
            self.change(|view| view.is_ending = true);
        }
    }
}
