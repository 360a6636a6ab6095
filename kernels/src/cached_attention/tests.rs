//! Our CPU kernel's attention to the cache equals the formula.

use std::sync::Arc;

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use proptest::prelude::*;

use crate::attention::plain_attend;
use crate::heads::{Heads, for_queries, parts};
use crate::testing::{self, difference, heads, random};
use crate::{CachedAttention, CachedRows};

/// The formula in burn's tensor operations, row by row.
fn plain(rows: &CachedRows, qkv: Tensor<3>, cache: [Tensor<3>; 2], heads: Heads) -> (Tensor<3>, [Tensor<3>; 2]) {
    let total = qkv.dims()[1];
    let [q, k, v] = parts(qkv, heads).map(|x| x.swap_dims(1, 2)); // [1, heads, new positions, head_size]
    let slots = [0..heads.n_kv_head, rows.first_new..rows.first_new + total, 0..heads.head_size];
    let [keys, values] = cache;
    let cache = [(keys, k), (values, v)].map(|(old, new)| old.slice_assign(slots.clone(), new.squeeze_dim::<3>(0)));
    let mut first = 0;
    let attended = rows.slots.iter().zip(rows.new.iter()).map(|(slots, &new)| {
        let length = slots.len();
        let slots: Vec<i32> = slots.iter().map(|&slot| slot as i32).collect();
        let slots = Tensor::<1, Int>::from_data(TensorData::new(slots, [length]), &Device::flex());
        let seen = |cache: &Tensor<3>| for_queries(cache.clone().select(1, slots.clone()).unsqueeze::<4>(), heads);
        let (q, [k, v]) = (q.clone().narrow(2, first, new), cache.each_ref().map(seen));
        first += new;
        // True after the position itself, which follows the row's old ones.
        let future = Tensor::<2, Bool>::tril_mask([new, length], (length - new) as i64, &Device::flex());
        let future = future.reshape([1, 1, new, length]).expand([1, heads.n_head, new, length]);
        plain_attend([q, k, v], future, None).0
    });
    (Tensor::cat(attended.collect(), 1), cache)
}

/// Rows of (old, new) positions whose old positions took slots in turn, and a sufficient number of
/// slots, with some to spare.
pub fn scattered(lengths: &[(usize, usize)]) -> (CachedRows, usize) {
    let mut slots = vec![Vec::new(); lengths.len()];
    let mut next = 0;
    for position in 0..lengths.iter().map(|(old, _)| *old).max().unwrap_or(0) {
        for (row, _) in lengths.iter().enumerate().filter(|(_, (old, _))| position < *old) {
            slots[row].push(next);
            next += 1;
        }
    }
    let first_new = next as usize;
    for (row, (_, new)) in lengths.iter().enumerate() {
        slots[row].extend(next..next + *new as u32);
        next += *new as u32;
    }
    let new = lengths.iter().map(|(_, new)| *new).collect();
    (CachedRows { first_new, slots: Arc::new(slots), new: Arc::new(new) }, next as usize + 3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    // Short and long rows, with few and with many new positions.
    #[test]
    fn attends_as_the_formula_says(
        lengths in proptest::collection::vec((0usize..70, prop_oneof![1usize..4, 8usize..50]), 1..5),
        heads in heads(), seed: u64,
    ) {
        let device = Device::flex();
        testing::seed(seed);
        let (rows, slots) = scattered(&lengths);
        let qkv = random([1, rows.new.iter().sum(), heads.width()], &device);
        let cache = [0, 1].map(|_| random([heads.n_kv_head, slots, heads.head_size], &device));
        let (expected, expected_cache) = plain(&rows, qkv.clone(), cache.clone(), heads);
        let (got, got_cache) = CachedAttention::new(rows, &device).attend(qkv, cache, heads);
        prop_assert!(difference(got, expected) < 2e-5);
        for (got, expected) in got_cache.into_iter().zip(expected_cache) {
            prop_assert_eq!(difference(got, expected), 0.0);
        }
    }
}
