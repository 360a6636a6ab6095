//! Parity with transformers' GPT2LMHeadModel, LlamaForCausalLM and Qwen3ForCausalLM, by the
//! fixtures from `tools/make_fixtures.py` and `tools/make_llama_fixtures.py`: logits, loss, every
//! gradient, optimizer steps, greedy text. If this fails, the model is wrong, whatever else passes.
#![allow(clippy::unwrap_used)]

#[path = "../../kernels/src/testing/differences.rs"]
mod differences;

use std::path::{Path, PathBuf};

use burn::module::ParamId;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{Device, Int, Tensor, TensorData};
use ember_decoding::config::GenerationConfig;
use ember_decoding::generate;
use ember_kernels::cross_entropy::cross_entropy;
use ember_model::folder::{self, NamedTensor, TensorFile};
use ember_model::{GptConfig, Parameter, checkpoint};
use ember_training::config::{Curve, DeviceKind, Settings, TextFacts, TrainConfig};
use ember_training::run::schedule;
use ember_training::step::optimizer::{AdamWConfig, Optimizer, clip_scale, global_norm};
use serde::Deserialize;

use differences::largest_difference;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/tests/fixtures")
}

fn read<T: for<'a> Deserialize<'a>>(name: &str) -> T {
    let path = fixtures().join(format!("{name}.json"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn ids(rows: &[Vec<u32>], device: &Device) -> Tensor<2, Int> {
    let flat: Vec<i32> = rows.iter().flatten().map(|id| *id as i32).collect();
    Tensor::from_data(TensorData::new(flat, [rows.len(), rows[0].len()]), device)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

#[derive(Deserialize)]
struct Fixture {
    input_ids: Vec<Vec<u32>>,
    targets: Vec<Vec<u32>>,
    loss: f64,
    optimizer: Knobs,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Knobs {
    beta1: f64,
    beta2: f64,
    eps: f64,
    weight_decay: f64,
    grad_clip: f64,
    learning_rate: f64,
    min_learning_rate: f64,
    warmup_steps: u64,
    max_steps: u64,
    grad_accum_steps: usize,
}

#[derive(Deserialize)]
struct Step {
    tokens: Vec<Vec<Vec<u32>>>,
    learning_rate: f64,
    loss: f64,
    grad_norm: f64,
}

/// The gradient of the parameter `id`, whatever its shape.
fn take_gradient(gradients: &mut GradientsParams, id: ParamId, dimensions: usize) -> Vec<f32> {
    match dimensions {
        1 => values(gradients.remove::<1>(id).unwrap()),
        _ => values(gradients.remove::<2>(id).unwrap()),
    }
}

/// The tensors that a transformers class computed, with the names and layout of its files.
struct Reference {
    file: TensorFile,
    /// Prefix of its tensors' names that the fixtures do not have.
    prefix: &'static str,
}

impl Reference {
    fn values(&self, name: &str) -> Vec<f32> {
        self.file.read(name).unwrap().values
    }

    /// Calls `each` with the name and both values of every tensor `kind.NAME`: ours, in the layout
    /// of saved weights, and theirs.
    fn each(&self, kind: &str, config: &GptConfig, ours: &[NamedTensor], mut each: impl FnMut(&str, &[f32], &[f32])) {
        let dir = tempfile::tempdir().unwrap();
        folder::write(dir.path(), config, None, &folder::Settings::new(), ours).unwrap();
        let ours = TensorFile::open(&dir.path().join("model.safetensors")).unwrap();
        assert_eq!(ours.names().len(), self.file.names().iter().filter(|name| name.starts_with(kind)).count());
        for name in ours.names() {
            let bare = name.strip_prefix(self.prefix).unwrap_or(&name);
            let (got, want) = (ours.read(&name).unwrap().values, self.values(&format!("{kind}.{bare}")));
            each(bare, &got, &want);
        }
    }
}

fn parity(name: &str, prefix: &'static str) {
    let fixture: Fixture = read(name);
    let file = TensorFile::open(&fixtures().join(format!("{name}.safetensors"))).unwrap();
    let reference = Reference { file, prefix };
    let device = Device::flex().autodiff();
    let gpt = checkpoint::load(&fixtures().join(name), &device).unwrap();

    // One forward and backward pass.
    let logits = gpt.forward(ids(&fixture.input_ids, &device));
    let error = largest_difference(&values(logits.clone()), &reference.values("logits"));
    assert!(error < 1e-4, "{name}: logits differ by {error}");
    let loss = cross_entropy(logits, &fixture.targets.concat());
    let error = (f64::from(loss.clone().into_scalar::<f32>()) - fixture.loss).abs();
    assert!(error < 1e-5, "{name}: the loss differs by {error}");
    let mut gradients = GradientsParams::from_grads(loss.backward(), &gpt);
    let ours: Vec<NamedTensor> = gpt
        .parameters()
        .into_iter()
        .map(|Parameter { name, id, shape }| {
            let values = take_gradient(&mut gradients, id, shape.len());
            NamedTensor { name, shape, values }
        })
        .collect();
    reference.each("grad", gpt.config(), &ours, |parameter, got, want| {
        let largest = want.iter().fold(0.0f32, |a, b| a.max(b.abs()));
        let error = largest_difference(got, want) / largest;
        assert!(error < 1e-3, "{name}: the gradient of {parameter} differs by {error} of its largest entry");
    });

    // Some steps with clipping, decay groups, a schedule and accumulation.
    let knobs = &fixture.optimizer;
    let mut optimizer = Optimizer::new(AdamWConfig {
        beta1: knobs.beta1,
        beta2: knobs.beta2,
        epsilon: knobs.eps,
        weight_decay: knobs.weight_decay,
    });
    let (usual, _) = Settings::default().resolve(&TextFacts::assumed(65), DeviceKind::Cpu).unwrap();
    let config = TrainConfig {
        learning_rate: knobs.learning_rate,
        min_learning_rate: knobs.min_learning_rate,
        warmup_steps: knobs.warmup_steps,
        lr_decay_steps: knobs.max_steps,
        schedule: Curve::Cosine,
        ..usual
    };
    let mut gpt = gpt;
    assert_eq!(fixture.steps.len() as u64, knobs.max_steps);
    for (number, step) in fixture.steps.iter().enumerate() {
        assert_eq!(step.tokens.len(), knobs.grad_accum_steps);
        let mut accumulator = GradientsAccumulator::new();
        let mut mean_loss = 0.0;
        for rows in &step.tokens {
            let inputs: Vec<Vec<u32>> = rows.iter().map(|row| row[..row.len() - 1].to_vec()).collect();
            let targets: Vec<u32> = rows.iter().flat_map(|row| row[1..].to_vec()).collect();
            let loss = cross_entropy(gpt.forward(ids(&inputs, &device)), &targets) / knobs.grad_accum_steps as f64;
            mean_loss += f64::from(loss.clone().into_scalar::<f32>());
            accumulator.accumulate(&gpt, GradientsParams::from_grads(loss.backward(), &gpt));
        }
        let learning_rate = schedule::learning_rate(&config, number as u64);
        assert!((learning_rate - step.learning_rate).abs() < 1e-12, "{name}: step {number}: {learning_rate}");
        let gradients = accumulator.grads();
        let norm = global_norm(&gpt, &gradients);
        gpt = optimizer.step(gpt, gradients, clip_scale(norm, knobs.grad_clip), learning_rate);
        let error = (mean_loss - step.loss).abs();
        assert!(error < 1e-4, "{name}: the loss of step {number} differs by {error}");
        let error = (norm - step.grad_norm).abs() / step.grad_norm;
        assert!(error < 1e-4, "{name}: the gradient norm of step {number} differs by {error} of itself");
        assert!(step.grad_norm > knobs.grad_clip, "{name}: step {number} does not clip, so clipping is not tested");
    }
    let mut finals = Vec::new();
    gpt.for_each_parameter(&mut |name, shape, values| {
        finals.push(NamedTensor { name: name.to_owned(), shape: shape.to_vec(), values });
    });
    reference.each("final", gpt.config(), &finals, |parameter, got, want| {
        // The gradient of GPT-2's key bias is zero except for rounding, which Adam's division turns
        // into noise.
        if !parameter.ends_with("c_attn.bias") {
            let error = largest_difference(got, want);
            assert!(error < 1e-3, "{name}: {parameter} differs by {error} after all steps");
        }
    });
}

#[test]
fn two_shapes_agree_in_logits_loss_gradients_and_ten_steps() {
    parity("a", "transformer.");
    parity("b", "transformer.");
}

#[test]
fn llamas_and_a_qwen3_agree_in_logits_loss_gradients_and_four_steps() {
    parity("llama/gqa", "");
    parity("llama/biased", "");
    parity("llama/qwen3", "");
}

#[test]
fn greedy_text_is_the_same_for_64_tokens() {
    #[derive(Deserialize)]
    struct Greedy {
        prompt_ids: Vec<u32>,
        ids: Vec<u32>,
    }
    for name in ["greedy", "llama/greedy"] {
        let fixture: Greedy = read(name);
        let gpt = checkpoint::load(&fixtures().join(name), &Device::flex()).unwrap();
        let config = GenerationConfig { max_new_tokens: 64, ..GenerationConfig::default() };
        let completion = generate(&gpt, &fixture.prompt_ids, &config, &mut ()).unwrap();
        assert_eq!(completion.ids, fixture.ids, "{name}");
        assert_eq!(fixture.ids.len(), 64);
    }
}

#[test]
fn half_precision_sharded_untied_and_old_folders_open() {
    #[derive(Deserialize)]
    struct Ids {
        input_ids: Vec<Vec<u32>>,
    }
    for name in ["untied-bf16-sharded", "tied-f16-unprefixed", "llama/sharded", "llama/old"] {
        let fixture: Ids = read(name);
        let reference = TensorFile::open(&fixtures().join(format!("{name}.safetensors"))).unwrap();
        let gpt = checkpoint::load(&fixtures().join(name), &Device::flex()).unwrap();
        let logits = gpt.forward(ids(&fixture.input_ids, &Device::flex()));
        let error = largest_difference(&values(logits), &reference.read("logits").unwrap().values);
        assert!(error < 1e-4, "{name}: logits differ by {error}");
    }
}
