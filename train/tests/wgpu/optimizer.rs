//! The GPU's optimizer compared with the CPU's, and its decisions.

use burn::module::ParamId;
use burn::optim::GradientsParams;
use burn::tensor::{Device, FloatDType, Tensor, TensorData};
use ember_model::{Gpt, GptConfig, MlpKind, ParameterMapper};
use ember_training::step::optimizer::{
    AdamWConfig, Decided, Halt, MuonConfig, Optimizer, OptimizerConfig, global_norm,
};
use itertools::iproduct;
use proptest::prelude::*;

use crate::{gpu, largest_difference};

const ADAMW: AdamWConfig = AdamWConfig { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1 };

fn config(ema_decay: f64) -> OptimizerConfig {
    OptimizerConfig { ema_decay, ..ADAMW.into() }
}

/// Muon for the blocks' matrices.
fn with_muon(ema_decay: f64) -> OptimizerConfig {
    let muon = MuonConfig { relative_rate: 2.0, momentum: 0.9, weight_decay: 0.1, precision: FloatDType::F32 };
    OptimizerConfig { muon: Some(muon), ..config(ema_decay) }
}

/// Gradients drawn from (seed, parameter); one may be replaced by `non_finite`.
fn gradients(gpt: &Gpt, seed: u64, size: f32, non_finite: Option<f32>) -> GradientsParams {
    let device = gpt.device().inner();
    let mut gradients = GradientsParams::new();
    for (number, parameter) in gpt.parameters().into_iter().enumerate() {
        let n: usize = parameter.shape.iter().product();
        let mut values: Vec<f32> = (0..n as u64)
            .map(|i| {
                let hash = (i + 1 + (number as u64) * 1_000_003 + seed * 7_368_787).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                size * ((hash >> 40) as f32 / (1u64 << 24) as f32 - 0.5)
            })
            .collect();
        if let (3, Some(bad)) = (number, non_finite) {
            values[n / 2] = bad;
        }
        let data = TensorData::new(values, parameter.shape.clone());
        match parameter.shape.len() {
            1 => gradients.register(parameter.id, Tensor::<1>::from_data(data, &device)),
            _ => gradients.register(parameter.id, Tensor::<2>::from_data(data, &device)),
        }
    }
    gradients
}

fn all(gpt: &Gpt) -> Vec<f32> {
    let mut all = Vec::new();
    gpt.for_each_parameter(&mut |_, _, values| all.extend(values));
    all
}

fn close(a: &[f32], b: &[f32], allowed: f32) {
    let error = largest_difference(a, b);
    assert!(error < allowed, "{error}");
}

type AfterFourSteps = (Vec<f32>, Vec<f32>, Vec<f64>, Vec<(String, Vec<f32>)>);

/// The weights, the average's and the norms after four steps, and the moments by name.
fn steps(shape: &GptConfig, config: OptimizerConfig, device: &Device, seed: u64, clip: f64) -> AfterFourSteps {
    let mut gpt = Gpt::new(shape, seed, &device.clone().autodiff()).unwrap();
    let mut optimizer = Optimizer::new(config);
    let mut norms = Vec::new();
    for step in 0..4 {
        let gradients = gradients(&gpt, seed + step, 0.1, None);
        let norm = global_norm(&gpt, &gradients);
        let scale = ember_training::step::optimizer::clip_scale(norm, clip);
        gpt = optimizer.step(gpt, gradients, scale, 1e-2);
        norms.push(norm);
    }
    let average = optimizer.average().unwrap().model(&gpt).unwrap();
    (all(&gpt), all(&average), norms, optimizer.stored())
}

/// More parameters than one launch takes, most of odd sizes.
#[test]
fn steps_are_the_cpus() {
    let Some(device) = gpu() else { return };
    let cases = (1usize..3, 1usize..4, 3usize..40, 2usize..600, 0u64..100, prop::sample::select(vec![0.0, 0.5]));
    proptest!(ProptestConfig::with_cases(4), |((n_layer, head, width, vocab, seed, clip) in cases)| {
        let shape = GptConfig::new(vocab, 5, n_layer, head, head * width);
        let there = steps(&shape, config(0.9), &device, seed, clip);
        let here = steps(&shape, config(0.9), &Device::flex(), seed, clip);
        close(&there.0, &here.0, 2e-5);
        close(&there.1, &here.1, 2e-5);
        for (a, b) in there.2.iter().zip(&here.2) {
            prop_assert!((a - b).abs() <= 1e-5 * b, "norms {a} and {b}");
        }
        for ((name, a), (_, b)) in there.3.iter().zip(&here.3) {
            prop_assert_eq!(a.len(), b.len(), "{}", name);
            close(a, b, 1e-6);
        }
    });
}

/// More matrices than one launch takes on any device, several of them side by side and of different
/// widths; wide and tall parts, of more than one chunk.
#[test]
fn steps_by_muon_are_the_cpus() {
    let Some(device) = gpu() else { return };
    let cases = [(1, 1, 9, 30), (2, 1, 16, 80), (4, 2, 24, 700), (18, 3, 4, 12)];
    for (n_layer, n_kv_head, head_size, n_inner) in cases {
        let n_head = 2 * n_kv_head;
        let shape = GptConfig::new(50, 5, n_layer, n_head, n_head * head_size);
        let shape = GptConfig { n_kv_head, n_inner, mlp: MlpKind::SwiGlu, ..shape };
        let [there, here] = [&device, &Device::flex()].map(|device| steps(&shape, with_muon(0.9), device, 3, 0.5));
        close(&there.0, &here.0, 2e-4);
        close(&there.1, &here.1, 2e-4);
        for ((name, a), (_, b)) in there.3.iter().zip(&here.3) {
            assert_eq!(a.len(), b.len(), "{name}");
            close(a, b, 1e-6);
        }
    }
}

/// A device's decision takes the same step as a host that knows the norm, and a restored optimizer
/// continues with the same bits.
#[test]
fn a_decision_steps_as_the_host_would() {
    let Some(device) = gpu() else { return };
    for config in [config, with_muon] {
        check_decisions(&device, config);
    }
}

fn check_decisions(device: &Device, config: fn(f64) -> OptimizerConfig) {
    let training = device.clone().autodiff();
    let shape = GptConfig::new(11, 5, 2, 1, 9);
    let loss = |value: f32| Tensor::<1>::from_floats([value], device);
    let halt = Halt::new(&training);
    let (mut by_host, mut by_device) = (Optimizer::new(config(0.9)), Optimizer::new(config(0.9)));
    let [mut a, mut b] = [0, 1].map(|_| Gpt::new(&shape, 1, &training).unwrap());
    for step in 0..3 {
        let [for_a, for_b] = [&a, &b].map(|gpt| gradients(gpt, step, 0.1, None));
        let norm = global_norm(&a, &for_a);
        let scale = ember_training::step::optimizer::clip_scale(norm, 0.5);
        a = by_host.step(a, for_a, scale, 1e-2);
        let decision = halt.decide(&b, &for_b, vec![loss(1.0), loss(4.0)], 0.5);
        b = by_device.step_as_decided(b, for_b, &decision, 1e-2);
        let Decided { loss, grad_norm, scale: found_scale, taken } = decision.wait().unwrap();
        assert_eq!((loss, grad_norm, taken), (2.5, norm, true));
        assert!((found_scale - scale).abs() < 1e-6);
    }
    close(&all(&a), &all(&b), 1e-6);

    let stored = by_device.stored().into_iter().collect();
    let mut restored = Optimizer::new(config(0.0));
    restored.restore(&b, 3, stored, device).unwrap();
    let copy = b.clone();
    let [for_b, for_copy] = [&b, &copy].map(|gpt| gradients(gpt, 7, 0.1, None));
    let b = by_device.step(b, for_b, 1.0, 1e-2);
    let copy = restored.step(copy, for_copy, 1.0, 1e-2);
    assert_eq!(all(&b), all(&copy));
}

/// After the first non-finite step nothing changes weights, moments or average until the host lets
/// the device continue.
#[test]
fn what_is_not_finite_halts_the_device() {
    let Some(device) = gpu() else { return };
    let training = device.clone().autodiff();
    let shape = GptConfig::new(11, 5, 1, 1, 6);
    let loss = |value: f32| Tensor::<1>::from_floats([value], &device);
    let cases = [(Some(f32::NAN), 1.0), (Some(f32::INFINITY), 1.0), (None, f32::NAN)];
    for ((non_finite, spoilt_loss), config) in iproduct!(cases, [config(0.9), with_muon(0.9)]) {
        let mut halt = Halt::new(&training);
        let mut optimizer = Optimizer::new(config);
        let mut gpt = Gpt::new(&shape, 1, &training).unwrap();
        let mut decisions = Vec::new();
        let mut step = |gpt: Gpt, halt: &Halt, optimizer: &mut Optimizer, number, non_finite, loss| {
            let gradients = gradients(&gpt, number, 0.1, non_finite);
            let decision = halt.decide(&gpt, &gradients, vec![loss], 1.0);
            let gpt = optimizer.step_as_decided(gpt, gradients, &decision, 1e-2);
            decisions.push(decision);
            gpt
        };
        gpt = step(gpt, &halt, &mut optimizer, 0, None, loss(1.0));
        let state = |gpt: &Gpt, optimizer: &Optimizer| {
            (all(gpt), all(&optimizer.average().unwrap().model(gpt).unwrap()), optimizer.stored())
        };
        let before = state(&gpt, &optimizer);
        gpt = step(gpt, &halt, &mut optimizer, 1, non_finite, loss(spoilt_loss));
        gpt = step(gpt, &halt, &mut optimizer, 2, None, loss(1.0));
        assert!(state(&gpt, &optimizer) == before);
        halt.release();
        optimizer.rewind(1);
        gpt = step(gpt, &halt, &mut optimizer, 2, None, loss(1.0));
        assert!(all(&gpt) != before.0);
        assert!(all(&gpt).iter().all(|value| value.is_finite()));
        let taken: Vec<bool> = decisions.into_iter().map(|decision| decision.wait().unwrap().taken).collect();
        assert_eq!(taken, [true, false, false, true]);
    }
}

/// If another owner shares a model's weights, the optimizer steps on copies.
#[test]
fn a_clone_keeps_its_weights() {
    let Some(device) = gpu() else { return };
    struct Same;
    impl ParameterMapper for Same {
        fn map<const D: usize>(&mut self, _: &str, _: ParamId, tensor: Tensor<D>) -> Tensor<D> {
            tensor
        }
    }
    let gpt = Gpt::new(&GptConfig::new(11, 5, 1, 1, 6), 1, &device.clone().autodiff()).unwrap();
    let before = all(&gpt);
    let kept = gpt.clone().map_parameters(&mut Same);
    let of = gradients(&gpt, 0, 0.1, None);
    let stepped = Optimizer::new(config(0.0)).step(gpt, of, 1.0, 1e-2);
    assert_eq!(all(&kept), before);
    assert!(all(&stepped) != before);
}
