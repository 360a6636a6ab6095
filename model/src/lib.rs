//! The GPT itself.

mod config;
pub mod folder;

pub use config::GptConfig;
