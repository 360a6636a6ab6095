//! Asynchronous operations, which threads commit in groups and wait for in groups.

use std::collections::VecDeque;

pub struct Pending<T> {
    /// Operations not yet committed to a group.
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

    /// Commits all operations since the last commit as a group; an empty group counts too.
    pub fn commit(&mut self) {
        self.groups.push_back(std::mem::take(&mut self.open));
    }

    /// Removes and returns the operations that must finish so that only the newest `most` groups
    /// remain.
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
