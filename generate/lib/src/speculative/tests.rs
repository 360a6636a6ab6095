#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use itertools::Itertools;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

use std::ops::ControlFlow;

use std::time::Instant;

use super::*;
use crate::config::{GenerationConfig, Overflow};
use crate::made_up::{self, Short};
use crate::processors::{LogitsProcessor, temperature, top_k};
use crate::{completion::FinishReason, plan::Plan, processors::Chain};

fn config(strategy: Strategy, max_new_tokens: usize, draft_tokens: usize) -> GenerationConfig {
    GenerationConfig { strategy, max_new_tokens, draft_tokens, ..Default::default() }
}

fn job<'a>(plan: &'a Plan<'a>, chain: &'a Chain) -> Job<'a> {
    Job { plan, chain, first_prompt: 0, started: Instant::now() }
}

/// The first sequence of a prompt, with the correct acceptance rule.
fn written(
    target: &mut dyn Sequences,
    proposer: &mut dyn Proposer,
    config: &GenerationConfig,
    chain: &Chain,
) -> Result<(Completion, Acceptance)> {
    let plan = Plan::new(config);
    let continuation = Continuation { job: &job(&plan, chain), number: 0 };
    generate(accept_or_replace, target, proposer, &continuation, &mut ())
}

/// Penalizes tokens of the history, generated ones twice: any position that is given another one's
/// history goes wrong.
struct AvoidRepeats;

impl LogitsProcessor for AvoidRepeats {
    fn name(&self) -> &'static str {
        "avoid-repeats"
    }

    fn process(&self, step: &Step, logits: &mut [f32]) {
        for &id in step.prompt.iter().chain(step.generated).chain(step.generated) {
            logits[id as usize] -= 0.3;
        }
    }
}

/// Greedy generation in its simplest form: the tokens, why they end, and the index of the token
/// before which the window began to slide.
fn plain_greedy(
    logits_after: &dyn Fn(&[u32]) -> Vec<f32>,
    prompt: &[u32],
    context: usize,
    continuation: &Continuation,
    stop: u32,
) -> (Vec<(u32, f32)>, FinishReason, Option<usize>) {
    let (mut ids, mut tokens, mut slides) = (prompt.to_vec(), Vec::new(), None);
    loop {
        if ids.len() > context {
            if continuation.job.plan.config.overflow == Overflow::Stop {
                return (tokens, FinishReason::Length, slides);
            }
            slides = slides.or(Some(tokens.len()));
        }
        let logits = logits_after(&ids);
        let mut processed = logits.clone();
        continuation.job.chain.process(&Step { prompt, generated: &ids[prompt.len()..] }, &mut processed);
        let id = greedy(&processed);
        ids.push(id);
        tokens.push((id, (f64::from(logits[id as usize]) - finite_log_sum_exp(&logits).unwrap()) as f32));
        if continuation.job.plan.config.end_tokens.contains(&id) {
            return (tokens, FinishReason::Eos, slides);
        } else if id == stop {
            return (tokens, FinishReason::Stop, slides);
        } else if tokens.len() == continuation.job.plan.config.max_new_tokens {
            return (tokens, FinishReason::Length, slides);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// For any drafter, number of drafts and end of the context: the same tokens,
    /// log-probabilities, events and end.
    #[test]
    fn greedy_is_what_it_is_without_guesses(
        seed in any::<u64>(), vocab_size in 2..6_usize, prompt_len in 1..6_usize, max_new_tokens in 1..40_usize,
        draft_tokens in 0..8_usize, ends in any::<bool>(), stop in 0..20_u32, penalised in any::<bool>(),
        context in 6..60_usize, draft_context in 1..60_usize, slide in any::<bool>(), error in 0..3_u64,
        look_up in any::<bool>(),
    ) {
        let overflow = if slide { Overflow::Slide } else { Overflow::Stop };
        let end_tokens = if ends { vec![0] } else { vec![] };
        let config =
            GenerationConfig { end_tokens, overflow, ..config(Strategy::Greedy, max_new_tokens, draft_tokens) };
        let chain = if penalised { Chain::of(vec![Arc::new(AvoidRepeats)]) } else { Chain::default() };
        let plan = Plan::new(&config);
        let continuation = Continuation { job: &job(&plan, &chain), number: 3 };
        let whole = made_up::logits(seed, vocab_size, 3.0);
        let logits_after = |ids: &[u32]| whole(&ids[ids.len().saturating_sub(context)..]);
        // A draft that is right always, often or by chance.
        let noise = made_up::logits(seed ^ 1, vocab_size, [0.0, 2.0, 9.0][error as usize]);
        let draft_logits = |ids: &[u32]| whole(ids).iter().zip_eq(noise(ids)).map(|(a, b)| a + b).collect();
        let prompt: Vec<u32> = (0..prompt_len).map(|at| (seed >> at) as u32 % vocab_size as u32).collect();

        let inner = made_up::sequences(&[], vocab_size, draft_logits);
        let mut draft = SmallerModel(Short { context: draft_context, inner });
        let proposer: &mut dyn Proposer = if look_up { &mut PromptLookup } else { &mut draft };
        let mut target = Short { context, inner: made_up::sequences(&prompt, vocab_size, logits_after) };
        let mut emitted = Vec::new();
        let (completion, acceptance) = generate(accept_or_replace, &mut target, proposer, &continuation, &mut |Certain { row, tokens, steps }: Certain| {
            let [token] = tokens else { panic!("one token at a time") };
            assert_eq!((row, steps), (3, emitted.len() + 1));
            emitted.push(token.clone());
            if token.id == stop { ControlFlow::Break(FinishReason::Stop) } else { ControlFlow::Continue(()) }
        }).unwrap();

        let (tokens, finish_reason, slides) = plain_greedy(&logits_after, &prompt, context, &continuation, stop);
        let ids: Vec<u32> = tokens.iter().map(|(id, _)| *id).collect();
        prop_assert_eq!(&completion.ids, &ids);
        prop_assert_eq!(completion.finish_reason, finish_reason);
        prop_assert_eq!(completion.slid, slides.is_some());
        prop_assert_eq!(&emitted, &completion.tokens);
        for (token, (_, logprob)) in completion.tokens.iter().zip_eq(&tokens) {
            prop_assert!((token.logprob - logprob).abs() < 1e-6);
        }
        prop_assert_eq!((target.rows(), target.ids(0)), (1, prompt.as_slice()));

        let Acceptance { proposed, accepted, passes } = acceptance;
        prop_assert!(accepted <= proposed && proposed <= passes * draft_tokens);
        prop_assert!(passes <= ids.len() && ids.len() <= accepted + passes);
        prop_assert!(draft_tokens > 0 || (proposed == 0 && passes == ids.len()));
    }
}

#[test]
fn a_perfect_draft_is_always_right_and_saves_passes() {
    for strategy in [Strategy::Greedy, Strategy::Sample] {
        let config = config(strategy, 40, 4);
        let mut target = made_up::sequences(&[1], 5, made_up::logits(9, 5, 1.0));
        let mut draft = SmallerModel(made_up::sequences(&[], 5, made_up::logits(9, 5, 1.0)));
        let (completion, acceptance) = written(&mut target, &mut draft, &config, &Chain::default()).unwrap();
        assert_eq!(completion.ids.len(), 40);
        // Four drafts and one token more per pass: 40 tokens in 8 passes.
        assert_eq!(acceptance, Acceptance { proposed: 32, accepted: 32, passes: 8 });
        assert_eq!(acceptance.rate(), 1.0);
    }
}

#[test]
fn a_draft_that_is_always_wrong_is_asked_for_less() {
    let config = config(Strategy::Greedy, 30, 5);
    let mut target = made_up::sequences(&[1], 2, |_: &[u32]| vec![1.0, 0.0]);
    let mut draft = SmallerModel(made_up::sequences(&[], 2, |_: &[u32]| vec![0.0, 1.0]));
    let (_, acceptance) = written(&mut target, &mut draft, &config, &Chain::default()).unwrap();
    // 5 + 4 + 3 + 2, then one at a time, and none for the last token.
    assert_eq!(acceptance, Acceptance { proposed: 14 + 25, accepted: 0, passes: 30 });
}

/// The model counts its tokens, 0 to 6 and again; the draft does too, but says 0 after a 3. After a
/// rejection it continues from the corrected text, so that no other draft fails: of 4 drafts 3 are
/// kept (1 2 3), then 3 of 3 (5 6 0, and the model adds a 1); then alternately 2 of 4 (2 3) and 3
/// of 3.
#[test]
fn after_a_wrong_guess_the_draft_follows_the_text() {
    let says = |next: usize| (0..7).map(|id| f32::from(u8::from(id == next))).collect::<Vec<f32>>();
    let counts = |ids: &[u32]| says(ids.len() % 7);
    let miscounts = |ids: &[u32]| says(if ids.len() % 7 == 4 { 0 } else { ids.len() % 7 });
    let config = config(Strategy::Greedy, 22, 4);
    let mut target = made_up::sequences(&[0], 7, counts);
    let mut draft = SmallerModel(made_up::sequences(&[], 7, miscounts));
    let (completion, acceptance) = written(&mut target, &mut draft, &config, &Chain::default()).unwrap();
    assert_eq!(completion.ids, (1..=22).map(|n| n % 7).collect::<Vec<u32>>());
    assert_eq!(acceptance, Acceptance { proposed: 4 + 3 + 2 * 7, accepted: 3 + 3 + 2 * 5, passes: 6 });
}

/// The look-up's drafts after `ids`.
fn looked_up(ids: &[u32], most: usize, end_tokens: Vec<u32>) -> Vec<u32> {
    let config = GenerationConfig { end_tokens, ..config(Strategy::Greedy, 9, most) };
    let (plan, chain) = (Plan::new(&config), Chain::default());
    let continuation = Continuation { job: &job(&plan, &chain), number: 0 };
    let proposals = PromptLookup.propose(ids, 1, most, &continuation).unwrap();
    assert!(proposals.iter().all(|proposal| proposal.drawn_from.is_none()));
    proposals.iter().map(|proposal| proposal.id).collect()
}

#[test]
fn the_text_is_looked_up_by_its_longest_ending_first() {
    assert_eq!(looked_up(&[7, 1, 2, 3, 4, 5, 9, 1, 2, 3], 3, vec![]), [4, 5, 9]);
    // 2 3 occurred once, 3 twice: the longer match wins, though it is later.
    assert_eq!(looked_up(&[3, 8, 2, 3, 6, 2, 3], 2, vec![]), [6, 2]);
    // Of several matches the first, which has most tokens after it.
    assert_eq!(looked_up(&[5, 5, 5, 5], 9, vec![]), [5]);
    assert_eq!(looked_up(&[4, 1, 4, 2, 4], 9, vec![]), [1, 4, 2, 4]);
    // Nothing follows an end token; a token that never occurred gives no draft.
    assert_eq!(looked_up(&[4, 1, 0, 2, 4], 9, vec![0]), [1, 0]);
    assert!(looked_up(&[1, 2, 3], 9, vec![]).is_empty());
    assert!(looked_up(&[1], 9, vec![]).is_empty());
}

/// Transformers' drafts (tools/make_lookup_fixtures.py), end tokens aside.
#[test]
fn guesses_are_those_of_transformers() {
    #[derive(serde::Deserialize)]
    struct Case {
        ids: Vec<u32>,
        most: usize,
        guesses: Vec<u32>,
    }
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../tests/fixtures/prompt_lookup.json")).unwrap();
    assert!(
        cases.iter().any(|case| case.guesses.len() == case.most) && cases.iter().any(|case| case.guesses.is_empty())
    );
    for Case { ids, most, guesses } in cases {
        assert_eq!(looked_up(&ids, most, vec![]), guesses, "{ids:?}");
    }
}

/// Next-token probabilities by previous token, of four: the model's, and its draft's.
const TARGET: [[f64; 4]; 4] =
    [[0.10, 0.40, 0.30, 0.20], [0.55, 0.05, 0.15, 0.25], [0.25, 0.26, 0.29, 0.20], [0.02, 0.08, 0.20, 0.70]];
const DRAFT: [[f64; 4]; 4] =
    [[0.35, 0.15, 0.20, 0.30], [0.30, 0.35, 0.20, 0.15], [0.10, 0.50, 0.15, 0.25], [0.25, 0.30, 0.35, 0.10]];

/// Ends with a token that occurred before, so that look-up finds drafts: 1, then 2.
const PROMPT: [u32; 6] = [0, 1, 2, 0, 3, 0];
const TEMPERATURE: f32 = 1.5;
const TOP_K: usize = 3;
const DRAWS: usize = 100_000;

fn table(probabilities: [[f64; 4]; 4]) -> impl Fn(&[u32]) -> Vec<f32> {
    move |ids| probabilities[ids[ids.len() - 1] as usize].map(|p| p.ln() as f32).to_vec()
}

/// Probabilities after temperature and top-k, computed without logits.
fn processed(probabilities: [f64; 4]) -> [f64; 4] {
    let least = probabilities.iter().copied().fold(1.0, f64::min);
    let kept = probabilities.map(|p| if p == least { 0.0 } else { p.powf(1.0 / f64::from(TEMPERATURE)) });
    let total: f64 = kept.iter().sum();
    kept.map(|p| p / total)
}

/// Pearson's statistic of the first two tokens of 100,000 sequences against the exact distribution;
/// whether it is plausible (a correct sampler exceeds the limit for one seed in a hundred thousand:
/// 4.3 standard deviations, by the Wilson-Hilferty approximation); and the acceptance.
fn two_tokens(rule: AcceptanceRule, look_up: bool) -> (f64, bool, Acceptance) {
    // The third token is there so that the second one is drafted together with the first.
    let config = GenerationConfig { seed: 11, ..config(Strategy::Sample, 3, 2) };
    let chain = Chain::of(vec![Arc::new(temperature(TEMPERATURE)), Arc::new(top_k(TOP_K))]);
    let mut target = made_up::sequences(&PROMPT, 4, table(TARGET));
    let mut draft = SmallerModel(made_up::sequences(&PROMPT, 4, table(DRAFT)));
    let proposer: &mut dyn Proposer = if look_up { &mut PromptLookup } else { &mut draft };
    let mut counts = [[0.0_f64; 4]; 4];
    let mut fared = Acceptance::default();
    let plan = Plan::new(&config);
    for number in 0..DRAWS {
        let continuation = Continuation { job: &job(&plan, &chain), number };
        let (completion, acceptance) = generate(rule, &mut target, proposer, &continuation, &mut ()).unwrap();
        counts[completion.ids[0] as usize][completion.ids[1] as usize] += 1.0;
        fared += acceptance;
    }
    let (mut statistic, mut possible) = (0.0, 0);
    for (first, p_first) in processed(TARGET[0]).into_iter().enumerate() {
        for (second, p_second) in processed(TARGET[first]).into_iter().enumerate() {
            let (count, expected) = (counts[first][second], p_first * p_second * DRAWS as f64);
            if expected > 0.0 {
                statistic += (count - expected).powi(2) / expected;
                possible += 1;
            } else if count > 0.0 {
                statistic = f64::INFINITY;
            }
        }
    }
    let k = f64::from(possible - 1);
    let bound = k * (1.0 - 2.0 / (9.0 * k) + 4.3 * (2.0 / (9.0 * k)).sqrt()).powi(3);
    (statistic, statistic < bound, fared)
}

#[test]
fn sampling_is_distributed_as_without_guesses() {
    for look_up in [false, true] {
        let (statistic, passes, fared) = two_tokens(accept_or_replace, look_up);
        assert!(passes, "look-up {look_up}: {statistic}");
        assert!((0.2..0.8).contains(&fared.rate()), "look-up {look_up}: {fared:?} tests one half of the rule");
    }
}

/// The same test must reject wrong rules.
#[test]
fn the_test_of_the_distribution_fails_for_broken_rules() {
    /// Accepts every draft.
    fn credulous(_: &[f32], proposal: &Proposal, _: [f64; 2]) -> u32 {
        proposal.id
    }
    /// Replaces a draft by a draw from p, which may choose the rejected token again.
    fn forgets_the_residual(p: &[f32], proposal: &Proposal, [acceptance, token]: [f64; 2]) -> u32 {
        let id = accept_or_replace(p, proposal, [acceptance, token]);
        if id == proposal.id { id } else { weighted(token, p).id }
    }
    /// Accepts with probability p, as if every draft had been certain.
    fn forgets_the_draft(p: &[f32], proposal: &Proposal, [acceptance, token]: [f64; 2]) -> u32 {
        let rejected = acceptance >= f64::from(p[proposal.id as usize]);
        accept_or_replace(p, proposal, [if rejected { 1.0 } else { 0.0 }, token])
    }
    for (rule, look_up) in [
        (credulous as AcceptanceRule, false),
        (credulous, true),
        (forgets_the_residual, false),
        (forgets_the_residual, true),
        (forgets_the_draft, false),
    ] {
        let (statistic, passes, _) = two_tokens(rule, look_up);
        assert!(!passes, "look-up {look_up}: {statistic}");
    }
}

/// p = (0.5, 0.3, 0.2), q = (0.2, 0.6, 0.2), the draft is token 1: accepted half the time, as 0.3 /
/// 0.6, and otherwise replaced by token 0, the only one with p > q.
#[test]
fn the_rule_of_acceptance_by_hand() {
    let p = [0.5, 0.3, 0.2];
    let guess = Proposal { id: 1, drawn_from: Some(vec![0.2, 0.6, 0.2]) };
    assert_eq!(accept_or_replace(&p, &guess, [0.49, 0.9]), 1);
    assert_eq!(accept_or_replace(&p, &guess, [0.51, 0.9]), 0);
    // A draft that was certain: accepted with probability 0.3, else replaced by the others in
    // proportion, 5 to 2.
    let certain = Proposal { id: 1, drawn_from: None };
    assert_eq!(accept_or_replace(&p, &certain, [0.29, 0.0]), 1);
    assert_eq!(accept_or_replace(&p, &certain, [0.31, 0.71]), 0);
    assert_eq!(accept_or_replace(&p, &certain, [0.31, 0.72]), 2);
    // A draft that the processors ban is rejected even if the draw is 0.
    assert_eq!(accept_or_replace(&[1.0, 0.0], &Proposal { id: 1, drawn_from: None }, [0.0, 0.0]), 0);
}

#[test]
fn a_seed_repeats_and_another_differs() {
    let ids = |seed, number| {
        let config = GenerationConfig { seed, ..config(Strategy::Sample, 24, 3) };
        let (plan, chain) = (Plan::new(&config), Chain::default());
        let continuation = Continuation { job: &job(&plan, &chain), number };
        let mut target = made_up::sequences(&[1], 5, made_up::logits(4, 5, 1.0));
        generate(accept_or_replace, &mut target, &mut PromptLookup, &continuation, &mut ()).unwrap().0.ids
    };
    assert_eq!(ids(1, 0), ids(1, 0));
    assert_ne!(ids(1, 0), ids(2, 0));
    assert_ne!(ids(1, 0), ids(1, 1));
}

#[test]
fn each_way_to_fail_or_end_early() {
    let chain = Chain::default();
    let run = |config: &GenerationConfig, chain: &Chain, prompt: &[u32]| {
        let inner = made_up::sequences(prompt, 3, made_up::logits(5, 3, 1.0));
        written(&mut Short { context: 6, inner }, &mut PromptLookup, config, chain)
    };
    let timed = GenerationConfig { max_time_s: Some(0.0), ..config(Strategy::Greedy, 9, 2) };
    let completion = run(&timed, &chain, &[1]).unwrap().0;
    assert_eq!((completion.finish_reason, completion.ids.len()), (FinishReason::Time, 1));

    let strict = GenerationConfig { overflow: Overflow::Error, ..config(Strategy::Greedy, 9, 2) };
    let error = run(&strict, &chain, &[1, 2]).unwrap_err().to_string();
    assert!(error.contains("holds 6 tokens and prompt and text reached that after 5 new ones"), "{error}");

    struct BanAll;
    impl LogitsProcessor for BanAll {
        fn name(&self) -> &'static str {
            "ban-all"
        }
        fn process(&self, _: &Step, logits: &mut [f32]) {
            logits.fill(f32::NEG_INFINITY);
        }
    }
    let error = run(&timed, &Chain::of(vec![Arc::new(BanAll)]), &[1]).unwrap_err().to_string();
    assert!(error.contains("ban-all rules out all of them"), "{error}");
}
