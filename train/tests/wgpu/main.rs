//! wgpu computes the CPU's numbers: logits, loss, gradients and optimizer steps. Runs on any
//! adapter, including software Vulkan; without one it prints that it is skipped, or fails if
//! `REQUIRE_WGPU` is set.
#![allow(clippy::unwrap_used)]

mod company;
#[path = "../../../kernels/src/testing/differences.rs"]
mod differences;
mod greedy;
mod optimizer;
mod recorded;
mod scoring;
mod steps;

use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor, TensorData};
use ember_kernels::cross_entropy::cross_entropy;
use ember_model::device::{DeviceChoice, select};
use ember_model::{Gpt, GptConfig, KvCache, MlpKind, NormKind, Positions};
use ember_training::step::optimizer::{AdamWConfig, Optimizer, clip_scale, global_norm};

use differences::largest_difference;

const BATCH: usize = 2;
const TIME: usize = 16;

struct Numbers {
    logits: Vec<f32>,
    cached: Vec<f32>,
    losses: Vec<f32>,
    norms: Vec<f64>,
    weights: Vec<f32>,
}

/// The adapter to test; without one, prints that the tests are skipped.
fn gpu() -> Option<Device> {
    match select(DeviceChoice::Wgpu(None)) {
        Ok(selected) => Some(selected.device),
        Err(error) => {
            assert!(std::env::var_os("REQUIRE_WGPU").is_none(), "REQUIRE_WGPU is set: {error:#}");
            println!("SKIPPED: {error:#}");
            None
        }
    }
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

fn gpt2() -> GptConfig {
    GptConfig::new(32, TIME, 2, 2, 32)
}

/// A layer with every part that GPT-2 does not have.
fn newest() -> GptConfig {
    GptConfig {
        n_kv_head: 2,
        n_inner: 24,
        positions: Positions::Rotary,
        norm: NormKind::RmsNorm,
        mlp: MlpKind::SwiGlu,
        qk_norm: true,
        bias: false,
        tied_head: false,
        ..GptConfig::new(32, TIME, 1, 4, 32)
    }
}

fn compute(config: &GptConfig, device: &Device) -> Numbers {
    let ids: Vec<i32> = (0..BATCH * TIME).map(|i| (i * i % 32) as i32).collect();
    let targets: Vec<u32> = (0..BATCH * TIME).map(|i| (i * 5 % 32) as u32).collect();
    let tokens = |device: &Device| Tensor::<2, Int>::from_data(TensorData::new(ids.clone(), [BATCH, TIME]), device);

    let gpt = Gpt::new(config, 1, device).unwrap();
    let logits = values(gpt.forward(tokens(device)));
    // Prompts of different lengths, one of them forked, then one token more for each of the three
    // rows.
    let prompt: Vec<u32> = ids.iter().map(|&id| id as u32).collect();
    let mut cache = KvCache::new(config, 2, TIME, device);
    let mut cached = values(gpt.forward_cached_last(&[&prompt[..5], &prompt[5..14]], &[1, 2], &mut cache));
    cache.select(&[1, 0, 1]);
    cached.extend(values(gpt.forward_cached(&[&[1], &[2], &[3]], &mut cache)));

    let training = device.clone().autodiff();
    let mut gpt = Gpt::new(config, 1, &training).unwrap();
    let knobs = AdamWConfig { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.1 };
    let mut optimizer = Optimizer::new(knobs);
    let (mut losses, mut norms) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let loss = cross_entropy(gpt.forward(tokens(&training)), &targets);
        losses.push(loss.clone().into_scalar::<f32>());
        let gradients = GradientsParams::from_grads(loss.backward(), &gpt);
        let norm = global_norm(&gpt, &gradients);
        gpt = optimizer.step(gpt, gradients, clip_scale(norm, 0.5), 1e-2);
        norms.push(norm);
    }
    let mut weights = Vec::new();
    gpt.for_each_parameter(&mut |name, _, values| {
        // The gradient of the key's bias is zero except for rounding, which Adam's division turns
        // into noise.
        if !name.ends_with("c_attn.bias") {
            weights.extend(values);
        }
    });
    Numbers { logits, cached, losses, norms, weights }
}

#[test]
fn wgpu_computes_what_the_cpu_computes() {
    let Some(device) = gpu() else { return };
    for config in [gpt2(), newest()] {
        same(&compute(&config, &device), &compute(&config, &Device::flex()));
    }
}

fn same(there: &Numbers, here: &Numbers) {
    let error = largest_difference(&there.logits, &here.logits);
    assert!(error < 1e-5, "logits differ by {error}");
    let error = largest_difference(&there.cached, &here.cached);
    assert!(error < 1e-5, "cached logits differ by {error}");
    let error = largest_difference(&there.losses, &here.losses);
    assert!(error < 1e-4, "losses differ by {error}");
    for (a, b) in there.norms.iter().zip(&here.norms) {
        assert!((a - b).abs() < 1e-3 * b, "gradient norms {a} and {b}");
    }
    let error = largest_difference(&there.weights, &here.weights);
    assert!(error < 1e-3, "weights differ by {error} after three steps");
}
