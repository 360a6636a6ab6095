//! `ember-train first-steps`, which only `run` calls: two steps of a configuration on random
//! tokens, to see whether the device's memory holds them. If it does not, it is this process that
//! ends.

use ember_cli::compiling::{KERNELS_OF_A_STEP, Wait};
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

/// Steps taken: the second finds the moments of the first there, and makes the copy that an average
/// of the weights is.
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
    // A step of two passes needs as much memory as one of many.
    let batch_size = config.windows_per_step().min(2 * config.micro_batch);
    let config = TrainConfig { batch_size, grad_accum_steps: 1, ..config };
    let windows = random_windows(&config, shape.vocab_size)?;
    let _wait = Wait::begin(KERNELS_OF_A_STEP, common.quiet);
    let mut bench = Bench::new(&config, &shape, windows, &selected, &|| true)?;
    for _ in 0..STEPS {
        bench.timed_step()?;
    }
    wait_for(&selected.device)?;
    Ok(Outcome::Done)
}
