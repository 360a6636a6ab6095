//! A hash of a text that can be combined from the hashes of its parts, however it was cut.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Odd, so that none of its powers is 0 modulo 2^64.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15;

/// A polynomial hash: the bytes plus one are the digits of a number in base `BASE`, modulo 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextHash(u64);

impl TextHash {
    /// Hash of these bytes.
    pub fn of(text: &[u8]) -> Self {
        Self(text.iter().fold(0, |hash: u64, &byte| hash.wrapping_mul(BASE).wrapping_add(u64::from(byte) + 1)))
    }

    /// Hash of this text followed by another one that is `bytes` long.
    pub fn followed_by(self, other: Self, bytes: usize) -> Self {
        Self(self.0.wrapping_mul(power(bytes)).wrapping_add(other.0))
    }

    /// As hexadecimal digits.
    pub fn shown(self) -> String {
        format!("{:016x}", xxh3_64(&self.0.to_le_bytes()))
    }
}

fn power(mut exponent: usize) -> u64 {
    let (mut power, mut square) = (1_u64, BASE);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        exponent >>= 1;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_make_the_hash_of_the_whole(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8)) {
            let joined = parts.iter().fold(TextHash::default(), |hash, part| hash.followed_by(TextHash::of(part), part.len()));
            prop_assert_eq!(joined, TextHash::of(&parts.concat()));
        }
    }

    #[test]
    fn other_texts_have_other_hashes() {
        let texts = ["", "\0", "\0\0", "a", "ab", "ba", "aab", "aba"];
        for (place, text) in texts.iter().enumerate() {
            assert!(texts[..place].iter().all(|other| TextHash::of(other.as_bytes()) != TextHash::of(text.as_bytes())));
        }
    }
}
