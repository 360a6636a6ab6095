//! Invariants of every beam search, for any model.
#![allow(clippy::unwrap_used)]

use std::{ops::ControlFlow, time::Instant};

use itertools::Itertools;
use proptest::prelude::{
    Just, ProptestConfig, Strategy as _, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
};
use rand::Rng;

use super::*;
use crate::trace::{BeamCandidate, Fate};
use crate::{
    completion::ChosenToken, config::EarlyStopping, plan::Plan, processors::Chain, sequences::Scripted,
    softmax::log_sum_exp,
};

/// Searches with the given chain.
pub(super) fn search(
    sequences: &mut dyn Sequences,
    plan: &Plan,
    chain: &Chain,
    watch: &mut dyn Watch,
) -> Result<Vec<Vec<Completion>>> {
    write(sequences, &Job { plan, chain, first_prompt: 0, started: Instant::now() }, watch)
}

pub(super) fn found(sequences: &mut dyn Sequences, plan: &Plan, chain: &Chain) -> Vec<Vec<Completion>> {
    search(sequences, plan, chain, &mut ()).unwrap()
}

/// Collects the steps of a search.
#[derive(Default)]
pub(super) struct Steps(pub(super) Vec<BeamStep>);

impl Watch for Steps {
    fn traced(&mut self, step: Traced) {
        if let Traced::Beams(step) = step {
            self.0.push(step.clone());
        }
    }
}

/// Rows whose next logits are random, but a function of the last two ids.
fn random_table(seed: u64, vocab_size: usize, rows: &[Vec<u32>]) -> Scripted<impl Fn(&[u32]) -> Vec<f32> + use<>> {
    let logits_after = move |ids: &[u32]| {
        let last: Vec<u64> = ids.iter().rev().take(2).map(|&id| u64::from(id)).collect();
        let mut rng = ember_data::random::rng(seed, &last);
        (0..vocab_size).map(|_| (rng.next_u64() >> 40) as f32 / (1 << 21) as f32).collect()
    };
    Scripted { vocab_size, rows: rows.to_vec(), logits_after }
}

fn knobs() -> impl proptest::prelude::Strategy<Value = GenerationConfig> {
    let strategy = prop_oneof![Just(Strategy::Beam), Just(Strategy::BeamSample), Just(Strategy::DiverseBeam)];
    let early_stopping = prop_oneof![Just(EarlyStopping::True), Just(EarlyStopping::False), Just(EarlyStopping::Never)];
    let length_penalty = prop_oneof![Just(-1.0_f32), Just(0.0), Just(1.0), Just(2.0)];
    (strategy, 1..4_usize, 1..4_usize, early_stopping, length_penalty, 0..3_u32, 1..9_usize, any::<u64>()).prop_map(
        |(strategy, num_beam_groups, group_size, early_stopping, length_penalty, ends, max_new_tokens, seed)| {
            let num_beams = num_beam_groups * group_size;
            GenerationConfig {
                strategy,
                num_beams,
                num_beam_groups,
                diversity_penalty: 0.7,
                num_return_sequences: num_beams,
                early_stopping,
                length_penalty,
                end_tokens: (0..ends).collect(),
                max_new_tokens,
                seed,
                logprobs: 2,
                ..GenerationConfig::default()
            }
        },
    )
}

fn prompts() -> impl proptest::prelude::Strategy<Value = Vec<Vec<u32>>> {
    prop::collection::vec(prop::collection::vec(0..6_u32, 1..5), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn batched_equals_alone(config in knobs(), prompts in prompts(), table: u64, first in 0..9_u64) {
        let chain = Chain::default();
        let firsts: Vec<u64> = (first..).take(prompts.len()).collect();
        let together = Plan { first_sequences: &firsts, ..Plan::new(&config) };
        let together = found(&mut random_table(table, 6, &prompts), &together, &chain);
        prop_assert_eq!(together.len(), prompts.len());
        for (number, (prompt, batched)) in prompts.iter().zip_eq(&together).enumerate() {
            let alone = Plan { first_sequences: &[first + number as u64], ..Plan::new(&config) };
            let alone = found(&mut random_table(table, 6, std::slice::from_ref(prompt)), &alone, &chain).remove(0);
            prop_assert_eq!(batched.len(), alone.len());
            for (batched, alone) in batched.iter().zip_eq(&alone) {
                prop_assert_eq!(&batched.tokens, &alone.tokens);
                prop_assert_eq!((batched.score, batched.finish_reason), (alone.score, alone.finish_reason));
            }
        }
    }

    /// Streamed text is never retracted: its parts give the best sequence, even if the caller
    /// breaks off.
    #[test]
    fn what_is_streamed_is_the_best_sequence(
        config in knobs(), prompts in prompts(), table: u64, patience in 1..30_usize,
    ) {
        let mut sent: Vec<Vec<ChosenToken>> = vec![Vec::new(); prompts.len()];
        let mut events = 0;
        let mut keep = |Certain { row, tokens, .. }: Certain| {
            sent[row / config.num_return_sequences].extend_from_slice(tokens);
            events += 1;
            if events >= patience { ControlFlow::Break(FinishReason::Interrupted) } else { ControlFlow::Continue(()) }
        };
        let chain = Chain::default();
        let results = search(&mut random_table(table, 6, &prompts), &Plan::new(&config), &chain, &mut keep).unwrap();
        for (sent, completions) in sent.iter().zip_eq(&results) {
            prop_assert_eq!(sent, &completions[0].tokens);
        }
    }

    /// Every sequence is possible, different from the others, scored as the sum over its tokens,
    /// and reported with the model's log-probabilities.
    #[test]
    fn results_are_what_they_say(config in knobs(), prompts in prompts(), table: u64) {
        let config = GenerationConfig { diversity_penalty: 0.0, ..config };
        let chain = Chain::default();
        let asked = Plan { traced_candidates: 5, ..Plan::new(&config) };
        let mut keep = Steps::default();
        let results = search(&mut random_table(table, 6, &prompts), &asked, &chain, &mut keep).unwrap();
        let steps = keep.0;
        let model = random_table(table, 6, &[]);
        for (prompt, completions) in prompts.iter().zip_eq(&results) {
            prop_assert!(completions.windows(2).all(|pair| pair[0].score >= pair[1].score));
            for completion in completions {
                let mut so_far = prompt.clone();
                let mut sum = 0.0;
                for token in &completion.tokens {
                    let logits = (model.logits_after)(&so_far);
                    let logprob = f64::from(logits[token.id as usize]) - log_sum_exp(&logits);
                    prop_assert!((f64::from(token.logprob) - logprob).abs() < 1e-5);
                    let mut best: Vec<u32> = (0..6).collect();
                    best.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
                    prop_assert_eq!(token.top.iter().map(|top| top.0).collect::<Vec<_>>(), &best[..2]);
                    so_far.push(token.id);
                    sum += logprob;
                }
                let len = completion.ids.len();
                let score = sum / (len as f64).powf(f64::from(config.length_penalty));
                prop_assert!((completion.score - score).abs() < 1e-4 * score.abs().max(1.0));
                let end = completion.ids.iter().position(|id| config.end_tokens.contains(id));
                match completion.finish_reason {
                    FinishReason::Eos => prop_assert_eq!(end, Some(len - 1)),
                    _ => prop_assert_eq!((end, len), (None, config.max_new_tokens)),
                }
            }
        }
        // The trace is consistent: beams are numbered from the best down, no pruned one is better,
        // and a score is the parent's plus the token's.
        for step in &steps {
            let mut beams: Vec<(usize, f64)> = Vec::new();
            for candidate in &step.candidates {
                if let Fate::GoesOn { beam } = candidate.fate {
                    beams.push((beam, candidate.score));
                }
                let parent = steps.iter().rfind(|s| (s.prompt, s.group, s.step + 1) == (step.prompt, step.group, step.step));
                let is_parent = |c: &&BeamCandidate| c.fate == Fate::GoesOn { beam: candidate.parent };
                let parent = parent.map_or(0.0, |parent| parent.candidates.iter().find(is_parent).unwrap().score);
                prop_assert!((candidate.score - parent - f64::from(candidate.logprob)).abs() < 1e-9);
            }
            beams.sort_by_key(|&(beam, _)| beam);
            prop_assert!(beams.iter().map(|&(beam, _)| beam).eq(0..beams.len()));
            prop_assert!(beams.windows(2).all(|pair| pair[0].1 >= pair[1].1));
            let pruned = step.candidates.iter().filter(|candidate| candidate.fate == Fate::Pruned);
            for candidate in pruned {
                prop_assert!(beams.last().is_some_and(|&(_, worst)| worst >= candidate.score));
            }
        }
    }

    /// With a beam for every text and no early stopping, the search cannot miss the best.
    #[test]
    fn enough_beams_find_the_most_probable_text(table: u64, ends in 0..2_u32) {
        let config = GenerationConfig {
            num_beams: 64,
            max_new_tokens: 4,
            length_penalty: 0.0,
            early_stopping: EarlyStopping::Never,
            end_tokens: (0..ends).collect(),
            ..GenerationConfig::default()
        };
        let best = found(&mut random_table(table, 4, &[vec![1]]), &Plan::new(&config), &Chain::default()).remove(0).remove(0);
        let model = random_table(table, 4, &[]);
        let mut texts = vec![(vec![1_u32], 0.0_f64)];
        let mut complete = f64::NEG_INFINITY;
        for len in 1..=4 {
            let mut longer = Vec::new();
            for (text, score) in texts {
                let logits = (model.logits_after)(&text);
                let norm = log_sum_exp(&logits);
                for token in 0..4_u32 {
                    let score = score + f64::from(logits[token as usize]) - norm;
                    if config.end_tokens.contains(&token) || len == 4 {
                        complete = complete.max(score);
                    } else {
                        longer.push(([text.as_slice(), &[token]].concat(), score));
                    }
                }
            }
            texts = longer;
        }
        prop_assert!((best.score - complete).abs() < 1e-5, "{} is not {complete}", best.score);
    }
}

#[test]
fn time_and_interruption_return_the_best_there_is() {
    for strategy in [Strategy::Beam, Strategy::BeamSample, Strategy::DiverseBeam] {
        let config = GenerationConfig {
            strategy,
            num_beams: 4,
            num_beam_groups: 2,
            num_return_sequences: 4,
            max_time_s: Some(0.0),
            ..GenerationConfig::default()
        };
        let chain = Chain::default();
        let late = found(&mut random_table(1, 6, &[vec![1], vec![2, 3]]), &Plan::new(&config), &chain);
        for completion in late.iter().flatten() {
            assert_eq!((completion.ids.len(), completion.finish_reason), (1, FinishReason::Time));
        }
        assert_eq!((late[0].len(), late[1].len()), (4, 4));

        // The second prompt is interrupted after its third step; the first continues.
        let config = GenerationConfig { max_time_s: None, max_new_tokens: 7, ..config };
        let mut steps = 0;
        let second = config.num_return_sequences;
        let mut interrupt = |Certain { row, .. }: Certain| {
            steps += usize::from(row == second);
            if row == second && steps == 3 {
                ControlFlow::Break(FinishReason::Interrupted)
            } else {
                ControlFlow::Continue(())
            }
        };
        let mut sequences = random_table(1, 6, &[vec![1], vec![2, 3]]);
        let results = search(&mut sequences, &Plan::new(&config), &chain, &mut interrupt);
        let results = results.unwrap();
        let ends = |prompt: usize| (results[prompt][0].ids.len(), results[prompt][0].finish_reason);
        assert_eq!((ends(0), ends(1)), ((7, FinishReason::Length), (3, FinishReason::Interrupted)));
    }
}

/// Rows of a model with a context of four ids.
struct Short<F>(Scripted<F>);

impl<F: Fn(&[u32]) -> Vec<f32>> Sequences for Short<F> {
    fn context_length(&self) -> usize {
        4
    }
    fn vocab_size(&self) -> usize {
        self.0.vocab_size()
    }
    fn rows(&self) -> usize {
        self.0.rows()
    }
    fn ids(&self, row: usize) -> &[u32] {
        self.0.ids(row)
    }
    fn extend(&mut self, row: usize, tokens: &[u32]) {
        self.0.extend(row, tokens);
    }
    fn truncate(&mut self, row: usize, len: usize) {
        self.0.truncate(row, len);
    }
    fn select(&mut self, parents: &[usize]) {
        self.0.select(parents);
    }
    fn logits_of_last(&mut self, counts: &[usize]) -> Result<Vec<f32>> {
        self.0.logits_of_last(counts)
    }
}

#[test]
fn the_context_end_slides_stops_or_fails() {
    let prompts = [vec![1], vec![2, 3, 4]];
    let find = |overflow, max_new_tokens| {
        let config = GenerationConfig { num_beams: 3, overflow, max_new_tokens, ..GenerationConfig::default() };
        let mut sequences = Short(random_table(1, 6, &prompts));
        search(&mut sequences, &Plan::new(&config), &Chain::default(), &mut ())
    };
    let lens = |results: Vec<Vec<Completion>>| results.iter().map(|found| found[0].ids.len()).collect::<Vec<_>>();
    assert_eq!(lens(find(Overflow::Slide, 7).unwrap()), [7, 7]);
    // The fourth position still predicts a token.
    assert_eq!(lens(find(Overflow::Stop, 7).unwrap()), [4, 2]);
    assert_eq!(lens(find(Overflow::Error, 2).unwrap()), [2, 2]);
    let error = find(Overflow::Error, 3).unwrap_err().to_string();
    assert!(error.contains("holds 4 tokens"), "{error}");
}

#[test]
fn broken_logits_are_named() {
    let mut sequences = Scripted { vocab_size: 2, rows: vec![vec![0]], logits_after: |_: &[u32]| vec![0.0, f32::NAN] };
    let config = GenerationConfig { num_beams: 2, ..GenerationConfig::default() };
    let error = search(&mut sequences, &Plan::new(&config), &Chain::default(), &mut ());
    assert!(error.unwrap_err().to_string().contains("not finite"));
}
