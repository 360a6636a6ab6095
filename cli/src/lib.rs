//! What both programs share at their outermost edge.
//!
//! [`program`] runs a command, with the flags that all commands take, and ends the process with an
//! exit code; [`interrupt`] is Ctrl-C, [`terminal`] what is written to standard output and
//! standard error, [`wording`] the libraries' errors in words that name flags, and [`failure`] those
//! of panics and devices. [`output_file`] and [`shape`] read flags; [`completions`], [`devices`] and
//! [`man_pages`] are commands that both programs have; [`compiling`] shows the wait for a GPU;
//! [`examples`] are those in the help, for tests.

mod arguments;
pub mod compiling;
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
