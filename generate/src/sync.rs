//! Synchronization primitives: std's, or shuttle's where a test explores thread interleavings.

#[cfg(feature = "interleavings")]
pub use shuttle::sync::{Mutex, atomic::AtomicBool};
#[cfg(not(feature = "interleavings"))]
pub use std::sync::{Mutex, atomic::AtomicBool};
