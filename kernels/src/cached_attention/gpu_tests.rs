//! Our GPU kernels' attention to the cache equals the CPU's.
#![allow(clippy::unwrap_used)]

use burn::tensor::{Device, Tensor};
use ember_host::panics::quietly;
use proptest::prelude::*;

use crate::attention::gpu_tests::{heads, random};
use crate::gpu::testing::{gpus, largest_difference, values};
use crate::{CachedAttention, Heads, cached_attention::tests::scattered};

/// A kernel would read and write behind the cache.
#[test]
fn slots_that_the_cache_does_not_have_are_refused() {
    let heads = Heads { n_head: 2, n_kv_head: 1, head_size: 8 };
    let (rows, _) = scattered(&[(3, 1), (5, 2)]); // slots 0 to 10
    for device in gpus().into_iter().chain([Device::flex()]) {
        for (slots, fits) in [(11, true), (10, false)] {
            let zeros = |shape: [usize; 3]| Tensor::<3>::zeros(shape, &device);
            let attention = CachedAttention::new(rows.clone(), &device);
            let cache = [0, 1].map(|_| zeros([1, slots, 8]));
            assert_eq!(quietly(|| attention.attend(zeros([1, 3, heads.width()]), cache, heads)).is_ok(), fits);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    // Rows with (old, new) positions in scattered slots, with few and many new positions compared
    // with the old ones.
    #[test]
    fn reads_the_cache_by_slot(
        lengths in proptest::collection::vec(
            prop_oneof![(0usize..300, 1usize..4), (Just(0usize), 1usize..50), (Just(0usize), Just(9usize))], 1..5
        ),
        heads in heads(), seed in 0u64..1 << 32,
    ) {
        let (rows, slots) = scattered(&lengths);
        let new: usize = rows.new.iter().sum();
        let qkv = random([1, new, heads.width()], 1.5, seed);
        let [keys, cached] = [1, 2].map(|i| random([heads.n_kv_head, slots, heads.head_size], 1.5, seed + i));
        let on = |device: &Device| {
            let attention = CachedAttention::new(rows.clone(), device);
            let cache = [&keys, &cached].map(|data| Tensor::<3>::from_data(data.clone(), device));
            let (y, [keys, cached]) = attention.attend(Tensor::from_data(qkv.clone(), device), cache, heads);
            (values(y), [values(keys), values(cached)].concat())
        };
        let (expected, expected_cache) = on(&Device::flex());
        for device in gpus() {
            let (got, cache) = on(&device);
            prop_assert_eq!(&cache, &expected_cache);
            let error = largest_difference(&got, &expected);
            prop_assert!(error < 1e-5, "outputs differ by {}: {:?}, {:?}", error, lengths, heads);
        }
    }
}
