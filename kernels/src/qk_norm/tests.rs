#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use crate::Heads;
use crate::testing::{Inputs, heads, same};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    // Heads of at least 4 values, as for the norms.
    #[test]
    fn qk_norm(batch in 1usize..4, time in 1usize..60, heads in heads(), seed: u64) {
        let heads = Heads { head_size: heads.head_size + 3, ..heads };
        same!(
            Inputs::new([batch, time, heads.width()], [1, 1], [heads.head_size; 2], seed),
            |i: &Inputs| crate::qk_norm(i.x.clone(), i.vectors[0].clone(), i.vectors[1].clone(), 1e-6, heads),
            |i: &Inputs| crate::plain::qk_norm(i.x.clone(), i.vectors[0].clone(), i.vectors[1].clone(), 1e-6, heads)
        );
    }
}
