//! Strategies on tiny models: what cache, batch, window and every way to end must not change.
#![allow(clippy::unwrap_used)]
use std::ops::ControlFlow;

use super::*;
use crate::processors::{Chain, Step};
use crate::sequences::{Scripted, Sequences, most_positions};
use crate::trace::{ChoiceTrace, TracedStep};
use crate::watch::{Certain, Traced};
use crate::{
    completion::Finding, completion::FinishReason, exact, made_up::Short, named::Named, sampler, softmax::log_sum_exp,
    tokens::to_tensor,
};
use burn::tensor::Device;
use ember_model::{Gpt, GptConfig};
use itertools::Itertools;
use proptest::prelude::{ProptestConfig, prop, prop_assert, prop_assert_eq, proptest};
use std::path::Path;

const VOCAB: usize = 11;
const CONTEXT: usize = 8;

fn model() -> Gpt {
    Gpt::new(&GptConfig::new(VOCAB, CONTEXT, 2, 2, 8), 3, &Device::flex()).unwrap()
}

fn greedy(max_new_tokens: usize) -> GenerationConfig {
    GenerationConfig { max_new_tokens, ..Default::default() }
}

fn sampling(max_new_tokens: usize) -> GenerationConfig {
    GenerationConfig { strategy: Strategy::Sample, seed: 5, ..greedy(max_new_tokens) }
}

/// Log-probabilities of the token after `ids`, by training's forward pass over the last `CONTEXT`
/// tokens.
fn recomputed(model: &Gpt, ids: &[u32]) -> Vec<f64> {
    let window = &ids[ids.len().saturating_sub(CONTEXT)..];
    let logits = model.forward(to_tensor(&[window], &model.device())).into_data().try_into_vec::<f32>().unwrap();
    let last = &logits[(window.len() - 1) * VOCAB..];
    last.iter().map(|&logit| f64::from(logit) - log_sum_exp(last)).collect()
}

fn prompts() -> impl proptest::prelude::Strategy<Value = Vec<u32>> {
    prop::collection::vec(0..VOCAB as u32, 1..2 * CONTEXT)
}

/// The model without a cache: every window is recomputed by training's forward pass.
fn without_a_cache(model: &Gpt, prompts: &[Vec<u32>]) -> impl Sequences {
    let model = model.clone();
    let logits_after = move |ids: &[u32]| {
        let window = &ids[ids.len().saturating_sub(CONTEXT)..];
        let logits = model.forward(to_tensor(&[window], &model.device())).into_data().try_into_vec::<f32>().unwrap();
        logits[(window.len() - 1) * VOCAB..].to_vec()
    };
    let inner = Scripted { vocab_size: VOCAB, rows: prompts.to_vec(), logits_after };
    Short { context: CONTEXT, inner }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Every kind of beam search: the shared cache, its forks, batches of different lengths and the
    /// sliding window change nothing.
    #[test]
    fn beams_with_the_cache_are_those_without(
        prompts in prop::collection::vec(prompts(), 1..4), kind in 0..3_usize, beams in 1..4_usize, seed in 0..99_u64,
        ends in 0..2_usize, max_new_tokens in 1..2 * CONTEXT,
    ) {
        let model = model();
        let strategy = [Strategy::Beam, Strategy::BeamSample, Strategy::DiverseBeam][kind];
        let config = GenerationConfig {
            strategy, seed, max_new_tokens, num_beams: 2 * beams, num_beam_groups: 2, diversity_penalty: 0.7,
            num_return_sequences: beams, end_tokens: vec![3; ends], ..Default::default()
        };
        let borrowed: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
        let firsts: Vec<u64> = (10..).take(prompts.len()).collect();
        let plan = Plan { first_sequences: &firsts, ..Plan::new(&config) };
        let cached = generate_batch(&model, &borrowed, &plan, &mut ()).unwrap();
        let mut plain = without_a_cache(&model, &prompts);
        let job = Job { plan: &plan, chain: &Chain::default(), first_prompt: 0, started: Instant::now() };
        let plain = beam::write(&mut plain, &job, &mut ()).unwrap();
        for (cached, plain) in cached.iter().zip_eq(&plain).flat_map(|(cached, plain)| cached.iter().zip_eq(plain)) {
            prop_assert_eq!(&cached.ids, &plain.ids);
            prop_assert!((cached.score - plain.score).abs() < 1e-4);
            for (cached, plain) in cached.tokens.iter().zip_eq(&plain.tokens) {
                prop_assert!((cached.logprob - plain.logprob).abs() < 1e-4);
            }
        }
    }

    /// Drafts by look-up or another model, right or wrong, even across the context's end, leave
    /// greedy text unchanged.
    #[test]
    fn drafts_change_no_token(prompt in prompts(), draft_tokens in 1..6_usize, other: bool, each in 1..3_usize) {
        let (model, draft) = (model(), Gpt::new(&GptConfig::new(VOCAB, CONTEXT, 1, 1, 8), 4, &Device::flex()).unwrap());
        let plain = generate(&model, &prompt, &greedy(2 * CONTEXT), &mut ()).unwrap();
        let config = GenerationConfig { draft_tokens, num_return_sequences: each, ..greedy(2 * CONTEXT) };
        let plan = Plan { draft: other.then_some(&draft), ..Plan::new(&config) };
        let drafted = generate_batch(&model, &[&prompt], &plan, &mut ()).unwrap().remove(0);
        prop_assert_eq!(drafted.len(), each);
        for drafted in drafted {
            prop_assert_eq!(&drafted.ids, &plain.ids);
            prop_assert!((drafted.score - plain.score).abs() < 1e-3);
        }
    }

    /// Exact search gives the same result with and without the cache, and no beam search beats it.
    #[test]
    fn the_exact_search_is_never_beaten(prompt in prompts(), max_new_tokens in 1..5_usize, ends in 0..2_usize) {
        let model = model();
        let config = GenerationConfig {
            strategy: Strategy::Exact, max_new_tokens, end_tokens: vec![3; ends], ..Default::default()
        };
        let best = generate(&model, &prompt, &config, &mut ()).unwrap();
        let mut plain = without_a_cache(&model, std::slice::from_ref(&prompt));
        let (plan, chain) = (Plan::new(&config), Chain::default());
        let job = Job { plan: &plan, chain: &chain, first_prompt: 0, started: Instant::now() };
        let (found, finding) = exact::search(&mut plain, &job, &mut |_| ControlFlow::Continue(())).unwrap();
        let proven = matches!(finding, Finding::Exact { proven: true, .. });
        prop_assert!(proven);
        prop_assert!((best.score - found[0].score).abs() < 1e-4);
        let beams = GenerationConfig { strategy: Strategy::Beam, num_beams: 3, length_penalty: 0.0, ..config };
        let beams = generate(&model, &prompt, &beams, &mut ()).unwrap();
        prop_assert!(beams.score <= best.score + 1e-4, "beams found {}, exact search {}", beams.score, best.score);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The cache and the sliding window change only speed: each token's log-probability, and
    /// greedy's choice, agree with a forward pass without a cache.
    #[test]
    fn cached_and_sliding_equal_recomputed(prompt in prompts(), max_new_tokens in 1..2 * CONTEXT) {
        let model = model();
        let completion = generate(&model, &prompt, &greedy(max_new_tokens), &mut ()).unwrap();
        prop_assert_eq!(completion.ids.len(), max_new_tokens);
        let mut ids = prompt;
        for token in &completion.tokens {
            let expected = recomputed(&model, &ids);
            let best = expected.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let chosen = expected[token.id as usize];
            prop_assert!((f64::from(token.logprob) - chosen).abs() < 1e-5);
            prop_assert!(best - chosen < 1e-5, "greedy took {}, which is not the best", token.id);
            ids.push(token.id);
        }
    }

    /// Prompts of any lengths, several sequences each, some ending early: each is the same as
    /// alone.
    #[test]
    fn batched_equals_alone(
        rows in prop::collection::vec(prompts(), 1..5), each in 1..4_usize, first in 0..100_u64,
    ) {
        let model = model();
        // An end token, so that some rows finish before others.
        let config = GenerationConfig { end_tokens: vec![0], num_return_sequences: each, ..sampling(CONTEXT) };
        let prompts: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();

        let firsts: Vec<u64> = (0..).map(|prompt| first + 7 * prompt).take(prompts.len()).collect();
        let plan = Plan { first_sequences: &firsts, ..Plan::new(&config) };
        let together = generate_batch(&model, &prompts, &plan, &mut ()).unwrap();
        prop_assert_eq!(together.len(), prompts.len());
        let together: Vec<Completion> = together.into_iter().flatten().collect();
        prop_assert_eq!(together.len(), prompts.len() * each);
        let one = GenerationConfig { num_return_sequences: 1, ..config.clone() };
        for (row, batched) in together.iter().enumerate() {
            let prompt = prompts[row / each];
            let plan = Plan { first_sequences: &[firsts[row / each] + (row % each) as u64], ..Plan::new(&one) };
            let alone = generate_batch(&model, &[prompt], &plan, &mut ()).unwrap();
            prop_assert_eq!(&batched.ids, &alone[0][0].ids);
            prop_assert_eq!(batched.finish_reason, alone[0][0].finish_reason);
            prop_assert!((batched.score - alone[0][0].score).abs() < 1e-4);
        }
    }
}

/// 64 tokens from transformers' greedy search on a model of ours (see the fixtures' README).
#[test]
fn greedy_text_is_that_of_transformers() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../model/tests/fixtures");
    let model = ember_model::checkpoint::load(&fixtures.join("greedy"), &Device::flex()).unwrap();
    let json = std::fs::read_to_string(fixtures.join("greedy.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_str(&json).unwrap();
    let ids = |key: &str| serde_json::from_value::<Vec<u32>>(expected[key].clone()).unwrap();
    let completion = generate(&model, &ids("prompt_ids"), &greedy(64), &mut ()).unwrap();
    assert_eq!(completion.ids, ids("ids"));
}

#[test]
fn a_seed_repeats_and_another_differs() {
    let model = model();
    let ids = |seed| generate(&model, &[1], &GenerationConfig { seed, ..sampling(24) }, &mut ()).unwrap().ids;
    assert_eq!(ids(1), ids(1));
    assert_ne!(ids(1), ids(2));
}

#[test]
fn each_way_to_end() {
    let model = model();
    let free = generate(&model, &[1, 2], &sampling(7), &mut ()).unwrap();
    assert_eq!((free.finish_reason, free.ids.len()), (FinishReason::Length, 7));
    let sum: f64 = free.tokens.iter().map(|token| f64::from(token.logprob)).sum();
    assert_eq!(free.score, sum);

    // The end token is kept, and nothing follows it.
    let end = free.ids[3];
    let until = free.ids.iter().position(|&id| id == end).unwrap();
    let config = GenerationConfig { end_tokens: vec![end], ..sampling(7) };
    let ended = generate(&model, &[1, 2], &config, &mut ()).unwrap();
    assert_eq!((ended.finish_reason, ended.ids.as_slice()), (FinishReason::Eos, &free.ids[..=until]));

    let mut seen = 0;
    let mut second = |_: Certain| {
        seen += 1;
        if seen == 2 { ControlFlow::Break(FinishReason::Stop) } else { ControlFlow::Continue(()) }
    };
    let stopped = generate(&model, &[1, 2], &sampling(7), &mut second).unwrap();
    assert_eq!((stopped.finish_reason, stopped.ids.as_slice()), (FinishReason::Stop, &free.ids[..2]));
}

#[test]
fn the_context_end_slides_stops_or_fails() {
    let model = model();
    let config = |overflow| GenerationConfig { overflow, ..greedy(20) };
    let slid = generate(&model, &[1, 2, 3], &config(Overflow::Slide), &mut ()).unwrap();
    assert_eq!((slid.ids.len(), slid.slid), (20, true));
    // 3 of 8 positions are the prompt's; the 8th position still predicts a token.
    let stopped = generate(&model, &[1, 2, 3], &config(Overflow::Stop), &mut ()).unwrap();
    assert_eq!((stopped.ids.len(), stopped.finish_reason), (6, FinishReason::Length));
    let error = generate(&model, &[1, 2, 3], &config(Overflow::Error), &mut ()).unwrap_err().to_string();
    assert!(error.contains("holds 8 tokens"), "{error}");
    for overflow in [Overflow::Stop, Overflow::Error] {
        let error = generate(&model, &[1; 9], &config(overflow), &mut ()).unwrap_err().to_string();
        assert!(error.contains("the prompt has 9"), "{error}");
    }
}

#[test]
fn the_most_probable_tokens_are_reported_in_order() {
    let model = model();
    let config = GenerationConfig { logprobs: 3, ..greedy(1) };
    let token = generate(&model, &[4, 2], &config, &mut ()).unwrap().tokens.remove(0);
    let mut expected: Vec<(u32, f64)> = (0..).zip(recomputed(&model, &[4, 2])).collect();
    expected.sort_by(|a, b| b.1.total_cmp(&a.1));
    assert_eq!(token.top[0], (token.id, token.logprob));
    for (top, expected) in token.top.iter().zip_eq(&expected[..3]) {
        assert!(top.0 == expected.0 && (f64::from(top.1) - expected.1).abs() < 1e-5, "{top:?} is not {expected:?}");
    }
}

#[test]
fn what_cannot_be_continued_is_refused() {
    let model = model();
    let refused =
        |prompts: &[&[u32]]| generate_batch(&model, prompts, &Plan::new(&greedy(1)), &mut ()).unwrap_err().to_string();
    assert!(refused(&[]).contains("no prompt"));
    assert!(refused(&[&[]]).contains("has no tokens"));
    assert!(refused(&[&[1, 11]]).contains("token id 11 is outside"));
    let draft = Gpt::new(&GptConfig::new(VOCAB + 1, CONTEXT, 1, 1, 8), 4, &Device::flex()).unwrap();
    let config = GenerationConfig { draft_tokens: 2, ..greedy(1) };
    let error = generate_batch(&model, &[&[1]], &Plan { draft: Some(&draft), ..Plan::new(&config) }, &mut ());
    assert!(matches!(error, Err(Error::DraftVocabulary { draft_vocab_size: 12, vocab_size: VOCAB })));
}

/// A library's caller can pass configurations that the programs' checks would refuse.
#[test]
fn a_configuration_that_nothing_can_be_written_by_is_refused() {
    let model = model();
    for &strategy in Strategy::ALL {
        let sound = GenerationConfig {
            strategy,
            num_beams: 4,
            num_beam_groups: 2,
            diversity_penalty: 1.0,
            num_return_sequences: 2,
            ..greedy(3)
        };
        let refusal = |config: &GenerationConfig| match generate(&model, &[1, 2], config, &mut ()) {
            Err(Error::Knob(error)) => error.to_string(),
            other => panic!("{config:?} came to {other:?}"),
        };
        generate(&model, &[1, 2], &sound, &mut ()).unwrap();
        let wrong = [
            ("max_new_tokens is 0", GenerationConfig { max_new_tokens: 0, ..sound.clone() }),
            ("num_return_sequences is 0", GenerationConfig { num_return_sequences: 0, ..sound.clone() }),
            ("temperature is 0;", GenerationConfig { temperature: 0.0, ..sound.clone() }),
            ("temperature is NaN", GenerationConfig { temperature: f32::NAN, ..sound.clone() }),
            ("top_p is NaN", GenerationConfig { top_p: f64::NAN, ..sound.clone() }),
            ("length_penalty is NaN", GenerationConfig { length_penalty: f32::NAN, ..sound.clone() }),
            ("num_beams is 0", GenerationConfig { num_beams: 0, ..sound.clone() }),
            ("num_beam_groups is 0", GenerationConfig { num_beam_groups: 0, ..sound.clone() }),
            ("max_nodes is 0", GenerationConfig { max_nodes: 0, ..sound.clone() }),
            ("max_time is -1", GenerationConfig { max_time_s: Some(-1.0), ..sound.clone() }),
            ("min_new_tokens is 4, more", GenerationConfig { min_new_tokens: 4, ..sound.clone() }),
            ("suppress_tokens has 11", GenerationConfig { suppress_tokens: vec![VOCAB as u32], ..sound.clone() }),
            ("logprobs is", GenerationConfig { logprobs: usize::MAX, ..sound.clone() }),
        ];
        for (says, config) in wrong {
            let said = refusal(&config);
            assert!(said.starts_with(says), "{strategy:?}: {said}");
        }
        if strategy.has_beams() {
            let more = refusal(&GenerationConfig { num_return_sequences: 5, ..sound.clone() });
            assert!(more.starts_with("num_return_sequences is 5, more than num_beams"), "{more}");
        }
        if strategy == Strategy::DiverseBeam {
            let uneven = refusal(&GenerationConfig { num_beam_groups: 3, ..sound.clone() });
            assert!(uneven.starts_with("num_beam_groups is 3, which does not divide"), "{uneven}");
        }
        let drafted = GenerationConfig { draft_tokens: 2, ..sound };
        refusal(&GenerationConfig { max_new_tokens: 0, ..drafted.clone() });
        if strategy.ranks_texts() {
            assert!(refusal(&drafted).starts_with("drafts make"), "{strategy:?}");
        }
    }
}

/// An end token outside the vocabulary never occurs, and drafts of zero tokens are no drafts.
#[test]
fn what_does_no_harm_is_not_refused() {
    let (model, draft) = (model(), model());
    let plain = generate(&model, &[1, 2], &greedy(4), &mut ()).unwrap();
    let config = GenerationConfig { end_tokens: vec![VOCAB as u32], draft_tokens: 0, ..greedy(4) };
    let drafted = generate_batch(&model, &[&[1, 2]], &Plan { draft: Some(&draft), ..Plan::new(&config) }, &mut ());
    assert_eq!(drafted.unwrap()[0][0].ids, plain.ids);
}

#[test]
fn broken_weights_are_named_and_not_sampled() {
    let step = Step { prompt: &[1], generated: &[] };
    let config = greedy(1);
    let (plan, chain) = (Plan::new(&config), Chain::default());
    let job = Job { plan: &plan, chain: &chain, first_prompt: 0, started: Instant::now() };
    for broken in [[0.0, f32::NAN], [0.0, f32::INFINITY], [f32::NEG_INFINITY; 2]] {
        let error = one_by_one::choice::choose(&job, &step, 0, &mut broken.clone()).err().unwrap().to_string();
        assert!(error.contains("not finite"), "{error}");
    }
}

#[test]
fn when_no_token_is_left_the_knobs_are_named() {
    let all = (0..VOCAB as u32).collect();
    let config = GenerationConfig { suppress_tokens: all, top_k: 3, ..sampling(1) };
    for strategy in [Strategy::Sample, Strategy::Greedy, Strategy::Beam] {
        let config = GenerationConfig { strategy, num_beams: 2, ..config.clone() };
        let error = generate(&model(), &[1], &config, &mut ()).unwrap_err().to_string();
        assert!(
            error.contains("no token is left") && error.contains("suppress-tokens rules out all"),
            "{strategy:?}: {error}"
        );
    }
}

/// Collects how tokens were chosen.
struct Choices(Vec<ChoiceTrace>);

impl Watch for Choices {
    fn traced(&mut self, step: Traced) {
        if let Traced::Choice { step: TracedStep { choice, .. }, .. } = step {
            self.0.push(choice.clone());
        }
    }
}

/// A trace is complete: every step's draw is that of its seed and number and falls into the chosen
/// token's interval, and the intervals are the softmax's.
#[test]
fn the_trace_accounts_for_every_token() {
    let model = model();
    let config = GenerationConfig { temperature: 0.7, top_k: 5, ..sampling(6) };
    let plan = Plan { traced_candidates: 3, ..Plan::new(&config) };
    let mut choices = Choices(Vec::new());
    let completion = generate_batch(&model, &[&[1, 2]], &plan, &mut choices).unwrap().remove(0).remove(0);
    let Choices(choices) = choices;
    assert_eq!(choices.iter().map(|choice| choice.id).collect::<Vec<_>>(), completion.ids);
    for (step, (choice, token)) in choices.iter().zip_eq(&completion.tokens).enumerate() {
        assert_eq!((choice.step, choice.logprob), (step, token.logprob));
        let (draw, (low, high)) = (choice.draw.unwrap(), choice.interval.unwrap());
        assert_eq!(draw, sampler::draw(config.seed, 0, step as u64, &[0.0]).uniform);
        assert!(low <= draw && draw < high);
        let chosen = choice.candidates.iter().find(|candidate| candidate.id == choice.id).unwrap();
        assert!((f64::from(chosen.before.probability).ln() - f64::from(choice.logprob)).abs() < 1e-4);
        let last = chosen.changes.last().unwrap().after.unwrap();
        assert!((f64::from(last.probability) - (high - low)).abs() < 1e-5);
    }
}

/// Memory is not allocated for what knobs allow: here that would be hundreds of gigabytes.
#[test]
fn memory_is_that_of_the_context_and_not_of_what_knobs_allow() {
    let many = u32::MAX as usize;
    assert!(most_positions(&[&[1; 3], &[1; 100]], 4, usize::MAX, CONTEXT, true) <= 2 * 5 * CONTEXT);
    // A text that ends with the context uses at most that many positions, and one for the token
    // after it.
    assert_eq!(most_positions(&[&[1; 3]], 1, usize::MAX, CONTEXT, false), CONTEXT + 1);
    assert_eq!(most_positions(&[&[1; 3]], 4, usize::MAX, CONTEXT, false), 3 + 4 * (CONTEXT + 1 - 3));
    let (model, draft) = (model(), Gpt::new(&GptConfig::new(VOCAB, CONTEXT, 1, 1, 8), 4, &Device::flex()).unwrap());
    let config = GenerationConfig { draft_tokens: many, ..greedy(many) };
    for draft in [None, Some(&draft)] {
        let plan = Plan { draft, ..Plan::new(&config) };
        let mut left = 2 * CONTEXT;
        let mut a_few = |_: Certain| {
            left -= 1;
            if left == 0 { ControlFlow::Break(FinishReason::Stop) } else { ControlFlow::Continue(()) }
        };
        let written = generate_batch(&model, &[&[3, 1]], &plan, &mut a_few).unwrap();
        assert_eq!(written[0][0].ids.len(), 2 * CONTEXT);
    }
    let each = 100_000;
    let exact =
        GenerationConfig { strategy: Strategy::Exact, num_return_sequences: each, max_nodes: 40, ..greedy(many) };
    let exact = GenerationConfig { overflow: Overflow::Stop, ..exact };
    let found = generate_batch(&model, &[&[3, 1]], &Plan::new(&exact), &mut ()).unwrap();
    assert!(!found[0].is_empty());
}
