//! What holds of every processor, whatever it is given.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use itertools::Itertools;
use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::*;
use crate::config::{GenerationConfig, Semantics};
use crate::{named::Named, softmax::softmax};

/// Logits of any spread, ties and holes among them, with at least one finite.
fn logits() -> impl Strategy<Value = Vec<f32>> {
    let logit = |spread: f32| prop_oneof![6 => (-40_i8..40).prop_map(move |step| f32::from(step) * spread / 4000.0), 1 => Just(f32::NEG_INFINITY)];
    (1.0..2000.0_f32, any::<prop::sample::Index>()).prop_flat_map(move |(spread, place)| {
        prop::collection::vec(logit(spread), 1..300).prop_map(move |mut logits| {
            let place = place.index(logits.len());
            logits[place] = 0.5;
            logits
        })
    })
}

fn ids() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0..12_u32, 0..40)
}

/// Which of what truncates, and its knobs: a count, a probability, and the least to keep.
fn knobs() -> impl Strategy<Value = (usize, usize, f64, usize)> {
    (0..9_usize, 1..300_usize, 1e-9..1.0_f64, 1..4_usize)
}

/// One of the processors that remove tokens by their probability, and how many it promises to keep.
fn truncating((which, k, p, keep): (usize, usize, f64, usize)) -> (Arc<dyn LogitsProcessor>, usize) {
    match which {
        0 => (Arc::new(top_k(k)), k),
        1 => (Arc::new(top_k_exactly(k)), k),
        2 => (Arc::new(top_p(p, keep)), keep),
        3 => (Arc::new(top_p_from_the_top(p, keep)), keep),
        4 => (Arc::new(min_p(p, keep)), keep),
        5 => (Arc::new(typical_p(p, keep)), keep),
        6 => (Arc::new(typical_p_exactly(p, keep)), keep),
        7 => (Arc::new(epsilon_cutoff(p, keep)), keep),
        _ => (Arc::new(eta_cutoff(p, keep)), keep),
    }
}

fn finite(logits: &[f32]) -> Vec<usize> {
    (0..logits.len()).filter(|&id| logits[id] > f32::NEG_INFINITY).collect()
}

/// transformers' procedure word for word: sort everything, sum from the bottom, drop up to 1 - p.
fn top_p_by_sorting_everything(p: f64, logits: &[f32]) -> Vec<usize> {
    let probabilities = softmax(logits);
    let mut order: Vec<usize> = finite(logits);
    order.sort_by(|&a, &b| logits[a].partial_cmp(&logits[b]).unwrap());
    let mut cumulative = 0.0_f64;
    let mut kept = Vec::new();
    for (rank, &id) in order.iter().enumerate() {
        cumulative += f64::from(probabilities[id]);
        if cumulative as f32 > (1.0 - p) as f32 || rank + 1 == order.len() {
            kept.push(id);
        }
    }
    kept.sort_unstable();
    kept
}

proptest! {
    #[test]
    fn truncating_keeps_enough_and_changes_nothing_that_it_keeps(logits in logits(), knobs in knobs()) {
        let (processor, keep) = truncating(knobs);
        let after = processed(&*processor, &START, &logits);
        let kept = finite(&after);
        prop_assert!(kept.len() >= keep.min(finite(&logits).len()), "{} keeps {}", processor.name(), kept.len());
        for id in kept {
            prop_assert_eq!(after[id], logits[id]);
        }
        // Twice removes nothing that renormalising does not: what top-k and min-p keep, they keep
        // again.
        if matches!(processor.name(), "top-k" | "min-p") {
            prop_assert_eq!(processed(&*processor, &START, &after), after);
        }
    }

    #[test]
    fn all_but_typical_p_keep_the_best_and_prefer_the_better(logits in logits(), knobs in knobs()) {
        let (processor, _) = truncating(knobs);
        if processor.name() != "typical-p" {
            let kept = kept(&*processor, &logits);
            let least = kept.iter().map(|&id| logits[id]).fold(f32::INFINITY, f32::min);
            prop_assert!(finite(&logits).into_iter().all(|id| logits[id] <= least || kept.contains(&id)));
        }
    }

    #[test]
    fn slices_find_the_same_nucleus_as_sorting(logits in logits(), p in 0.001..1.0_f64) {
        prop_assert_eq!(kept(&top_p(p, 1), &logits), top_p_by_sorting_everything(p, &logits));
    }

    #[test]
    fn a_common_shift_of_all_logits_changes_no_truncation(logits in logits(), knobs in knobs()) {
        let (processor, _) = truncating(knobs);
        // By a power of two, of logits that are multiples of an eighth: exact.
        let logits: Vec<f32> = logits.iter().map(|logit| (logit * 8.0).round() / 8.0).collect();
        let shifted: Vec<f32> = logits.iter().map(|logit| logit - 64.0).collect();
        prop_assert_eq!(kept(&*processor, &logits), kept(&*processor, &shifted));
    }

    #[test]
    fn exactly_k_are_k_of_those_that_top_k_keeps(logits in logits(), k in 1..300_usize) {
        let with_ties = kept(&top_k(k), &logits);
        let exactly = kept(&top_k_exactly(k), &logits);
        prop_assert_eq!(exactly.len(), k.min(finite(&logits).len()));
        prop_assert!(exactly.iter().all(|id| with_ties.contains(id)));
    }

    #[test]
    fn what_is_removed_stays_removed_and_nothing_becomes_nan(
        logits in logits(), prompt in ids(), generated in ids(), penalty in 0.1..10.0_f32, n in 1..6_usize,
    ) {
        let config = GenerationConfig {
            strategy: crate::config::Strategy::Sample,
            temperature: penalty,
            top_p: 0.9,
            typical_p: 0.9,
            min_p: 0.01,
            epsilon_cutoff: 0.01,
            eta_cutoff: 0.01,
            repetition_penalty: penalty,
            presence_penalty: penalty,
            frequency_penalty: -penalty,
            no_repeat_ngram_size: n,
            bad_words: vec![vec![1], vec![2, 3]],
            suppress_tokens: vec![4],
            logit_bias: vec![(vec![5], -penalty), (vec![6, 7], f32::NEG_INFINITY)],
            min_new_tokens: 20,
            end_tokens: vec![0, 8],
            ..Default::default()
        };
        let step = Step { prompt: &prompt, generated: &generated };
        let mut after = logits.clone();
        let mut before = logits;
        Chain::new(&config, None).process_observed(&step, &mut after, &mut |name, now| {
            for (now, before) in now.iter().zip_eq(&before) {
                assert!(!now.is_nan(), "{name}");
                assert!(*before > f32::NEG_INFINITY || *now == f32::NEG_INFINITY, "{name} revives a token");
            }
            before = now.to_vec();
        });
    }

    #[test]
    fn bans_and_masks_commute(logits in logits(), prompt in ids(), generated in ids(), n in 1..5_usize) {
        let step = Step { prompt: &prompt, generated: &generated };
        let bans: [Arc<dyn LogitsProcessor>; 4] = [
            Arc::new(no_repeat_ngram(n)),
            Arc::new(bad_words(&[vec![1], vec![2, 3], vec![3, 4, 5]], &[1])),
            Arc::new(min_new_tokens(15, vec![0, 6])),
            Arc::new(suppress(vec![7, 500])),
        ];
        let run = |order: Vec<Arc<dyn LogitsProcessor>>| {
            let mut logits = logits.clone();
            Chain::of(order).process(&step, &mut logits);
            logits
        };
        let forwards = run(bans.to_vec());
        prop_assert_eq!(run(bans.into_iter().rev().collect()), forwards);
    }

    #[test]
    fn no_ngram_is_ever_repeated(prompt in ids(), n in 1..5_usize, preference in prop::collection::vec(0_u32..100, 60)) {
        // From a vocabulary that is large enough that something is always allowed.
        let mut generated: Vec<u32> = Vec::new();
        let whole = |generated: &[u32]| [prompt.as_slice(), generated].concat();
        for favourite in preference {
            let mut logits = vec![0.0; 200];
            logits[favourite as usize] = 1.0;
            no_repeat_ngram(n).process(&Step { prompt: &prompt, generated: &generated }, &mut logits);
            let before = whole(&generated);
            generated.push(crate::sampler::greedy(&logits));
            let text = whole(&generated);
            let new = &text[text.len().saturating_sub(n)..];
            prop_assert!(new.len() < n || !before.windows(n).any(|ngram| ngram == new), "{new:?} occurs twice");
        }
    }
}

#[test]
fn where_nothing_is_left_nothing_breaks() {
    let config = GenerationConfig {
        strategy: crate::config::Strategy::BeamSample,
        temperature: 0.5,
        top_k: 2,
        top_p: 0.5,
        min_p: 0.5,
        typical_p: 0.5,
        epsilon_cutoff: 0.5,
        eta_cutoff: 0.5,
        repetition_penalty: 2.0,
        ..Default::default()
    };
    for &semantics in Semantics::ALL {
        let mut logits = [f32::NEG_INFINITY; 5];
        Chain::new(&GenerationConfig { semantics, ..config.clone() }, None).process(&START, &mut logits);
        assert_eq!(logits, [f32::NEG_INFINITY; 5]);
    }
}
