//! Scoring in passes that suit the adapter.

use std::ops::ControlFlow;

use burn::tensor::Device;
use ember_decoding::score::{score_texts, token_log_probabilities};
use ember_model::{Gpt, GptConfig, WeightType, init::Random};

use crate::gpu;

const CONTEXT: usize = 128;

/// The MLP's activations of all rows together are 350 MiB, more than the 128 MiB of a buffer that
/// WebGPU guarantees to a kernel.
#[test]
fn a_text_whose_activations_together_are_more_than_a_buffer_is_scored_as_on_the_cpu() {
    let Some(device) = gpu() else { return };
    let shape = GptConfig { n_inner: 30_000, ..GptConfig::new(33, CONTEXT, 1, 1, 4) };
    let ids: Vec<u32> = (0..24 * CONTEXT as u32 + 1).map(|i| i * i % 33).collect();
    let scored = |device: &Device| {
        let model = Gpt::for_inference(&shape, &Random { seed: 5 }, WeightType::F32, device).unwrap();
        let text =
            score_texts(&model, &[&ids], CONTEXT, &mut |_| ControlFlow::Continue(())).unwrap().remove(0).unwrap();
        let rows = token_log_probabilities(&model, &ids[..ids.len() - 1], &ids[1..], CONTEXT).unwrap();
        [text, rows].concat()
    };
    let (there, here) = (scored(&device), scored(&Device::flex()));
    assert_eq!(there.len(), here.len());
    for (there, here) in there.iter().zip(&here) {
        assert!((there - here).abs() < 1e-4, "{there}, on the CPU {here}");
    }
}
