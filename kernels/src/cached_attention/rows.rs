//! Where rows stand in a cache.

use std::sync::Arc;

/// Where the rows of a batch stand in a cache: what attention to it needs to know beside the
/// tensors.
#[derive(Clone, Debug)]
pub struct CachedRows {
    /// The slot of the first new position; the others follow it, row after row.
    pub first_new: usize,
    /// For each row the slots of all its positions, the new ones last.
    pub slots: Arc<Vec<Vec<u32>>>,
    /// For each row how many of its positions are new, at least 1.
    pub new: Arc<Vec<usize>>,
}

impl CachedRows {
    /// The rows as numbers for a GPU: the slot of the first new position; for each new position
    /// where in the table the slots of its row begin, and how many of them it sees; then the rows'
    /// slots.
    pub fn table(&self) -> Vec<i32> {
        let positions: usize = self.new.iter().sum();
        let mut table = Vec::with_capacity(1 + 2 * positions + self.slots.iter().map(Vec::len).sum::<usize>());
        table.push(self.first_new as i32);
        let mut begin = 1 + 2 * positions;
        for (slots, &new) in self.slots.iter().zip(self.new.iter()) {
            table.extend((0..new).flat_map(|i| [begin as i32, (slots.len() - new + i + 1) as i32]));
            begin += slots.len();
        }
        table.extend(self.slots.iter().flatten().map(|&slot| slot as i32));
        table
    }
}

/// What the host knows of where rows stand when it calls the kernels.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // what the fields are stands beside their variant
pub enum Places {
    /// All of it; on a GPU the table says the same.
    Listed(CachedRows),
    /// Of a step that is recorded on a GPU and replayed with other tables: so many rows have one
    /// new position each, and none ever has more than `longest` in all. The cache is written where
    /// it lies, whoever else holds it.
    InTable { rows: usize, longest: usize },
}
