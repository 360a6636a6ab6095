//! Parity with PyTorch's Muon and AdamW, by the fixture from `tools/make_optimizer_fixtures.py`:
//! ten clipped steps of a GPT-2 under one schedule, with Muon for the blocks' matrices and AdamW
//! for the rest.
#![allow(clippy::unwrap_used)]

#[path = "../../kernels/src/testing/differences.rs"]
mod differences;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::optim::GradientsParams;
use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData};
use ember_kernels::cross_entropy::cross_entropy;
use ember_model::checkpoint;
use ember_model::folder::TensorFile;
use ember_training::step::optimizer::{AdamWConfig, MuonConfig, Optimizer, OptimizerConfig, clip_scale, global_norm};
use itertools::Itertools;
use serde::Deserialize;

use differences::largest_difference;

#[derive(Deserialize)]
struct Fixture {
    settings: Settings,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Settings {
    muon_learning_rate: f64,
    muon_momentum: f64,
    weight_decay: f64,
}

#[derive(Deserialize)]
struct Step {
    learning_rate: f64,
    loss: f64,
    grad_norm: f64,
}

/// The part of this fixture that AdamW's has, too.
#[derive(Deserialize)]
struct Model {
    optimizer: Knobs,
    steps: Vec<Batch>,
}

#[derive(Deserialize)]
struct Knobs {
    beta1: f64,
    beta2: f64,
    eps: f64,
    grad_clip: f64,
    learning_rate: f64,
}

#[derive(Deserialize)]
struct Batch {
    tokens: Vec<Vec<Vec<u32>>>,
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> T {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn ten_steps_agree_with_pytorch() {
    let ours = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let models = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures");
    let Fixture { settings, steps } = read(&ours.join("muon.json"));
    let Model { optimizer: knobs, steps: batches } = read(&models.join("a.json"));
    let device = Device::flex().autodiff();
    let mut gpt = checkpoint::load(&models.join("a"), &device).unwrap();
    let mut optimizer = Optimizer::new(OptimizerConfig {
        adamw: AdamWConfig {
            beta1: knobs.beta1,
            beta2: knobs.beta2,
            epsilon: knobs.eps,
            weight_decay: settings.weight_decay,
        },
        muon: Some(MuonConfig {
            relative_rate: settings.muon_learning_rate / knobs.learning_rate,
            momentum: settings.muon_momentum,
            weight_decay: settings.weight_decay,
            precision: FloatDType::F32,
        }),
        ema_decay: 0.0,
    });
    assert_eq!(steps.len(), 10);
    for (number, (step, batch)) in steps.iter().zip_eq(&batches).enumerate() {
        let rows = &batch.tokens[0];
        let time = rows[0].len() - 1;
        let inputs: Vec<i32> = rows.iter().flat_map(|row| row[..time].iter().map(|id| *id as i32)).collect();
        let targets: Vec<u32> = rows.iter().flat_map(|row| row[1..].to_vec()).collect();
        let inputs = Tensor::<2, Int>::from_data(TensorData::new(inputs, [rows.len(), time]), &device);
        let loss = cross_entropy(gpt.forward(inputs), &targets);
        let error = (f64::from(loss.clone().into_scalar::<f32>()) - step.loss).abs();
        assert!(error < 1e-4, "the loss of step {number} differs by {error}");
        let gradients = GradientsParams::from_grads(loss.backward(), &gpt);
        let norm = global_norm(&gpt, &gradients);
        let error = (norm - step.grad_norm).abs() / step.grad_norm;
        assert!(error < 1e-4, "the gradient norm of step {number} differs by {error} of itself");
        gpt = optimizer.step(gpt, gradients, clip_scale(norm, knobs.grad_clip), step.learning_rate);
    }

    let reference = TensorFile::open(&ours.join("muon.safetensors")).unwrap();
    let mut finals = BTreeMap::new();
    gpt.for_each_parameter(&mut |name, _, values| {
        finals.insert(format!("final.{name}"), values);
    });
    finals.extend(optimizer.stored().into_iter().filter(|(name, _)| name.starts_with("momentum.")));
    for name in reference.names() {
        // The gradient of the key's bias is zero except for rounding, which Adam's division turns
        // into noise.
        if name.ends_with("c_attn.bias") {
            continue;
        }
        let error = largest_difference(&finals[&name], &reference.read(&name).unwrap().values);
        assert!(error < 1e-4, "{name} differs by {error} after ten steps");
    }
    assert_eq!(reference.names().iter().filter(|name| name.starts_with("momentum.")).count(), 8);
}
