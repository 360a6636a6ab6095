//! The index of the largest value of each row.

pub(crate) mod gpu;
