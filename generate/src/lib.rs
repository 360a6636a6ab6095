//! The program `ember-generate`, as a library: `main.rs` runs its commands, and `tools/fuzz` tries what
//! they read of others.

pub mod commands;
mod twin;
