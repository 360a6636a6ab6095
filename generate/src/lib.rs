//! The program `ember-generate`, as a library: `main.rs` runs its commands, and `tools/fuzz` fuzzes
//! their parsers.
// The documentation is read in the source, where private items are visible too.
#![allow(rustdoc::private_intra_doc_links)]

pub mod commands;
mod sync;
mod twin;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: ember_host::bounded::Bounded<mimalloc::MiMalloc> = ember_host::bounded::Bounded(mimalloc::MiMalloc);
