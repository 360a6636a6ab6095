//! What may change in the middle of a run: how long it goes on, what it bears, and how it is looked
//! at. Everything else would make it another run.

use super::keys::{Settings, TrainConfig};
use super::settings::unreadable;
use crate::error::ConfigError;

/// The keys that `resume --set` takes.
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
];

impl TrainConfig {
    /// The configuration with each `key=value` applied, for a run that stands at `step`.
    ///
    /// # Errors
    /// When a key is unknown or decides what is learned, a value is out of its range, or
    /// `max_steps` is behind `step`.
    pub fn changed(&self, assignments: &[String], step: u64) -> Result<Self, ConfigError> {
        let mut settings: Settings = self.to_table()?.try_into().map_err(unreadable)?;
        for assignment in assignments {
            settings.set(assignment)?;
            let name = assignment.split('=').next().unwrap_or_default().trim();
            if !CHANGEABLE.contains(&name) {
                return Err(ConfigError::Fixed {
                    assignment: assignment.clone(),
                    name: name.to_owned(),
                    can: CHANGEABLE,
                });
            }
        }
        let config = settings.complete()?;
        if config.max_steps < step {
            return Err(ConfigError::Contradiction(format!(
                "max_steps = {} is behind step {step}, where the run stands; choose a larger one",
                config.max_steps
            )));
        }
        Ok(config)
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
        assert!(refusal("max_steps=6", 7).contains("behind step 7"));
    }
}
