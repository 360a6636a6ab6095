//! What the programs ask of the operating system, and nothing of tensors or text.
//!
//! Files are written whole or not at all ([`files`]), also where a user points at a pipe or a link
//! ([`output`]); what can be made again has a place ([`cache`]); how much memory is left
//! ([`memory`]); panics of drivers and libraries become errors ([`panics`]); long work is asked to
//! stop ([`interrupt`]); and what strangers wrote is worked on within bounds ([`bounded`]).

pub mod bounded;
pub mod cache;
pub mod file_error;
pub mod files;
pub mod interrupt;
pub mod memory;
pub mod output;
pub mod panics;
mod sync;
