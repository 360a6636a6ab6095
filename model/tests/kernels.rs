//! Our CPU kernels against the plain formulas: values everywhere, gradients where the feature `autodiff` is on; and the
//! model's cached forward against its full one.
#![allow(clippy::unwrap_used)]

use burn::tensor::{DType, Device, Distribution, FloatDType, Int, Tensor, TensorData};
use ember_model::kernels::{self, DropoutMask, Heads, Rotary, plain};
use ember_model::{Gpt, GptConfig, KvCache, MlpKind, NormKind, Positions};
use itertools::Itertools;
use proptest::prelude::*;

fn random<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), device)
}

#[cfg(feature = "autodiff")]
fn flat<const D: usize>(tensor: Tensor<D>) -> Tensor<1> {
    let n = tensor.shape().num_elements();
    tensor.reshape([n])
}

/// The largest difference, relative to the largest value (at least 1).
fn difference<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> f32 {
    let scale = b.clone().abs().max().into_scalar::<f32>().max(1.0);
    (a - b).abs().max().into_scalar::<f32>() / scale
}

/// Compares one operation and its gradients with respect to every input, on the same random values.
///
/// Sums of n float32 products differ by their order: the tolerance is 2e-5 of the largest value for the sizes used here.
macro_rules! same {
    ($inputs:expr, $fused:expr, $plain:expr) => {{
        #[allow(unused_mut)]
        let mut inputs = $inputs;
        #[cfg(feature = "autodiff")]
        {
            inputs = inputs.tracked();
        }
        let (fused, reference) = ($fused(&inputs), $plain(&inputs));
        #[cfg(feature = "autodiff")]
        {
            let weights = Tensor::random(fused.dims(), Distribution::Normal(0.0, 1.0), &fused.device());
            let a = inputs.gradients(&(fused.clone() * weights.clone()).sum().backward());
            let b = inputs.gradients(&(reference.clone() * weights).sum().backward());
            for (a, b) in a.into_iter().zip_eq(b) {
                let error = difference(a, b);
                prop_assert!(error < 2e-5, "a gradient differs by {error}");
            }
        }
        let error = difference(fused.inner(), reference.inner());
        prop_assert!(error < 2e-5, "the value differs by {error}");
    }};
}

/// The inputs of an operation: `x` and up to two parameters, flattened to compare gradients.
struct Inputs {
    x: Tensor<3>,
    matrix: Tensor<2>,
    vectors: [Tensor<1>; 2],
}

impl Inputs {
    fn new(x: [usize; 3], matrix: [usize; 2], vectors: [usize; 2], seed: u64) -> Self {
        let device = device();
        device.seed(seed);
        Self { x: random(x, &device), matrix: random(matrix, &device), vectors: vectors.map(|n| random([n], &device)) }
    }

    #[cfg(feature = "autodiff")]
    fn tracked(self) -> Self {
        Self {
            x: self.x.require_grad(),
            matrix: self.matrix.require_grad(),
            vectors: self.vectors.map(Tensor::require_grad),
        }
    }

    #[cfg(feature = "autodiff")]
    fn gradients(&self, gradients: &burn::tensor::Gradients) -> Vec<Tensor<1>> {
        let x = self.x.grad(gradients).map(flat);
        let matrix = self.matrix.grad(gradients).map(flat);
        let vectors = self.vectors.iter().map(|vector| vector.grad(gradients));
        [x, matrix].into_iter().chain(vectors).flatten().collect()
    }
}

#[cfg(feature = "autodiff")]
fn device() -> Device {
    Device::flex().autodiff()
}
#[cfg(not(feature = "autodiff"))]
fn device() -> Device {
    Device::flex()
}

/// Everything that GPT-2 does not have, in one model.
fn newest(context_length: usize) -> GptConfig {
    GptConfig {
        n_kv_head: 2,
        head_size: 6,
        n_inner: 33,
        positions: Positions::Rotary,
        norm: NormKind::RmsNorm,
        mlp: MlpKind::SwiGlu,
        qk_norm: true,
        bias: false,
        tied_head: false,
        ..GptConfig::new(50, context_length, 2, 4, 20)
    }
}

/// Some heads of keys and values, each of which serves some heads of queries.
fn heads() -> impl Strategy<Value = Heads> {
    (1usize..4, 1usize..5, 1usize..20).prop_map(|(n_kv_head, served, head_size)| Heads {
        n_head: n_kv_head * served,
        n_kv_head,
        head_size,
    })
}

/// As [`heads`], each of an even width.
fn even_heads() -> impl Strategy<Value = Heads> {
    heads().prop_map(|heads| Heads { head_size: 2 * heads.head_size, ..heads })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn linear(batch in 1usize..4, time in 1usize..80, n_in in 1usize..70, n_out in 1usize..150, seed: u64) {
        same!(
            Inputs::new([batch, time, n_in], [n_in, n_out], [n_out, 1], seed),
            |i: &Inputs| kernels::linear(i.x.clone(), i.matrix.clone(), Some(i.vectors[0].clone())),
            |i: &Inputs| plain::linear(i.x.clone(), i.matrix.clone(), Some(i.vectors[0].clone()))
        );
    }

    #[test]
    fn linear_without_bias(batch in 1usize..4, time in 1usize..80, n_in in 1usize..70, n_out in 1usize..150, seed: u64) {
        same!(
            Inputs::new([batch, time, n_in], [n_in, n_out], [1, 1], seed),
            |i: &Inputs| kernels::linear(i.x.clone(), i.matrix.clone(), None),
            |i: &Inputs| plain::linear(i.x.clone(), i.matrix.clone(), None)
        );
    }

    #[test]
    fn linear_gelu(batch in 1usize..4, time in 1usize..80, n_in in 1usize..70, n_out in 1usize..150, seed: u64) {
        same!(
            Inputs::new([batch, time, n_in], [n_in, n_out], [n_out, 1], seed),
            |i: &Inputs| kernels::linear_gelu(i.x.clone(), i.matrix.clone(), Some(i.vectors[0].clone())),
            |i: &Inputs| plain::gelu(plain::linear(i.x.clone(), i.matrix.clone(), Some(i.vectors[0].clone())))
        );
    }

    #[test]
    fn embed(rows in 1usize..200, time in 1usize..100, n_embd in 1usize..70, seed: u64) {
        let ids: Vec<i32> = (0..2 * time).map(|i| (i * i % rows) as i32).collect();
        let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [2, time]), &device());
        same!(
            Inputs::new([1, 1, 1], [rows, n_embd], [1, 1], seed),
            |i: &Inputs| kernels::embed(i.matrix.clone(), ids.clone()),
            |i: &Inputs| plain::embed(i.matrix.clone(), ids.clone())
        );
    }

    #[test]
    fn linear_onto(time in 1usize..80, n_in in 1usize..70, n_out in 1usize..150, probability in 0.0f32..0.9, seed: u64) {
        let mask = Some(DropoutMask { probability, key: seed });
        same!(
            Inputs::new([2, time, n_in], [n_in, n_out], [n_out, 1], seed),
            |i: &Inputs| {
                let residual = Tensor::zeros([2, time, n_out], &device());
                kernels::linear_onto(residual, i.x.clone(), i.matrix.clone(), Some(i.vectors[0].clone()), mask)
            },
            |i: &Inputs| plain::dropout(plain::linear(i.x.clone(), i.matrix.clone(), Some(i.vectors[0].clone())), mask)
        );
    }

    #[test]
    fn unembed(batch in 1usize..3, time in 1usize..40, n_embd in 1usize..70, vocab in 1usize..150, seed: u64) {
        same!(
            Inputs::new([batch, time, n_embd], [vocab, n_embd], [1, 1], seed),
            |i: &Inputs| kernels::unembed(i.x.clone(), i.matrix.clone()),
            |i: &Inputs| plain::unembed(i.x.clone(), i.matrix.clone())
        );
    }

    // Norms of at least 4 values: of two, or one, nothing is left but its sign, and the gradient is all rounding where they are nearly
    // the same.
    #[test]
    fn layer_norm(batch in 1usize..4, time in 1usize..60, n_embd in 4usize..100, seed: u64) {
        same!(
            Inputs::new([batch, time, n_embd], [1, 1], [n_embd, n_embd], seed),
            |i: &Inputs| kernels::layer_norm(i.x.clone(), i.vectors[0].clone(), Some(i.vectors[1].clone()), 1e-5, FloatDType::F32),
            |i: &Inputs| plain::layer_norm(i.x.clone(), i.vectors[0].clone(), Some(i.vectors[1].clone()), 1e-5)
        );
    }

    #[test]
    fn layer_norm_without_bias(batch in 1usize..4, time in 1usize..60, n_embd in 4usize..100, seed: u64) {
        same!(
            Inputs::new([batch, time, n_embd], [1, 1], [n_embd, 1], seed),
            |i: &Inputs| kernels::layer_norm(i.x.clone(), i.vectors[0].clone(), None, 1e-5, FloatDType::F32),
            |i: &Inputs| plain::layer_norm(i.x.clone(), i.vectors[0].clone(), None, 1e-5)
        );
    }

    #[test]
    fn rms_norm(batch in 1usize..4, time in 1usize..60, n_embd in 4usize..100, seed: u64) {
        same!(
            Inputs::new([batch, time, n_embd], [1, 1], [n_embd, 1], seed),
            |i: &Inputs| kernels::rms_norm(i.x.clone(), i.vectors[0].clone(), 1e-5, FloatDType::F32),
            |i: &Inputs| plain::rms_norm(i.x.clone(), i.vectors[0].clone(), 1e-5)
        );
    }

    // Heads of at least 4 values, as above.
    #[test]
    fn qk_norm(batch in 1usize..4, time in 1usize..60, heads in heads(), seed: u64) {
        let heads = Heads { head_size: heads.head_size + 3, ..heads };
        same!(
            Inputs::new([batch, time, heads.width()], [1, 1], [heads.head_size; 2], seed),
            |i: &Inputs| kernels::qk_norm(i.x.clone(), i.vectors[0].clone(), i.vectors[1].clone(), 1e-6, heads),
            |i: &Inputs| plain::qk_norm(i.x.clone(), i.vectors[0].clone(), i.vectors[1].clone(), 1e-6, heads)
        );
    }

    #[test]
    fn rotate(batch in 1usize..4, time in 1usize..60, first in 0usize..500, heads in even_heads(), seed: u64) {
        let rotary = Rotary::new(first..first + time, heads.head_size, 1e4, &device());
        same!(
            Inputs::new([batch, time, heads.width()], [1, 1], [1, 1], seed),
            |i: &Inputs| kernels::rotate(i.x.clone(), &rotary, heads),
            |i: &Inputs| plain::rotate(i.x.clone(), &rotary, heads)
        );
    }

    #[test]
    fn swiglu(batch in 1usize..4, time in 1usize..70, n in 1usize..50, seed: u64, scale in 0.1f64..8.0) {
        same!(
            Inputs::new([batch, time, 2 * n], [1, 1], [1, 1], seed),
            |i: &Inputs| kernels::swiglu(i.x.clone() * scale),
            |i: &Inputs| plain::swiglu(i.x.clone() * scale)
        );
    }

    #[test]
    fn gelu(time in 1usize..3000, seed: u64, scale in 0.1f64..8.0) {
        same!(
            Inputs::new([1, time, 7], [1, 1], [1, 1], seed),
            |i: &Inputs| kernels::gelu(i.x.clone() * scale),
            |i: &Inputs| plain::gelu(i.x.clone() * scale)
        );
    }

    // Times on both sides of one and of several blocks of query rows.
    #[test]
    fn causal_attention(
        batch in 1usize..3, time in prop_oneof![1usize..10, 60usize..70, 126usize..140], heads in heads(), seed: u64,
    ) {
        same!(
            Inputs::new([batch, time, heads.width()], [1, 1], [1, 1], seed),
            |i: &Inputs| kernels::causal_attention(i.x.clone(), heads, None),
            |i: &Inputs| plain::causal_attention(i.x.clone(), heads, None).0
        );
    }

    // Texts of different lengths in pieces of random length, forked, dropped and cut back on the way: every logit is what the
    // whole text gives at once: by our kernel, and by the plain formula, which runs where gradients are recorded.
    #[test]
    fn the_cache_changes_nothing(
        steps in proptest::collection::vec((any::<u64>(), prop_oneof![3 => Just(1usize), 2 => 0usize..12, 1 => 60usize..80]), 1..9),
        seed in 0u64..1000, slots in 1usize..60, plain: bool, newer: bool,
    ) {
        let context: usize = 1 + steps.iter().map(|(_, most)| most).sum::<usize>();
        let config = if newer { newest(context) } else { GptConfig::new(50, context, 2, 3, 24) };
        #[cfg(feature = "autodiff")]
        let device = if plain { Device::flex().autodiff() } else { Device::flex() };
        #[cfg(not(feature = "autodiff"))]
        let (device, _) = (Device::flex(), plain);
        let gpt = Gpt::new(&config, seed, &device).unwrap();
        let mut rows: Vec<Vec<u32>> = vec![Vec::new(); 3];
        let mut cache = KvCache::new(&config, rows.len(), slots, &device);
        for (mut choice, most) in steps {
            let mut pick = |n: usize| { choice = choice.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1); (choice >> 33) as usize % n };
            let parents: Vec<usize> = (0..1 + pick(4)).map(|_| pick(rows.len())).collect();
            rows = parents.iter().map(|&parent| rows[parent].clone()).collect();
            cache.select(&parents);
            let row = pick(rows.len());
            let len = rows[row].len() - pick(rows[row].len() + 1) / 4;
            rows[row].truncate(len);
            cache.truncate(row, len);
            let new: Vec<Vec<u32>> = rows.iter().map(|_| (0..pick(most + 1)).map(|_| pick(50) as u32).collect()).collect();
            if new.iter().all(Vec::is_empty) {
                continue;
            }
            let counts: Vec<usize> = new.iter().map(|new| pick(new.len() + 1)).collect();
            let pieces: Vec<&[u32]> = new.iter().map(Vec::as_slice).collect();
            let mut copy = cache.clone();
            let all = gpt.forward_cached(&pieces, &mut copy);
            let (mut place, mut wanted) = (0, Vec::new());
            for ((row, new), &count) in rows.iter_mut().zip_eq(&new).zip_eq(&counts) {
                row.extend(new);
                if new.is_empty() {
                    continue;
                }
                let ids: Vec<i32> = row.iter().map(|&id| id as i32).collect();
                let tokens = Tensor::<2, Int>::from_data(TensorData::new(ids, [1, row.len()]), &device);
                let full = gpt.forward(tokens).narrow(1, row.len() - new.len(), new.len()).squeeze_dim::<2>(0);
                let error = difference(all.clone().narrow(0, place, new.len()), full.clone());
                prop_assert!(error < 1e-5, "the last {} of {} positions differ by {error}", new.len(), row.len());
                if count > 0 {
                    wanted.push(full.narrow(0, new.len() - count, count));
                }
                place += new.len();
            }
            if wanted.is_empty() {
                cache = copy;
            } else {
                let last = gpt.forward_cached_last(&pieces, &counts, &mut cache);
                prop_assert!(difference(last, Tensor::cat(wanted, 0)) < 1e-5);
            }
            for (number, row) in rows.iter().enumerate() {
                prop_assert_eq!(cache.len(number), row.len());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    // Longer than a block of keys, and than two.
    #[test]
    fn attention_to_a_long_text(
        time in prop_oneof![505usize..520, 540usize..560, 1020usize..1060], heads in heads(), seed: u64,
    ) {
        let heads = Heads { head_size: heads.head_size.min(4), ..heads };
        same!(
            Inputs::new([1, time, heads.width()], [1, 1], [1, 1], seed),
            |i: &Inputs| kernels::causal_attention(i.x.clone(), heads, None),
            |i: &Inputs| plain::causal_attention(i.x.clone(), heads, None).0
        );
    }
}

/// With dropout the gradient must be that of the very function that ran: compare it with finite differences.
#[cfg(feature = "autodiff")]
#[test]
fn dropout_in_attention_has_its_own_gradient() {
    // Within a block of keys, and over two of them.
    dropout_has_its_gradient(70);
    dropout_has_its_gradient(530);
}

#[cfg(feature = "autodiff")]
fn dropout_has_its_gradient(time: usize) {
    let device = device();
    device.seed(3);
    let heads = Heads { n_head: 4, n_kv_head: 2, head_size: 3 };
    let mask = Some(DropoutMask { probability: 0.4, key: 99 });
    let qkv = random::<3>([1, time, heads.width()], &device).require_grad();
    let weights = random::<3>([1, time, heads.query_width()], &device);
    let value = |qkv: Tensor<3>| {
        let y = kernels::dropout(kernels::causal_attention(qkv, heads, mask), mask);
        (y * weights.clone()).sum()
    };
    let gradient = qkv.grad(&value(qkv.clone()).backward()).unwrap();
    let direction = random::<3>([1, time, heads.width()], &device);
    let step = 1e-2;
    let at = |sign: f64| value(qkv.clone().detach() + direction.clone() * (sign * step)).into_scalar::<f32>() as f64;
    let numeric = (at(1.0) - at(-1.0)) / (2.0 * step);
    let exact = (gradient * direction.inner()).sum().into_scalar::<f32>() as f64;
    assert!((numeric - exact).abs() < 2e-3 * exact.abs().max(1.0), "{numeric} {exact}");
}

/// The same bits whatever the number of threads: of the logits, and of every gradient.
#[cfg(feature = "autodiff")]
#[test]
fn the_number_of_threads_changes_no_bit() {
    let numbers = || -> Vec<Vec<f32>> {
        let device = device();
        let gpt = Gpt::new(&newest(150), 3, &device).unwrap();
        let ids: Vec<i32> = (0..300).map(|i| i * i % 50).collect();
        let logits = gpt.forward(Tensor::<2, Int>::from_data(TensorData::new(ids, [2, 150]), &device));
        let gradients = logits.clone().powi_scalar(2).sum().backward();
        let of = |tensor: Tensor<1>| tensor.into_data().try_into_vec::<f32>().unwrap();
        let block = &gpt.h[0];
        let matrices = [&gpt.wte.weight, &block.attn.c_attn.weight, &block.mlp.c_fc.weight];
        let norms = [&block.ln_1, block.attn.q_norm.as_ref().unwrap(), block.attn.k_norm.as_ref().unwrap()];
        let matrices = matrices.map(|matrix| of(flat(matrix.values().unwrap().grad(&gradients).unwrap())));
        let norms = norms.map(|norm| of(norm.weight.val().grad(&gradients).unwrap()));
        [of(flat(logits.inner()))].into_iter().chain(matrices).chain(norms).collect()
    };
    let with = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(numbers);
    let one = with(1);
    assert!(one.iter().all(|values| values.iter().any(|value| *value != 0.0)));
    assert_eq!(one, with(2));
    assert_eq!(one, with(5));
}

/// What a branch computes in half precision: the kernels take it and give it back, rounded once from float32.
#[test]
fn half_precision_passes_through_the_kernels() {
    let device = Device::flex();
    device.seed(5);
    let heads = Heads { n_head: 4, n_kv_head: 2, head_size: 6 };
    let rotary = Rotary::new(3..20, heads.head_size, 1e4, &device);
    let [scale, matrix] = [[6, 1], [heads.width(), 10]].map(|shape| random(shape, &device).cast(DType::BF16));
    let scale = scale.flatten::<1>(0, 1);
    let half = random::<3>([2, 17, heads.width()], &device).cast(DType::BF16);
    let same = |name: &str, kernel: &dyn Fn(Tensor<3>, DType) -> Tensor<3>| {
        let got = kernel(half.clone(), DType::BF16);
        assert_eq!(got.dtype(), DType::BF16, "{name}");
        let error = difference(got.cast(DType::F32), kernel(half.clone().cast(DType::F32), DType::F32));
        assert!(error < 4e-3, "{name} differs by {error}"); // half a unit of 8 bits, of the largest value
    };
    same("linear", &|x, to| kernels::linear(x, matrix.clone().cast(to), None));
    same("qk_norm", &|x, to| kernels::qk_norm(x, scale.clone().cast(to), scale.clone().cast(to), 1e-6, heads));
    same("rotate", &|x, _| kernels::rotate(x, &rotary, heads));
    same("swiglu", &|x, _| kernels::swiglu(x));
    same("attention", &|x, _| kernels::causal_attention(x, heads, None));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Products of bfloat16 and their gradients against those of float32, on numbers that both hold.
    #[test]
    fn bfloat16_is_multiplied_with_float32_sums(
        batch in 1usize..4, time in 1usize..80, n_in in 1usize..70, n_out in 1usize..150, head in prop::bool::ANY, seed: u64,
    ) {
        let (device, to) = (device(), FloatDType::BF16);
        device.seed(seed);
        let rounded = |values: Tensor<3>| values.cast(to).cast(DType::F32);
        let x = rounded(random([batch, time, n_in], &device));
        let matrix = rounded(random([1, n_in, n_out], &device)).squeeze_dim::<2>(0);
        let matrix = if head { matrix.transpose() } else { matrix };
        let bias = rounded(random([1, 1, n_out], &device)).flatten::<1>(0, 2);
        let weights = rounded(random([batch, time, n_out], &device));
        let run = |half: bool| {
            #[allow(unused_mut)]
            let mut inputs = Inputs { x: x.clone(), matrix: matrix.clone(), vectors: [bias.clone(), bias.clone()] };
            #[cfg(feature = "autodiff")]
            {
                inputs = inputs.tracked();
            }
            let of = if half { to } else { FloatDType::F32 };
            let (x, matrix) = (kernels::cast(inputs.x.clone(), of), kernels::cast(inputs.matrix.clone(), of));
            let y = if head { kernels::unembed(x, matrix) } else { kernels::linear(x, matrix, Some(inputs.vectors[0].clone())) };
            let y = kernels::cast(y, FloatDType::F32);
            #[cfg(feature = "autodiff")]
            let gradients = inputs.gradients(&(y.clone() * weights.clone()).sum().backward());
            #[cfg(not(feature = "autodiff"))]
            let gradients: Vec<Tensor<1>> = Vec::new();
            (y.inner(), gradients)
        };
        let ((half, half_gradients), (full, gradients)) = (run(true), run(false));
        let error = difference(half, full);
        prop_assert!(error < 4e-3, "the value differs by {error}"); // half a unit of 8 bits
        prop_assert_eq!(half_gradients.len(), gradients.len());
        for (half, full) in half_gradients.into_iter().zip_eq(gradients) {
            let error = difference(half, full);
            prop_assert!(error < 4e-3, "a gradient differs by {error}");
        }
    }

    /// Attention of bfloat16, which rounds the softmax's weights and, on the way back, the scores' gradients before it multiplies
    /// them, against float32 on numbers that both hold.
    #[test]
    fn attention_of_bfloat16_sums_in_float32(
        batch in 1usize..3, time in prop_oneof![1usize..10, 60usize..70, 126usize..140], heads in heads(), seed: u64,
    ) {
        let (device, to) = (device(), FloatDType::BF16);
        device.seed(seed);
        let rounded = |values: Tensor<3>| values.cast(to).cast(DType::F32);
        let qkv = rounded(random([batch, time, heads.width()], &device));
        let weights = rounded(random([batch, time, heads.query_width()], &device));
        let run = |of: FloatDType| {
            #[allow(unused_mut)]
            let mut inputs = Inputs { x: qkv.clone(), matrix: random([1, 1], &device), vectors: [1, 1].map(|n| random([n], &device)) };
            #[cfg(feature = "autodiff")]
            {
                inputs = inputs.tracked();
            }
            let y = kernels::causal_attention(kernels::cast(inputs.x.clone(), of), heads, None);
            let y = kernels::cast(y, FloatDType::F32);
            #[cfg(feature = "autodiff")]
            let gradients = inputs.gradients(&(y.clone() * weights.clone()).sum().backward());
            #[cfg(not(feature = "autodiff"))]
            let gradients: Vec<Tensor<1>> = Vec::new();
            (y.inner(), gradients)
        };
        let ((half, half_gradients), (full, gradients)) = (run(to), run(FloatDType::F32));
        let error = difference(half, full);
        prop_assert!(error < 8e-3, "the value differs by {error}"); // half a unit of 8 bits, for the weights and for the result
        for (half, full) in half_gradients.into_iter().zip_eq(gradients) {
            let error = difference(half, full);
            prop_assert!(error < 1.6e-2, "a gradient differs by {error}"); // the same for y, the weights, the scores and the result
        }
    }
}
