//! Work that goes on beside the threads that asked for it, and that they wait for in groups.

use std::collections::VecDeque;

pub struct Pending<T> {
    /// What no group holds yet.
    open: Vec<T>,
    groups: VecDeque<Vec<T>>,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Pending { open: Vec::new(), groups: VecDeque::new() }
    }
}

impl<T> Pending<T> {
    pub fn add(&mut self, work: T) {
        self.open.push(work);
    }

    /// A group of all since the last; it may be empty and counts nevertheless.
    pub fn commit(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }

    /// What must be done where only the newest `most` groups may still go on.
    pub fn finish(&mut self, most: usize) -> Vec<T> {
        let finished = self.groups.len().saturating_sub(most);
        self.groups.drain(..finished).flatten().collect()
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.groups.iter().all(Vec::is_empty)
    }

    pub fn clear(&mut self) {
        self.open.clear();
        self.groups.clear();
    }
}
