//! Whole models: logits, cached decoding, gradients, and some steps of each optimizer.

use burn::{optim::GradientsAccumulator, optim::GradientsParams, tensor::Device, tensor::FloatDType};
use ember_data::windows::Batch;
use ember_kernels::cross_entropy::{Objective, loss};
use ember_kernels::{argmax, is_cpu};
use ember_model::{Gpt, GptConfig, KvCache, MlpKind, NormKind, Parameter, Positions, RecordedStep};

use super::check::{Check, Results, values};
use crate::batch::batch_logits;
use ember_training::step::gradient::{Passes, pass};
use ember_training::step::optimizer::{AdamWConfig, MuonConfig, Optimizer, OptimizerConfig, clip_scale, global_norm};

/// How many roundings may add up in a model of two blocks, and in a few of its steps.
const ROUNDINGS: f64 = 32.0;

const BATCH: usize = 3;
const TIME: usize = 65;
const VOCAB: usize = 211;
/// Tokens of the first row's prompt; the rest of its window is decoded one by one.
const PROMPT: usize = 40;
/// How many tokens shorter each row's prompt is than that of the row before.
const SHORTER: usize = 7;
const STEPS: usize = 4;
const SEED: u64 = 1;

/// A model with GPT-2's parts, and one with all parts that GPT-2 does not have; the second is wide
/// enough that its matrices take every path by which a GPU multiplies large ones.
pub fn all() -> [Check; 2] {
    let gpt2 = GptConfig { dropout: 0.1, ..GptConfig::new(VOCAB, TIME, 2, 4, 96) };
    let llama = GptConfig {
        n_embd: 128,
        head_size: 32,
        n_kv_head: 2,
        n_inner: 168,
        positions: Positions::Rotary,
        norm: NormKind::RmsNorm,
        mlp: MlpKind::SwiGlu,
        qk_norm: true,
        bias: false,
        tied_head: false,
        ..gpt2.clone()
    };
    [("gpt2", gpt2), ("llama", llama)].map(|(name, config)| {
        let compute = move |device: &Device, precision| compute(&config, device, precision);
        Check { name, parts: &PARTS, roundings: ROUNDINGS, compute: Box::new(compute) }
    })
}

const PARTS: [&str; 7] = [
    "logits",
    "best tokens",
    "cached decoding",
    "replayed decoding",
    "gradients",
    "steps by AdamW, averaged",
    "steps by Muon",
];

/// The results of all [`PARTS`].
fn compute(config: &GptConfig, device: &Device, precision: FloatDType) -> Results {
    let model = |device: &Device| {
        let Ok(gpt) = Gpt::new(config, SEED, device) else { unreachable!("the shapes above are whole") };
        gpt.with_precision(precision)
    };
    let (batch, plain, training) = (batch(), model(device), device.clone().autodiff());
    let muon = MuonConfig { relative_rate: 10.0, momentum: 0.95, weight_decay: 0.01, precision };
    vec![
        vec![values(batch_logits(&plain, &batch))],
        best_tokens(&plain, &batch),
        decoded(&plain, &batch, false),
        decoded(&plain, &batch, true),
        gradients_by_parameter(&model(&training), &batch),
        progress(model(&training), &batch, None),
        progress(model(&training), &batch, Some(muon)),
    ]
}

/// The largest logit at each position, and the logarithm of the sum of all exponentials. The token
/// itself is not compared: rounding decides between two equally good ones.
fn best_tokens(gpt: &Gpt, batch: &Batch) -> Vec<Vec<f32>> {
    let logits = batch_logits(gpt, batch).reshape([BATCH * TIME, VOCAB]);
    if is_cpu(&gpt.device()) {
        let [most, sum] = [logits.clone().max_dim(1), logits.exp().sum_dim(1).log()];
        return vec![values(most), values(sum)];
    }
    let best = argmax(logits);
    [1, 2].map(|column| values(best.clone().narrow(1, column, 1))).to_vec()
}

/// The logits at the last position of prompts of different lengths, then of each further token: by
/// a `replayed` step if the device can record steps.
fn decoded(gpt: &Gpt, batch: &Batch, replayed: bool) -> Vec<Vec<f32>> {
    let mut cache = KvCache::new(gpt.config(), BATCH, BATCH * TIME, &gpt.device());
    let row = |row: usize| &batch.inputs[row * TIME..(row + 1) * TIME];
    let prompts: Vec<&[u32]> = (0..BATCH).map(|i| &row(i)[..PROMPT - SHORTER * i]).collect();
    let mut all = vec![values(gpt.forward_cached_last(&prompts, &[1; BATCH], &mut cache))];
    let replays = replayed && !is_cpu(&gpt.device());
    let mut recorded: Option<RecordedStep> = None;
    for i in PROMPT..TIME {
        let next: Vec<u32> = (0..BATCH).map(|r| row(r)[i - SHORTER * r]).collect();
        let logits = if !replays {
            gpt.forward_cached(&next.chunks(1).collect::<Vec<_>>(), &mut cache)
        } else if let Some(step) = &mut recorded {
            step.step(&next, &mut cache);
            step.output()
        } else {
            // The comparison reports the missing logits.
            let Some(step) = RecordedStep::record(gpt, &next, &mut cache, |logits| logits) else { return all };
            recorded.insert(step).output()
        };
        all.push(values(logits));
    }
    all
}

fn batch() -> Batch {
    let ids = |factor: usize| (0..BATCH * TIME).map(|i| (i * i * factor % VOCAB) as u32).collect();
    Batch { inputs: ids(3), targets: ids(5), batch_size: BATCH, context_length: TIME }
}

/// The gradient of the mean loss, and the loss.
fn gradients(gpt: &Gpt, batch: &Batch) -> (GradientsParams, f32) {
    let mut gradients = GradientsAccumulator::new();
    let loss = pass(gpt, batch, 0, 1.0, &Passes::plain(BATCH, SEED), &mut gradients);
    (gradients.grads(), loss.into_scalar::<f32>())
}

fn gradients_by_parameter(gpt: &Gpt, batch: &Batch) -> Vec<Vec<f32>> {
    let (gradients, _) = gradients(gpt, batch);
    let of = |parameter: &Parameter| match parameter.shape.len() {
        1 => gradients.get::<1>(parameter.id).map(values),
        _ => gradients.get::<2>(parameter.id).map(values),
    };
    gpt.parameters().iter().map(|parameter| of(parameter).unwrap_or_default()).collect()
}

/// The loss before a few clipped steps, how much it has fallen after each, and how much it has
/// fallen for an average of the weights, which only AdamW's run has here.
fn progress(mut gpt: Gpt, batch: &Batch, muon: Option<MuonConfig>) -> Vec<Vec<f32>> {
    let adamw = AdamWConfig { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.1 };
    let ema_decay = if muon.is_some() { 0.0 } else { 0.5 };
    let mut optimizer = Optimizer::new(OptimizerConfig { adamw, muon, ema_decay });
    let (mut ahead, first) = gradients(&gpt, batch);
    let mut fallen = Vec::new();
    for _ in 0..STEPS {
        let scale = clip_scale(global_norm(&gpt, &ahead), 1.0);
        gpt = optimizer.step(gpt, ahead, scale, 1e-3);
        let (next, reached) = gradients(&gpt, batch);
        fallen.push(first - reached);
        ahead = next;
    }
    let average = optimizer.average().and_then(|average| average.model(&gpt));
    let of_average = average.map(|average| loss(batch_logits(&average, batch), &batch.targets, Objective::default()));
    let of_average = of_average.map(|loss| first - loss.cross_entropy.into_scalar::<f32>());
    vec![vec![first], fallen, Vec::from_iter(of_average)]
}
