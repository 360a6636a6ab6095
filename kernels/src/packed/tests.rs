#![allow(clippy::unwrap_used)]
use burn::tensor::{Device, Tensor, TensorData};
use itertools::Itertools;
use proptest::prelude::*;

use super::int8::{GROUP, Int8Rows};
use super::{stretch::Stretch, *};

const TYPES: [WeightType; 3] = [WeightType::F32, WeightType::Bf16, WeightType::Int8];

fn values(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..n).map(|_| next()).collect()
}

fn pack(weights: WeightType, source: Source, size: [usize; 2], bias: Option<&[f32]>) -> Packed {
    let memory = Packed::room(weights, [size].into_iter()).unwrap();
    Packed::new(&memory, weights, source, size, bias)
}

fn tensor(values: &[f32], shape: [usize; 3]) -> Tensor<3> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), &Device::flex())
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec::<f32>().unwrap()
}

/// Rows of `n_in` values as a product with such weights reads them.
fn as_read(weights: WeightType, x: &[f32], n_in: usize) -> Vec<f32> {
    if weights != WeightType::Int8 {
        return x.to_vec();
    }
    let inputs = Int8Rows::inputs(x, n_in);
    let rows = inputs.chunks(n_in.div_ceil(GROUP));
    rows.flat_map(|groups| (0..n_in).map(|i| groups[i / GROUP].value(i % GROUP))).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn inputs_of_8_bit_products_are_right_to_16_bits(rows in 1usize..40, n_in in 1usize..100, seed: u64, scale in -9..9i32) {
        let x: Vec<f32> = values(rows * n_in, seed).iter().map(|x| x * 10f32.powi(scale)).collect();
        let read = as_read(WeightType::Int8, &x, n_in);
        for (x, read) in x.chunks(n_in).zip_eq(read.chunks(n_in)) {
            for (x, read) in x.chunks(GROUP).zip_eq(read.chunks(GROUP)) {
                let largest = x.iter().fold(0f32, |largest, x| largest.max(x.abs()));
                let step = largest / 32767.0;
                for (x, read) in x.iter().zip_eq(read) {
                    // Half a quantization step, and float32's rounding.
                    prop_assert!((x - read).abs() <= step * 0.5 + largest * 2e-7, "{read} for {x}");
                }
            }
        }
    }

    #[test]
    fn a_matrix_comes_back_as_exactly_as_its_type_allows(n_in in 1usize..100, n_out in 1usize..200, seed: u64) {
        let matrix = values(n_in * n_out, seed);
        for weights in TYPES {
            let packed = pack(weights, Source::Rows(&matrix), [n_in, n_out], None);
            for column in 0..n_out {
                let got = packed.columns(&[column as u32]);
                for first in (0..n_in).step_by(GROUP) {
                    let rows = first..n_in.min(first + GROUP);
                    let largest = rows.clone().map(|row| matrix[row * n_out + column].abs()).fold(0.0, f32::max);
                    for row in rows {
                        let want = matrix[row * n_out + column];
                        let allowed = match weights {
                            WeightType::F32 => 0.0,
                            WeightType::Bf16 => want.abs() / 256.0, // half of the eighth bit
                            WeightType::Int8 => largest / 127.0 * 1.01 / 2.0, // half a step, whose scale was rounded up
                        };
                        prop_assert!((got[row] - want).abs() <= allowed, "{weights:?}: {} for {want}", got[row]);
                    }
                }
            }
        }
    }

    #[test]
    fn products_are_those_of_the_matrix(
        rows in 1usize..60, n_in in 1usize..100, n_out in 1usize..200, seed: u64, with_bias: bool,
    ) {
        let (x, matrix) = (values(rows * n_in, seed), values(n_in * n_out, seed ^ 1));
        let (bias, residual) = (values(n_out, seed ^ 2), values(rows * n_out, seed ^ 3));
        let bias = with_bias.then_some(bias.as_slice());
        for weights in TYPES {
            let packed = pack(weights, Source::Rows(&matrix), [n_in, n_out], bias);
            let read = as_read(weights, &x, n_in);
            let input = tensor(&x, [1, rows, n_in]);
            let plain = floats(packed_linear(input.clone(), &packed));
            let onto = floats(packed_linear_onto(tensor(&residual, [1, rows, n_out]), input, &packed));
            for column in 0..n_out {
                let weight = packed.columns(&[column as u32]);
                for row in 0..rows {
                    let products = read[row * n_in..][..n_in].iter().zip_eq(&weight).map(|(x, w)| f64::from(x * w));
                    let want = products.sum::<f64>() + bias.map_or(0.0, |bias| f64::from(bias[column]));
                    let place = row * n_out + column;
                    prop_assert!((f64::from(plain[place]) - want).abs() < 1e-5);
                    prop_assert!((f64::from(onto[place]) - want - f64::from(residual[place])).abs() < 1e-5);
                }
            }
        }
    }

    /// A row's result depends neither on other rows nor on the number of threads.
    #[test]
    fn a_row_is_the_same_bits_in_any_company(rows in 2usize..60, n_in in 1usize..100, n_out in 1usize..500, seed: u64) {
        let (x, matrix) = (values(rows * n_in, seed), values(n_in * n_out, seed ^ 1));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        for weights in TYPES {
            let packed = pack(weights, Source::Rows(&matrix), [n_in, n_out], None);
            let all = floats(packed_linear(tensor(&x, [1, rows, n_in]), &packed));
            for (x, together) in x.chunks(n_in).zip_eq(all.chunks(n_out)) {
                let alone = pool.install(|| floats(packed_linear(tensor(x, [1, 1, n_in]), &packed)));
                prop_assert!(alone == together);
            }
        }
    }
}

#[test]
fn columns_are_the_rows_of_an_embedding() {
    let (ids, n_embd) = (70, 37);
    let table = values(ids * n_embd, 7);
    let packed = pack(WeightType::F32, Source::Columns(&table), [n_embd, ids], None);
    for id in 0..ids {
        assert_eq!(packed.columns(&[id as u32]), table[id * n_embd..][..n_embd]);
    }
}

#[test]
fn zeros_stay_zeros() {
    for weights in TYPES {
        let packed = pack(weights, Source::Rows(&[0.0; 6]), [3, 2], None);
        assert_eq!(packed.columns(&[1]), [0.0; 3]);
    }
}

/// A NaN input must show in every product of its row, for every type of weights.
#[test]
fn what_is_no_number_is_not_hidden() {
    for weights in TYPES {
        let packed = pack(weights, Source::Rows(&values(70 * 3, 1)), [70, 3], None);
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = values(140, 2);
            x[100] = bad;
            let y = floats(packed_linear(tensor(&x, [1, 2, 70]), &packed));
            assert!(
                y[..3].iter().all(|y| y.is_finite()) && y[3..].iter().all(|y| !y.is_finite()),
                "{weights:?}: {y:?}"
            );
        }
    }
}

/// So must a NaN weight, in its column and in no other.
#[test]
fn a_weight_that_is_no_number_is_not_hidden() {
    for weights in TYPES {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut matrix = values(70 * 3, 1);
            matrix[40 * 3 + 1] = bad;
            let packed = pack(weights, Source::Rows(&matrix), [70, 3], None);
            let y = floats(packed_linear(tensor(&values(140, 2), [1, 2, 70]), &packed));
            assert_eq!(
                y.iter().map(|y| y.is_finite()).collect_vec(),
                [true, false, true].repeat(2),
                "{weights:?}: {y:?}"
            );
            assert!(packed.columns(&[1]).iter().any(|value| !value.is_finite()), "{weights:?}");
        }
    }
}
