//! The commands of `ember-train`, one file each, and what several of them do.

pub mod copied;
pub mod exposure;
mod fitting;
pub mod ledger;
pub mod prepare;
mod progress_bar;
pub mod resume;
pub mod run;
mod session;
mod trained;
pub mod trial;
