//! By what threads agree: std's, and shuttle's where a model explores the orders in which they run.

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
