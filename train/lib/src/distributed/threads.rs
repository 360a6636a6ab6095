//! A process group of threads in one process, for tests without MPI.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;

use super::process_group::{ProcessGroup, add_in_order};
use crate::error::{Error, Result};

/// One thread of a group.
pub struct ThreadGroup {
    rank: usize,
    size: usize,
    shared: Arc<Shared>,
}

/// The state that all threads share.
struct Shared {
    barrier: Barrier,
    /// Each thread's values to sum.
    summands: Mutex<Vec<Vec<f32>>>,
    /// Rank 0's bytes to broadcast.
    message: Mutex<Vec<u8>>,
}

impl ThreadGroup {
    /// Runs `work` in `size` threads; returns their results by rank. If a thread panics, the others
    /// wait forever.
    pub fn run<T: Send>(size: usize, work: impl Fn(&dyn ProcessGroup) -> T + Sync) -> Vec<T> {
        let shared = Shared {
            barrier: Barrier::new(size),
            summands: Mutex::new(vec![Vec::new(); size]),
            message: Mutex::default(),
        };
        let shared = Arc::new(shared);
        thread::scope(|scope| {
            let start = |rank| {
                let group = Self { rank, size, shared: shared.clone() };
                let work = &work;
                scope.spawn(move || work(&group))
            };
            let threads: Vec<_> = (0..size).map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }
}

impl ProcessGroup for ThreadGroup {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_reduce(&self, values: &mut [f32]) -> Result<()> {
        let Shared { barrier, summands, .. } = &*self.shared;
        summands.lock().unwrap_or_else(PoisonError::into_inner)[self.rank] = values.to_vec();
        barrier.wait();
        add_in_order(values, summands.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Vec::as_slice));
        // No thread writes the next values before all have read these.
        barrier.wait();
        Ok(())
    }

    fn code(&self, error: &Error) -> u8 {
        if error.to_string().starts_with("usage") { 2 } else { 1 }
    }

    fn broadcast(&self, bytes: &mut [u8]) -> Result<()> {
        let Shared { barrier, message, .. } = &*self.shared;
        if self.leads() {
            *message.lock().unwrap_or_else(PoisonError::into_inner) = bytes.to_vec();
        }
        barrier.wait();
        bytes.copy_from_slice(&message.lock().unwrap_or_else(PoisonError::into_inner));
        barrier.wait();
        Ok(())
    }
}
