//! A run as a person sees it: notes, and while it trains the dashboard on a terminal, else lines.

mod dashboard;
mod lines;

use std::io::{self, IsTerminal};

use ember_cli::terminal;
use ember_training::note::Note;
use ember_training::run::report::{EvalReport, Reporter, Silent, StepReport};

pub use dashboard::{Dashboard, restore_terminal};
pub use lines::Lines;

/// Where the program runs: a terminal that can show the dashboard, or standard error; with `quiet`,
/// nowhere.
pub struct Screen {
    quiet: bool,
    /// Shows a run while it trains, and its notes before and after: then nothing but notes comes.
    shows: Box<dyn Reporter>,
}

impl Screen {
    /// A screen on which nothing is shown yet.
    pub fn new(quiet: bool) -> Self {
        Self { quiet, shows: if quiet { Box::new(Silent) } else { Box::new(Lines::new(terminal::stderr())) } }
    }
}

impl Reporter for Screen {
    fn begin(&mut self, run: &str, first_step: u64, max_steps: u64) {
        *self = Self::new(self.quiet);
        let terminal = io::stdout().is_terminal() && io::stdin().is_terminal() && io::stderr().is_terminal();
        if terminal
            && !self.quiet
            && let Some(dashboard) = Dashboard::open(run, first_step, max_steps)
        {
            self.shows = Box::new(dashboard);
        }
    }

    fn step(&mut self, report: &StepReport) {
        self.shows.step(report);
    }

    fn evaluation(&mut self, report: &EvalReport) {
        self.shows.evaluation(report);
    }

    fn sample(&mut self, step: u64, text: &str) {
        self.shows.sample(step, text);
    }

    fn note(&mut self, note: Note) {
        self.shows.note(note);
    }

    fn stop_requested(&self) -> bool {
        self.shows.stop_requested()
    }

    fn finish(&mut self) {
        self.shows.finish();
        *self = Self::new(self.quiet);
    }
}
