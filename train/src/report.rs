//! The run's user interface: notes, and during training a dashboard on a terminal or plain lines.

mod dashboard;
mod lines;

use std::io::{self, IsTerminal};

use ember_cli::compile_progress::{CompileProgress, KERNELS_OF_A_STEP, KERNELS_TIMED};
use ember_cli::terminal;
use ember_training::note::Note;
use ember_training::run::report::{EvalReport, Reporter, Silent, StepReport};

pub use dashboard::{Dashboard, restore_terminal};
pub use lines::Lines;

/// Reports a run: in the dashboard if the terminal can show it, else as lines on standard error;
/// with `quiet`, nowhere.
pub struct Screen {
    quiet: bool,
    /// The current reporter: lines (or nothing when quiet) until a dashboard replaces them.
    reporter: Box<dyn Reporter>,
    /// Until the first step ends: the display of compiling kernels, and the dashboard's arguments.
    first_step_wait: Option<(CompileProgress, Opening)>,
    /// Whether the dashboard is open.
    has_dashboard: bool,
    /// The display of kernels that are compiled to be timed, in lines; None with the dashboard.
    tuning_wait: Option<CompileProgress>,
}

/// The arguments of [`Dashboard::open`], kept until the first step ends.
struct Opening {
    run: String,
    first_step: u64,
    max_steps: u64,
}

impl Screen {
    /// A screen without a dashboard.
    pub fn new(quiet: bool) -> Self {
        let reporter: Box<dyn Reporter> =
            if quiet { Box::new(Silent) } else { Box::new(Lines::new(terminal::stderr())) };
        Self { quiet, reporter, first_step_wait: None, has_dashboard: false, tuning_wait: None }
    }

    /// Ends the waits and opens the dashboard: the first step ended, or something else is to be
    /// shown.
    fn end_waits(&mut self) {
        self.tuning_wait = None;
        let Some((wait, Opening { run, first_step, max_steps })) = self.first_step_wait.take() else { return };
        drop(wait);
        let terminal = io::stdout().is_terminal() && io::stdin().is_terminal() && io::stderr().is_terminal();
        if terminal
            && !self.quiet
            && let Some(dashboard) = Dashboard::open(&run, first_step, max_steps)
        {
            (self.reporter, self.has_dashboard) = (Box::new(dashboard), true);
        }
    }
}

impl Reporter for Screen {
    fn begin(&mut self, run: &str, first_step: u64, max_steps: u64) {
        let wait = CompileProgress::begin(KERNELS_OF_A_STEP, self.quiet);
        let opening = Opening { run: run.to_owned(), first_step, max_steps };
        *self = Self { first_step_wait: Some((wait, opening)), ..Self::new(self.quiet) };
    }

    fn step(&mut self, report: &StepReport) {
        self.end_waits();
        self.reporter.step(report);
    }

    fn evaluation(&mut self, report: &EvalReport) {
        self.end_waits();
        self.reporter.evaluation(report);
    }

    fn sample(&mut self, step: u64, text: &str) {
        self.end_waits();
        self.reporter.sample(step, text);
    }

    fn note(&mut self, note: Note) {
        self.end_waits();
        let tuning_wait = matches!(note, Note::Tuning) && !self.has_dashboard;
        self.reporter.note(note);
        self.tuning_wait = tuning_wait.then(|| CompileProgress::in_lines(KERNELS_TIMED, self.quiet));
    }

    fn stop_requested(&self) -> bool {
        self.reporter.stop_requested()
    }

    fn finish(&mut self) {
        self.first_step_wait = None;
        self.reporter.finish();
        *self = Self::new(self.quiet);
    }
}
