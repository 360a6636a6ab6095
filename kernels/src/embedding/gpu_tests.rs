//! Rows of an embedding table, and their gradient.
#![allow(clippy::unwrap_used)]

use burn::tensor::{Int, Tensor, TensorData};
use proptest::{prelude::*, test_runner::TestRunner};

use crate::gpu::testing::{Inputs, device, same};
use crate::{self as kernels, plain};

/// Few rows, each used often; many rows, most of them unused; a single id; more ids than one block
/// sums.
#[test]
fn rows_go_out_and_their_gradients_come_back() {
    let Some(device) = device() else { return };
    let sizes = (1usize..4, prop_oneof![Just(1usize), 2usize..200], prop_oneof![1usize..5, 300usize..400]);
    let sizes = (sizes, prop_oneof![1usize..9, (1usize..80).prop_map(|n| 4 * n)], any::<u32>());
    let mut runner = TestRunner::new(ProptestConfig { cases: 12, failure_persistence: None, ..Default::default() });
    runner
        .run(&sizes, |((batch, time, rows), n_embd, seed)| {
            let mut state = seed;
            let ids = (0..batch * time).map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                ((state >> 8) as usize % rows) as i32
            });
            let ids = TensorData::new(ids.collect::<Vec<_>>(), [batch, time]);
            let ids = Tensor::<2, Int>::from_data(ids, &device);
            let inputs = Inputs::new([1; 3], [1; 3], [rows, n_embd], [1, 1], &device);
            same(
                "embed",
                2e-5,
                &inputs,
                |i| kernels::embed(i.matrix.clone(), ids.clone()),
                |i| plain::embed(i.matrix.clone(), ids.clone()),
            );
            Ok(())
        })
        .unwrap();
}
