//! `ember-generate man-pages` and `ember-train man-pages`: every command's manual, for packages.

use std::{fs, path::PathBuf};

use anyhow::Result;
use clap::{Args, CommandFactory};
use ember_host::file_error::At;

use crate::program::Outcome;

/// Arguments of `man-pages`.
#[derive(Args, Debug)]
pub struct ManPagesArgs {
    /// The folder for the pages; created if missing
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// Writes a page for the program and one for each command that `--help` shows.
///
/// # Errors
/// When the folder cannot be made or written into.
pub fn run<C: CommandFactory>(args: &ManPagesArgs) -> Result<Outcome> {
    let folder = &args.folder;
    fs::create_dir_all(folder).at("cannot create", folder)?;
    clap_mangen::generate_to(C::command(), folder).at("cannot write manual pages into", folder)?;
    Ok(Outcome::Done)
}
