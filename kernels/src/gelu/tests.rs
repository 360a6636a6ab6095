#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use crate::testing::{Inputs, same};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn gelu(time in 1usize..3000, seed: u64, scale in 0.1f64..8.0) {
        same!(
            Inputs::new([1, time, 7], [1, 1], [1, 1], seed),
            |i: &Inputs| crate::gelu(i.x.clone() * scale),
            |i: &Inputs| crate::plain::gelu(i.x.clone() * scale)
        );
    }
}
