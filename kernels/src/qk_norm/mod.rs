//! RMSNorm of every head of queries and keys.

pub(crate) mod gpu;
