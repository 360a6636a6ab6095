//! The best token of each row.
#![allow(clippy::unwrap_used)]

use burn::tensor::{DType, Device, Tensor, TensorData};
use proptest::{prelude::*, test_runner::TestRunner};

use crate::argmax;
use crate::gpu::testing::{device, random};

/// Checks each row's best token and its logits' log-sum-exp against the CPU's.
fn agrees(rows: usize, vocab: usize, scale: f64, device: &Device) -> Result<(), TestCaseError> {
    // Rounded, so that there are many ties.
    let logits = (random::<2>([rows, vocab], 1, &Device::flex()) * 3).round() * scale;
    let values = logits.clone().into_data().try_into_vec::<f32>().unwrap();
    let there = Tensor::<2>::from_data(logits.into_data(), device);
    let got = argmax(there).into_data().try_into_vec::<f32>().unwrap();
    prop_assert_eq!(got.len(), 3 * rows);
    for (values, got) in values.chunks(vocab).zip(got.chunks(3)) {
        let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let first = values.iter().position(|value| *value == most).unwrap();
        prop_assert_eq!((got[0] as usize, got[1]), (first, most));
        let all: f64 = values.iter().map(|value| f64::from(value - most).exp()).sum();
        let weigh = f64::from(most) + all.ln();
        prop_assert!((f64::from(got[2]) - weigh).abs() < 1e-5 * weigh.abs().max(1.0), "{} {weigh}", got[2]);
    }
    Ok(())
}

#[test]
fn the_first_of_the_largest_and_what_all_of_them_weigh() {
    let Some(device) = device() else { return };
    let device = device.inner();
    let sizes = (1usize..5, prop_oneof![1usize..100, 8_000usize..9_000], 0.1f64..30.0);
    let mut runner = TestRunner::new(ProptestConfig { cases: 12, failure_persistence: None, ..Default::default() });
    runner.run(&sizes, |(rows, vocab, scale)| agrees(rows, vocab, scale, &device)).unwrap();
    // A launch has at most 65,535 cubes per dimension, and each row has 32.
    agrees(3_000, 7, 1.0, &device).unwrap();
}

#[test]
fn what_is_not_finite_is_told() {
    let Some(device) = device() else { return };
    let best = |values: [f32; 4]| {
        let logits =
            Tensor::<2>::from_data(TensorData::new(values.to_vec(), [1, 4]), (&device.clone().inner(), DType::F32));
        argmax(logits).into_data().try_into_vec::<f32>().unwrap()
    };
    let low = f32::NEG_INFINITY;
    assert_eq!(best([low, 0.0, low, low]), [1.0, 0.0, 0.0]);
    for values in [[low; 4], [0.0, f32::NAN, 0.0, 0.0], [0.0, f32::INFINITY, 0.0, 1.0]] {
        assert!(!best(values)[2].is_finite(), "{values:?}");
    }
}
