//! Training steps to be measured, by the functions of training.

use burn::optim::GradientsParams;
use ember_data::windows::Batch;
use ember_model::Gpt;

use ember_training::config::TrainConfig;
use ember_training::step::gradient::{LossScale, Passes, of_batch};
use ember_training::step::optimizer::{Optimizer, clip_scale, global_norm};

/// Takes steps as training does. The learning rate is 0: the full work, and the same weights in
/// every repetition.
pub struct Stepper {
    /// How training takes a step.
    pub config: TrainConfig,
    /// The optimizer and its moments.
    pub optimizer: Optimizer,
    loss_scale: LossScale,
}

impl Stepper {
    /// Before the first step of training by `config`.
    pub fn new(config: &TrainConfig) -> Self {
        Self { config: config.clone(), optimizer: Optimizer::new(config), loss_scale: LossScale::default() }
    }

    /// How the batches of a step, counted from 0, go through the model.
    pub fn passes(&self, gpt: &Gpt, step: u64) -> Passes {
        let scale = self.loss_scale.scale(self.config.precision);
        Passes::new(&self.config, step, scale).on(&gpt.device())
    }

    /// The end of a step: takes the norm of its gradient, clips, and steps along it. In float16,
    /// if the gradient overflows, it halves the loss scale instead, and returns false: the gradient
    /// must be computed again.
    pub fn follow(&mut self, gpt: Gpt, gradients: GradientsParams) -> (Gpt, bool) {
        let grad_norm = global_norm(&gpt, &gradients);
        if self.loss_scale.overflowed(self.config.precision, grad_norm) {
            return (gpt, false);
        }
        let scale = clip_scale(grad_norm, self.config.grad_clip);
        (self.optimizer.step(gpt, gradients, scale, 0.0), true)
    }

    /// A whole step in one pass over a batch. Every such step is a run's first, with the same
    /// dropout.
    pub fn step(&mut self, mut gpt: Gpt, batch: &Batch) -> Gpt {
        loop {
            let gradients = of_batch(&gpt, batch, &self.passes(&gpt, 0)).gradients;
            let (followed, is_taken) = self.follow(gpt, gradients);
            gpt = followed;
            if is_taken {
                return gpt;
            }
        }
    }
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use burn::{module::Module, tensor::Device};
    use ember_data::{tokens::TokenFile, windows::TrainWindows, windows::WindowRule};
    use ember_model::Parameter;
    use ember_training::config::{DeviceKind, Precision, Settings, TextFacts, precision::float_dtype};
    use ember_training::step::gradient;

    use crate::batch::batch_logits;

    pub const VOCAB: usize = 23;
    const ROWS: usize = 3;

    /// A small model without dropout: all tests of this process draw from one generator.
    pub fn config(keys: &str) -> TrainConfig {
        let shape = "n_layer = 2\nn_head = 2\nn_embd = 16\ncontext_length = 12\nbatch_size = 3\n";
        let settings = format!("{shape}dropout = 0.0\noptimizer = \"adamw\"\n{keys}\n");
        let settings = Settings::from_toml_str(&settings).unwrap();
        settings.resolve(&TextFacts::assumed(VOCAB), DeviceKind::Cpu).unwrap().0
    }

    fn model(config: &TrainConfig) -> Gpt {
        let gpt = Gpt::new(&config.shape(VOCAB), 7, &Device::flex().autodiff()).unwrap();
        gpt.with_precision(float_dtype(config.precision))
    }

    pub fn windows(config: &TrainConfig) -> TrainWindows {
        let ids: Vec<u32> = (0..400).map(|i| ((i * i + i / 5) % VOCAB) as u32).collect();
        let tokens = TokenFile::from_ids(&ids, VOCAB).unwrap();
        TrainWindows::new(&tokens, config.context_length, config.seed, WindowRule::Anywhere, None).unwrap()
    }

    /// The bits of every parameter's gradient: in float16 it may not be finite.
    pub fn bits(gpt: &Gpt, gradients: &GradientsParams) -> Vec<Vec<u32>> {
        let of = |parameter: &Parameter| match parameter.shape.len() {
            1 => gradients.get::<1>(parameter.id).unwrap().into_data(),
            _ => gradients.get::<2>(parameter.id).unwrap().into_data(),
        };
        gpt.parameters().iter().map(|parameter| of(parameter).iter::<f32>().map(f32::to_bits).collect()).collect()
    }

    #[test]
    fn the_gradient_is_that_of_a_run_with_all_that_the_run_adds_to_the_loss() {
        for keys in [
            "precision = \"f32\"\nz_loss = 0.0",
            "precision = \"f32\"\nz_loss = 0.1",
            "precision = \"f32\"\nz_loss = 0.0\nlabel_smoothing = 0.2",
            "precision = \"f16\"\nz_loss = 0.1\nlabel_smoothing = 0.2",
            "precision = \"f32\"\nz_loss = 0.1\nactivation_checkpointing = true",
        ] {
            let config = config(keys);
            let (gpt, windows) = (model(&config), windows(&config));
            let scale = LossScale::default().scale(config.precision);
            let of_run = |passes: Passes| {
                let whole = gradient::of_windows(&gpt, &windows, 0..ROWS as u64, passes, &|| false).unwrap().unwrap();
                bits(&gpt, &whole.gradients)
            };
            let batch = windows.batch(0, ROWS).unwrap();
            let own = bits(&gpt, &of_batch(&gpt, &batch, &Stepper::new(&config).passes(&gpt, 0)).gradients);
            assert!(own == of_run(Passes::new(&config, 0, scale).on(&gpt.device())), "{keys}");
            let is_plain = config.z_loss == 0.0 && config.label_smoothing == 0.0;
            assert_eq!(own == of_run(Passes::plain(ROWS, config.seed)), is_plain, "{keys}");
        }
    }

    #[test]
    fn a_scale_that_is_too_large_is_halved_and_the_weights_stay() {
        let config = config("precision = \"f16\"\nz_loss = 0.0");
        let (gpt, batch) = (model(&config), windows(&config).batch(0, ROWS).unwrap());
        let logits = |gpt: &Gpt| -> Vec<f32> { batch_logits(&gpt.valid(), &batch).into_data().iter::<f32>().collect() };
        let mut stepper = Stepper::new(&config);
        // As large as it gets: a position's gradient of its target's logit, a 36th of the scale, is
        // beyond float16.
        for _ in 0..16_000 {
            stepper.loss_scale.overflowed(Precision::F16, 1.0);
        }
        let largest = stepper.loss_scale.scale(Precision::F16);
        let before = logits(&gpt);
        let gpt = stepper.step(gpt, &batch);
        assert!(stepper.loss_scale.scale(Precision::F16) < largest);
        assert_eq!(logits(&gpt), before);
    }
}
