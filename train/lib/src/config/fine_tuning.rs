//! A run that begins from a checkpoint: the checkpoint's shape and tokenizer stand, and a key that
//! says otherwise is refused rather than passed over.

use std::path::Path;

use ember_model::{GptConfig, Positions};
use serde::Serialize;
use toml::Value;

use super::resolve::{TextFacts, fitting_context};
use super::settings::Settings;
use crate::error::ConfigError;

impl Settings {
    /// The checkpoint to begin from, where one is named.
    pub fn init(&self) -> Option<&str> {
        self.table.get("init").and_then(Value::as_str).filter(|folder| !folder.is_empty())
    }

    /// Begins from the checkpoint in `folder`, with its tokenizer.
    ///
    /// # Errors
    /// When another tokenizer was asked for.
    pub fn take_tokenizer(&mut self, folder: &Path) -> Result<(), ConfigError> {
        if let Some(given) = self.table.get("tokenizer").and_then(Value::as_str)
            && given != "auto"
            && Path::new(given) != folder
        {
            return Err(ConfigError::OtherTokenizer { given: given.to_owned(), folder: folder.to_owned() });
        }
        let name = folder.display();
        self.table.insert("tokenizer".into(), Value::String(name.to_string()));
        self.table.insert("init".into(), Value::String(name.to_string()));
        Ok(())
    }

    /// Takes over the shape of the checkpoint in `folder`, and says in one line each what was
    /// decided. The context may be shorter than the checkpoint's, and is where the text holds no
    /// four windows of its length.
    ///
    /// # Errors
    /// When a key contradicts the shape.
    pub fn take_shape(
        &mut self,
        folder: &Path,
        shape: &GptConfig,
        facts: &TextFacts,
    ) -> Result<Vec<String>, ConfigError> {
        let name = folder.display();
        for (key, value) in keys(shape) {
            match self.table.get(key) {
                Some(given) if !same(given, &value) => {
                    let (given, has) = (given.to_string(), value.to_string());
                    return Err(ConfigError::OtherShape { name: key, given, folder: folder.to_owned(), has });
                }
                _ => self.table.insert(key.into(), value),
            };
        }
        let mut reasons = vec![format!(
            "n_layer = {}, n_head = {}, n_embd = {}: as in {name}",
            shape.n_layer, shape.n_head, shape.n_embd
        )];
        let most = shape.context_length;
        let given = self.table.get("context_length").and_then(Value::as_integer).and_then(|n| usize::try_from(n).ok());
        let context = given.unwrap_or_else(|| fitting_context(most, facts));
        if context > most {
            return Err(ConfigError::LongContext { context, most, folder: folder.to_owned() });
        }
        reasons.push(match (context < most, given) {
            (false, _) => format!("context_length = {context}: as in {name}"),
            (true, Some(_)) => {
                format!("context_length = {context}, as asked for: the model will look back on no more than this, {name} on {most}")
            }
            (true, None) => format!(
                "context_length = {context}: the text is too short for windows of {most}, and the model will look back on no more"
            ),
        });
        self.table.insert("context_length".into(), whole(context));
        Ok(reasons)
    }
}

/// The keys that a shape decides, but the context.
fn keys(shape: &GptConfig) -> Vec<(&'static str, Value)> {
    let rotary = shape.positions == Positions::Rotary;
    let architecture = match (rotary, shape.qk_norm) {
        (true, true) => "qwen3",
        (true, false) => "llama",
        (false, _) => "gpt2",
    };
    vec![
        ("n_layer", whole(shape.n_layer)),
        ("n_head", whole(shape.n_head)),
        ("n_embd", whole(shape.n_embd)),
        ("architecture", Value::String(architecture.into())),
        ("positions", word(shape.positions)),
        ("rope_theta", Value::Float(shape.rope_theta)),
        ("norm", word(shape.norm)),
        ("mlp", word(shape.mlp)),
        ("n_inner", whole(shape.n_inner)),
        ("n_kv_head", whole(shape.n_kv_head)),
        ("qk_norm", Value::Boolean(shape.qk_norm)),
        ("bias", Value::Boolean(shape.bias)),
        ("tied_head", Value::Boolean(shape.tied_head)),
    ]
}

fn whole(number: usize) -> Value {
    Value::Integer(number as i64)
}

/// The word that a configuration file has for this.
fn word(choice: impl Serialize) -> Value {
    Value::try_from(choice).unwrap_or(Value::Boolean(false))
}

/// Whether two values mean the same: 10000 is 10000.0.
fn same(a: &Value, b: &Value) -> bool {
    let number = |value: &Value| value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::DeviceKind;
    use super::*;

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
        assert_eq!(config.learning_rate, 2e-4); // a new model 64 wide takes 2e-3
        assert!(config.warmup_steps <= 100 && config.warmup_steps * 20 < config.max_steps);
        assert!(reasons.iter().any(|line| line.to_string().contains("learning_rate = 0.0002")), "{reasons:?}");
    }

    #[test]
    fn a_contradiction_is_refused_in_a_line_that_names_it() {
        for (given, part) in [
            ("n_layer=4", "n_layer = 4 contradicts the checkpoint runs/a, which has n_layer = 3"),
            ("norm=rmsnorm", "norm = \"rmsnorm\" contradicts"),
            ("architecture=llama", "which has architecture = \"gpt2\""),
            ("context_length=256", "longer than the 128"),
            ("tokenizer=bytes", "tokenizer = bytes cannot be had"),
        ] {
            let error = taken(&[given], &FACTS).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn a_shorter_context_is_said() {
        let (_, reasons) = taken(&["context_length=32"], &FACTS).unwrap();
        assert!(reasons[1].contains("as asked for"), "{reasons:?}");
        let (settings, reasons) = taken(&[], &TextFacts { val_tokens: 300, ..FACTS }).unwrap();
        assert!(reasons[1].contains("too short"), "{reasons:?}");
        assert_eq!(settings.table["context_length"].as_integer(), Some(64));
    }
}
