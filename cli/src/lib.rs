//! What both programs share at their outermost edge: flags, exit codes, Ctrl-C, what is written to
//! a terminal.

pub mod compiling;
pub mod completions;
pub mod devices;
pub mod failure;
pub mod interrupt;
pub mod man_pages;
pub mod output_file;
pub mod program;
pub mod shape;
pub mod terminal;
mod usage;
pub mod wording;
