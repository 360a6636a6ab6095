//! `ember-train first-steps`, called only by `run`: trains two steps of a configuration on random
//! tokens to see whether they fit into the device's memory. If not, only this child process ends.

use ember_cli::compile_progress::{CompileProgress, KERNELS_OF_A_STEP};
use ember_model::device;

use super::bench::random_windows;
use crate::prelude::*;
use ember_study::{ledger::meter::wait_for, plan::measure::Bench};
use ember_training::config::TrainConfig;

/// Arguments of `first-steps`.
#[derive(Args, Debug)]
pub struct TrialArgs {
    /// A resolved configuration
    pub config: PathBuf,
    /// The model's shape, as JSON
    pub shape: PathBuf,
}

/// Number of steps: only in the second do the optimizer's moments exist from the start, and is the
/// copy made for the weights' average.
const STEPS: u64 = 2;

/// Runs the command.
///
/// # Errors
/// When a file cannot be read, or the device fails.
pub fn run(args: &TrialArgs, common: &CommonArgs) -> Result<Outcome> {
    let config = TrainConfig::from_file(&args.config)?;
    let path = args.shape.display();
    let shape = std::fs::read_to_string(&args.shape).with_context(|| format!("{path}: cannot read the shape"))?;
    let shape: GptConfig = serde_json::from_str(&shape).with_context(|| format!("{path} is not a shape"))?;
    let selected = device::select(common.device)?;
    // A step of two micro-batches needs as much memory as one of many.
    let batch_size = config.windows_per_step().min(2 * config.micro_batch);
    let config = TrainConfig { batch_size, grad_accum_steps: 1, ..config };
    let windows = random_windows(&config, shape.vocab_size)?;
    let _wait = CompileProgress::begin(KERNELS_OF_A_STEP, common.quiet);
    let mut bench = Bench::new(&config, &shape, windows, &selected, &|| true)?;
    for _ in 0..STEPS {
        bench.timed_step()?;
    }
    wait_for(&selected.device)?;
    Ok(Outcome::Done)
}
