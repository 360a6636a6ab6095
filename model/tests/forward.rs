//! The cached forward pass compared with the full one, and its bits for any number of threads.
#![allow(clippy::unwrap_used)]

use burn::tensor::{Device, Int, Tensor, TensorData};
use ember_model::{Gpt, GptConfig, KvCache, MlpKind, NormKind, Positions};
use itertools::Itertools;
use proptest::prelude::*;

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

#[cfg(feature = "autodiff")]
fn device() -> Device {
    Device::flex().autodiff()
}

/// A model with every part that GPT-2 does not have.
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    // Texts of different lengths in pieces of random length, forked, dropped and truncated on the
    // way: every logit equals that of a full pass over the text, even if gradients are recorded.
    #[test]
    fn the_cache_changes_nothing(
        steps in proptest::collection::vec((any::<u64>(), prop_oneof![3 => Just(1usize), 2 => 0usize..12, 1 => 60usize..80]), 1..9),
        seed in 0u64..1000, slots in 1usize..60, recorded: bool, newer: bool,
    ) {
        let context: usize = 1 + steps.iter().map(|(_, most)| most).sum::<usize>();
        let config = if newer { newest(context) } else { GptConfig::new(50, context, 2, 3, 24) };
        #[cfg(feature = "autodiff")]
        let device = if recorded { Device::flex().autodiff() } else { Device::flex() };
        #[cfg(not(feature = "autodiff"))]
        let (device, _) = (Device::flex(), recorded);
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

/// The same bits for any number of threads: of the logits, and of every gradient.
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
