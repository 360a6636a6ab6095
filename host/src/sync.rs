//! Synchronisation primitives: std's, or shuttle's for tests that explore thread interleavings.

#[cfg(feature = "interleavings")]
pub use shuttle::sync::{Arc, atomic};
#[cfg(not(feature = "interleavings"))]
pub use std::sync::{Arc, atomic};
