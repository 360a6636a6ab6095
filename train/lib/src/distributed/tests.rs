#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use burn::tensor::Device;
use ember_data::windows::{TrainWindows, ValWindows, WindowRule};
use ember_data::{random::rng, tokens::TokenFile};
use ember_model::{Gpt, GptConfig};
use itertools::Itertools;
use proptest::prelude::*;
use rand_chacha::rand_core::Rng;

use super::{exchange::BUCKET, threads::ThreadGroup, *};
use crate::differences::largest_difference;
use crate::error::{Error, GroupError};
use crate::run::evaluate::evaluate;
use crate::step::gradient::{self, Gradient, Passes};
use crate::step::optimizer::{AdamWConfig, Optimizer, clip_scale, global_norm};

const VOCAB: usize = 29;
const CONTEXT: usize = 16;
const WINDOWS_PER_STEP: usize = 8;

fn tokens(n: usize) -> TokenFile {
    let mut random = rng(7, &[1]);
    // Learnable, with noise: each token mostly follows from the one before.
    let mut id = 0;
    let ids = (0..n).map(|_| {
        id = if random.next_u32().is_multiple_of(4) { random.next_u32() } else { 5 * id + 3 } % VOCAB as u32;
        id
    });
    TokenFile::from_ids(&ids.collect::<Vec<_>>(), VOCAB).unwrap()
}

fn model() -> Gpt {
    Gpt::new(&GptConfig::new(VOCAB, CONTEXT, 2, 2, 16), 3, &Device::flex().autodiff()).unwrap()
}

/// Weights, losses and norms of a few steps, as one process of a group has them.
#[derive(Debug, PartialEq)]
struct Trained {
    weights: Vec<f32>,
    losses: Vec<f64>,
    norms: Vec<f64>,
    val_loss: f64,
}

/// Trains with gradients that are exchanged in buckets of at most `bucket` values.
fn train(group: &dyn ProcessGroup, micro_batch: usize, bucket: usize) -> Trained {
    let windows = TrainWindows::new(&tokens(2000), CONTEXT, 5, WindowRule::Anywhere, None).unwrap();
    let mut gpt = model();
    // An epsilon far above rounding: for gradients that are 0 by symmetry (the keys' biases), AdamW
    // would turn the rounding noise into a full step.
    let config = AdamWConfig { beta1: 0.9, beta2: 0.99, epsilon: 1e-5, weight_decay: 0.1 };
    let mut optimizer = Optimizer::new(config);
    let (mut losses, mut norms) = (Vec::new(), Vec::new());
    for step in 0..6 {
        let first = step * WINDOWS_PER_STEP as u64;
        let (own_windows, micro_batch) = share(group, first, WINDOWS_PER_STEP, micro_batch).unwrap();
        let first_pass = (own_windows.start - first) / micro_batch as u64;
        let passes = Passes { step, first_pass, ..Passes::plain(micro_batch, 1) };
        let own = gradient::of_windows(&gpt, &windows, own_windows, passes, &|| false).unwrap();
        let Gradient { loss, gradients } = own.unwrap();
        let exchanged = exchange::all_reduce_mean_by(bucket, group, &gpt, loss, gradients, step == 4);
        let (loss, gradients, stop) = exchanged.unwrap();
        assert_eq!(stop, step == 4);
        let norm = global_norm(&gpt, &gradients);
        gpt = optimizer.step(gpt, gradients, clip_scale(norm, 1.0), 3e-3);
        losses.push(loss);
        norms.push(norm);
    }
    let val = ValWindows::new(&tokens(9000), CONTEXT, WindowRule::Anywhere, None).unwrap();
    let val_loss = evaluate(&burn::module::Module::valid(&gpt), &val, group, &|| false).unwrap().unwrap();
    let mut weights = Vec::new();
    gpt.for_each_parameter(&mut |_, _, values| weights.extend(values));
    Trained { weights, losses, norms, val_loss }
}

#[test]
fn one_two_and_four_processes_learn_the_same_to_rounding_and_each_the_same_bits_twice() {
    let alone = train(&Alone, 4, BUCKET);
    for size in [2, 4] {
        let group = ThreadGroup::run(size, |group| train(group, 4, BUCKET));
        assert!(group.windows(2).all(|pair| pair[0] == pair[1]), "the processes disagree");
        assert_eq!(group, ThreadGroup::run(size, |group| train(group, 4, BUCKET)), "another run, other bits");
        // Some parameters are larger than such a bucket, some share one.
        assert_eq!(group, ThreadGroup::run(size, |group| train(group, 4, 500)), "in many buckets, other bits");
        // Six steps at 3e-3 move a weight by up to 2e-2.
        let difference = largest_difference(&alone.weights, &group[0].weights);
        assert!(difference < 2e-6, "{size} processes: weights differ by {difference}");
        for (one, many) in
            alone.losses.iter().zip_eq(&group[0].losses).chain(alone.norms.iter().zip_eq(&group[0].norms))
        {
            assert!((one - many).abs() < 1e-5 * one, "{size} processes: {one} and {many}");
        }
        assert!((alone.val_loss - group[0].val_loss).abs() < 1e-5, "{} {}", alone.val_loss, group[0].val_loss);
    }
    // The tolerance is small compared with what was learned.
    let mut before = Vec::new();
    model().for_each_parameter(&mut |_, _, values| before.extend(values));
    assert!(largest_difference(&before, &alone.weights) > 1e-3);
}

#[test]
fn an_interrupted_evaluation_is_none_for_all() {
    let val = ValWindows::new(&tokens(9000), CONTEXT, WindowRule::Anywhere, None).unwrap();
    let results = ThreadGroup::run(3, |group| {
        let gpt = burn::module::Module::valid(&model());
        evaluate(&gpt, &val, group, &|| group.rank() == 1).unwrap()
    });
    assert_eq!(results, [None, None, None]);
}

#[test]
fn windows_that_do_not_divide_are_refused_in_one_line() {
    let refused = ThreadGroup::run(3, |group| share(group, 0, 8, 8).unwrap_err());
    for error in refused {
        assert!(matches!(error, GroupError::UnequalShares { .. }));
        assert!(error.to_string().starts_with("the 8 windows of a step"), "{error}");
    }
}

#[test]
fn what_one_says_all_hear() {
    let received = ThreadGroup::run(3, |group| {
        let own = ["zero", "", "second"][group.rank()];
        (all_gather(group, own.as_bytes()).unwrap(), broadcast(group, &own.to_owned()).unwrap())
    });
    for (all, first) in received {
        assert_eq!(all, [&b"zero"[..], b"", b"second"]);
        assert_eq!(first, "zero");
    }
}

#[cfg(target_os = "linux")] // macOS and Windows have no such names
#[test]
fn all_begin_a_run_whose_path_is_not_utf_8() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    use crate::run::{DefaultHooks, Start, report::Silent};
    use ember_model::device::DeviceChoice;

    let place = tempfile::tempdir().unwrap();
    let path = place.path().join(OsStr::from_bytes(b"caf\xe9"));
    let shape = "stories = 100\nn_layer = 1\nn_head = 2\nn_embd = 16\ncontext_length = 16\nbatch_size = 2\n";
    let paths = ThreadGroup::run(2, |group| {
        let settings = crate::config::Settings::from_toml_str(shape).unwrap();
        let start = Start::new(settings, DeviceChoice::Cpu, None, &DefaultHooks, &mut Silent).unwrap();
        let run = start.begin(&path, group, &DefaultHooks, &mut Silent).unwrap().unwrap();
        run.folder.path().to_owned()
    });
    assert_eq!(paths, [path.clone(), path]);
}

/// Processes with different weights get the bits of rank 0's, and a process with other weights is
/// detected.
#[test]
fn all_begin_with_the_weights_of_the_first_and_are_told_when_they_part() {
    let model = |seed| Gpt::new(&GptConfig::new(VOCAB, CONTEXT, 1, 2, 16), seed, &Device::flex().autodiff()).unwrap();
    let weights = |gpt: &Gpt| {
        let mut bits = Vec::new();
        gpt.for_each_parameter(&mut |_, _, values| bits.extend(values.into_iter().map(f32::to_bits)));
        bits
    };
    let begun = ThreadGroup::run(3, |group| {
        let own = model(group.rank() as u64);
        let parted = exchange::ensure_same_weights(group, &own).unwrap_err();
        let gpt = exchange::broadcast_weights(group, own).unwrap();
        exchange::ensure_same_weights(group, &gpt).unwrap();
        (parted, weights(&gpt))
    });
    assert!(begun[0].0.to_string().starts_with("the weights of rank 1 differ"), "{}", begun[0].0);
    assert!(begun[1..].iter().all(|(parted, _)| code_reported_elsewhere(parted).is_some()));
    assert!(begun.iter().all(|(_, bits)| *bits == weights(&model(0))));
    // A broadcast number is rank 0's for all, even NaN.
    let numbers =
        ThreadGroup::run(3, |group| broadcast_number(group, [f64::NAN, 1.0, 2.0][group.rank()]).unwrap().to_bits());
    assert_eq!(numbers, [f64::NAN.to_bits(); 3]);
}

fn code_reported_elsewhere(error: &Error) -> Option<u8> {
    match error {
        Error::Group(GroupError::ReportedElsewhere(code)) => Some(*code),
        _ => None,
    }
}

#[test]
fn an_error_of_one_ends_all_and_is_said_once() {
    let ended = ThreadGroup::run(4, |group| {
        let own = match group.rank() {
            1 => Err(Error::Other("usage: no such device".into())),
            3 => Err(Error::Other("out of memory".into())),
            _ => Ok(()),
        };
        all_ok(group, own).unwrap_err()
    });
    assert_eq!(crate::note::line(&ended[1]), "the process of rank 1: usage: no such device");
    for silent in [0, 2, 3] {
        assert_eq!(code_reported_elsewhere(&ended[silent]), Some(2));
    }
    assert!(ThreadGroup::run(2, |group| all_ok(group, Ok(group.rank())).unwrap()) == [0, 1]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn a_sum_is_that_of_the_ranks_in_order_in_every_process(
        values in prop::collection::vec(prop::collection::vec(-1e6f32..1e6, 9), 1..5)
    ) {
        let sums = ThreadGroup::run(values.len(), |group| {
            let mut own = values[group.rank()].clone();
            group.all_reduce(&mut own).unwrap();
            own
        });
        let expected: Vec<f32> = (0..9).map(|i| values[1..].iter().fold(values[0][i], |sum, v| sum + v[i])).collect();
        prop_assert!(sums.iter().all(|sum| *sum == expected));
    }

    #[test]
    fn float64_sums_keep_their_bits(numbers in prop::collection::vec(-1e300f64..1e300, 1..5)) {
        let sums = ThreadGroup::run(numbers.len(), |group| all_reduce_f64(group, [numbers[group.rank()], 1.0]).unwrap());
        let expected = [numbers.iter().sum::<f64>(), numbers.len() as f64];
        prop_assert!(sums.iter().all(|sum| *sum == expected));
    }

    #[test]
    fn the_shares_of_a_step_cover_its_windows_once(
        size in 1usize..9, windows_each in 1usize..9, micro_batch in 1usize..17, first in 0u64..1000
    ) {
        let windows = size * windows_each;
        let shares = ThreadGroup::run(size, |group| share(group, first, windows, micro_batch).unwrap());
        let covered: Vec<u64> = shares.iter().flat_map(|(range, _)| range.clone()).collect();
        prop_assert_eq!(&covered, &(first..first + windows as u64).collect::<Vec<_>>());
        prop_assert_eq!(covered.iter().collect::<BTreeSet<_>>().len(), windows);
        for (range, pass) in shares {
            prop_assert!(pass <= micro_batch && (range.end - range.start).is_multiple_of(pass as u64));
        }
    }
}
