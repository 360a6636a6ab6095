//! A model with packed matrices compared with one without.
#![allow(clippy::unwrap_used)]

#[path = "../../kernels/src/testing/differences.rs"]
mod differences;

use burn::tensor::{Device, Int, Tensor, TensorData};
use ember_model::init::Random;
use ember_model::{Gpt, GptConfig, KvCache, MlpKind, NormKind, Positions, WeightType};
use itertools::Itertools;

use differences::largest_difference;

const TYPES: [WeightType; 3] = [WeightType::F32, WeightType::Bf16, WeightType::Int8];

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec::<f32>().unwrap()
}

fn models() -> [GptConfig; 2] {
    let gpt2 = GptConfig::new(101, 24, 2, 3, 48);
    let mut qwen = GptConfig::new(101, 24, 2, 4, 48);
    qwen.n_kv_head = 2;
    qwen.norm = NormKind::RmsNorm;
    qwen.mlp = MlpKind::SwiGlu;
    qwen.positions = Positions::Rotary;
    qwen.qk_norm = true;
    qwen.bias = false;
    qwen.tied_head = false;
    [gpt2, qwen]
}

/// Compared with the model with plain matrices: in float32 equal up to rounding, in fewer bits
/// nearly equal.
#[test]
fn a_packed_model_computes_what_the_plain_one_does() {
    let device = Device::flex();
    for config in models() {
        let source = Random { seed: 5 };
        let ids: Vec<i32> = (0..2 * 11).map(|i| i * 29 % 101).collect();
        let tokens: Tensor<2, Int> = Tensor::from_data(TensorData::new(ids, [2, 11]), &device);
        let want = floats(Gpt::build(&config, &source, &device).unwrap().forward(tokens.clone()));
        let largest = want.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
        for (weights, allowed) in TYPES.into_iter().zip_eq([1e-5, 2e-2, 2e-2]) {
            let model = Gpt::for_inference(&config, &source, weights, &device).unwrap();
            assert_eq!(model.weight_type(), weights);
            let got = floats(model.forward(tokens.clone()));
            let error = largest_difference(&got, &want) / largest;
            assert!(error < allowed, "{weights:?}: {error}");
        }
    }
}

#[test]
fn a_packed_model_decodes_what_it_reads_at_once() {
    let device = Device::flex();
    for config in models() {
        for weights in TYPES {
            let model = Gpt::for_inference(&config, &Random { seed: 5 }, weights, &device).unwrap();
            let ids: Vec<u32> = (0..20).map(|i| i * 37 % 101).collect();
            let mut cache = KvCache::new(&config, 1, 24, &device);
            let whole = floats(model.forward_cached(&[&ids], &mut cache));
            let mut cache = KvCache::new(&config, 1, 24, &device);
            for (id, whole) in ids.iter().zip_eq(whole.chunks(101)) {
                let one = floats(model.forward_cached(&[&[*id]], &mut cache));
                let error = largest_difference(&one, whole);
                // Sums in another order differ in their last bits. If that moves an input of an
                // 8-bit product across the boundary between two 16-bit numbers, it differs by one
                // such step.
                let step = whole.iter().fold(0.0f32, |largest, value| largest.max(value.abs())) / 32767.0;
                let allowed = 1e-5 + if weights == WeightType::Int8 { 2.0 * step } else { 0.0 };
                assert!(error < allowed, "{weights:?}: {error}");
            }
        }
    }
}
