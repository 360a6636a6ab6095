//! A prompt, ready for the model.

use anyhow::Error;
use ember_cli::program::exit_code;
use serde_json::Value;

/// What is to be continued; no text where there is no tokenizer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prompt {
    /// Its place among all that were given, by which its answers and draws are named.
    pub(super) index: usize,
    /// Where it was given, for errors; empty where the command line itself gave it.
    pub(super) place: String,
    pub(super) text: Option<String>,
    pub(super) ids: Vec<u32>,
    /// What a file of prompts calls it.
    pub(super) id: Option<Value>,
}

impl Prompt {
    /// An error with the line that the prompt stands on; a wrong flag is nothing that a prompt can
    /// help.
    pub(super) fn blame(&self, error: Error) -> Error {
        if self.place.is_empty() || exit_code(&error) == 2 { error } else { error.context(self.place.clone()) }
    }
}
