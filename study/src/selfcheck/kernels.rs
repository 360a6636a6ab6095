//! Each kernel by itself: its output, and the gradient of every input along a random direction.

use burn::tensor::{Device, FloatDType, Tensor};
use ember_kernels::{self as kernels, Heads, Rotary, cast};

use super::check::{Check, random_values, tensor, values};
use ember_training::loss::{Objective, loss};

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

/// Every operation of the model that has a gradient, and the loss; embedding and dropout stand in
/// the whole [models](super::models).
pub fn all() -> Vec<Check> {
    let x = [BATCH, TIME, WIDTH];
    let y = [BATCH, TIME, N_OUT];
    let weight = [1, WIDTH, N_OUT];
    let qkv = [BATCH, TIME, HEADS.width()];
    let vector = |n: usize| [1, 1, n];
    vec![
        kernel("linear", &[x, weight, vector(N_OUT)], |i, to| {
            kernels::linear(cast(i[0].clone(), to), matrix(&i[1], to), Some(cast(flat(&i[2]), to)))
        }),
        kernel("linear without bias", &[x, weight], |i, to| {
            kernels::linear(cast(i[0].clone(), to), matrix(&i[1], to), None)
        }),
        kernel("linear onto a residual", &[y, x, weight, vector(N_OUT)], |i, to| {
            let bias = Some(cast(flat(&i[3]), to));
            kernels::linear_onto(i[0].clone(), cast(i[1].clone(), to), matrix(&i[2], to), bias, None)
        }),
        kernel("unembed", &[x, [1, VOCAB, WIDTH]], |i, to| kernels::unembed(cast(i[0].clone(), to), matrix(&i[1], to))),
        kernel("layer_norm", &[x, vector(WIDTH), vector(WIDTH)], |i, to| {
            kernels::layer_norm(i[0].clone(), flat(&i[1]), Some(flat(&i[2])), EPSILON, to)
        }),
        kernel("rms_norm", &[x, vector(WIDTH)], |i, to| kernels::rms_norm(i[0].clone(), flat(&i[1]), EPSILON, to)),
        kernel("qk_norm", &[qkv, vector(HEADS.head_size), vector(HEADS.head_size)], |i, to| {
            kernels::qk_norm(cast(i[0].clone(), to), flat(&i[1]), flat(&i[2]), EPSILON, HEADS)
        }),
        kernel("rotate", &[qkv], |i, to| {
            let rotary = Rotary::new(0..TIME, HEADS.head_size, 10_000.0, &i[0].device());
            kernels::rotate(cast(i[0].clone(), to), &rotary, HEADS)
        }),
        kernel("gelu", &[x], |i, to| kernels::gelu(cast(i[0].clone() * 3.0, to))),
        kernel("swiglu", &[x], |i, to| kernels::swiglu(cast(i[0].clone() * 3.0, to))),
        kernel("causal_attention", &[qkv], |i, to| {
            kernels::causal_attention(cast(i[0].clone() * 2.0, to), HEADS, None)
        }),
        kernel("cross_entropy", &[[BATCH, TIME, VOCAB]], |i, to| {
            let targets: Vec<u32> = (0..BATCH * TIME).map(|place| (place * 31 % VOCAB) as u32).collect();
            let objective = Objective { z_loss: 1e-3, label_smoothing: 0.1 };
            // A copy in the type of the products and back, as the model's logits have been through
            // it.
            let logits = cast(cast(i[0].clone() * 4.0, to), FloatDType::F32);
            loss(logits, &targets, objective).objective.reshape([1, 1, 1])
        }),
    ]
}

/// An operation on tensors of these shapes, all given in three dimensions and in float32; the type
/// is what products are computed in.
type Operation = fn(&[Tensor<3>], FloatDType) -> Tensor<3>;

fn kernel(name: &'static str, inputs: &[[usize; 3]], operation: Operation) -> Check {
    let inputs = inputs.to_vec();
    let compute = move |device: &Device, to| vec![values_and_gradients(&inputs, operation, device, to)];
    Check { name, parts: &[""], roundings: ROUNDINGS, compute: Box::new(compute) }
}

fn flat(x: &Tensor<3>) -> Tensor<1> {
    x.clone().flatten(0, 2)
}

fn matrix(x: &Tensor<3>, to: FloatDType) -> Tensor<2> {
    cast(x.clone().squeeze_dim(0), to)
}

/// The output, then the gradient of each input.
fn values_and_gradients(
    shapes: &[[usize; 3]],
    operation: Operation,
    device: &Device,
    precision: FloatDType,
) -> Vec<Vec<f32>> {
    let device = device.clone().autodiff();
    let number = |i: usize, shape: [usize; 3]| random_values(i as u64, shape.iter().product());
    let inputs = shapes.iter().enumerate();
    let inputs: Vec<_> = inputs.map(|(i, &shape)| tensor(number(i, shape), shape, &device).require_grad()).collect();
    let y = cast(operation(&inputs, precision), FloatDType::F32);
    let direction = tensor(number(shapes.len(), y.dims()), y.dims(), &device);
    let mut all = vec![values(y.clone().inner())];
    let gradients = (y * direction).sum().backward();
    all.extend(inputs.iter().map(|input| input.grad(&gradients).map_or_else(Vec::new, values)));
    all
}
