//! By what threads agree: std's, and shuttle's where a model explores the orders in which they run.

#[cfg(feature = "interleavings")]
pub use shuttle::sync::{Mutex, atomic::AtomicBool};
#[cfg(not(feature = "interleavings"))]
pub use std::sync::{Mutex, atomic::AtomicBool};
