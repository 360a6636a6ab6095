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
    max_steps: u64,
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
        let view = View { run: run.to_owned(), max_steps, step, ..View::default() };
        let shown = Arc::new(Shown { view: Mutex::new(view), is_stale: true.into(), ..Shown::default() });
        let seen = Arc::clone(&shown);
        let thread = thread::Builder::new().spawn(move || seen.draw_until_over(&mut terminal)).ok();
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
            // How many steps there are is found out on the way, where a run ends by the clock.
            view.max_steps = report.max_steps;
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

    /// Draws and reads keys until the run is over, or the terminal is gone.
    fn draw_until_over(&self, terminal: &mut DefaultTerminal) {
        while !self.is_over.load(Ordering::Relaxed) {
            if self.is_stale.swap(false, Ordering::Relaxed) {
                let view = self.view.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if terminal.draw(|frame| view.draw(frame)).is_err() {
                    return;
                }
            }
            match event::poll(LOOK_EVERY) {
                Ok(false) => {}
                Ok(true) => match event::read() {
                    Ok(event) => self.answer(&event),
                    Err(_) => return,
                },
                Err(_) => return,
            }
        }
    }

    fn answer(&self, event: &Event) {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    self.stop_requested.store(true, Ordering::Relaxed);
                    self.change(|view| view.is_ending = true);
                }
            }
            // Of another size it is drawn anew.
            Event::Resize(..) => self.is_stale.store(true, Ordering::Relaxed),
            _ => {}
        }
    }
}
