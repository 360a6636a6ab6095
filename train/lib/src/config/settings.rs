//! The keys that the user set: from a file, then single keys; later values win.

use std::{io, path::Path};

use ember_data::{prepare::HoldOut, source::Clean};
use ember_host::files::read_whole;
use serde::Deserialize;
use toml::{Table, Value};

use super::key::Kind;
use super::keys::{self, Settings, TrainConfig};
use crate::error::ConfigError;

/// The keys that define the data; none is chosen from the text.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[allow(missing_docs)] // documented in the table of keys
pub struct DataConfig {
    pub text: Vec<String>,
    pub stories: u64,
    pub tokenizer: String,
    pub field: String,
    pub encoding: String,
    pub clean: Clean,
    pub val_fraction: f64,
    pub hold_out: HoldOut,
    pub mask: bool,
    pub seed: u64,
}

impl Settings {
    /// Reads TOML.
    ///
    /// # Errors
    /// For invalid TOML, an unknown key and a value out of range, each in one line.
    pub fn from_toml_str(text: &str) -> Result<Self, ConfigError> {
        let written: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            let message = error.message().lines().collect::<Vec<_>>().join(", ");
            ConfigError::NotToml { line, message }
        })?;
        let mut checked = Table::new();
        for (name, value) in written {
            insert(&mut checked, &name, value)?;
        }
        let whole = checked.iter().filter(|(_, value)| value.is_integer()).map(|(name, _)| name.clone()).collect();
        Ok(Self { whole, ..checked.try_into().map_err(unreadable)? })
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// When it cannot be read, is no TOML, or has an unknown key or a value out of range. The error
    /// names the file.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        in_file(path, Self::from_toml_str)
    }

    /// Reads a configuration file, or a shipped recipe by its name, even if a folder has that name.
    ///
    /// # Errors
    /// As [`Self::from_file`], and if there is neither: the error names the recipes.
    pub fn from_recipe(path: &Path) -> Result<Self, ConfigError> {
        match shipped(path) {
            Some(text) if !path.exists() || path.is_dir() => Self::from_toml_str(text),
            None if matches!(path.try_exists(), Ok(false)) => Err(no_recipe(path)),
            _ => Self::from_file(path),
        }
    }

    /// Applies one `key=value`, with the value in TOML; a bare word is a text.
    ///
    /// # Errors
    /// For an unknown key and for a value out of range; nothing is set then.
    pub fn set(&mut self, assignment: &str) -> Result<(), ConfigError> {
        let no_equals = || ConfigError::NoEquals(assignment.to_owned());
        let (name, value) = assignment.split_once('=').ok_or_else(no_equals)?;
        let (name, written) = (name.trim(), value.trim());
        let key = keys::find(name)?;
        let as_written = || Value::String(written.to_owned());
        let parsed = format!("value = {written}").parse::<Table>().ok().filter(|table| table.len() == 1);
        let value = parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(as_written);
        // A text that TOML reads as a number stays as written: a folder called 1.10 is not 1.1.
        let value = match (key.kind, value) {
            (Kind::Paths | Kind::Texts, Value::String(text)) => Value::Array(vec![Value::String(text)]),
            (Kind::Paths | Kind::Texts, value) if !value.is_array() => Value::Array(vec![as_written()]),
            (Kind::Text { .. }, value) if !value.is_str() => as_written(),
            // TOML requires digits on both sides of the point: it does not read .1 and 1. as
            // numbers.
            (Kind::Real(..) | Kind::Above(..) | Kind::Below(..), value @ Value::String(_)) => {
                written.parse::<f64>().map_or(value, Value::Float)
            }
            (_, value) => value,
        };
        let mut table = self.to_table()?;
        let mut whole = self.whole.clone();
        whole.retain(|written| written != name);
        whole.extend(value.is_integer().then(|| name.to_owned()));
        insert(&mut table, name, value)?;
        *self = Self { whole, ..table.try_into().map_err(unreadable)? };
        Ok(())
    }

    /// Sets the texts to learn from, as the command line names them.
    pub fn set_text(&mut self, paths: &[String]) {
        self.text = Some(paths.to_vec());
    }

    /// Whether the key of this name was given a value other than "auto".
    pub fn has(&self, name: &str) -> bool {
        self.to_table().is_ok_and(|table| table.contains_key(name))
    }

    /// The keys that define the data, with defaults filled in.
    ///
    /// # Errors
    /// When a value cannot be written as TOML.
    pub fn data(&self) -> Result<DataConfig, ConfigError> {
        self.with_defaults()?.try_into().map_err(unreadable)
    }

    /// The complete configuration.
    ///
    /// # Errors
    /// When a key without a default is not set, or the configuration is invalid.
    pub(super) fn complete(self) -> Result<TrainConfig, ConfigError> {
        let table = self.with_defaults()?;
        if let Some(key) = keys::all().find(|key| !table.contains_key(key.name)) {
            return Err(ConfigError::Missing { name: key.name, range: key.range() });
        }
        let config: TrainConfig = table.try_into().map_err(unreadable)?;
        config.validate()?;
        Ok(config)
    }

    /// Checks each value against the range of its key.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.to_table()?.iter().try_for_each(|(name, value)| keys::find(name)?.check(value))
    }

    /// The keys that have a value.
    pub(super) fn to_table(&self) -> Result<Table, ConfigError> {
        Table::try_from(self).map_err(unwritable)
    }

    fn with_defaults(&self) -> Result<Table, ConfigError> {
        let stated = keys::all().filter_map(|key| Some(format!("{} = {}\n", key.name, key.default?)));
        let mut table: Table = stated.collect::<String>().parse().map_err(unreadable)?;
        table.extend(self.to_table()?);
        Ok(table)
    }
}

/// Sets a key to a checked value; "auto" unsets a key without a default, so the program chooses it.
fn insert(table: &mut Table, name: &str, value: Value) -> Result<(), ConfigError> {
    if value.is_table() {
        return Err(ConfigError::Section(name.to_owned()));
    }
    let key = keys::find(name)?;
    if key.default.is_none() && value.as_str() == Some("auto") {
        table.remove(name);
        return Ok(());
    }
    key.check(&value)?;
    table.insert(name.into(), value);
    Ok(())
}

pub(super) fn unreadable(error: toml::de::Error) -> ConfigError {
    ConfigError::Unreadable(error.message().to_owned())
}

pub(super) fn unwritable(error: toml::ser::Error) -> ConfigError {
    ConfigError::Unwritable(error.to_string())
}

/// Largest size of a configuration file.
const MAX_BYTES: u64 = 1 << 20;

/// Parses a configuration file with `read`; the error names the file.
pub(super) fn in_file<T>(path: &Path, read: impl Fn(&str) -> Result<T, ConfigError>) -> Result<T, ConfigError> {
    let text = read_whole(path, MAX_BYTES).and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
    let text = text.map_err(|reason| ConfigError::File { path: path.to_owned(), reason })?;
    read(&text).map_err(|error| ConfigError::InFile { path: path.to_owned(), source: error.into() })
}

/// The configuration of `cargo train`: the built-in stories on a CPU.
pub const DEFAULT: &str = include_str!("../../configs/stories-cpu.toml");

/// The recipes compiled into the program, for use without the repository.
const SHIPPED: [(&str, &str); 5] = [
    ("stories-cpu", DEFAULT),
    ("shakespeare-char", include_str!("../../configs/shakespeare-char.toml")),
    ("shakespeare-char-cpu", include_str!("../../configs/shakespeare-char-cpu.toml")),
    ("shakespeare-char-llama-cpu", include_str!("../../configs/shakespeare-char-llama-cpu.toml")),
    ("gpt2-124m", include_str!("../../configs/gpt2-124m.toml")),
];

/// The names of the shipped recipes.
pub fn recipes() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(name, _)| *name)
}

/// The error for a path that is neither a file nor a recipe: suggests a similar name, or lists all.
fn no_recipe(path: &Path) -> ConfigError {
    let typed = path.file_stem().unwrap_or_default().to_string_lossy();
    let advice = match keys::most_similar(&typed, recipes()) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => format!("the recipes are: {}", recipes().collect::<Vec<_>>().join(", ")),
    };
    ConfigError::NoRecipe { path: path.to_owned(), advice }
}

/// The shipped recipe that a path names: `shakespeare-char`, or its file in `configs/`.
pub fn shipped(path: &Path) -> Option<&'static str> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let is_ours = folder.as_os_str().is_empty() || folder.ends_with("configs");
    let name = path.file_name()?.to_str()?;
    let name = name.strip_suffix(".toml").unwrap_or(name);
    SHIPPED.iter().find(|(shipped, _)| is_ours && *shipped == name).map(|(_, text)| *text)
}
