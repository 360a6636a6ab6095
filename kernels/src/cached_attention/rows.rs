//! The slots of rows in a cache.

use std::sync::Arc;

/// The slots of a batch's rows in a cache: what attention needs in addition to the tensors.
#[derive(Clone, Debug)]
pub struct CachedRows {
    /// The slot of the first new position; the others follow it, row after row.
    pub first_new: usize,
    /// For each row, the slots of all its positions, the new ones last.
    pub slots: Arc<Vec<Vec<u32>>>,
    /// For each row, how many of its positions are new, at least 1.
    pub new: Arc<Vec<usize>>,
}

impl CachedRows {
    /// The rows as a table for a GPU: the slot of the first new position; for each new position,
    /// the index in the table of its row's slots, and how many of them it sees; then the rows'
    /// slots.
    pub fn table(&self) -> Vec<i32> {
        let positions = self.new.iter().sum();
        let mut table = Vec::with_capacity(Self::table_length(positions, self.slots.iter().map(Vec::len).sum()));
        table.push(self.first_new as i32);
        let mut begin = Self::table_length(positions, 0);
        for (slots, &new) in self.slots.iter().zip(self.new.iter()) {
            table.extend((0..new).flat_map(|i| [begin as i32, (slots.len() - new + i + 1) as i32]));
            begin += slots.len();
        }
        table.extend(self.slots.iter().flatten().map(|&slot| slot as i32));
        table
    }

    /// Slots that a cache must have, so that all of the rows' are in it.
    pub(super) fn slots_needed(&self) -> usize {
        let end_of_listed = self.slots.iter().flatten().max().map_or(0, |&last| last as usize + 1);
        end_of_listed.max(self.first_new + self.new.iter().sum::<usize>())
    }

    /// Length of the [table](Self::table) of rows with `positions` new positions and `slots` slots
    /// altogether.
    pub fn table_length(positions: usize, slots: usize) -> usize {
        1 + 2 * positions + slots
    }
}

/// What the host knows about the rows' slots when it launches the kernels.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // the variants' docs describe their fields
pub enum Places {
    /// All slots; on a GPU they are also in the table.
    Listed(CachedRows),
    /// For a step that is recorded on a GPU and replayed with other tables: `rows` rows with one
    /// new position each, none of them ever longer than `longest` positions. The cache is written
    /// in place, even if something else holds it.
    InTable { rows: usize, longest: usize },
}
