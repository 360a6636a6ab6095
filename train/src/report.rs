//! A run as a person sees it: notes, and while it trains the dashboard on a terminal, else lines.

mod dashboard;
mod lines;

use std::io::{self, IsTerminal};

use ember_cli::compiling::{KERNELS_OF_A_STEP, KERNELS_TIMED, Wait};
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
    /// Until the first step is over: the wait for it, and what a dashboard opens with then.
    waits: Option<(Wait, Opening)>,
    /// Whether a dashboard has the whole screen.
    is_full: bool,
    /// The wait for kernels that are compiled to be timed, in lines.
    times: Option<Wait>,
}

/// What a dashboard opens with.
struct Opening {
    run: String,
    first_step: u64,
    max_steps: u64,
}

impl Screen {
    /// A screen on which nothing is shown yet.
    pub fn new(quiet: bool) -> Self {
        let shows: Box<dyn Reporter> = if quiet { Box::new(Silent) } else { Box::new(Lines::new(terminal::stderr())) };
        Self { quiet, shows, waits: None, is_full: false, times: None }
    }

    /// The first step is over, or something else has to be said.
    fn wait_no_longer(&mut self) {
        self.times = None;
        let Some((wait, Opening { run, first_step, max_steps })) = self.waits.take() else { return };
        drop(wait);
        let terminal = io::stdout().is_terminal() && io::stdin().is_terminal() && io::stderr().is_terminal();
        if terminal
            && !self.quiet
            && let Some(dashboard) = Dashboard::open(&run, first_step, max_steps)
        {
            (self.shows, self.is_full) = (Box::new(dashboard), true);
        }
    }
}

impl Reporter for Screen {
    fn begin(&mut self, run: &str, first_step: u64, max_steps: u64) {
        let wait = Wait::begin(KERNELS_OF_A_STEP, self.quiet);
        let opening = Opening { run: run.to_owned(), first_step, max_steps };
        *self = Self { waits: Some((wait, opening)), ..Self::new(self.quiet) };
    }

    fn step(&mut self, report: &StepReport) {
        self.wait_no_longer();
        self.shows.step(report);
    }

    fn evaluation(&mut self, report: &EvalReport) {
        self.wait_no_longer();
        self.shows.evaluation(report);
    }

    fn sample(&mut self, step: u64, text: &str) {
        self.wait_no_longer();
        self.shows.sample(step, text);
    }

    fn note(&mut self, note: Note) {
        self.wait_no_longer();
        let times = matches!(note, Note::Tuning) && !self.is_full;
        self.shows.note(note);
        self.times = times.then(|| Wait::in_lines(KERNELS_TIMED, self.quiet));
    }

    fn stop_requested(&self) -> bool {
        self.shows.stop_requested()
    }

    fn finish(&mut self) {
        self.waits = None;
        self.shows.finish();
        *self = Self::new(self.quiet);
    }
}
