//! Products with fused operations. Few shapes: burn autotunes its kernels for each.
#![allow(clippy::unwrap_used)]

use burn::tensor::{DType, Tensor};

use crate::gpu::testing::{Inputs, device, same};
use crate::{self as kernels, DropoutMask, plain};

#[test]
fn products_are_their_formulas() {
    let Some(device) = device() else { return };
    // One token, odd widths; several groups of rows, whole vectors.
    for [batch, time, n_in, n_out] in [[1, 1, 7, 5], [3, 190, 12, 20]] {
        let inputs = Inputs::new([batch, time, n_in], [batch, time, n_out], [n_in, n_out], [n_out, 1], &device);
        let (weight, bias) = (&inputs.matrix, &inputs.vectors[0]);
        let parts = |i: &Inputs| (i.x.clone(), weight.clone(), Some(bias.clone()));
        let linear = |i: &Inputs| {
            let (x, weight, bias) = parts(i);
            plain::linear(x, weight, bias)
        };
        same(
            "linear",
            2e-5,
            &inputs,
            |i| {
                let (x, weight, bias) = parts(i);
                kernels::linear(x, weight, bias)
            },
            linear,
        );
        same(
            "linear_gelu",
            2e-5,
            &inputs,
            |i| {
                let (x, weight, bias) = parts(i);
                kernels::linear_gelu(x, weight, bias)
            },
            |i| plain::gelu(linear(i)),
        );
        for mask in [None, Some(DropoutMask { probability: 0.3, key: 0x1234_5678_9abc })] {
            let onto = |residual: Tensor<3>, i: &Inputs| {
                let (x, weight, bias) = parts(i);
                kernels::linear_onto(residual, x, weight, bias, mask)
            };
            let reference = |residual: Tensor<3>, i: &Inputs| residual + plain::dropout(linear(i), mask);
            same("linear_onto", 2e-5, &inputs, |i| onto(i.y.clone(), i), |i| reference(i.y.clone(), i));
            same("in place", 2e-5, &inputs, |i| onto(i.y.clone() + 1, i), |i| reference(i.y.clone() + 1, i));
        }
        let tied = Inputs::new([batch, time, n_in], [1; 3], [n_out, n_in], [1, 1], &device);
        same(
            "unembed",
            2e-5,
            &tied,
            |i| kernels::unembed(i.x.clone(), i.matrix.clone()),
            |i| plain::unembed(i.x.clone(), i.matrix.clone()),
        );
    }
}

#[test]
fn products_in_half_precision_sum_in_float32() {
    let Some(device) = device() else { return };
    if !device.supports_dtype(DType::F16) {
        return;
    }
    let inputs = Inputs::new([2, 40, 12], [2, 40, 8], [12, 8], [8, 1], &device);
    let mask = Some(DropoutMask { probability: 0.3, key: 5 });
    same(
        "linear_onto",
        4e-3,
        &inputs,
        |i| {
            let (x, weight) = (i.x.clone().cast(DType::F16), i.matrix.clone().cast(DType::F16));
            kernels::linear_onto(i.y.clone(), x, weight, Some(i.vectors[0].clone()), mask)
        },
        |i| {
            let linear = plain::linear(i.x.clone(), i.matrix.clone(), Some(i.vectors[0].clone()));
            i.y.clone() + plain::dropout(linear, mask)
        },
    );
}
