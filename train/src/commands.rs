//! The commands of `ember-train`, one file each.

pub mod bench;
pub mod compare;
pub mod copied;
pub mod devices;
pub mod exposure;
pub mod ledger;
pub mod look;
pub mod plan;
pub mod prepare;
pub mod reading;
pub mod resume;
pub mod run;
pub mod runs;
pub mod share;
pub mod timeline;
pub mod trial;
pub mod verify_resume;
