//! Synchronisation between threads: std's, or shuttle's when a test explores the orders in which
//! threads run.

#[cfg(feature = "interleavings")]
pub use shuttle::sync::{Arc, atomic};
#[cfg(not(feature = "interleavings"))]
pub use std::sync::{Arc, atomic};
