//! A run on a terminal, full screen: how far it is, its losses as curves, its figures, what the model
//! last wrote, and what a person should know.
//!
//! The run only writes down what there is to show ([`View`]); a thread of its own draws it and reads
//! the keys, so that a terminal which takes nothing, or is gone, holds no step up.

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

/// How often keys are looked for, and the screen drawn where something has changed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the end of a run waits for the screen's thread, which a terminal may hold.
const PATIENCE: Duration = Duration::from_secs(1);

/// The screen; `q` asks the run to save and end.
pub struct Dashboard {
    shown: Arc<Shown>,
    /// None once the terminal was given back.
    thread: Option<JoinHandle<()>>,
    notes: Vec<String>,
}

/// What the run and the screen's thread have in common.
#[derive(Default)]
struct Shown {
    view: Mutex<View>,
    /// Whether there is something new in it.
    is_stale: AtomicBool,
    stop_requested: AtomicBool,
    is_over: AtomicBool,
}

/// All that the screen shows.
#[derive(Clone, Default)]
struct View {
    run: String,
    step: StepReport,
    evaluation: Option<EvalReport>,
    training: Curve,
    validation: Curve,
    /// The latest text, and the step after which it was written.
    sample: Option<(u64, String)>,
    notes: Vec<String>,
    is_ending: bool,
}

impl Dashboard {
    /// Takes the terminal over; None where there is none that can show it, or where it is somebody
    /// else's turn to use it.
    pub fn open(run: &str, first_step: u64, max_steps: u64) -> Option<Self> {
        let mut terminal = terminal::take()?;
        let step = StepReport { step: first_step, max_steps, ..StepReport::default() };
        let view = View { run: run.to_owned(), step, ..View::default() };
        let shown = Arc::new(Shown { view: Mutex::new(view), is_stale: true.into(), ..Shown::default() });
        let seen = Arc::clone(&shown);
        let draw = move || {
            if seen.draw_until_over(&mut terminal).is_err() {
                // It is gone. ratatui would say that on standard error at its end, and panic where that is gone too.
                mem::forget(terminal);
            }
        };
        let thread = thread::Builder::new().spawn(draw).ok();
        if thread.is_none() {
            restore_terminal();
        }
        Some(Self { shown, thread: Some(thread?), notes: Vec::new() })
    }
}

impl Reporter for Dashboard {
    fn step(&mut self, report: &StepReport) {
        self.shown.change(|view| {
            view.training.add(report.step, report.train_loss);
            // Its number of steps too may have changed, where a run ends by the clock.
            view.step = report.clone();
        });
    }

    fn evaluation(&mut self, report: &EvalReport) {
        self.shown.change(|view| {
            view.validation.add(report.step, report.val_loss);
            view.evaluation = Some(report.clone());
        });
    }

    fn sample(&mut self, step: u64, text: &str) {
        self.shown.change(|view| view.sample = Some((step, text.to_owned())));
    }

    fn note(&mut self, note: Note) {
        let line = wording::note(&note);
        if self.thread.is_none() {
            return say(line);
        }
        self.shown.change(|view| view.notes.push(line.clone()));
        // The screen goes when the run ends: then it is said again.
        self.notes.push(line);
    }

    fn stop_requested(&self) -> bool {
        self.shown.stop_requested.load(Ordering::Relaxed)
    }

    fn finish(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shown.is_over.store(true, Ordering::Relaxed);
        let until = Instant::now() + PATIENCE;
        while !thread.is_finished() && Instant::now() < until {
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

impl Shown {
    fn change(&self, change: impl FnOnce(&mut View)) {
        change(&mut self.view.lock().unwrap_or_else(PoisonError::into_inner));
        self.is_stale.store(true, Ordering::Relaxed);
    }

    /// Draws and reads keys until the run is over, or the terminal is gone, which is an error.
    fn draw_until_over(&self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        while !self.is_over.load(Ordering::Relaxed) {
            self.draw_and_read(terminal)?;
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Draws the screen where something on it is new, and answers what was pressed since.
    fn draw_and_read(&self, terminal: &mut DefaultTerminal) -> io::Result<()> {
        if self.is_stale.swap(false, Ordering::Relaxed) {
            let view = self.view.lock().unwrap_or_else(PoisonError::into_inner).clone();
            terminal.draw(|frame| view.draw(frame))?;
        }
        while terminal::has_input()? && event::poll(Duration::ZERO)? {
            self.answer(&event::read()?);
        }
        // Of another size it is drawn anew.
        if terminal.size()? != terminal.get_frame().area().as_size() {
            self.is_stale.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn answer(&self, event: &Event) {
        let Event::Key(key) = event else { return };
        let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        let is_end = is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc);
        if is_end && key.kind != KeyEventKind::Release {
            self.stop_requested.store(true, Ordering::Relaxed);
            self.change(|view| view.is_ending = true);
        }
    }
}
