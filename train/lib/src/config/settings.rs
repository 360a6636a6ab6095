//! What a person wrote: a file, then `--set key=value`, the last word winning.

use std::{fs, path::Path};

use serde::Deserialize;
use toml::{Table, Value};

use super::choices::Precision;
use super::key::{Kind, Preset};
use super::keys;
use super::keys::TrainConfig;
use super::recipes::shipped;
use crate::error::ConfigError;

/// Some keys with a value, each checked on its own; the others keep their default or are chosen by
/// the program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    pub(super) table: Table,
}

/// The keys that decide the data, which are known before any text is read.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[allow(missing_docs)] // each is documented once, in the table of keys
pub struct DataConfig {
    pub text: Vec<String>,
    pub stories: u64,
    pub tokenizer: String,
    pub field: String,
    pub val_fraction: f64,
    pub seed: u64,
}

impl Settings {
    /// Reads TOML; a syntax error, an unknown key and a value out of range are each a
    /// [`ConfigError`] of one line.
    pub fn from_toml_str(text: &str) -> Result<Self, ConfigError> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            ConfigError::NotToml { line, message }
        })?;
        let mut settings = Self::default();
        for (name, value) in table {
            settings.insert(&name, value)?;
        }
        Ok(settings)
    }

    /// Reads a configuration file; the error names it.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        in_file(path, Self::from_toml_str)
    }

    /// A configuration file, or a shipped recipe by its name.
    pub fn from_recipe(path: &Path) -> Result<Self, ConfigError> {
        match shipped(path) {
            Some(text) if !path.exists() => Self::from_toml_str(text),
            _ => Self::from_file(path),
        }
    }

    /// Applies one `key=value`, the value written as in TOML; a bare word is taken as text.
    pub fn set(&mut self, assignment: &str) -> Result<(), ConfigError> {
        let no_equals = || ConfigError::NoEquals { assignment: assignment.to_owned() };
        let (name, value) = assignment.split_once('=').ok_or_else(no_equals)?;
        let (name, value) = (name.trim(), value.trim());
        let key = keys::find(name)?;
        let parsed = format!("value = {value}").parse::<Table>().ok().filter(|table| table.len() == 1);
        let value = parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(|| Value::String(value.into()));
        let value = match (key.kind, value) {
            (Kind::Paths | Kind::Texts, Value::String(text)) => Value::Array(vec![Value::String(text)]),
            (Kind::Text { .. }, value) if !value.is_str() => Value::String(value.to_string()),
            (_, value) => value,
        };
        self.insert(name, value)
    }

    /// Sets the texts to learn from, as the command line names them.
    pub fn set_text(&mut self, paths: &[String]) {
        self.table.insert("text".into(), paths.to_vec().into());
    }

    /// Whether this key was given a value other than "auto".
    pub fn has(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }

    /// The precision that was named, if one was.
    pub fn precision(&self) -> Option<Precision> {
        self.table.get("precision").cloned().and_then(|value| value.try_into().ok())
    }

    /// The windows of one pass that somebody set.
    pub fn micro_batch(&self) -> Option<u64> {
        self.table.get("micro_batch").and_then(Value::as_integer).and_then(|windows| u64::try_from(windows).ok())
    }

    /// Gives a key that nobody set a whole number; one that somebody set is left alone.
    pub fn suggest(&mut self, name: &'static str, value: u64) {
        self.table.entry(name).or_insert(Value::Integer(value as i64));
    }

    /// Leaves a key to the program again.
    pub fn leave_open(&mut self, name: &'static str) {
        self.table.remove(name);
    }

    /// The keys that decide the data, defaults filled in.
    pub fn data(&self) -> Result<DataConfig, ConfigError> {
        self.with_defaults()?.try_into().map_err(unreadable)
    }

    /// The configuration, which must leave nothing to choose.
    pub(super) fn complete(self) -> Result<TrainConfig, ConfigError> {
        let table = self.with_defaults()?;
        if let Some(key) = keys::all().find(|key| !table.contains_key(key.name)) {
            return Err(ConfigError::Missing { name: key.name, range: key.range() });
        }
        let config: TrainConfig = table.try_into().map_err(unreadable)?;
        config.validate()?;
        Ok(config)
    }

    fn insert(&mut self, name: &str, value: Value) -> Result<(), ConfigError> {
        if value.is_table() {
            return Err(ConfigError::Section { name: name.to_owned() });
        }
        let key = keys::find(name)?;
        key.check(&value)?;
        if key.default == Preset::Auto && value.as_str() == Some("auto") {
            self.table.remove(name);
        } else {
            self.table.insert(name.into(), value);
        }
        Ok(())
    }

    fn with_defaults(&self) -> Result<Table, ConfigError> {
        let mut table = self.table.clone();
        for key in keys::all() {
            if let Preset::Toml(value) = key.default
                && !table.contains_key(key.name)
            {
                let parsed: Table = format!("{} = {value}", key.name).parse().map_err(unreadable)?;
                table.extend(parsed);
            }
        }
        Ok(table)
    }
}

pub(super) fn unreadable(error: toml::de::Error) -> ConfigError {
    ConfigError::Unreadable { message: error.message().to_owned() }
}

/// What `read` makes of the text of a configuration file; the error names the file.
pub(super) fn in_file<T>(path: &Path, read: impl Fn(&str) -> Result<T, ConfigError>) -> Result<T, ConfigError> {
    let text = fs::read_to_string(path).map_err(|reason| ConfigError::File { path: path.to_owned(), reason })?;
    read(&text).map_err(|error| ConfigError::InFile { path: path.to_owned(), source: error.into() })
}
