//! What measures a model or a run, and changes neither.

pub mod bench;
pub mod compare;
pub mod copied;
mod drawing;
pub mod error;
pub mod exposure;
pub mod ledger;
pub mod look;
mod median;
mod page;
pub mod plan;
pub mod plot;
pub mod selfcheck;
pub mod timeline;
