//! What will run: every key with its value.

use ember_model::folder::Family;
use ember_model::{GptConfig, MlpKind, NormKind, Positions};
use serde::{Deserialize, Serialize};

use super::choices::{Curve, OptimizerKind, Precision, Spikes};
use super::keys;
use crate::error::ConfigError;

/// A run with nothing left open; `keys` has the meaning, unit and range of each field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // each is documented once, in the table of keys
pub struct TrainConfig {
    pub text: Vec<String>,
    pub stories: u64,
    pub tokenizer: String,
    pub field: String,
    pub val_fraction: f64,

    pub init: String,
    pub n_layer: usize,
    pub n_head: usize,
    pub n_embd: usize,
    pub context_length: usize,
    pub dropout: f64,
    pub architecture: String,
    pub positions: Positions,
    pub rope_theta: f64,
    pub norm: NormKind,
    pub mlp: MlpKind,
    pub n_inner: usize,
    pub n_kv_head: usize,
    pub qk_norm: bool,
    pub bias: bool,
    pub tied_head: bool,

    pub seed: u64,
    pub max_steps: u64,
    pub batch_size: usize,
    pub grad_accum_steps: usize,
    pub micro_batch: usize,
    pub precision: Precision,
    pub activation_checkpointing: bool,
    pub optimizer: OptimizerKind,
    pub learning_rate: f64,
    pub min_learning_rate: f64,
    pub warmup_steps: u64,
    pub lr_decay_steps: u64,
    pub schedule: Curve,
    pub decay_fraction: f64,
    pub muon_learning_rate: f64,
    pub muon_momentum: f64,
    pub weight_decay: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub epsilon: f64,
    pub grad_clip: f64,
    pub z_loss: f64,
    pub label_smoothing: f64,
    pub ema_decay: f64,

    pub max_skipped_batches: u64,
    pub spikes: Spikes,
    pub spike_factor: f64,
    pub patience: u64,

    pub log_interval: u64,
    pub eval_interval: u64,
    pub eval_tokens: u64,
    pub checkpoint_interval: u64,
    pub keep_checkpoints: u64,
    pub tensorboard: bool,
    pub sample_interval: u64,
    pub sample_tokens: usize,
    pub sample_prompts: Vec<String>,
}

impl TrainConfig {
    /// Checks every range, and what must hold between keys.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let table = self.to_table()?;
        for key in keys::all() {
            key.check(&table[key.name])?;
        }
        let Self { n_embd, n_head, batch_size, grad_accum_steps, micro_batch, .. } = *self;
        if !n_embd.is_multiple_of(n_head) {
            return Err(ConfigError::Heads { n_embd, n_head });
        }
        let shape = self.shape(1);
        let checked = shape.validate().map_err(ember_model::Error::from);
        if let Err(error) = checked.and_then(|()| Ok(Family::of(&shape)?)) {
            return Err(ConfigError::Model(error.to_string()));
        }
        if !self.windows_per_step().is_multiple_of(micro_batch) {
            return Err(ConfigError::MicroBatch { micro_batch, batch_size, grad_accum_steps });
        }
        let (min, peak) = (self.min_learning_rate, self.learning_rate);
        if min > peak { Err(ConfigError::MinLearningRate { min, peak }) } else { Ok(()) }
    }

    /// The shape that the configuration makes with so many different tokens.
    pub fn shape(&self, vocab_size: usize) -> GptConfig {
        let gpt2 = GptConfig::new(vocab_size, self.context_length, self.n_layer, self.n_head, self.n_embd);
        // A checkpoint without rotary positions does not keep their base.
        let rotary = self.positions == Positions::Rotary;
        GptConfig {
            n_kv_head: self.n_kv_head,
            n_inner: self.n_inner,
            positions: self.positions,
            rope_theta: if rotary { self.rope_theta } else { gpt2.rope_theta },
            norm: self.norm,
            mlp: self.mlp,
            qk_norm: self.qk_norm,
            bias: self.bias,
            tied_head: self.tied_head,
            dropout: self.dropout,
            ..gpt2
        }
    }

    /// Windows of one optimizer step.
    pub fn windows_per_step(&self) -> usize {
        self.batch_size * self.grad_accum_steps
    }

    /// Target tokens of one optimizer step.
    pub fn tokens_per_step(&self) -> u64 {
        (self.windows_per_step() * self.context_length) as u64
    }

    /// The whole configuration as TOML, each key under a comment with its meaning, unit and range.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        let table = self.to_table()?;
        let mut text =
            String::from("# The resolved configuration of this run: every key, every default written out.\n");
        for group in keys::GROUPS {
            text += &format!("\n# {}\n", group.title);
            for key in group.keys {
                text += &format!("\n# {} ({})\n{} = {}\n", key.meaning, key.range(), key.name, table[key.name]);
            }
        }
        Ok(text)
    }

    pub(super) fn to_table(&self) -> Result<toml::Table, ConfigError> {
        toml::Table::try_from(self).map_err(|error| ConfigError::Unwritable { message: error.to_string() })
    }
}
