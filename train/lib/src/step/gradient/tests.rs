#![allow(clippy::unwrap_used)]

use burn::tensor::{Device, FloatDType};
use ember_model::{GptConfig, MlpKind, NormKind, Positions};
use itertools::Itertools;

use ember_kernels::cross_entropy::{Objective, loss_over};

use super::*;
use crate::differences::largest_difference;

const TIME: usize = 12;
const VOCAB: usize = 23;

fn gpt2(dropout: f64) -> GptConfig {
    let mut config = GptConfig::new(VOCAB, 16, 3, 2, 32);
    config.dropout = dropout;
    config
}

fn llama() -> GptConfig {
    let mut config = gpt2(0.0);
    (config.positions, config.norm, config.mlp) = (Positions::Rotary, NormKind::RmsNorm, MlpKind::SwiGlu);
    (config.bias, config.tied_head, config.qk_norm, config.n_kv_head) = (false, false, true, 1);
    config
}

fn model(config: &GptConfig) -> Gpt {
    Gpt::new(config, 7, &Device::flex().autodiff()).unwrap()
}

fn batch() -> Batch {
    let ids = |shift: usize| (0..3 * TIME).map(|i| ((i * i + shift * 7 + i / 5) % VOCAB) as u32).collect();
    Batch { inputs: ids(0), targets: ids(1), batch_size: 3, context_length: TIME }
}

fn passes() -> Passes {
    Passes { step: 9, objective: Objective { z_loss: 1e-3, label_smoothing: 0.1 }, ..Passes::plain(3, 5) }
}

/// The loss, and every parameter's gradient under its name.
type Numbers = (f32, Vec<(String, Vec<f32>)>);

fn named(gpt: &Gpt, loss: Tensor<1>, mut gradients: GradientsParams) -> Numbers {
    let named = gpt.parameters().into_iter().map(|parameter| {
        let values = match parameter.shape.len() {
            1 => gradients.remove::<1>(parameter.id).unwrap().into_data(),
            _ => gradients.remove::<2>(parameter.id).unwrap().into_data(),
        };
        assert_eq!(values.dtype(), burn::tensor::DType::F32, "{}", parameter.name);
        (parameter.name, values.iter::<f32>().collect())
    });
    let named = named.collect();
    (loss.into_scalar::<f32>(), named)
}

fn numbers(gpt: &Gpt, passes: Passes) -> Numbers {
    let mut gradients = GradientsAccumulator::new();
    let loss = pass(gpt, &batch(), 4, 2.0 / passes.loss_scale, &passes, &mut gradients);
    named(gpt, loss, loss_scale::unscaled(gpt, gradients.grads(), passes.loss_scale))
}

/// The largest difference of any gradient, relative to the largest entry of its tensor.
fn difference(a: &Numbers, b: &Numbers) -> f32 {
    let of_tensor = |a: &[f32], b: &[f32]| {
        let largest = b.iter().fold(0.0f32, |largest, b| largest.max(b.abs()));
        largest_difference(a, b) / largest.max(1e-6)
    };
    // The gradient of the key's bias is zero except for rounding.
    let tensors = a.1.iter().zip_eq(&b.1).filter(|(a, _)| !a.0.ends_with("c_attn.bias"));
    tensors.map(|(a, b)| of_tensor(&a.1, &b.1)).fold(largest_difference(&[a.0], &[b.0]), f32::max)
}

#[test]
fn checkpointed_blocks_give_the_same_bits() {
    for config in [gpt2(0.0), llama()] {
        for precision in [FloatDType::F32, FloatDType::BF16] {
            let gpt = model(&config).with_precision(precision);
            let whole = numbers(&gpt, passes());
            let by_block = numbers(&gpt, Passes { activation_checkpointing: true, ..passes() });
            assert!(whole == by_block, "{}", difference(&by_block, &whole));
        }
    }
}

/// With dropout, both forward passes of a block must draw the same masks: the gradient is that of
/// one graph of the whole model with segments seeded alike.
#[test]
fn a_block_computed_again_drops_what_it_dropped_before() {
    let gpt = model(&gpt2(0.3));
    let passes = Passes { activation_checkpointing: true, ..passes() };
    let n_layer = gpt.config().n_layer;
    let whole = || {
        passes.reseed(&[4, n_layer as u64]);
        let mut x = gpt.embed(inputs(&gpt, &batch()));
        for i in 0..n_layer {
            passes.reseed(&[4, i as u64]);
            x = gpt.block(i, x);
        }
        let logits = gpt.logits(gpt.final_norm(x));
        let Loss { objective, cross_entropy } = loss_over(logits, &batch().targets, passes.objective, 1.0);
        named(&gpt, cross_entropy, GradientsParams::from_grads((objective / 2.0).backward(), &gpt))
    };
    // All tests of this process share one generator: sometimes another test draws in between.
    assert!((0..50).any(|_| numbers(&gpt, passes) == whole()));
    assert!((0..5).all(|_| numbers(&gpt, Passes { step: 10, ..passes }) != whole()), "every step drops the same");
}

#[test]
fn the_head_in_pieces_gives_the_same_gradient() {
    for config in [gpt2(0.0), llama()] {
        let gpt = model(&config);
        for activation_checkpointing in [false, true] {
            let whole = numbers(&gpt, Passes { activation_checkpointing, ..passes() });
            // 36 positions in pieces of 1, of 8 (the last has 4), and of 18.
            for most_logits in [1, 8 * VOCAB, 36 * VOCAB - 1] {
                let pieces = numbers(&gpt, Passes { most_logits, activation_checkpointing, ..passes() });
                let error = difference(&pieces, &whole);
                assert!(error < 2e-6, "{most_logits} {activation_checkpointing}: {error}");
            }
        }
    }
}

/// Products with 8 bits of precision: a gradient is accurate to about a hundredth of its largest
/// entry.
#[test]
fn half_precision_gives_nearly_the_same_gradient() {
    for config in [gpt2(0.0), llama()] {
        let exact = numbers(&model(&config), passes());
        for (precision, allowed) in [(FloatDType::BF16, 2e-2), (FloatDType::F16, 3e-3)] {
            let gpt = model(&config).with_precision(precision);
            let rounded = numbers(&gpt, Passes { loss_scale: 1024.0, ..passes() });
            let error = difference(&rounded, &exact);
            assert!(error > 0.0 && error < allowed, "{precision:?}: {error}");
        }
    }
}

#[test]
fn a_step_of_one_pass_has_the_same_gradient_in_two_halves() {
    let gpt = model(&gpt2(0.0));
    for loss_scale in [1.0, 4096.0] {
        let passes = Passes { loss_scale, first_pass: 4, ..passes() };
        let Enqueued { losses, gradients } = of_batch(&gpt, &batch(), &passes);
        let [loss] = &losses[..] else { panic!("{} losses", losses.len()) };
        let whole = named(&gpt, loss.clone(), gradients);
        let mut gradients = GradientsAccumulator::new();
        let halved = pass_forward(&gpt, &batch(), 4, passes.divisor(1), &passes);
        pass_backward(&gpt, halved.objective, &mut gradients);
        assert!(named(&gpt, halved.cross_entropy, accumulated(&gpt, gradients, &passes)) == whole, "{loss_scale}");
        let mut gradients = GradientsAccumulator::new();
        pass(&gpt, &batch(), 4, 1.0, &passes, &mut gradients);
        assert!(named(&gpt, loss.clone(), gradients.grads()) == whole, "{loss_scale}");
    }
}

#[test]
fn a_scale_of_the_loss_leaves_the_gradient() {
    let gpt = model(&gpt2(0.0));
    assert!(numbers(&gpt, Passes { loss_scale: 4096.0, ..passes() }) == numbers(&gpt, passes()));
}
