//! A look at a text as a page that its author may like to read.

mod chart;
mod page;
mod seen;

pub use page::page;
pub use seen::{Seen, seen};
