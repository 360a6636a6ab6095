//! LayerNorm and RMSNorm on a GPU.
#![allow(clippy::unwrap_used)]

use burn::tensor::{DType, FloatDType};
use proptest::{prelude::*, test_runner::TestRunner};

use crate::gpu::testing::{Inputs, device, same};
use crate::{self as kernels, Norm, plain};

/// One row and several; widths of a single value, odd, and of one and several vectors for each of
/// the units that share a row.
#[test]
fn norms_are_their_formulas() {
    let Some(device) = device() else { return };
    let widths = prop_oneof![1usize..20, Just(33), (30usize..60).prop_map(|n| 4 * n), Just(129)];
    let sizes = (1usize..4, prop_oneof![Just(1usize), 2usize..300], widths);
    let mut runner = TestRunner::new(ProptestConfig { cases: 12, failure_persistence: None, ..Default::default() });
    runner
        .run(&sizes, |(batch, time, n_embd)| {
            let n_embd = n_embd.max(2); // a single value is 0 after centering
            let inputs = Inputs::new([batch, time, n_embd], [1; 3], [1, 1], [n_embd; 2], &device);
            let [weight, bias] = &inputs.vectors;
            same(
                "layer_norm",
                2e-5,
                &inputs,
                |i| {
                    kernels::layer_norm(
                        i.x.clone(),
                        weight.clone(),
                        Some(bias.clone()),
                        Norm::new(1e-5, FloatDType::F32),
                    )
                },
                |i| plain::layer_norm(i.x.clone(), weight.clone(), Some(bias.clone()), 1e-5),
            );
            same(
                "rms_norm",
                2e-5,
                &inputs,
                |i| kernels::rms_norm(i.x.clone(), weight.clone(), Norm::new(1e-5, FloatDType::F32)),
                |i| plain::rms_norm(i.x.clone(), weight.clone(), 1e-5),
            );
            let norm = Norm::new(1e-5, FloatDType::F32).of_branch();
            same(
                "norms of branches",
                2e-5,
                &inputs,
                |i| {
                    let x = i.x.clone() * 2.0;
                    let x = x.clone() + kernels::layer_norm(x, weight.clone(), Some(bias.clone()), norm);
                    x.clone() + kernels::rms_norm(x, weight.clone(), norm)
                },
                |i| {
                    let x = i.x.clone() * 2.0;
                    let x = x.clone() + plain::layer_norm(x, weight.clone(), Some(bias.clone()), 1e-5);
                    x.clone() + plain::rms_norm(x, weight.clone(), 1e-5)
                },
            );
            Ok(())
        })
        .unwrap();
}

#[test]
fn norms_put_out_half_precision() {
    let Some(device) = device() else { return };
    if !device.supports_dtype(DType::F16) {
        return;
    }
    let inputs = Inputs::new([2, 9, 24], [1; 3], [1, 1], [24; 2], &device);
    let [weight, bias] = &inputs.vectors;
    same(
        "layer_norm",
        4e-3,
        &inputs,
        |i| kernels::layer_norm(i.x.clone(), weight.clone(), Some(bias.clone()), Norm::new(1e-5, FloatDType::F16)),
        |i| plain::layer_norm(i.x.clone(), weight.clone(), Some(bias.clone()), 1e-5).cast(DType::F16),
    );
}
