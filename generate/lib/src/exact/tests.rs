#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use itertools::Itertools;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};

use std::time::Instant;

use super::*;
use crate::made_up::{self, Short};
use crate::plan::{Clock, EndsText, Plan};
use crate::processors::Chain;
use crate::processors::{LogitsProcessor, Step};

const PROMPT: [u32; 2] = [1, 0];

fn config(max_new_tokens: usize, end_tokens: Vec<u32>) -> GenerationConfig {
    GenerationConfig { max_new_tokens, end_tokens, ..Default::default() }
}

fn to_the_end(_: usize) -> ControlFlow<FinishReason> {
    ControlFlow::Continue(())
}

fn never(_: &[u32]) -> bool {
    false
}

fn job<'a>(plan: &'a Plan<'a>, chain: &'a Chain) -> Job<'a> {
    Job { plan, chain, first_prompt: 0, started: Instant::now() }
}

/// A search's results; the bound is minus infinity if there is none.
#[derive(Debug)]
struct Searched {
    completions: Vec<Completion>,
    proven: bool,
    nodes: usize,
    bound: f64,
    cut_short: Option<FinishReason>,
}

impl From<(Vec<Completion>, Finding)> for Searched {
    fn from((completions, finding): (Vec<Completion>, Finding)) -> Self {
        let Finding::Exact { proven, nodes, bound, cut_short } = finding else { unreachable!() };
        Self { completions, proven, nodes, bound: bound.unwrap_or(f64::NEG_INFINITY), cut_short }
    }
}

/// The result of a search with these knobs alone.
fn searched(sequences: &mut dyn Sequences, config: &GenerationConfig, chain: &Chain) -> Result<Searched> {
    search(sequences, &job(&Plan::new(config), chain), &mut to_the_end).map(Searched::from)
}

fn found(sequences: &mut dyn Sequences, config: &GenerationConfig, chain: &Chain, stops: &EndsText) -> Searched {
    let before = sequences.ids(0).to_vec();
    let plan = Plan { ends: Some(stops), ..Plan::new(config) };
    let result: Searched = search(sequences, &job(&plan, chain), &mut to_the_end).unwrap().into();
    assert_eq!((sequences.rows(), sequences.ids(0)), (1, before.as_slice()), "the prompt is what remains");
    result
}

/// Every complete continuation with its score, best first: no bound, no order, no batches.
fn brute_force(
    logits_after: &dyn Fn(&[u32]) -> Vec<f32>,
    config: &GenerationConfig,
    chain: &Chain,
    stops: &dyn Fn(&[u32]) -> bool,
) -> Vec<(Vec<u32>, f64)> {
    let mut complete = Vec::new();
    let mut unfinished = vec![(Vec::new(), 0.0)];
    while let Some((ids, score)) = unfinished.pop() {
        let mut logits = logits_after(&[&PROMPT, ids.as_slice()].concat());
        let total: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
        for logit in &mut logits {
            *logit = (f64::from(*logit) - total.ln()) as f32;
        }
        chain.process(&Step { prompt: &PROMPT, generated: &ids }, &mut logits);
        for (id, &logprob) in (0..).zip(&logits).filter(|(_, logprob)| logprob.is_finite()) {
            let longer = ([ids.as_slice(), &[id]].concat(), score + f64::from(logprob));
            let ends = config.end_tokens.contains(&id) || longer.0.len() == config.max_new_tokens || stops(&longer.0);
            if ends { complete.push(longer) } else { unfinished.push(longer) }
        }
    }
    complete.sort_by(|a, b| b.1.total_cmp(&a.1));
    complete
}

/// A penalty below 1: repeats become more probable, yet no log-probability exceeds the bound.
struct EncourageRepeats;

impl LogitsProcessor for EncourageRepeats {
    fn name(&self) -> &'static str {
        "encourage-repeats"
    }

    fn process(&self, step: &Step, logits: &mut [f32]) {
        for (id, logit) in (0..).zip(logits) {
            if step.prompt.contains(&id) || step.generated.contains(&id) {
                *logit *= 0.5;
            }
        }
    }
}

/// Bans one token, or raises its logit.
struct Add(u32, f32);

impl LogitsProcessor for Add {
    fn name(&self) -> &'static str {
        "add"
    }

    fn process(&self, _: &Step, logits: &mut [f32]) {
        logits[self.0 as usize] += self.1;
    }
}

fn chain_of(processor: impl LogitsProcessor + 'static) -> Chain {
    Chain::of(vec![Arc::new(processor)])
}

/// The most by which another continuation may be more probable than the best completion, in nats; 0
/// if the search is proven.
fn gap(result: &Searched) -> f64 {
    result.completions.first().map_or(0.0, |best| (result.bound - best.score).max(0.0))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The n best continuations, their order and scores equal those of an exhaustive search: with
    /// any number of end tokens, a stop string, a penalty, and a context that ends.
    #[test]
    fn equals_trying_everything(
        seed in any::<u64>(), vocab_size in 2..6_usize, longest in 1..6_usize, ends in 0..3_u32, n in 1..5_usize,
        stop in any::<bool>(), penalised in any::<bool>(), context in 2..9_usize, spread in 0.1..8.0_f32,
    ) {
        let whole = made_up::logits(seed, vocab_size, spread);
        let logits_after = |ids: &[u32]| whole(&ids[ids.len().saturating_sub(context)..]);
        let config = GenerationConfig { num_return_sequences: n, ..config(longest, (0..ends).collect()) };
        let chain = if penalised { chain_of(EncourageRepeats) } else { Chain::default() };
        let stops = |ids: &[u32]| stop && ids.windows(2).any(|pair| pair == [1, 1]);
        let expected = brute_force(&logits_after, &config, &chain, &stops);

        let inner = made_up::sequences(&PROMPT, vocab_size, &logits_after);
        let result = found(&mut Short { context, inner }, &config, &chain, &stops);
        prop_assert!(result.proven && result.cut_short.is_none());
        prop_assert_eq!(result.completions.len(), n.min(expected.len()));
        for (completion, (_, score)) in result.completions.iter().zip_eq(&expected[..n.min(expected.len())]) {
            prop_assert!((completion.score - score).abs() < 1e-5, "{} is not {score}", completion.score);
            let (_, own) = expected.iter().find(|(ids, _)| *ids == completion.ids).unwrap();
            prop_assert!((own - score).abs() < 1e-5, "{:?} does not have the score {score}", completion.ids);
            let reason = match completion.ids.last() {
                Some(last) if *last < ends => FinishReason::Eos,
                _ if stops(&completion.ids) => FinishReason::Stop,
                _ => FinishReason::Length,
            };
            prop_assert_eq!(completion.finish_reason, reason);
            let sum: f64 = completion.tokens.iter().map(|token| f64::from(token.logprob)).sum();
            prop_assert!(penalised || (sum - score).abs() < 1e-5, "the tokens' log-probabilities sum to {sum}");
        }
    }

    /// Cut short by its node limit or by the user, a search still makes only true statements: its
    /// answer is complete, nothing beats its bound, and what it calls proven is.
    #[test]
    fn what_is_said_without_a_proof_is_true(
        seed in any::<u64>(), vocab_size in 2..6_usize, ends in 0..2_u32, n in 1..4_usize, max_nodes in 1..60_usize,
        passes in 1..12_usize, spread in 0.1..4.0_f32,
    ) {
        let logits_after = made_up::logits(seed, vocab_size, spread);
        let config = GenerationConfig { num_return_sequences: n, max_nodes, ..config(5, (0..ends).collect()) };
        let expected = brute_force(&logits_after, &config, &Chain::default(), &never);
        let mut sequences = made_up::sequences(&PROMPT, vocab_size, &logits_after);
        let (plan, chain) = (Plan::new(&config), Chain::default());
        let mut seen = 0;
        let result = Searched::from(search(&mut sequences, &job(&plan, &chain), &mut |_| {
            seen += 1;
            if seen == passes { ControlFlow::Break(FinishReason::Interrupted) } else { ControlFlow::Continue(()) }
        }).unwrap());

        prop_assert!(result.nodes <= max_nodes.max(5), "{} nodes of {max_nodes}", result.nodes);
        let best = &result.completions[0];
        if best.finish_reason == FinishReason::Interrupted {
            prop_assert!(!best.ids.is_empty() && !result.proven && result.completions.len() == 1);
        } else {
            let missed = expected[0].1 - best.score;
            prop_assert!(missed < gap(&result) + 1e-5, "the best is better by {missed}, and not by {}", gap(&result));
            for (completion, (_, score)) in result.completions.iter().zip(&expected) {
                let (_, own) = expected.iter().find(|(ids, _)| *ids == completion.ids).unwrap();
                prop_assert!((completion.score - own).abs() < 1e-5);
                let proven = result.proven || completion.score >= result.bound;
                prop_assert!(!proven || (own - score).abs() < 1e-5, "{own} is not the score in its place, {score}");
            }
        }
    }
}

/// The `width` most probable prefixes of each length, and the best of the last: a beam search
/// without its bookkeeping.
fn beam_search(logits_after: &dyn Fn(&[u32]) -> Vec<f32>, width: usize, len: usize) -> (Vec<u32>, f64) {
    let mut beams = vec![(PROMPT.to_vec(), 0.0)];
    for _ in 0..len {
        let mut longer = Vec::new();
        for (ids, score) in &beams {
            let logits = logits_after(ids);
            let norm = finite_log_sum_exp(&logits).unwrap();
            for (id, logit) in (0..).zip(logits) {
                longer.push(([ids.as_slice(), &[id]].concat(), score + f64::from(logit) - norm));
            }
        }
        longer.sort_by(|a, b| b.1.total_cmp(&a.1));
        longer.truncate(width);
        beams = longer;
    }
    let (ids, score) = beams.remove(0);
    (ids[PROMPT.len()..].to_vec(), score)
}

/// After the two most probable first tokens the model is uncertain; after the third it is sure:
///
/// ```text
/// 0 (0.40) -- 0, 1 or 2 (1/3 each)         0.133
/// 1 (0.35) -- 0, 1 or 2 (1/3 each)         0.117
/// 2 (0.25) -- 0 (0.98), 1 or 2 (0.01)      0.245
/// ```
///
/// Two beams drop the third, and never see its continuation.
#[test]
fn where_two_beams_are_wrong() {
    let logits_after = |ids: &[u32]| {
        let probabilities: [f32; 3] = match ids[PROMPT.len()..] {
            [] => [0.40, 0.35, 0.25],
            [2, ..] => [0.98, 0.01, 0.01],
            _ => [1.0, 1.0, 1.0],
        };
        probabilities.map(f32::ln).to_vec()
    };
    let (ids, score) = beam_search(&logits_after, 2, 2);
    assert!(ids[0] == 0 && (score.exp() - 0.40 / 3.0).abs() < 1e-6);

    // One node suffices only for the root, but the initial descent continues until a text is
    // complete: one beam, greedy.
    let few = GenerationConfig { max_nodes: 1, ..config(2, vec![]) };
    let result = found(&mut made_up::sequences(&PROMPT, 3, logits_after), &few, &Chain::default(), &never);
    assert_eq!((result.nodes, result.proven), (2, false));
    assert!((result.completions[0].score.exp() - 0.40 / 3.0).abs() < 1e-6);
    assert!((result.bound.exp() - 0.35).abs() < 1e-6, "the second token was not looked at");

    let result =
        found(&mut made_up::sequences(&PROMPT, 3, logits_after), &config(2, vec![]), &Chain::default(), &never);
    assert_eq!((result.completions[0].ids.as_slice(), result.proven), (&[2, 0][..], true));
    assert!((result.completions[0].score.exp() - 0.245).abs() < 1e-6);
}

/// 3^12 texts of 12 tokens: with one clearly best token at each step hardly any prefix is expanded.
#[test]
fn a_sure_model_takes_few_nodes() {
    let logits_after = |ids: &[u32]| (0..3).map(|id| if id == ids.len() % 3 { 3.0 } else { 0.0 }).collect();
    let result =
        found(&mut made_up::sequences(&PROMPT, 3, logits_after), &config(12, vec![]), &Chain::default(), &never);
    assert_eq!(result.completions[0].ids, [2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]);
    assert!(result.proven && result.nodes < 500, "{} nodes", result.nodes);
}

/// Forty first tokens look alike, and only after the last of them is the model sure. A low node
/// limit leaves room for few open prefixes; those without room still count in the bound, and
/// nothing is proven before the last one has been expanded.
#[test]
fn what_there_is_no_room_for_is_not_forgotten() {
    let logits_after = |ids: &[u32]| {
        let sure = ids.len() > PROMPT.len() && ids.last() == Some(&39);
        (0..40).map(|id| if sure && id == 7 { 100.0 } else { 0.0 }).collect::<Vec<f32>>()
    };
    let mut proofs = 0;
    for max_nodes in 1..60 {
        let config = GenerationConfig { max_nodes, ..config(2, vec![]) };
        let mut sequences = made_up::sequences(&PROMPT, 40, logits_after);
        let result = found(&mut sequences, &config, &Chain::default(), &never);
        let best = &result.completions[0];
        assert_eq!(result.proven, best.ids == [39, 7], "after {max_nodes} nodes: {:?}", best.ids);
        assert!((gap(&result) > 1.0) != result.proven);
        proofs += usize::from(result.proven);
    }
    assert!((10..50).contains(&proofs));
}

#[test]
fn time_and_the_user_end_it_with_what_there_is() {
    let mut sequences = made_up::sequences(&PROMPT, 4, made_up::logits(3, 4, 1.0));
    let config = GenerationConfig { max_time_s: Some(0.0), logprobs: 2, ..config(6, vec![]) };
    let result = searched(&mut sequences, &config, &Chain::default()).unwrap();
    let [completion] = result.completions.as_slice() else { panic!("{:?}", result.completions) };
    assert_eq!((completion.finish_reason, completion.ids.len()), (FinishReason::Time, 1));
    assert_eq!((result.cut_short, result.proven, result.nodes), (Some(FinishReason::Time), false, 1));
    let token = &completion.tokens[0];
    assert_eq!((token.top.len(), token.top[0]), (2, (token.id, token.logprob)));
}

/// After the search there is a pass for each text, and beyond the context one for each token: these
/// stop, too, when time is over or the user asks, and the texts keep the search's numbers.
#[test]
fn nothing_more_is_measured_once_it_is_to_end() {
    use std::cell::Cell;
    let passes = Cell::new(0);
    let logits = made_up::logits(3, 4, 1.0);
    let logits_after = |ids: &[u32]| {
        passes.set(passes.get() + 1);
        logits(ids)
    };
    let config = GenerationConfig { num_return_sequences: 20, ..config(5, vec![]) };
    let run = |ends_after: Option<usize>| {
        passes.set(0);
        let clocks = [Clock::Steps(ends_after.unwrap_or(usize::MAX))];
        let (plan, chain) = (Plan { clocks: &clocks, ..Plan::new(&config) }, Chain::default());
        let (mut nodes, searched) = (0, Cell::new(0));
        let mut progress = |expanded: usize| {
            if expanded > nodes {
                searched.set(passes.get());
            }
            nodes = expanded;
            ControlFlow::Continue(())
        };
        let mut sequences = made_up::sequences(&PROMPT, 4, logits_after);
        let result: Searched = search(&mut sequences, &job(&plan, &chain), &mut progress).unwrap().into();
        (result, passes.get() - searched.get())
    };
    let (whole, after_search) = run(None);
    assert_eq!((whole.completions.len(), whole.cut_short, after_search), (20, None, 20 * 5));
    let (cut, after_search) = run(Some(60));
    assert_eq!((cut.completions.len(), cut.cut_short, after_search), (20, Some(FinishReason::Time), 5));
    for completion in &cut.completions {
        let whole = whole.completions.iter().find(|whole| whole.ids == completion.ids);
        let Some(whole) = whole else { continue };
        let difference = |a: &ChosenToken, b: &ChosenToken| (a.logprob - b.logprob).abs();
        assert!(completion.tokens.iter().zip_eq(&whole.tokens).all(|(a, b)| difference(a, b) < 1e-5));
    }
}

#[test]
fn the_context_ends_a_text_or_the_search() {
    let at = |overflow| {
        let config = GenerationConfig { overflow, ..config(4, vec![]) };
        let inner = made_up::sequences(&PROMPT, 3, made_up::logits(1, 3, 1.0));
        searched(&mut Short { context: 3, inner }, &config, &Chain::default())
    };
    let lengths = |overflow| at(overflow).unwrap().completions[0].ids.len();
    assert_eq!((lengths(Overflow::Slide), lengths(Overflow::Stop)), (4, 2));
    let error = at(Overflow::Error).unwrap_err().to_string();
    assert!(error.contains("holds 3 tokens and prompt and text may need 5"), "{error}");
}

/// Judged by its actual length, not by the length it might have reached.
#[test]
fn a_text_that_ends_within_the_context_has_not_outgrown_it() {
    let best = |end_tokens| {
        let config = GenerationConfig { overflow: Overflow::Slide, ..config(9, end_tokens) };
        let inner = made_up::sequences(&PROMPT, 2, |_: &[u32]| vec![5.0, 0.0]);
        let (plan, chain) = (Plan::new(&config), Chain::default());
        let texts = write(&mut Short { context: 3, inner }, &job(&plan, &chain), &mut ()).unwrap();
        (texts[0][0].ids.len(), texts[0][0].slid)
    };
    assert_eq!([best(vec![0]), best(vec![])], [(1, false), (9, true)]);
}

#[test]
fn what_breaks_the_bound_is_refused() {
    let off = GenerationConfig::default;
    let refused = |config: GenerationConfig| check(&config).unwrap_err().to_string();
    assert!(
        refused(GenerationConfig { logit_bias: vec![(vec![1], -1.0), (vec![2], 0.5)], ..off() })
            .starts_with("logit-bias 0.5 may make a text more probable")
    );
    assert!(refused(GenerationConfig { presence_penalty: -0.1, ..off() }).starts_with("presence-penalty -0.1"));
    assert!(refused(GenerationConfig { frequency_penalty: -2.0, ..off() }).ends_with("make it 0 or more"));
    let sound = GenerationConfig { logit_bias: vec![(vec![1], -1.0)], repetition_penalty: 0.5, ..off() };
    assert!(check(&sound).is_ok());

    // Custom processors are checked while they run.
    let failed = |chain: &Chain| {
        let mut sequences = made_up::sequences(&PROMPT, 1, |_: &[u32]| vec![0.0]);
        searched(&mut sequences, &config(2, vec![]), chain).unwrap_err().to_string()
    };
    assert!(failed(&chain_of(Add(0, 1.0))).starts_with("one of add raises a token's probability above 1"));
}

#[test]
fn without_a_complete_text_it_is_said_whether_more_could_have_been_looked_at() {
    // 1 is the most probable token, and nothing may follow it.
    struct NothingBehind1;
    impl LogitsProcessor for NothingBehind1 {
        fn name(&self) -> &'static str {
            "nothing-behind-1"
        }
        fn process(&self, step: &Step, logits: &mut [f32]) {
            if step.generated.last() == Some(&1) {
                logits.fill(f32::NEG_INFINITY);
            }
        }
    }
    let failed = |chain: &Chain, max_nodes| {
        let config = GenerationConfig { max_nodes, ..config(2, vec![]) };
        let mut sequences = made_up::sequences(&PROMPT, 2, |_: &[u32]| vec![0.0, 1.0]);
        searched(&mut sequences, &config, chain).map(|searched| searched.nodes).map_err(|error| error.to_string())
    };
    let dead_end = chain_of(NothingBehind1);
    assert_eq!(failed(&dead_end, 9), Ok(3));
    let error = failed(&dead_end, 2).unwrap_err();
    assert!(error.starts_with("no complete text among 2 prefixes: nothing-behind-1 left no token"), "{error}");
    let never_0 = Add(0, f32::NEG_INFINITY);
    let all_gone = Chain::of(vec![Arc::new(never_0), Arc::new(NothingBehind1)]);
    let error = failed(&all_gone, 9).unwrap_err();
    let expected = "no token is left to choose after 1 new ones: together, add, nothing-behind-1 rule out all";
    assert!(error.starts_with(expected), "{error}");
}
