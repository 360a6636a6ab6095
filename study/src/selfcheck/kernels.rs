//! Checks each kernel: its output, and the gradient of every input along a random direction.

use std::array::from_fn;

use burn::tensor::{Device, FloatDType, Tensor};
use ember_kernels::cross_entropy::{Objective, loss};
use ember_kernels::{Heads, Norm, Rotary, cast, causal_attention, gelu, head_loss, layer_norm, linear, linear_onto};
use ember_kernels::{qk_norm, rms_norm, rotate, swiglu, unembed};

use super::check::{Check, random_values, tensor, values};

/// How many roundings may add up in one kernel and its backward.
const ROUNDINGS: f64 = 8.0;

// Odd sizes, longer than any tile in one direction or another.
const BATCH: usize = 3;
const TIME: usize = 77;
const WIDTH: usize = 132;
const N_OUT: usize = 201;
const VOCAB: usize = 1_037;
const EPSILON: f64 = 1e-5;
const HEADS: Heads = Heads { n_head: 6, n_kv_head: 2, head_size: 32 };
/// The head size for which Hopper has its own kernels.
const HEADS_OF_64: Heads = Heads { n_head: 4, n_kv_head: 2, head_size: 64 };

/// Every operation of the model that has a gradient, and the loss; embedding and dropout are
/// covered by the whole [models](super::models).
pub fn all() -> Vec<Check> {
    let x = [BATCH, TIME, WIDTH];
    let y = [BATCH, TIME, N_OUT];
    let weight = [1, WIDTH, N_OUT];
    let qkv = [BATCH, TIME, HEADS.width()];
    let vector = |n: usize| [1, 1, n];
    vec![
        kernel("linear", [x, weight, vector(N_OUT)], |[x, w, b], to| {
            linear(cast(x, to), matrix(w, to), Some(cast(flat(b), to)))
        }),
        kernel("linear of whole tiles", [[2, 128, 128], [1, 128, 256], vector(256)], |[x, w, b], to| {
            linear(cast(x, to), matrix(w, to), Some(cast(flat(b), to)))
        }),
        kernel("linear without bias", [x, weight], |[x, w], to| linear(cast(x, to), matrix(w, to), None)),
        kernel("linear onto a residual", [y, x, weight, vector(N_OUT)], |[y, x, w, b], to| {
            linear_onto(y, cast(x, to), matrix(w, to), Some(cast(flat(b), to)), None)
        }),
        kernel("unembed", [x, [1, VOCAB, WIDTH]], |[x, w], to| unembed(cast(x, to), matrix(w, to))),
        kernel("layer_norm", [x, vector(WIDTH), vector(WIDTH)], |[x, gamma, beta], to| {
            layer_norm(x, flat(gamma), Some(flat(beta)), Norm::new(EPSILON, to))
        }),
        kernel("rms_norm", [x, vector(WIDTH)], |[x, gamma], to| rms_norm(x, flat(gamma), Norm::new(EPSILON, to))),
        kernel("qk_norm", [qkv, vector(HEADS.head_size), vector(HEADS.head_size)], |[qkv, q, k], to| {
            qk_norm(cast(qkv, to), flat(q), flat(k), EPSILON, HEADS)
        }),
        kernel("rotate", [qkv], |[qkv], to| {
            let rotary = Rotary::new(0..TIME, HEADS.head_size, 10_000.0, &qkv.device());
            rotate(cast(qkv, to), &rotary, HEADS)
        }),
        kernel("gelu", [x], |[x], to| gelu(cast(x * 3.0, to))),
        kernel("swiglu", [x], |[x], to| swiglu(cast(x * 3.0, to))),
        kernel("causal_attention", [qkv], |[qkv], to| causal_attention(cast(qkv * 2.0, to), HEADS, None)),
        kernel("heads of 64", [[BATCH, TIME, HEADS_OF_64.width()]], |[qkv], to| {
            causal_attention(cast(qkv * 2.0, to), HEADS_OF_64, None)
        }),
        kernel("head and loss in pieces", [[2, 128, 128], [1, 256, 128]], |[x, table], to| {
            // Pieces of 100, 100 and 56 positions. Half as large as the other inputs: the exponential would
            // turn the rounding of larger logits, in bfloat16, into more than the tolerance.
            let targets: Vec<u32> = (0..256).map(|place| place * 31 % 256).collect();
            let objective = Objective { z_loss: 1e-3, label_smoothing: 0.1 };
            head_loss(cast(x * 0.5, to), matrix(table, to), &targets, objective, 1.0, 100).objective.reshape([1, 1, 1])
        }),
        kernel("cross_entropy", [[BATCH, TIME, VOCAB]], |[logits], to| {
            let targets: Vec<u32> = (0..BATCH * TIME).map(|place| (place * 31 % VOCAB) as u32).collect();
            let objective = Objective { z_loss: 1e-3, label_smoothing: 0.1 };
            // Cast to the type of products and back, as the model's logits are.
            let logits = cast(cast(logits * 4.0, to), FloatDType::F32);
            loss(logits, &targets, objective).objective.reshape([1, 1, 1])
        }),
    ]
}

/// An operation on tensors of these shapes, all in three dimensions and in float32; the type is the
/// one that products are computed in.
type Operation<const N: usize> = fn([Tensor<3>; N], FloatDType) -> Tensor<3>;

fn kernel<const N: usize>(name: &'static str, inputs: [[usize; 3]; N], operation: Operation<N>) -> Check {
    let compute = move |device: &Device, to| vec![values_and_gradients(inputs, operation, device, to)];
    Check { name, parts: &[""], roundings: ROUNDINGS, compute: Box::new(compute) }
}

fn flat(x: Tensor<3>) -> Tensor<1> {
    x.flatten(0, 2)
}

fn matrix(x: Tensor<3>, to: FloatDType) -> Tensor<2> {
    cast(x.squeeze_dim(0), to)
}

/// The output, then the gradient of each input.
fn values_and_gradients<const N: usize>(
    shapes: [[usize; 3]; N],
    operation: Operation<N>,
    device: &Device,
    precision: FloatDType,
) -> Vec<Vec<f32>> {
    let device = device.clone().autodiff();
    let number = |i: usize, shape: [usize; 3]| random_values(i as u64, shape.iter().product());
    let inputs: [_; N] = from_fn(|i| tensor(number(i, shapes[i]), shapes[i], &device).require_grad());
    let y = cast(operation(inputs.clone(), precision), FloatDType::F32);
    let direction = tensor(number(N, y.dims()), y.dims(), &device);
    let mut all = vec![values(y.clone().inner())];
    let gradients = (y * direction).sum().backward();
    all.extend(inputs.iter().map(|input| input.grad(&gradients).map_or_else(Vec::new, values)));
    all
}
