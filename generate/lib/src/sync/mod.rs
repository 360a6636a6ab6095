//! Synchronisation primitives: std's, or shuttle's when interleavings of threads are explored.

#[cfg(feature = "interleavings")]
mod explored;

#[cfg(feature = "interleavings")]
pub use explored::{Instant, mpsc};
#[cfg(feature = "interleavings")]
pub use shuttle::{
    sync::{Arc, RwLock, atomic},
    thread,
};
#[cfg(not(feature = "interleavings"))]
pub use std::{
    sync::{Arc, RwLock, atomic, mpsc},
    thread,
    time::Instant,
};
