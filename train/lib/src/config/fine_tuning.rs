//! A run that begins from a checkpoint uses the checkpoint's shape and tokenizer; a key that
//! contradicts them is an error and is not ignored.

use std::path::Path;

use ember_model::GptConfig;
use toml::{Table, Value};

use super::facts::TextFacts;
use super::keys::{self, Settings};
use super::resolve::fitting_context;
use super::settings::{unreadable, unwritable};
use crate::error::ConfigError;

impl Settings {
    /// The checkpoint to begin from, if one is set.
    pub fn init(&self) -> Option<&str> {
        self.init.as_deref().filter(|folder| !folder.is_empty())
    }

    /// Sets the initial checkpoint to the one in `folder`, and its tokenizer.
    ///
    /// # Errors
    /// When the user set another tokenizer.
    pub fn take_tokenizer(&mut self, folder: &Path) -> Result<(), ConfigError> {
        if let Some(given) = self.tokenizer.take_if(|given| given != "auto" && Path::new(given) != folder) {
            return Err(ConfigError::Contradiction(format!(
                "tokenizer = {given} does not go with init: the model in {} needs its own tokenizer; leave the \
                 key out",
                folder.display()
            )));
        }
        let name = folder.display().to_string();
        (self.tokenizer, self.init) = (Some(name.clone()), Some(name));
        Ok(())
    }

    /// Takes the shape of the checkpoint in `folder`, and returns a line on each choice. The
    /// context may be shorter than the checkpoint's, and it is if the text has fewer than four
    /// windows of that length.
    ///
    /// # Errors
    /// When a key contradicts the shape.
    pub fn take_shape(
        &mut self,
        folder: &Path,
        shape: &GptConfig,
        facts: &TextFacts,
    ) -> Result<Vec<String>, ConfigError> {
        let (mut given, decided) = (self.to_table()?, decided_by(shape)?);
        for name in keys::all().map(|key| key.name) {
            if let (Some(given), Some(has)) = (given.get(name), decided.get(name))
                && given != has
            {
                let given = match given {
                    Value::Float(number) if self.whole.iter().any(|whole| whole == name) => number.to_string(),
                    given => given.to_string(),
                };
                return Err(ConfigError::Contradiction(format!(
                    "{name} = {given} contradicts the checkpoint {}, which has {name} = {has}; leave the key out, or train from \
                     random weights without init",
                    folder.display()
                )));
            }
        }
        given.extend(decided);
        *self = given.try_into().map_err(unreadable)?;

        let name = folder.display();
        let GptConfig { n_layer, n_head, n_embd, context_length: most, .. } = *shape;
        let given = self.context_length;
        let context = *self.context_length.get_or_insert_with(|| fitting_context(most, facts));
        if context > most {
            return Err(ConfigError::Contradiction(format!(
                "context_length = {context} is longer than the {most} of the checkpoint {name}; choose at most {most}"
            )));
        }
        let why = match given {
            _ if context == most => format!(": as in {name}"),
            Some(_) => format!(", as set; {name} has {most}"),
            None => format!(": the text is too short for windows of {most} tokens"),
        };
        Ok(vec![
            format!("n_layer = {n_layer}, n_head = {n_head}, n_embd = {n_embd}: as in {name}"),
            format!("context_length = {context}{why}"),
        ])
    }
}

/// The keys that a shape decides; they have the names of its fields. Not among them: the context,
/// which may become shorter, and dropout, which belongs to the run.
fn decided_by(shape: &GptConfig) -> Result<Table, ConfigError> {
    let mut decided = Table::try_from(shape).map_err(unwritable)?;
    decided.retain(|name, _| keys::find(name).is_ok() && !["context_length", "dropout"].contains(&name));
    decided.insert("architecture".to_owned(), shape.architecture().into());
    Ok(decided)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{DeviceKind, TrainConfig};
    use super::*;
    use ember_model::{MlpKind, NormKind, Positions};

    const FACTS: TextFacts = TextFacts { train_tokens: 100_000, val_tokens: 10_000, vocab_size: 65 };

    fn shape() -> GptConfig {
        GptConfig::new(65, 128, 3, 4, 64)
    }

    fn taken(given: &[&str], facts: &TextFacts) -> Result<(Settings, Vec<String>), ConfigError> {
        let mut settings = Settings::default();
        for assignment in given {
            settings.set(assignment).unwrap();
        }
        settings.take_tokenizer(Path::new("runs/a"))?;
        let reasons = settings.take_shape(Path::new("runs/a"), &shape(), facts)?;
        Ok((settings, reasons))
    }

    #[test]
    fn the_shape_wins_and_the_rate_is_low() {
        let (settings, _) = taken(&["n_layer=3", "rope_theta=10000"], &FACTS).unwrap();
        let (config, reasons) = settings.resolve(&FACTS, DeviceKind::Cpu).unwrap();
        assert_eq!((config.n_layer, config.n_head, config.n_embd, config.context_length), (3, 4, 64, 128));
        assert_eq!((config.init.as_str(), config.tokenizer.as_str()), ("runs/a", "runs/a"));
        assert_eq!(config.learning_rate, 2e-4); // a new model of width 64 has 2e-3
        assert!(config.warmup_steps <= 100 && config.warmup_steps * 20 < config.max_steps);
        assert!(reasons.iter().any(|line| line.to_string().contains("learning_rate = 0.0002")), "{reasons:?}");
    }

    #[test]
    fn muon_steps_what_it_begins_from_at_a_tenth_of_its_rate_too() {
        let (settings, _) = taken(&["optimizer=muon", "batch_size=8", "max_steps=100"], &FACTS).unwrap();
        let (config, reasons) = settings.resolve(&FACTS, DeviceKind::Cpu).unwrap();
        assert_eq!((config.learning_rate, config.muon_learning_rate), (6e-4, 1.5e-3)); // a new one: 6e-3 and 0.015
        let has_reason = |start: &str| reasons.iter().any(|line| line.to_string().starts_with(start));
        assert!(
            has_reason("learning_rate = 0.0006: a tenth") && has_reason("muon_learning_rate = 0.0015: a tenth"),
            "{reasons:?}"
        );
        let (settings, _) = taken(&["muon_learning_rate=0.01", "optimizer=muon"], &FACTS).unwrap();
        assert_eq!(settings.resolve(&FACTS, DeviceKind::Cpu).unwrap().0.muon_learning_rate, 0.01);
    }

    /// A Qwen3's `head_dim` is not a configuration key: `n_embd` need not be a multiple of
    /// `n_head`, and the quotient may be odd, or 0.
    #[test]
    fn a_checkpoint_whose_heads_do_not_share_its_width_is_begun_from() {
        for n_embd in [33, 24, 6] {
            let shape = GptConfig {
                head_size: 10,
                n_kv_head: 2,
                n_inner: 20,
                positions: Positions::Rotary,
                norm: NormKind::RmsNorm,
                mlp: MlpKind::SwiGlu,
                qk_norm: true,
                bias: false,
                ..GptConfig::new(65, 128, 2, 8, n_embd)
            };
            shape.validate().unwrap();
            let mut settings = Settings::default();
            settings.take_tokenizer(Path::new("runs/a")).unwrap();
            settings.take_shape(Path::new("runs/a"), &shape, &FACTS).unwrap();
            let (config, _) = settings.resolve(&FACTS, DeviceKind::Cpu).unwrap();
            assert_eq!((config.n_embd, config.n_head, config.n_kv_head), (n_embd, 8, 2));
            assert_eq!(TrainConfig::from_toml_str(&config.to_toml().unwrap()).unwrap(), config);
            assert!(TrainConfig { init: String::new(), ..config }.validate().is_err(), "{n_embd}");
        }
    }

    #[test]
    fn a_contradiction_is_refused_in_a_line_that_names_it() {
        for (given, part) in [
            ("n_layer=4", "n_layer = 4 contradicts the checkpoint runs/a, which has n_layer = 3"),
            ("norm=rmsnorm", "norm = \"rmsnorm\" contradicts"),
            (
                "rope_theta=20000",
                "rope_theta = 20000 contradicts the checkpoint runs/a, which has rope_theta = 10000.0",
            ),
            ("rope_theta=20000.0", "rope_theta = 20000.0 contradicts"),
            ("architecture=llama", "which has architecture = \"gpt2\""),
            ("context_length=256", "longer than the 128"),
            ("tokenizer=bytes", "tokenizer = bytes does not go with init"),
        ] {
            let error = taken(&[given], &FACTS).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_shorter_context_is_said() {
        let (_, reasons) = taken(&["context_length=32"], &FACTS).unwrap();
        assert!(reasons[1].contains(", as set; "), "{reasons:?}");
        let (settings, reasons) = taken(&[], &TextFacts { val_tokens: 300, ..FACTS }).unwrap();
        assert!(reasons[1].contains("too short"), "{reasons:?}");
        assert_eq!(settings.context_length, Some(64));
    }
}
