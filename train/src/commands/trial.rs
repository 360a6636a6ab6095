//! `ember-train first-steps`, which only `run` calls: two steps of a configuration on random
//! tokens, to see whether the device's memory holds them. If it does not, it is this process that
//! ends.

use burn::optim::GradientsAccumulator;
use ember_data::windows::Batch;
use ember_model::{Gpt, device};

use crate::prelude::*;
use ember_training::config::{TrainConfig, precision::float_dtype};
use ember_training::step::gradient::{Passes, pass};
use ember_training::step::optimizer::{Optimizer, clip_scale, global_norm};

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
    let training_device = selected.device.clone().autodiff();
    let gpt = Gpt::new(&shape, config.seed, &training_device)?;
    let mut gpt = gpt.with_precision(float_dtype(config.precision));
    let batch = Batch::random(config.seed, shape.vocab_size, config.micro_batch, config.context_length);
    let passes = if config.micro_batch < config.windows_per_step() { 2 } else { 1 };
    let mut optimizer = Optimizer::new(&config);
    for step in 0..STEPS {
        let mut gradients = GradientsAccumulator::new();
        for number in 0..passes {
            let how = Passes::new(&config, step, 1.0).on(&training_device);
            pass(&gpt, &batch, number, passes as f64, &how, &mut gradients);
        }
        let gradients = gradients.grads();
        let scale = clip_scale(global_norm(&gpt, &gradients), config.grad_clip);
        gpt = optimizer.step(gpt, gradients, scale, 0.0);
    }
    selected.device.sync().map_err(|error| anyhow!("the device failed: {error:?}"))?;
    Ok(Outcome::Done)
}
