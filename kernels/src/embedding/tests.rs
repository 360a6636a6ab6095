#![allow(clippy::unwrap_used)]

use burn::tensor::{Int, Tensor, TensorData};
use proptest::prelude::*;

use crate::testing::{Inputs, device, same};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn embed(rows in 1usize..200, time in 1usize..100, n_embd in 1usize..70, seed: u64) {
        let ids: Vec<i32> = (0..2 * time).map(|i| (i * i % rows) as i32).collect();
        let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [2, time]), &device());
        same!(
            Inputs::new([1, 1, 1], [rows, n_embd], [1, 1], seed),
            |i: &Inputs| crate::embed(i.matrix.clone(), ids.clone()),
            |i: &Inputs| crate::plain::embed(i.matrix.clone(), ids.clone())
        );
    }
}
