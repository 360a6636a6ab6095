//! Products with every instruction set, compared with their definition in float64.
#![allow(clippy::unwrap_used)]

use burn::tensor::bf16;
use itertools::Itertools;
use proptest::prelude::*;

use super::pack::{F32Lane, WidenedLane};
use super::{compiled::compute_at, product::Compute, *};
use crate::simd::{Level, level};

/// Every instruction set that the processor has.
fn levels() -> impl Iterator<Item = Level> {
    [Level::Portable, Level::Avx2, Level::Avx512].into_iter().filter(|needed| *needed <= level())
}

/// Values that are exact in bfloat16, so that one definition serves both types.
fn values(count: usize, seed: u64) -> Vec<f32> {
    (0..count as u64)
        .map(|i| ((i * 37 + seed * 11) % 23) as f32 / 16.0 - 0.7)
        .map(|x| bf16::from_f32(x).to_f32())
        .collect()
}

fn halves(values: &[f32]) -> Vec<bf16> {
    values.iter().map(|value| bf16::from_f32(*value)).collect()
}

/// A product's sizes and the layouts of its factors.
#[derive(Clone, Copy, Debug)]
struct Case {
    size: [usize; 3],
    transposed: [bool; 2],
    adds: [bool; 2],
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    // Some with too many rows to read B in place, some deeper than a block, some with more rows
    // than are processed at once.
    let size = prop_oneof![
        6 => [1usize..40, 1usize..140, 0usize..70],
        2 => [190usize..260, 1usize..70, 1usize..70],
        1 => [1usize..20, 1usize..20, 380usize..1600],
        1 => [765usize..780, 1usize..20, 1usize..90],
    ];
    (size, any::<[bool; 2]>(), any::<[bool; 2]>(), any::<u8>()).prop_map(|(size, transposed, adds, seed)| Case {
        size,
        transposed,
        adds,
        seed: seed.into(),
    })
}

impl Case {
    fn a(self) -> Vec<f32> {
        values(self.size[0] * self.size[2], self.seed)
    }

    fn b(self) -> Vec<f32> {
        values(self.size[1] * self.size[2], self.seed + 1)
    }

    fn residual(self) -> Vec<f32> {
        values(self.size[0] * self.size[1], self.seed + 2)
    }

    fn bias(self) -> Vec<f32> {
        values(self.size[1], self.seed + 3)
    }

    /// The result by definition, and the sum of the products' magnitudes: rounding is a fraction of
    /// that.
    fn defined(self) -> Vec<[f64; 2]> {
        let ([m, n, k], [a, b]) = (self.size, [self.a(), self.b()]);
        let (residual, bias) = (self.residual(), self.bias());
        let one = |i: usize, j: usize| {
            let terms = (0..k).map(|p| {
                let a = if self.transposed[0] { a[p * m + i] } else { a[i * k + p] };
                let b = if self.transposed[1] { b[j * k + p] } else { b[p * n + j] };
                f64::from(a) * f64::from(b)
            });
            let added = [f64::from(residual[i * n + j]), f64::from(bias[j])];
            let added = added.into_iter().zip(self.adds).filter(|(_, adds)| *adds).map(|(value, _)| value);
            terms.chain(added).fold([0.0, 0.0], |[sum, size], term| [sum + term, size + term.abs()])
        };
        (0..m * n).map(|place| one(place / n, place % n)).collect()
    }

    /// The kernel's result.
    fn computed<T: Element, O: Element>(
        self,
        [a, b]: [&[T]; 2],
        zero: O,
        compute: Compute<T, O>,
        parts: usize,
    ) -> Vec<O> {
        let [m, n, k] = self.size;
        let matrix = |values, [rows, columns]: [usize; 2], transposed| match transposed {
            false => Matrix::strided(values, [rows, columns], columns),
            true => Matrix::strided(values, [columns, rows], rows).transposed(),
        };
        let (a, b) = (matrix(a, [m, k], self.transposed[0]), matrix(b, [k, n], self.transposed[1]));
        let (residual, bias) = (self.residual(), self.bias());
        let onto = if self.adds[0] { Onto::Matrix(Matrix::new(&residual, n)) } else { Onto::Nothing };
        let product = Product { a, b, onto, bias: self.adds[1].then_some(&bias) };
        let mut c = vec![zero; m * n];
        let target = MatrixMut::new(&mut c, n);
        for [rows, columns] in product.parts(parts) {
            // SAFETY: the slices have the views' sizes, and the processor has the instruction set.
            unsafe { compute(&product, &target, rows, columns) };
        }
        c
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn float32_is_right_and_the_same_however_it_is_divided(case in cases(), parts in 1usize..9) {
        let (a, b) = (case.a(), case.b());
        for level in levels() {
            let compute = compute_at::<F32Lane, f32>(level);
            let got = case.computed([&a, &b], f32::NAN, compute, 1);
            for (got, [want, size]) in got.iter().zip_eq(case.defined()) {
                prop_assert!((f64::from(*got) - want).abs() <= 2e-6 * size + 1e-12, "{level:?}: {got}, not {want}");
            }
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&got), bits(&case.computed([&a, &b], f32::NAN, compute, parts)), "{:?} in {} parts", level, parts);
        }
    }

    #[test]
    fn bfloat16_is_right_and_the_same_however_it_is_divided(case in cases(), parts in 1usize..9) {
        let (a, b) = (halves(&case.a()), halves(&case.b()));
        let widened = levels().map(|level| (compute_at::<WidenedLane, f32>(level), compute_at::<WidenedLane, bf16>(level)));
        // The kernel chosen here, possibly with the instruction for pairs.
        for (exactly, shortly) in widened.chain([(bf16::compute::<f32>(), bf16::compute::<bf16>())]) {
            let exact = case.computed([&a, &b], f32::NAN, exactly, 1);
            let short = case.computed([&a, &b], bf16::NAN, shortly, 1);
            // Rounding at every term or every second one, in sequence: the bound for the latter,
            // and a little for the additions.
            let rounding = 2e-6 + case.size[2] as f64 / 2.0 * f64::from(f32::EPSILON) / 2.0;
            for ((exact, short), [want, size]) in exact.iter().zip_eq(&short).zip_eq(case.defined()) {
                prop_assert!((f64::from(*exact) - want).abs() <= rounding * size + 1e-12, "{exact}, not {want}");
                // Plus half a unit of 8 bits.
                prop_assert!((short.to_f64() - want).abs() <= rounding * size + want.abs() / 256.0 + 1e-12, "{short}, not {want}");
            }
            prop_assert_eq!(exact, case.computed([&a, &b], f32::NAN, exactly, parts));
            prop_assert_eq!(short, case.computed([&a, &b], bf16::NAN, shortly, parts));
        }
    }

    #[test]
    fn the_parts_of_a_result_are_all_of_it_once(m in 0usize..400, n in 1usize..400, threads in 1usize..20) {
        let (a, b) = (vec![0.0; m], vec![0.0; n]);
        let (a, b) = (Matrix::strided(&a, [m, 1], 1), Matrix::strided(&b, [1, n], 1));
        let product: Product<f32> = Product { a, b, onto: Onto::Nothing, bias: None };
        let parts = product.parts(threads);
        let mut seen = vec![0; m * n];
        for [rows, columns] in &parts {
            rows.clone().for_each(|row| seen[row * n..][columns.clone()].iter_mut().for_each(|seen| *seen += 1));
        }
        prop_assert!(seen.iter().all(|seen| *seen == 1));
        prop_assert!(parts.len() < threads + threads, "{} parts for {threads} threads", parts.len());
    }
}
