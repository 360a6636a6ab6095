//! Rotary positions on a GPU, and half precision through in-place kernels.
#![allow(clippy::unwrap_used)]

use burn::tensor::{DType, Tensor};
use proptest::{prelude::*, test_runner::TestRunner};

use crate::gpu::testing::{Inputs, device, same};
use crate::{self as kernels, Heads, Rotary, plain};

#[test]
fn rotary_positions_turn_and_turn_back() {
    let Some(device) = device() else { return };
    let sizes =
        (1usize..3, 1usize..100, 1usize..4, 1usize..4, prop_oneof![Just(2usize), Just(6), Just(32)], 0usize..500);
    let mut runner = TestRunner::new(ProptestConfig { cases: 8, failure_persistence: None, ..Default::default() });
    runner
        .run(&sizes, |(batch, time, n_kv_head, served, head_size, first)| {
            let heads = Heads { n_head: n_kv_head * served, n_kv_head, head_size };
            let rotary = Rotary::new(first..first + time, head_size, 1e4, &device);
            let inputs = Inputs::new([batch, time, heads.width()], [1; 3], [1, 1], [1, 1], &device);
            let (turned, plain) = (|x| kernels::rotate(x, &rotary, heads), |x| plain::rotate(x, &rotary, heads));
            same("rotate", 2e-5, &inputs, |i| turned(i.x.clone()), |i| plain(i.x.clone()));
            same("rotate in place", 2e-5, &inputs, |i| turned(i.x.clone() + 1) + 1, |i| plain(i.x.clone() + 1) + 1);
            Ok(())
        })
        .unwrap();
}

#[test]
fn half_precision_passes_through() {
    let Some(device) = device() else { return };
    if !device.supports_dtype(DType::F16) {
        return;
    }
    let heads = Heads { n_head: 4, n_kv_head: 2, head_size: 8 };
    let rotary = Rotary::new(3..20, heads.head_size, 1e4, &device);
    let inputs = Inputs::new([2, 17, heads.width()], [1; 3], [1, 1], [8, 8], &device);
    let [query, key] = &inputs.vectors;
    let half = |name: &str, kernel: &dyn Fn(Tensor<3>) -> Tensor<3>| {
        // Half a unit of 11 bits, of the largest value, for each rounding.
        same(name, 4e-3, &inputs, |i| kernel(i.x.clone().cast(DType::F16)), |i| kernel(i.x.clone()));
    };
    half("rotate", &|x| kernels::rotate(x, &rotary, heads));
    half("swiglu", &|x| kernels::swiglu(x));
    half("gelu", &|x| kernels::gelu(x));
    half("qk_norm", &|x| kernels::qk_norm(x, query.clone(), key.clone(), 1e-6, heads));
}
