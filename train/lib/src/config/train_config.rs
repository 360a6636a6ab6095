//! The complete configuration: reading and writing it, the constraints between its keys, the values
//! that follow from them, and the keys that may change when a run is resumed.

use std::path::Path;

use ember_model::folder::Family;
use ember_model::{GptConfig, Positions};

use super::key::{Kind, OR_AUTO};
use super::keys::{self, OptimizerKind, Settings, TrainConfig};
use super::settings::{in_file, unreadable, unwritable};
use crate::error::ConfigError;

/// The keys that may change when a run is resumed: its length, its tolerance of bad batches, its
/// reporting and saving, and its precision, since it may go on with another device. Any other
/// change would make it another run.
const CHANGEABLE: &[&str] = &[
    "max_steps",
    "lr_decay_steps",
    "log_interval",
    "eval_interval",
    "checkpoint_interval",
    "sample_interval",
    "sample_tokens",
    "sample_prompts",
    "patience",
    "max_skipped_batches",
    "keep_checkpoints",
    "tensorboard",
    "precision",
];

impl TrainConfig {
    /// Reads a saved, complete configuration.
    ///
    /// # Errors
    /// For a missing key, an unknown key and a value out of range.
    pub fn from_toml_str(text: &str) -> Result<Self, ConfigError> {
        Settings::from_toml_str(text).map_err(without_auto)?.complete()
    }

    /// Reads the configuration file of a run folder.
    ///
    /// # Errors
    /// As [`Self::from_toml_str`], and when the file cannot be read. The error names the file.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        in_file(path, Self::from_toml_str)
    }

    /// Checks every value's range, and the constraints between keys.
    ///
    /// # Errors
    /// Names the first invalid key and its allowed values.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let table = self.to_table()?;
        for key in keys::all() {
            key.check(&table[key.name])?;
        }
        self.contradiction().map_or(Ok(()), |problem| Err(ConfigError::Contradiction(problem)))
    }

    /// The first contradiction between keys, in one line.
    fn contradiction(&self) -> Option<String> {
        let Self { n_embd, n_head, batch_size, grad_accum_steps, micro_batch, .. } = *self;
        if !self.has_checkpoint_head_size() && !n_embd.is_multiple_of(n_head) {
            return Some(format!(
                "n_embd = {n_embd} is not a multiple of n_head = {n_head}; each head takes an equal share of the width"
            ));
        }
        let shape = self.shape_of_keys();
        let model = || -> Result<Family, ember_model::Error> {
            shape.validate()?;
            Ok(Family::of(&shape)?)
        };
        if let Err(error) = model() {
            return Some(error.to_string());
        }
        let windows = self.windows_per_step();
        if !windows.is_multiple_of(micro_batch) {
            return Some(format!(
                "micro_batch = {micro_batch} does not divide the {windows} windows of a step (batch_size = {batch_size} times \
                 grad_accum_steps = {grad_accum_steps})"
            ));
        }
        let (min, peak) = (self.min_learning_rate, self.learning_rate);
        if min > peak {
            return Some(format!("min_learning_rate = {min} is above learning_rate = {peak}; the schedule goes down"));
        }
        let decay = self.weight_decay;
        let (name, rate) = self.peaks().find(|(_, rate)| rate * decay >= 1.0)?;
        Some(format!("{name} = {rate} times weight_decay = {decay} is 1 or more, which erases the weights; lower one"))
    }

    /// The peak learning rate of each of the run's optimizers, with its key.
    fn peaks(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let muon = (self.optimizer == OptimizerKind::Muon).then_some(("muon_learning_rate", self.muon_learning_rate));
        [("learning_rate", self.learning_rate)].into_iter().chain(muon)
    }

    /// The model's shape with a vocabulary of this size.
    pub fn shape(&self, vocab_size: usize) -> GptConfig {
        let gpt2 = GptConfig::new(vocab_size, self.context_length, self.n_layer, self.n_head, self.n_embd);
        let Self { n_kv_head, n_inner, positions, norm, mlp, qk_norm, bias, tied_head, dropout, .. } = *self;
        // A checkpoint without rotary positions does not store rope_theta.
        let rope_theta = if positions == Positions::Rotary { self.rope_theta } else { gpt2.rope_theta };
        GptConfig { n_kv_head, n_inner, positions, rope_theta, norm, mlp, qk_norm, bias, tied_head, dropout, ..gpt2 }
    }

    /// Whether the head size comes from the initial checkpoint: with rotary positions it need not
    /// be `n_embd / n_head`, and no key sets it.
    fn has_checkpoint_head_size(&self) -> bool {
        !self.init.is_empty() && self.positions == Positions::Rotary
    }

    /// The shape that the keys define, for validation. A head size that comes from the checkpoint
    /// is replaced by one that is always valid: the checkpoint's shape was validated when it was
    /// opened.
    fn shape_of_keys(&self) -> GptConfig {
        let shape = self.shape(1);
        if self.has_checkpoint_head_size() { GptConfig { head_size: 2, ..shape } } else { shape }
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
    ///
    /// # Errors
    /// When a value cannot be written as TOML.
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

    /// How the run learns, one `key = value` a line: without the keys in `idle`, and without paths
    /// and texts, which say where things lie.
    ///
    /// # Errors
    /// When a value cannot be written as TOML.
    pub fn recipe(&self, idle: &[&str]) -> Result<String, ConfigError> {
        let table = self.to_table()?;
        let is_named = |kind: Kind| matches!(kind, Kind::Paths | Kind::Text { .. } | Kind::Texts);
        let kept = keys::all().filter(|key| !is_named(key.kind) && !idle.contains(&key.name));
        Ok(kept.map(|key| format!("{} = {}\n", key.name, table[key.name])).collect())
    }

    pub(super) fn to_table(&self) -> Result<toml::Table, ConfigError> {
        toml::Table::try_from(self).map_err(unwritable)
    }

    /// The configuration with each `key=value` applied, for a run at step `step`.
    ///
    /// # Errors
    /// When a key is unknown or may not change, a value is out of range, or `max_steps` is below
    /// `step`.
    pub fn changed(&self, assignments: &[String], step: u64) -> Result<Self, ConfigError> {
        let mut settings: Settings = self.to_table()?.try_into().map_err(unreadable)?;
        for assignment in assignments {
            settings.set(assignment).map_err(without_auto)?;
            let name = keys::assigned_name(assignment);
            if !CHANGEABLE.contains(&name) {
                return Err(ConfigError::Fixed {
                    assignment: assignment.clone(),
                    name: name.to_owned(),
                    can: CHANGEABLE,
                });
            }
            let key = keys::find(name)?;
            if !settings.has(name) {
                return Err(ConfigError::Open { name: key.name, range: key.range() });
            }
        }
        let config = settings.complete()?;
        if config.max_steps < step {
            return Err(ConfigError::Contradiction(format!(
                "max_steps = {} is below the run's current step, {step}; choose a larger one",
                config.max_steps
            )));
        }
        Ok(config)
    }
}

/// Removes "auto" from the values that the error suggests: a complete configuration has none.
fn without_auto(error: ConfigError) -> ConfigError {
    match error {
        ConfigError::NotAllowed { name, value, takes } => {
            let takes = takes.strip_suffix(OR_AUTO).unwrap_or(&takes).to_owned();
            ConfigError::NotAllowed { name, value, takes }
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{DEFAULT, DeviceKind, TextFacts, keys};
    use super::*;

    fn config() -> TrainConfig {
        let facts = TextFacts { train_tokens: 1_000_000, val_tokens: 100_000, vocab_size: 100 };
        Settings::from_toml_str(DEFAULT).unwrap().resolve(&facts, DeviceKind::Cpu).unwrap().0
    }

    #[test]
    fn a_run_can_be_made_longer_and_nothing_else_moves() {
        let config = config();
        assert_eq!(config.changed(&[], 7).unwrap(), config);
        let changed = config.changed(&["max_steps = 9999".into(), "eval_interval=3".into()], 7).unwrap();
        assert_eq!((changed.max_steps, changed.eval_interval), (9999, 3));
        assert_eq!(TrainConfig { max_steps: config.max_steps, eval_interval: config.eval_interval, ..changed }, config);
        assert!(CHANGEABLE.iter().all(|name| keys::find(name).is_ok()));
    }

    #[test]
    fn what_decides_the_run_is_refused() {
        let refusal = |set: &str, step| config().changed(&[set.into()], step).unwrap_err().to_string();
        assert!(refusal("n_layer=9", 7).contains("n_layer cannot change"));
        assert!(refusal("seed=3", 7).contains("seed cannot change"));
        assert!(refusal("max_step=9", 7).contains("did you mean \"max_steps\""));
        assert!(refusal("max_steps=0", 7).contains("not allowed"));
        assert!(refusal("max_steps=0", 7).ends_with("use a whole number of 1 or more (optimizer steps)"));
        let in_file = config().to_toml().unwrap().replace("\nprecision = ", "\nprecision = \"fp8\" #");
        let refused = TrainConfig::from_toml_str(&in_file).unwrap_err().to_string();
        assert_eq!(refused, "precision = \"fp8\" is not allowed; use one of: f32, bf16, f16");
        assert!(refusal("max_steps=6", 7).contains("below the run's current step, 7"));
        let line = "precision = auto is not allowed in a run that has started; give it a value (f32, bf16, f16)";
        assert_eq!(refusal("precision=auto", 7), line);
    }
}
