#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use crate::Rotary;
use crate::testing::{Inputs, device, even_heads, same};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn rotate(batch in 1usize..4, time in 1usize..60, first in 0usize..500, heads in even_heads(), seed: u64) {
        let rotary = Rotary::new(first..first + time, heads.head_size, 1e4, &device());
        same!(
            Inputs::new([batch, time, heads.width()], [1, 1], [1, 1], seed),
            |i: &Inputs| crate::rotate(i.x.clone(), &rotary, heads),
            |i: &Inputs| crate::plain::rotate(i.x.clone(), &rotary, heads)
        );
    }
}
