//! The imports that all commands share: arguments, output, errors. A command's own imports then
//! show what it is about.

pub use std::path::{Path, PathBuf};

pub use anyhow::{Context, Result, anyhow, bail, ensure};
pub use clap::Args;
pub use ember_cli::output_file;
pub use ember_cli::program::{CommonArgs, Notes, Outcome, OutputFormat, UsageError};
pub use ember_cli::terminal::typed;
pub use ember_host::interrupt::Interrupt;
pub use ember_model::{GptConfig, device::Selected};
pub use ember_training::units::{bytes, counted, duration, grouped, parse_bytes, short};
pub use serde::Serialize;

pub use crate::output::{
    Joined, answer, answer_beside, has_colour, json_line, json_lines, show, show_coloured, temporary_folder, word,
    write_file,
};
pub use crate::report::Screen;
pub use crate::training::{join, quiet_unless_leading, recipe, refuse_set_twice, select, set_all, train};
pub(crate) use crate::wording::{self, training_error};
