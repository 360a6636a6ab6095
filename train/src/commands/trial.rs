//! `ember-train one-step`, which only `run` calls: one step of a configuration on random tokens, to see whether the device's memory
//! holds it. If it does not, it is this process that ends.

use std::path::PathBuf;

use anyhow::{Result, anyhow};
use burn::optim::GradientsAccumulator;
use clap::Args;
use ember_data::random;
use ember_data::windows::Batch;
use ember_generate::program::{CommonArgs, Outcome};
use ember_model::{Gpt, device};
use rand_chacha::rand_core::Rng;

use super::session;
use crate::config::TrainConfig;
use crate::gradient::{Passes, pass};
use crate::precision::float_dtype;

/// Arguments of `trial`.
#[derive(Args, Debug)]
pub struct TrialArgs {
    /// A resolved configuration
    pub config: PathBuf,
    /// Different tokens
    #[arg(long, value_name = "N")]
    pub vocab_size: usize,
}

/// Runs the command.
///
/// # Errors
/// When the configuration cannot be read, or the device fails.
pub fn run(args: &TrialArgs, common: &CommonArgs) -> Result<Outcome> {
    let config = TrainConfig::from_file(&args.config)?;
    let selected = device::select(common.device)?;
    let training_device = selected.device.clone().autodiff();
    let gpt = Gpt::new(&config.shape(args.vocab_size), config.seed, &training_device)?;
    let gpt = gpt.with_precision(float_dtype(config.precision));
    let mut rng = random::rng(config.seed, &[]);
    let tokens = config.micro_batch * config.context_length;
    let mut ids = || (0..tokens).map(|_| rng.next_u32() % args.vocab_size as u32).collect();
    let batch =
        Batch { inputs: ids(), targets: ids(), batch_size: config.micro_batch, context_length: config.context_length };
    // A second pass finds the gradients of the first there.
    let passes = if config.micro_batch < config.windows_per_step() { 2 } else { 1 };
    let mut gradients = GradientsAccumulator::new();
    for number in 0..passes {
        pass(&gpt, &batch, number, passes as f64, &Passes::of(&config, 0, 1.0), &mut gradients);
    }
    let _gpt = session::optimizer(&config).step(gpt, gradients.grads(), 1.0, 0.0);
    selected.device.sync().map_err(|error| anyhow!("the device failed: {error:?}"))?;
    Ok(Outcome::Done)
}
