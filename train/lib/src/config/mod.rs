//! The configuration of a run: every number that decides it, in one flat TOML file.
//!
//! [`Settings`] holds the keys that the user set; the rest is left to the program. [`TrainConfig`]
//! is the complete configuration, a value for every key, as a run folder stores it.
//! [`Settings::resolve`] turns one into the other and gives a reason for each choice. Nothing here
//! reads a text or touches a device.

mod facts;
mod fine_tuning;
pub mod key;
pub mod keys;
pub mod precision;
mod resolve;
mod settings;
#[cfg(test)]
mod tests;
mod train_config;

pub use crate::error::ConfigError;
pub use facts::{DeviceKind, TextFacts};
pub use keys::{Curve, OptimizerKind, Precision, Settings, Spikes, TrainConfig, help};
pub use resolve::{MAX_PASSES_OF_LARGE, assumed_vocab_size, fitting_context, most_steps};
pub use settings::{DEFAULT, DataConfig, recipes, shipped};
