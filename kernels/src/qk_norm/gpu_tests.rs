//! QK-norm on a GPU.
#![allow(clippy::unwrap_used)]

use proptest::{prelude::*, test_runner::TestRunner};

use crate::gpu::testing::{Inputs, device, same};
use crate::{self as kernels, Heads, plain};

#[test]
fn qk_norm_is_its_formula_and_leaves_the_values() {
    let Some(device) = device() else { return };
    let sizes = (1usize..3, 1usize..200, 1usize..4, 1usize..4, prop_oneof![Just(5usize), Just(8), Just(64)]);
    let mut runner = TestRunner::new(ProptestConfig { cases: 8, failure_persistence: None, ..Default::default() });
    runner
        .run(&sizes, |(batch, time, n_kv_head, served, head_size)| {
            let heads = Heads { n_head: n_kv_head * served, n_kv_head, head_size };
            let inputs = Inputs::new([batch, time, heads.width()], [1; 3], [1, 1], [head_size; 2], &device);
            let [query, key] = &inputs.vectors;
            let normed = |x| kernels::qk_norm(x, query.clone(), key.clone(), 1e-6, heads);
            let plain = |x| plain::qk_norm(x, query.clone(), key.clone(), 1e-6, heads);
            same("qk_norm", 2e-5, &inputs, |i| normed(i.x.clone()), |i| plain(i.x.clone()));
            // The sum's buffer is not shared, so the kernels work in place.
            same("qk_norm in place", 2e-5, &inputs, |i| normed(i.x.clone() + 1) + 1, |i| plain(i.x.clone() + 1) + 1);
            Ok(())
        })
        .unwrap();
}
