//! A configuration in which nothing is open: how it is read and written, what must hold between its
//! keys, and what follows from them.

use std::path::Path;

use ember_model::folder::Family;
use ember_model::{GptConfig, Positions};

use super::keys::{self, Settings, TrainConfig};
use super::settings::{in_file, unwritable};
use crate::error::ConfigError;

impl TrainConfig {
    /// Reads a saved, complete configuration; a missing, unknown or impossible value is a
    /// [`ConfigError`].
    pub fn from_toml_str(text: &str) -> Result<Self, ConfigError> {
        Settings::from_toml_str(text)?.with_the_usual_parts().complete()
    }

    /// Reads the configuration a run folder keeps; the error names the file.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        in_file(path, Self::from_toml_str)
    }

    /// Checks every range, and what must hold between keys.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let table = self.to_table()?;
        for key in keys::all() {
            key.check(&table[key.name])?;
        }
        let Self { n_embd, n_head, batch_size, grad_accum_steps, micro_batch, .. } = *self;
        let (windows, min, peak) = (self.windows_per_step(), self.min_learning_rate, self.learning_rate);
        let shape = self.shape(1);
        let model = || -> Result<Family, ember_model::Error> {
            shape.validate()?;
            Ok(Family::of(&shape)?)
        };
        let problem = if !n_embd.is_multiple_of(n_head) {
            format!(
                "n_embd = {n_embd} is not a multiple of n_head = {n_head}; each head takes an equal share of the width"
            )
        } else if let Err(error) = model() {
            error.to_string()
        } else if !windows.is_multiple_of(micro_batch) {
            format!(
                "micro_batch = {micro_batch} does not divide the {windows} windows of a step (batch_size = {batch_size} times \
                 grad_accum_steps = {grad_accum_steps})"
            )
        } else if min > peak {
            format!("min_learning_rate = {min} is above learning_rate = {peak}; the schedule goes down")
        } else {
            return Ok(());
        };
        Err(ConfigError::Contradiction(problem))
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
        toml::Table::try_from(self).map_err(unwritable)
    }
}
