//! A run as a person sees it: notes, and while it trains the dashboard on a terminal, else lines.

mod dashboard;
mod lines;

use std::io::{self, IsTerminal};

use ember_cli::terminal::{self, say};
use ember_training::note::Note;
use ember_training::run::report::{EvalReport, Reporter, StepReport};

use crate::wording;
pub use dashboard::{Dashboard, restore_terminal};
pub use lines::Lines;

/// Where the program runs: a terminal that can show the dashboard, or standard error; with `quiet`,
/// nowhere.
pub struct Screen {
    quiet: bool,
    /// What training is shown by.
    training: Option<Box<dyn Reporter>>,
}

impl Screen {
    /// A screen on which nothing is shown yet.
    pub fn new(quiet: bool) -> Self {
        Self { quiet, training: None }
    }
}

impl Reporter for Screen {
    fn begin(&mut self, run: &str, first_step: u64, max_steps: u64) {
        if self.quiet {
            return;
        }
        let terminal = io::stdout().is_terminal() && io::stdin().is_terminal() && io::stderr().is_terminal();
        let dashboard = if terminal { Dashboard::open(run, first_step, max_steps) } else { None };
        self.training = Some(match dashboard {
            Some(dashboard) => Box::new(dashboard),
            None => Box::new(Lines::new(terminal::stderr())),
        });
    }

    fn step(&mut self, report: &StepReport) {
        if let Some(training) = &mut self.training {
            training.step(report);
        }
    }

    fn evaluation(&mut self, report: &EvalReport) {
        if let Some(training) = &mut self.training {
            training.evaluation(report);
        }
    }

    fn sample(&mut self, step: u64, text: &str) {
        if let Some(training) = &mut self.training {
            training.sample(step, text);
        }
    }

    fn note(&mut self, note: Note) {
        match &mut self.training {
            Some(training) => training.note(note),
            None if self.quiet => {}
            None => say(wording::note(&note)),
        }
    }

    fn stop_requested(&self) -> bool {
        self.training.as_ref().is_some_and(|training| training.stop_requested())
    }

    fn finish(&mut self) {
        if let Some(mut training) = self.training.take() {
            training.finish();
        }
    }
}
