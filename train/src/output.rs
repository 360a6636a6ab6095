//! What a command leaves: a result on standard output, and a page or a picture where it was asked
//! for; and where it keeps what it does not leave.

use std::{io::Write, path::Path};

use anyhow::{Context, Result};
use ember_cli::program::{CommonArgs, Notes, Outcome, OutputFormat};
use ember_cli::terminal;
use ember_host::output::{self, is_standard_output, write_output};
use serde::Serialize;
use tempfile::TempDir;

/// Writes a result to standard output.
pub fn show(text: &str) -> Result<()> {
    show_on(terminal::stdout(), text)
}

/// The same for a text with colours of the program's own, in which all else is
/// [`printable`](terminal::printable).
pub fn show_coloured(text: &str) -> Result<()> {
    show_on(terminal::coloured_stdout(), text)
}

fn show_on(mut out: impl Write, text: &str) -> Result<()> {
    Ok(out.write_all(text.as_bytes())?) // the error says that it was standard output
}

/// Ends a command with its result, for people or as lines of JSON.
pub fn answer(
    common: &CommonArgs,
    text: impl FnOnce() -> String,
    json: impl FnOnce() -> Result<String>,
) -> Result<Outcome> {
    show(&match common.format {
        OutputFormat::Text => text(),
        OutputFormat::Json => json()?,
    })?;
    Ok(Outcome::Done)
}

/// The same for a command that has written `file`, where it was asked for one. Behind a page on
/// standard output a result would be a part of it: then people read it on standard error.
pub fn answer_beside(
    file: Option<&Path>,
    common: &CommonArgs,
    text: impl FnOnce() -> String,
    json: impl FnOnce() -> Result<String>,
) -> Result<Outcome> {
    if !file.is_some_and(is_standard_output) {
        return answer(common, text, json);
    }
    Notes::new(common.quiet).say(text().trim_end());
    Ok(Outcome::Done)
}

/// A line of JSON.
pub fn json_line(value: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string(value)? + "\n")
}

/// The keys of one value, then those of another, as one JSON object.
#[derive(Serialize)]
pub struct Joined<A, B> {
    /// The first.
    #[serde(flatten)]
    pub first: A,
    /// The other.
    #[serde(flatten)]
    pub then: B,
}

/// A line of JSON for each.
pub fn json_lines<T: Serialize>(values: impl IntoIterator<Item = T>) -> Result<String> {
    values.into_iter().map(|value| json_line(&value)).collect()
}

/// What JSON calls a value that is one word.
pub fn word(value: impl Serialize) -> String {
    serde_json::to_string(&value).unwrap_or_default().trim_matches('"').to_owned()
}

/// A folder for what a command does not leave: gone when it is dropped.
pub fn temporary_folder() -> Result<TempDir> {
    tempfile::tempdir().context("cannot make a temporary folder; let TMPDIR name a folder that you may write into")
}

/// Writes a text to a file that the user named.
pub fn write_file(path: &Path, text: &str) -> Result<(), output::Error> {
    write_output(path, |file| file.write_all(text.as_bytes()))
}
