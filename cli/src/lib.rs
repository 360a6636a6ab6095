//! The outermost layer of both programs.
//!
//! [`program`] runs a command, with the flags that all commands take, and ends the process with an
//! exit code; [`interrupt`] handles Ctrl-C, [`terminal`] writes to standard output and standard
//! error, [`wording`] rewrites the libraries' errors to name flags, and [`failure`] those of panics
//! and devices. [`output_file`] and [`shape`] parse flags; [`completions`], [`devices`] and
//! [`man_pages`] are commands of both programs; [`compile_progress`] is shown while a GPU compiles
//! kernels; [`examples`] extracts the examples in the help, for tests.

mod arguments;
pub mod compile_progress;
pub mod completions;
pub mod devices;
pub mod examples;
pub mod failure;
pub mod interrupt;
pub mod man_pages;
pub mod output_file;
pub mod program;
pub mod shape;
pub mod terminal;
mod usage;
pub mod wording;
