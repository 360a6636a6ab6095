//! Searches small enough to follow on paper.
#![allow(clippy::unwrap_used)]

use itertools::Itertools;
use std::{ops::Range, sync::Arc};

use super::tests::{Steps, found, search};
use super::*;
use crate::processors::{Chain, LogitsProcessor};
use crate::trace::{Fate, Stopped};
use crate::{plan::Plan, sequences::Scripted};

/// Rows whose next-token probabilities depend on the ids generated after a prompt of one token.
fn by_hand(table: impl Fn(&[u32]) -> [f32; 4]) -> Scripted<impl Fn(&[u32]) -> Vec<f32>> {
    Scripted {
        vocab_size: 4,
        rows: vec![vec![0]],
        logits_after: move |ids: &[u32]| table(&ids[1..]).map(f32::ln).to_vec(),
    }
}

fn ids(completions: &[Completion]) -> Vec<&[u32]> {
    completions.iter().map(|completion| completion.ids.as_slice()).collect()
}

const THE: u32 = 0;
const NICE: u32 = 1;
const DOG: u32 = 2;
const HAS: u32 = 3;

/// Probabilities of the next word after "The", "The nice", "The dog".
fn the_nice_dog(generated: &[u32]) -> [f32; 4] {
    //                 the   nice  dog   has
    match generated {
        [] => [0.05, 0.50, 0.40, 0.05],
        [NICE] => [0.25, 0.10, 0.40, 0.25],
        [DOG] => [0.03, 0.02, 0.05, 0.90],
        _ => [0.25; 4],
    }
}

/// Greedy takes "nice" (0.5) and then at best "dog": 0.5 * 0.4 = 0.20. Two beams also keep "dog"
/// (0.4), followed by "has": 0.4 * 0.9 = 0.36.
#[test]
fn two_beams_find_by_hand_what_greedy_misses() {
    let find = |num_beams| {
        let config = GenerationConfig {
            num_beams,
            num_return_sequences: num_beams,
            max_new_tokens: 2,
            length_penalty: 0.0,
            ..GenerationConfig::default()
        };
        found(&mut by_hand(the_nice_dog), &Plan::new(&config), &Chain::default()).remove(0)
    };
    assert_eq!(ids(&find(1)), [[NICE, DOG]]);
    let two = find(2);
    assert_eq!(ids(&two), [[DOG, HAS], [NICE, DOG]]);
    for (completion, probability) in two.iter().zip_eq([0.36_f64, 0.20]) {
        assert!((completion.score - probability.ln()).abs() < 1e-6);
        assert_eq!(completion.finish_reason, FinishReason::Length);
    }
    assert!((two[0].tokens[0].logprob - 0.4_f32.ln()).abs() < 1e-6);
}

/// The trace of the same search, with "has" as the end token and at most three words.
#[test]
fn the_trace_of_two_beams_by_hand() {
    let config =
        GenerationConfig { num_beams: 2, max_new_tokens: 3, end_tokens: vec![HAS], ..GenerationConfig::default() };
    let chain = Chain::default();
    let asked = Plan { traced_candidates: 5, ..Plan::new(&config) };
    let mut keep = Steps::default();
    search(&mut by_hand(the_nice_dog), &asked, &chain, &mut keep).unwrap();
    let steps = keep.0;
    // Parent, token and fate of each candidate: four of them, so that two can continue if both
    // beams end.
    let fates = |step: &BeamStep| step.candidates.iter().map(|c| (c.parent, c.token, c.fate)).collect::<Vec<_>>();
    let goes_on = |beam| Fate::GoesOn { beam };
    assert_eq!(fates(&steps[0])[..2], [(0, NICE, goes_on(0)), (0, DOG, goes_on(1))]);
    assert_eq!(fates(&steps[0])[2..], [(0, THE, Fate::Pruned), (0, HAS, Fate::Dropped)]);
    // 0.36 "dog has" ends; 0.20 "nice dog" and 0.125 "nice the" continue; 0.125 "nice has" would
    // end, but its rank is too low.
    let second = fates(&steps[1]);
    assert_eq!((second[0].0, second[0].1), (1, HAS));
    let Fate::Finished { final_score, reason: FinishReason::Eos, kept: true } = second[0].2 else {
        panic!("{:?}", second[0])
    };
    assert!((final_score - 0.36_f64.ln() / 2.0).abs() < 1e-6, "the length is 2, the end token included");
    assert_eq!(second[1..], [(0, DOG, goes_on(0)), (0, THE, goes_on(1)), (0, HAS, Fate::Dropped)]);
    assert_eq!(steps[1].pool[0].ids, [DOG, HAS]);
    // At the last step everything ends, and only the best two count.
    assert_eq!(steps.len(), 3);
    assert_eq!(steps[2].stopped, Some(Stopped::NothingRuns));
    let json = serde_json::to_value(&steps[1]).unwrap();
    assert_eq!(json["candidates"][1]["fate"], serde_json::json!({"fate": "goes-on", "beam": 0}));
}

/// A second group repeats "nice" while the penalty is less than the difference to "dog", ln(0.5 /
/// 0.4) = 0.22.
#[test]
fn a_second_group_avoids_what_the_first_chose_when_the_penalty_is_high_enough() {
    let find = |diversity_penalty| {
        let config = GenerationConfig {
            strategy: Strategy::DiverseBeam,
            num_beams: 2,
            num_beam_groups: 2,
            diversity_penalty,
            num_return_sequences: 2,
            max_new_tokens: 1,
            ..GenerationConfig::default()
        };
        found(&mut by_hand(the_nice_dog), &Plan::new(&config), &Chain::default()).remove(0)
    };
    assert_eq!(ids(&find(0.2)), [[NICE], [NICE]]);
    let score = find(0.2)[1].score;
    assert!((score - (0.5_f64.ln() - 0.2)).abs() < 1e-6, "the penalty counts in the score");
    assert_eq!(ids(&find(0.3)), [[NICE], [DOG]]);
}

#[test]
fn a_stop_string_ends_a_beam_like_an_end_token() {
    let config = GenerationConfig { num_beams: 2, max_new_tokens: 3, ..GenerationConfig::default() };
    let chain = Chain::default();
    let stops = |generated: &[u32]| generated.ends_with(&[DOG, HAS]);
    let asked = Plan { ends: Some(&stops), ..Plan::new(&config) };
    let best = found(&mut by_hand(the_nice_dog), &asked, &chain).remove(0).remove(0);
    assert_eq!((best.ids.as_slice(), best.finish_reason), (&[DOG, HAS][..], FinishReason::Stop));
    let end = GenerationConfig { end_tokens: vec![HAS], ..config.clone() };
    let ended = found(&mut by_hand(the_nice_dog), &Plan::new(&end), &chain).remove(0).remove(0);
    assert_eq!((ended.ids, ended.score), (best.ids, best.score));
}

#[test]
fn fewer_texts_than_beams_come_back_as_they_are() {
    let config =
        GenerationConfig { num_beams: 8, num_return_sequences: 8, max_new_tokens: 1, ..GenerationConfig::default() };
    let results = found(&mut by_hand(the_nice_dog), &Plan::new(&config), &Chain::default()).remove(0);
    let mut returned = ids(&results).concat();
    returned.sort_unstable();
    assert_eq!(returned, [THE, NICE, DOG, HAS]);
}

/// Bans tokens once this many have been generated.
struct BanFrom(usize, Range<usize>);

impl LogitsProcessor for BanFrom {
    fn name(&self) -> &'static str {
        "ban-from"
    }

    fn process(&self, step: &Step, logits: &mut [f32]) {
        if step.generated.len() >= self.0 {
            logits[self.1.clone()].fill(f32::NEG_INFINITY);
        }
    }
}

#[test]
fn a_prompt_without_any_token_left_is_an_error_unless_something_has_finished() {
    let config =
        GenerationConfig { num_beams: 2, max_new_tokens: 9, end_tokens: vec![HAS], ..GenerationConfig::default() };
    let find = |ban: BanFrom| {
        let chain = Chain::of(vec![Arc::new(ban)]);
        search(&mut by_hand(the_nice_dog), &Plan::new(&config), &chain, &mut ())
    };
    let error = find(BanFrom(1, 0..4)).unwrap_err().to_string();
    assert_eq!(error, "no token is left to choose after 1 new ones: ban-from rules out all of them; relax it");
    // After the first word only the end token is left; then nothing.
    let best = find(BanFrom(1, 0..3)).unwrap().remove(0).remove(0);
    assert_eq!((best.ids, best.finish_reason), (vec![DOG, HAS], FinishReason::Eos));
}
