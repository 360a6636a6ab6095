//! Reading the configuration that a run has saved.

use std::path::Path;

use super::keys::TrainConfig;
use super::settings::{Settings, in_file};
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
}
