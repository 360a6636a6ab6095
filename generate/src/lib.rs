//! The program `ember-generate`, as a library: `main.rs` runs its commands, and `tools/fuzz` tries what
//! they read of others.
// Its documentation is read in the source, where what is private is as near as what is public.
#![allow(rustdoc::private_intra_doc_links)]

pub mod commands;
mod sync;
mod twin;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: ember_host::bounded::Bounded<mimalloc::MiMalloc> = ember_host::bounded::Bounded(mimalloc::MiMalloc);
