//! The commands of `ember-train`, one file each, and what several of them do.

pub mod bench;
pub mod compare;
pub mod copied;
pub mod devices;
mod early;
pub mod exposure;
mod fitting;
mod init;
pub mod ledger;
pub mod plan;
pub mod prepare;
mod progress_bar;
pub mod resume;
pub mod run;
pub(crate) mod session;
mod textless;
pub mod timeline;
mod trained;
pub mod trial;
pub mod verify_resume;
