//! Rows of a table by their numbers.

pub(crate) mod cpu;
pub(crate) mod gpu;
