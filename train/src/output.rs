//! A command's output: its result on standard output, a page or picture if one was requested, and
//! temporary folders.

use std::{io::IsTerminal, io::Write, path::Path};

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

/// As [`show`], for a text with the program's own colour codes; the caller has made everything else
/// in it [`printable`](terminal::printable).
pub fn show_coloured(text: &str) -> Result<()> {
    show_on(terminal::coloured_stdout(), text)
}

/// Whether standard output is a terminal that may show colours: NO_COLOR is not set, or empty
/// (<https://no-color.org>).
pub fn has_colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn show_on(mut out: impl Write, text: &str) -> Result<()> {
    Ok(out.write_all(text.as_bytes())?) // the error itself names standard output
}

/// Ends a command by printing its result, as text or as JSON lines.
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

/// As [`answer`], for a command that may also have written `file`. If that file is standard output,
/// a result there would become part of it, so the text goes to standard error instead.
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

/// The value as one line of JSON.
pub fn json_line(value: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string(value)? + "\n")
}

/// Two values merged into one JSON object: the keys of `first`, then those of `then`.
#[derive(Serialize)]
pub struct Joined<A, B> {
    #[serde(flatten)]
    pub first: A,
    #[serde(flatten)]
    pub then: B,
}

/// The values as JSON lines.
pub fn json_lines<T: Serialize>(values: impl IntoIterator<Item = T>) -> Result<String> {
    values.into_iter().map(|value| json_line(&value)).collect()
}

/// The JSON name of a value that serializes to a string, without the quotes.
pub fn word(value: impl Serialize) -> String {
    serde_json::to_string(&value).unwrap_or_default().trim_matches('"').to_owned()
}

/// A folder for intermediate files, removed when dropped.
pub fn temporary_folder() -> Result<TempDir> {
    tempfile::tempdir().context("cannot create a temporary folder; set TMPDIR to a folder that you may write into")
}

/// Writes a text to a path given by the user.
pub fn write_file(path: &Path, text: &str) -> Result<(), output::Error> {
    write_output(path, |file| file.write_all(text.as_bytes()))
}
