//! Where rows stand in a cache, and the formula in burn's tensor operations: what runs where
//! gradients are recorded, and what the kernels are tested against.

use std::sync::Arc;

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

use crate::attention::plain_attend;
use crate::heads::{Heads, for_queries, parts};

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

/// Rows of a cache, gathered position by position into a rectangle as long as the longest.
pub struct GatheredRows {
    first_new: usize,
    rows: usize,
    /// Most positions of a row, and most new ones.
    longest: [usize; 2],
    /// The slot of each position, `[rows * longest]`; any slot where a row is shorter.
    slots: Tensor<1, Int>,
    /// Which new position each query is, `[rows * most new]`, and where each new position stands
    /// among the queries; none where every row has as many new ones, so that the two orders are
    /// one.
    queries: Option<[Tensor<1, Int>; 2]>,
    /// True where a query must not look, `[rows, 1, most new, longest]`; none where every query
    /// sees all there is.
    hidden: Option<Tensor<4, Bool>>,
}

impl GatheredRows {
    /// Uploads what says where the rows stand.
    pub fn new(rows: &CachedRows, device: &Device) -> Self {
        let count = rows.slots.len();
        let longest = rows.slots.iter().map(Vec::len).max().unwrap_or(0);
        let most_new = rows.new.iter().copied().max().unwrap_or(0);
        let ints = |values: Vec<i32>| {
            let length = values.len();
            Tensor::<1, Int>::from_data(TensorData::new(values, [length]), device)
        };
        let (mut slots, mut queries, mut places, mut hidden) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut first = 0;
        for (row, (positions, &new)) in rows.slots.iter().zip(rows.new.iter()).enumerate() {
            slots.extend(positions.iter().map(|&slot| slot as i32));
            slots.resize((row + 1) * longest, rows.first_new as i32);
            places.extend((0..new).map(|i| (row * most_new + i) as i32));
            for i in 0..most_new {
                queries.push((first + i.min(new - 1)) as i32);
                let seen = positions.len() - new + i.min(new - 1) + 1;
                hidden.extend((0..longest).map(|position| position >= seen));
            }
            first += new;
        }
        let ragged = rows.new.iter().any(|&new| new != most_new);
        let mask = hidden.contains(&true);
        Self {
            first_new: rows.first_new,
            rows: count,
            longest: [longest, most_new],
            slots: ints(slots),
            queries: ragged.then(|| [ints(queries), ints(places)]),
            hidden: mask.then(|| Tensor::from_data(TensorData::new(hidden, [count, 1, most_new, longest]), device)),
        }
    }

    /// As [`super::CachedAttention::attend`].
    pub fn attend(&self, qkv: Tensor<3>, [keys, values]: [Tensor<3>; 2], heads: Heads) -> (Tensor<3>, [Tensor<3>; 2]) {
        let total = qkv.dims()[1];
        let Heads { n_head, n_kv_head, head_size } = heads;
        let [longest, most_new] = self.longest;
        let [q, k, v] = parts(qkv, heads).map(|x| x.squeeze_dim::<3>(0)); // [new positions, heads, head_size]
        let new = [0..n_kv_head, self.first_new..self.first_new + total, 0..head_size];
        let keys = keys.slice_assign(new.clone(), k.swap_dims(0, 1));
        let values = values.slice_assign(new, v.swap_dims(0, 1));

        let q = match &self.queries {
            Some([queries, _]) => q.select(0, queries.clone()),
            None => q,
        };
        let q = q.reshape([self.rows, most_new, n_head, head_size]).swap_dims(1, 2);
        let seen = |cache: &Tensor<3>| {
            let rows = cache.clone().select(1, self.slots.clone()).reshape([n_kv_head, self.rows, longest, head_size]);
            for_queries(rows.swap_dims(0, 1), heads) // [rows, n_head, longest, head_size]
        };
        let hidden = self.hidden.clone().map(|hidden| hidden.expand([self.rows, n_head, most_new, longest]));
        let (y, _weights) = plain_attend([q, seen(&keys), seen(&values)], hidden, None); // [rows, most new, n_head head_size]
        let y = y.reshape([self.rows * most_new, heads.query_width()]);
        let y = match &self.queries {
            Some([_, places]) => y.select(0, places.clone()),
            None => y,
        };
        (y.unsqueeze::<3>(), [keys, values])
    }
}
