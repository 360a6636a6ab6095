//! A page about a text, for its author to read.

mod chart;
mod page;
mod seen;

pub use page::page;
pub use seen::{Seen, seen};
