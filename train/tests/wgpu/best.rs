//! The best token of each row.

use std::ops::ControlFlow;

use burn::tensor::{DType, Device, Tensor, TensorData, activation};
use ember_decoding::{GenerationConfig, generate};
use ember_model::{Gpt, GptConfig, kernels};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::gradients::{device, random};

#[test]
fn the_first_of_the_largest_and_what_all_of_them_weigh() {
    let Some(device) = device() else { return };
    let device = device.inner();
    let sizes = (1usize..5, prop_oneof![1usize..100, 8_000usize..9_000], 0.1f64..30.0);
    let mut runner = TestRunner::new(ProptestConfig { cases: 12, failure_persistence: None, ..Default::default() });
    runner
        .run(&sizes, |(rows, vocab, scale)| {
            // In steps, so that many are equal.
            let logits = (random::<2>([rows, vocab], 1, &Device::flex()) * 3).round() * scale;
            let values = logits.clone().into_data().try_into_vec::<f32>().unwrap();
            let there = Tensor::<2>::from_data(logits.into_data(), &device);
            let got = kernels::argmax(there.clone()).into_data().try_into_vec::<f32>().unwrap();
            let sums = -activation::log_softmax(there, 1).into_data().try_into_vec::<f32>().unwrap()[0] + values[0];
            prop_assert!((got[2] - sums).abs() < 1e-4 * sums.abs().max(1.0), "{} {sums}", got[2]);
            for (values, got) in values.chunks(vocab).zip(got.chunks(3)) {
                let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let first = values.iter().position(|value| *value == most).unwrap();
                prop_assert_eq!((got[0] as usize, got[1]), (first, most));
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn what_is_not_finite_is_told() {
    let Some(device) = device() else { return };
    let best = |values: [f32; 4]| {
        let logits =
            Tensor::<2>::from_data(TensorData::new(values.to_vec(), [1, 4]), (&device.clone().inner(), DType::F32));
        kernels::argmax(logits).into_data().try_into_vec::<f32>().unwrap()
    };
    let low = f32::NEG_INFINITY;
    assert_eq!(best([low, 0.0, low, low]), [1.0, 0.0, 0.0]);
    for values in [[low; 4], [0.0, f32::NAN, 0.0, 0.0], [0.0, f32::INFINITY, 0.0, 1.0]] {
        assert!(!best(values)[2].is_finite(), "{values:?}");
    }
}

/// The engine's greedy text, which reads nothing but ids and log-probabilities back from the device.
#[test]
fn greedy_decoding_writes_what_the_cpu_writes() {
    let Some(device) = device() else { return };
    let shape = GptConfig::new(40, 32, 1, 2, 32);
    let config = GenerationConfig { max_new_tokens: 12, ..GenerationConfig::default() };
    let write = |device: &Device| {
        let gpt = Gpt::new(&shape, 3, device).unwrap();
        generate(&gpt, &[1, 2, 3], &config, &mut |_| ControlFlow::Continue(())).unwrap()
    };
    let (there, here) = (write(&device.inner()), write(&Device::flex()));
    assert_eq!(there.ids, here.ids);
    for (there, here) in there.tokens.iter().zip(&here.tokens) {
        assert!((there.logprob - here.logprob).abs() < 1e-4, "{} {}", there.logprob, here.logprob);
    }
}
