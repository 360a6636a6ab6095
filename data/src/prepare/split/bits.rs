//! Serializes a bit vector as its length and its bits, eight to a byte.

use bit_vec::BitVec;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub fn serialize<S: Serializer>(bits: &BitVec, serializer: S) -> Result<S::Ok, S::Error> {
    (bits.len(), bits.to_bytes()).serialize(serializer)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BitVec, D::Error> {
    let (count, bytes) = <(usize, Vec<u8>)>::deserialize(deserializer)?;
    let mut bits = BitVec::from_bytes(&bytes);
    bits.truncate(count);
    Ok(bits)
}
