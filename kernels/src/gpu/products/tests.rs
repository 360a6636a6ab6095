#![allow(clippy::unwrap_used)]

use burn::tensor::{DType, Device, FloatDType, Tensor};
use itertools::{Itertools, iproduct};

use super::*;
use crate::gpu::tensor::from_cube;
use crate::gpu::testing::{gpus, largest_difference, random, values};

/// Sizes below and above a tile, in whole vectors and not.
const SIZES: [[usize; 4]; 4] = [[1, 5, 7, 3], [3, 40, 64, 72], [2, 136, 328, 264], [5, 64, 32, 256]];

/// A list of factors on the CPU, exact in the type `to`.
fn factors(shape: [usize; 3], seed: u64, to: FloatDType) -> Tensor<3> {
    random(shape, seed, &Device::flex()).cast(to).cast(FloatDType::F32)
}

/// Factors as they are, or transposed.
#[test]
fn each_product_of_a_list_is_its_own() {
    for (device, to) in iproduct!(gpus(), [FloatDType::F32, FloatDType::F16, FloatDType::BF16]) {
        if !device.supports_dtype(DType::from(to)) {
            continue;
        }
        for ([count, m, depth, n], exchanged) in iproduct!(SIZES, [[false, false], [true, false], [false, true]]) {
            let (a, b) = (factors([count, m, depth], 1, to), factors([count, depth, n], 2, to));
            let there = [&a, &b].into_iter().zip_eq(exchanged).map(|(factor, exchanged)| {
                let there = |factor: Tensor<3>| Tensor::<3>::from_data(factor.into_data(), &device).cast(to);
                let factor = if exchanged {
                    there(factor.clone().swap_dims(1, 2)).swap_dims(1, 2)
                } else {
                    there(factor.clone())
                };
                cube(factor)
            });
            let [a_there, b_there] = there.collect_array().unwrap();
            let got = from_cube::<3>(batched_product(&a_there, &b_there, DType::F32));
            assert_eq!(got.dims(), [count, m, n]);
            let error = largest_difference(&values(got), &values(a.matmul(b)));
            // Sums of a few hundred products of about 1, in TF32 where a GPU has tensor cores.
            let in_tf32 = to == FloatDType::F32 && has_tensor_cores(&a_there.client);
            let allowed = if in_tf32 { 0.1 } else { 1e-3 };
            assert!(error < allowed, "{to:?}, {count} of {m} by {depth} by {n}, {exchanged:?}: {error}");
        }
    }
}
