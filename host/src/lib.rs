//! The programs' interface to the operating system; nothing here knows tensors or text.
//!
//! Files are written whole or not at all ([`files`]), also where a user names a pipe or a link
//! ([`output`]); files that can be made again go into a cache ([`cache`]); what others may see
//! names files without their folders ([`names`]); free memory is measured ([`memory`]); panics of
//! drivers and libraries become errors ([`panics`]); long work can be asked to stop
//! ([`interrupt`]); and untrusted input is processed within bounds ([`bounded`]).

pub mod bounded;
pub mod cache;
pub mod file_error;
pub mod files;
pub mod interrupt;
pub mod memory;
pub mod names;
pub mod output;
pub mod panics;
mod sync;
