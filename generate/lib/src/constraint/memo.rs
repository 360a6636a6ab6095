//! A memo of values by token sequence, which forgets unused ones.

use std::{collections::HashMap, mem, sync::Arc};

/// Total tokens of the sequences in each of the two generations: some tens of megabytes of states.
pub(super) const BUDGET: usize = 1 << 17;

/// Constant cost of a sequence besides its tokens, for the fixed part of a state.
const BASE: usize = 64;

/// Values by token sequence; values that were not used for a while are dropped.
///
/// There are two generations. Values in use are in the recent one. When it is full it becomes the
/// older one, and the previous older one is dropped with all values not used since the last swap.
/// So every growing sequence (row, beam) keeps its latest states, and none has to be released
/// explicitly.
pub(super) struct Memo<V> {
    recent: HashMap<Vec<u32>, Arc<V>>,
    older: HashMap<Vec<u32>, Arc<V>>,
    size: usize,
    budget: usize,
}

impl<V> Memo<V> {
    /// A memo with room for `budget` tokens in each generation.
    pub(super) fn of(budget: usize) -> Self {
        Self { recent: HashMap::new(), older: HashMap::new(), size: 0, budget }
    }

    pub(super) fn recall(&mut self, ids: &[u32]) -> Option<Arc<V>> {
        if let Some(value) = self.recent.get(ids) {
            return Some(value.clone());
        }
        let (ids, value) = self.older.remove_entry(ids)?;
        self.remember(ids, value.clone());
        Some(value)
    }

    pub(super) fn remember(&mut self, ids: Vec<u32>, value: Arc<V>) {
        if self.size > self.budget {
            self.older = mem::take(&mut self.recent);
            self.size = 0;
        }
        self.size += ids.len() + BASE;
        self.recent.insert(ids, value);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.recent.len() + self.older.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_is_forgotten() {
        let mut memo = Memo::of(4 * BASE);
        memo.remember(vec![0], Arc::new(0));
        for id in 1..1000 {
            memo.remember(vec![id], Arc::new(id));
            assert_eq!(*memo.recall(&[0]).unwrap(), 0, "asked for at every step");
            assert_eq!(memo.recall(&[id - 1]).as_deref(), Some(&(id - 1)), "as old as the last step");
            assert!(memo.len() < 12);
        }
        assert!(memo.recall(&[500]).is_none());
    }
}
