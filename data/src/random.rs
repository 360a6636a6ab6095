//! Random numbers that depend only on a seed and a place.
//!
//! A "place" identifies where in a run a draw happens, as integers: (step, micro-batch), or (index
//! of a story). A resumed run asks for the same place and gets the same numbers, with no generator
//! state to save.

use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
use std::iter;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The random number generator for one place under one seed.
pub fn rng(seed: u64, place: &[u64]) -> ChaCha8Rng {
    let name: Vec<u8> = iter::once(&seed).chain(place).flat_map(|number| number.to_le_bytes()).collect();
    let mut key = [0u8; 32];
    for (i, word) in key.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&xxh3_64_with_seed(&name, i as u64).to_le_bytes());
    }
    ChaCha8Rng::from_seed(key)
}

/// A bijection of 64-bit integers whose output bits all depend on all input bits: the finalizer of
/// SplitMix64 (Steele, Lea and Flood 2014, "Fast Splittable Pseudorandom Number Generators",
/// section 4).
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A keyed permutation of 0..n that is computed, not stored: a Feistel network with cycle walking
/// (Black and Rogaway 2002, "Ciphers with Arbitrary Finite Domains").
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    n: u64,
    key: u64,
    half_bits: u32,
}

impl Permutation {
    const ROUNDS: u64 = 6;

    /// The permutation of 0..n selected by `key`.
    pub fn new(n: u64, key: u64) -> Self {
        let bits = u64::BITS - n.saturating_sub(1).leading_zeros();
        Self { n, key, half_bits: bits.div_ceil(2).max(1) }
    }

    /// The image of `i`; panics unless `i < n`.
    pub fn at(&self, i: u64) -> u64 {
        assert!(i < self.n, "place {i} of a permutation of {}", self.n);
        // The network permutes 0..4^half_bits, at most 4n values; a value outside 0..n is permuted
        // again until it falls inside.
        let mut value = self.encrypt(i);
        while value >= self.n {
            value = self.encrypt(value);
        }
        value
    }

    fn encrypt(&self, value: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..Self::ROUNDS {
            let f = mix(mix(self.key.wrapping_add(round)) ^ right) & mask;
            (left, right) = (right, left ^ f);
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use rand_chacha::rand_core::Rng;

    #[test]
    fn a_place_gives_the_same_numbers_and_another_place_others() {
        let draw = |seed, place: &[u64]| rng(seed, place).next_u64();
        assert_eq!(draw(1, &[2, 3]), draw(1, &[2, 3]));
        let others = [draw(1, &[3, 2]), draw(2, &[2, 3]), draw(1, &[2]), draw(1, &[2, 3, 0])];
        assert!(others.iter().all(|&other| other != draw(1, &[2, 3])));
    }

    #[test]
    fn mix_is_splitmix64() {
        // The first two outputs of SplitMix64 seeded with 0, from its authors' C code.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix(0x9e37_79b9_7f4a_7c15), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn every_order_of_four_is_reached_about_equally_often() {
        let mut counts = std::collections::HashMap::new();
        for key in 0..24_000 {
            let permutation = Permutation::new(4, mix(key));
            let order: Vec<u64> = (0..4).map(|i| permutation.at(i)).collect();
            *counts.entry(order).or_insert(0u32) += 1;
        }
        // 1000 expected each; a Feistel network on two-bit values is not ideal, hence the wide
        // band.
        assert_eq!(counts.len(), 24);
        assert!(counts.values().all(|&count| (500..2000).contains(&count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn a_permutation_hits_every_value_once(n in 1u64..3000, key: u64) {
            let permutation = Permutation::new(n, key);
            let mut values: Vec<u64> = (0..n).map(|i| permutation.at(i)).collect();
            values.sort_unstable();
            prop_assert!(values.into_iter().eq(0..n));
        }

        #[test]
        fn huge_domains_stay_inside(n in 1u64.., key: u64, i: u64) {
            prop_assert!(Permutation::new(n, key).at(i % n) < n);
        }
    }
}
