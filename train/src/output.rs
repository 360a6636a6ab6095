//! What a command leaves: a result on standard output, and a page or a picture where it was asked
//! for.

use std::{io::Write, path::Path};

use anyhow::{Context, Result};
use ember_cli::terminal;
use ember_host::output::{self, write_output};
use serde::Serialize;

/// Writes a result to standard output.
pub fn show(text: &str) -> Result<()> {
    terminal::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

/// A line of JSON.
pub fn json_line(value: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string(value)? + "\n")
}

/// A line of JSON for each.
pub fn json_lines<T: Serialize>(values: impl IntoIterator<Item = T>) -> Result<String> {
    values.into_iter().map(|value| json_line(&value)).collect()
}

/// What JSON calls a value that is one word.
pub fn word(value: impl Serialize) -> String {
    serde_json::to_string(&value).unwrap_or_default().trim_matches('"').to_owned()
}

/// Writes a text to a file that the user named.
pub fn write_file(path: &Path, text: &str) -> Result<(), output::Error> {
    write_output(path, |file| file.write_all(text.as_bytes()))
}
