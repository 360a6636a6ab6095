#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use crate::testing::{Inputs, same};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn swiglu(batch in 1usize..4, time in 1usize..70, n in 1usize..50, seed: u64, scale in 0.1f64..8.0) {
        same!(
            Inputs::new([batch, time, 2 * n], [1, 1], [1, 1], seed),
            |i: &Inputs| crate::swiglu(i.x.clone() * scale),
            |i: &Inputs| crate::plain::swiglu(i.x.clone() * scale)
        );
    }
}
