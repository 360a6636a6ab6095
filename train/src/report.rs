//! A run as a person sees it while it runs: the dashboard on a terminal, else lines.

mod dashboard;
mod lines;

use std::io::{self, IsTerminal};

use ember_cli::terminal;
use ember_training::report::{EvalReport, Reporter, StepReport};

pub use dashboard::{Dashboard, restore_terminal};
pub use lines::Lines;

/// Shows nothing.
struct Quiet;

impl Reporter for Quiet {
    fn step(&mut self, _: &StepReport) {}
    fn evaluation(&mut self, _: &EvalReport) {}
    fn sample(&mut self, _: u64, _: &str) {}
    fn note(&mut self, _: &str) {}
    fn finish(&mut self) {}
}

/// The reporter for where the program runs: the dashboard on a terminal that can show one, else lines on standard
/// error, and nothing with `quiet`.
pub fn reporter(run_name: &str, first_step: u64, max_steps: u64, quiet: bool) -> Box<dyn Reporter> {
    if quiet {
        return Box::new(Quiet);
    }
    let terminal = io::stdout().is_terminal() && io::stdin().is_terminal() && io::stderr().is_terminal();
    let dashboard = if terminal { Dashboard::open(run_name, first_step, max_steps) } else { None };
    match dashboard {
        Some(dashboard) => Box::new(dashboard),
        None => Box::new(Lines::new(terminal::stderr())),
    }
}
