//! The commands of `ember-train`, one file each, and what several of them do.

pub mod copied;
pub mod exposure;
pub mod ledger;
pub mod plan;
pub mod prepare;
mod progress_bar;
pub mod resume;
pub mod run;
pub(crate) mod session;
mod trained;
