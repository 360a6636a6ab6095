//! A group of threads in one process, which proves without MPI what holds for any group.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;

use super::process_group::{ProcessGroup, add_in_order};
use crate::error::{Error, Result};

/// One thread of a group.
pub struct ThreadGroup {
    rank: usize,
    size: usize,
    between: Arc<Between>,
}

/// What all of them see.
struct Between {
    barrier: Barrier,
    /// What each brings to the sum.
    brought: Mutex<Vec<Vec<f32>>>,
    /// What the first says to all.
    said: Mutex<Vec<u8>>,
}

impl ThreadGroup {
    /// Runs `work` in `size` threads; their results by rank. A thread that panics leaves the others
    /// waiting.
    pub fn run<T: Send>(size: usize, work: impl Fn(&dyn ProcessGroup) -> T + Sync) -> Vec<T> {
        let between = Between {
            barrier: Barrier::new(size),
            brought: Mutex::new(vec![Vec::new(); size]),
            said: Mutex::default(),
        };
        let between = Arc::new(between);
        thread::scope(|scope| {
            let start = |rank| {
                let group = Self { rank, size, between: between.clone() };
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
        let Between { barrier, brought, .. } = &*self.between;
        brought.lock().unwrap_or_else(PoisonError::into_inner)[self.rank] = values.to_vec();
        barrier.wait();
        add_in_order(values, brought.lock().unwrap_or_else(PoisonError::into_inner).iter().map(Vec::as_slice));
        // Nobody brings the next before all have this one.
        barrier.wait();
        Ok(())
    }

    fn code(&self, error: &Error) -> u8 {
        if error.to_string().starts_with("usage") { 2 } else { 1 }
    }

    fn broadcast(&self, bytes: &mut [u8]) -> Result<()> {
        let Between { barrier, said, .. } = &*self.between;
        if self.leads() {
            *said.lock().unwrap_or_else(PoisonError::into_inner) = bytes.to_vec();
        }
        barrier.wait();
        bytes.copy_from_slice(&said.lock().unwrap_or_else(PoisonError::into_inner));
        barrier.wait();
        Ok(())
    }
}
