//! What a run is: every number that decides it, in one flat TOML file.
//!
//! [`Settings`] is what a person wrote: some keys, the rest left to the program. [`TrainConfig`] is
//! what will run: every key with its value, which is what a run folder keeps. [`Settings::resolve`]
//! leads from one to the other and says why it chose what it chose. Nothing here reads a text or
//! touches a device.

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
pub use resolve::{MOST_PASSES_OF_LARGE, assumed_vocab_size, fitting_context, most_steps};
pub use settings::{DEFAULT, DataConfig, recipes, shipped};
