#![allow(clippy::unwrap_used)]
use std::sync::atomic::Ordering;
use std::{ops::ControlFlow, thread, time::Duration};

use burn::tensor::Device;
use ember_model::{Gpt, GptConfig, WeightType, init::Random};
use proptest::prelude::{ProptestConfig, prop, prop_assert, prop_assert_eq, proptest};
use proptest::strategy::Strategy as Generate;

use super::*;
use crate::config::{GenerationConfig, Overflow, Strategy};
use crate::sequences::Continues;
use crate::watch::Certain;
use crate::{Completion, Plan, error::Error, generate_batch};

const VOCAB: usize = 11;
const CONTEXT: usize = 64;

/// A model for inference: its products do not depend on the number of rows.
fn model_of(weights: WeightType) -> Gpt {
    let shape = GptConfig::new(VOCAB, CONTEXT, 2, 2, 40);
    Gpt::for_inference(&shape, &Random { seed: 3 }, weights, &Device::flex()).unwrap()
}

fn model() -> Gpt {
    model_of(WeightType::F32)
}

fn never() -> Arc<AtomicBool> {
    Arc::default()
}

/// The engine's metrics once all requests are gone.
fn settled(engine: &Engine) -> Metrics {
    for _ in 0..1000 {
        let metrics = engine.metrics();
        if (metrics.running, metrics.waiting) == (0, 0) {
            return metrics;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("requests are left behind: {:?}", engine.metrics());
}

/// A request's prompts and configuration.
#[derive(Clone, Debug)]
struct Spec {
    prompts: Vec<Vec<u32>>,
    config: GenerationConfig,
}

impl Spec {
    fn write(&self, model: &dyn Continues) -> Vec<Vec<Completion>> {
        let prompts: Vec<&[u32]> = self.prompts.iter().map(Vec::as_slice).collect();
        generate_batch(model, &prompts, &Plan::new(&self.config), &mut ()).unwrap()
    }
}

/// Everything that must be bit-identical: ids, log-probabilities and scores.
fn bits(completions: &[Vec<Completion>]) -> Vec<(Vec<u32>, Vec<u32>, u64)> {
    let of_one = |completion: &Completion| {
        let logprobs = completion.tokens.iter().map(|token| token.logprob.to_bits()).collect();
        (completion.ids.clone(), logprobs, completion.score.to_bits())
    };
    completions.iter().flatten().map(of_one).collect()
}

/// Prompts of a few kinds, some with common prefixes.
fn prompt() -> impl Generate<Value = Vec<u32>> {
    let beginning = prop::sample::select(vec![0usize, 1, 2, 3, 17, 40]);
    (beginning, prop::collection::vec(0..VOCAB as u32, 1..24))
        .prop_map(|(shared, own)| (0..shared).map(|i| (i * i % VOCAB) as u32).chain(own).collect())
}

fn spec() -> impl Generate<Value = Spec> {
    let config = (0..7usize, 0..99u64, 1..30usize, 1..4usize, prop::bool::ANY).prop_map(
        |(kind, seed, max_new_tokens, each, slides)| {
            let strategies = [
                Strategy::Greedy,
                Strategy::Sample,
                Strategy::Sample,
                Strategy::Beam,
                Strategy::BeamSample,
                Strategy::DiverseBeam,
                Strategy::Exact,
            ];
            GenerationConfig {
                strategy: strategies[kind],
                seed,
                max_new_tokens: if kind == 6 { max_new_tokens.min(4) } else { max_new_tokens },
                num_return_sequences: if kind == 0 { 1 } else { each },
                num_beams: 2 * each,
                num_beam_groups: 2,
                diversity_penalty: 0.7,
                draft_tokens: if kind == 2 { 3 } else { 0 },
                overflow: if slides { Overflow::Slide } else { Overflow::Stop },
                ..Default::default()
            }
        },
    );
    (prop::collection::vec(prompt(), 1..3), config).prop_map(|(prompts, config)| Spec { prompts, config })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// For any other requests, order of arrival, prompt budget and content of the cache: the same
    /// bits as from the model alone.
    #[test]
    fn alone_and_in_company_the_bits_are_the_same(
        specs in prop::collection::vec(spec(), 1..12), tokens_per_step in 1..40usize, positions in 1..600usize,
        weights in prop::sample::select(vec![WeightType::F32, WeightType::Bf16, WeightType::Int8]),
    ) {
        let model = model_of(weights);
        let alone: Vec<_> = specs.iter().map(|spec| bits(&spec.write(&model))).collect();
        let engine = Engine::start(model, Limits { tokens_per_step, positions }).unwrap();
        for _ in 0..2 {
            let together: Vec<_> = thread::scope(|scope| {
                let started: Vec<_> = specs.iter().map(|spec| scope.spawn(|| bits(&spec.write(&engine.request(never()))))).collect();
                started.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            prop_assert_eq!(&together, &alone);
        }
        prop_assert!(settled(&engine).positions <= positions);
    }
}

#[test]
fn a_prompt_that_begins_as_another_is_read_from_there() {
    let engine = Engine::start(model(), Limits { tokens_per_step: 16, positions: 500 }).unwrap();
    let config = GenerationConfig { max_new_tokens: 3, ..Default::default() };
    let read = |prompt: Vec<u32>| {
        let request = engine.request(never());
        Spec { prompts: vec![prompt], config: config.clone() }.write(&request);
        request.cached_tokens()
    };
    let shared: Vec<u32> = (0..30).map(|i| i * 7 % VOCAB as u32).collect();
    assert_eq!(read([&shared[..], &[1, 2, 3]].concat()), 0);
    assert_eq!(read([&shared[..], &[4, 5]].concat()), 30);
    // At least two positions are always read again.
    assert_eq!(read(shared.clone()), 28);
    assert_eq!(engine.metrics().cached_tokens, 58);
}

#[test]
fn what_the_cache_holds_of_a_text_is_not_of_its_prompt() {
    let engine = Engine::start(model(), Limits { tokens_per_step: 64, positions: 500 }).unwrap();
    let config = GenerationConfig { max_new_tokens: 2 * CONTEXT, ..Default::default() };
    let read = || {
        let request = engine.request(never());
        Spec { prompts: vec![vec![1]], config: config.clone() }.write(&request);
        request.cached_tokens()
    };
    assert_eq!([read(), read()], [0, 0]);
    // Sliding windows are prefilled again, and the second text shares the first's.
    assert!(settled(&engine).cached_tokens > 0);
}

#[test]
fn what_was_least_recently_of_use_is_forgotten_first() {
    let engine = Engine::start(model(), Limits { tokens_per_step: 64, positions: 80 }).unwrap();
    let config = GenerationConfig { max_new_tokens: 1, ..Default::default() };
    let read = |first: u32| {
        let request = engine.request(never());
        let prompt = (0..20).map(|i| (first + i * i) % VOCAB as u32).collect();
        Spec { prompts: vec![prompt], config: config.clone() }.write(&request);
        request.cached_tokens()
    };
    assert_eq!([read(1), read(2), read(1)], [0, 0, 18]);
    assert_eq!(read(3), 0); // evicts the second
    assert_eq!([read(1), read(2)], [18, 0]);
    assert!(settled(&engine).positions <= 60);
}

/// The engine admits a request by what it reserves.
#[test]
fn an_exact_search_holds_more_than_its_text_and_no_more_than_it_reserves() {
    let engine = Engine::start(model(), Limits { tokens_per_step: 64, positions: 500 }).unwrap();
    let (prompt, new) = ([1, 2], 6);
    let config =
        GenerationConfig { strategy: Strategy::Exact, max_new_tokens: new, max_nodes: 300, ..Default::default() };
    let mut held = 0;
    let mut watch = |_: Certain| {
        held = held.max(engine.metrics().positions);
        ControlFlow::Continue(())
    };
    generate_batch(&engine.request(never()), &[&prompt], &Plan::new(&config), &mut watch).unwrap();
    let (together, rows) = crate::generate::rows_at_once(&config, 1);
    assert_eq!((together, rows), (1, 16));
    assert!(prompt.len() + new < held && held <= prompt.len() + rows * new, "{held}");
}

#[test]
fn an_engine_that_a_panic_has_ended_says_so() {
    let engine = Engine::start(model(), Limits { tokens_per_step: 16, positions: 500 }).unwrap();
    let faulty = engine.request(never()).telling(|_| panic!("a fault"));
    assert!(!engine.has_ended());
    let config = GenerationConfig { max_new_tokens: 2, ..Default::default() };
    for request in [faulty, engine.request(never())] {
        let ended = generate_batch(&request, &[&[1, 2]], &Plan::new(&config), &mut ());
        assert!(matches!(ended, Err(Error::EngineEnded)), "{ended:?}");
    }
    // The second failed at the earliest when the engine had gone.
    assert!(engine.has_ended());
}

#[test]
fn a_request_is_cancelled_while_it_is_written() {
    let engine = Engine::start(model(), Limits { tokens_per_step: 16, positions: 500 }).unwrap();
    let cancelled = never();
    let config = GenerationConfig { max_new_tokens: 60, ..Default::default() };
    let mut steps = 0;
    let mut watch = |_: Certain| {
        steps += 1;
        cancelled.store(steps == 3, Ordering::Relaxed);
        ControlFlow::Continue(())
    };
    let request = engine.request(Arc::clone(&cancelled));
    let ended = generate_batch(&request, &[&[1, 2]], &Plan::new(&config), &mut watch);
    assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
    assert_eq!(steps, 3);
    // Nothing of it remains.
    drop(request);
    Spec { prompts: vec![vec![5, 6]], config }.write(&engine.request(never()));
    settled(&engine);
}

#[test]
fn a_request_is_cancelled_while_it_waits_and_before_its_first_step() {
    let engine = Engine::start(model(), Limits { tokens_per_step: 4, positions: 100 }).unwrap();
    let config = GenerationConfig { max_new_tokens: 40, overflow: Overflow::Slide, ..Default::default() };
    let write = |request: &Request, prompt: &[u32]| generate_batch(request, &[prompt], &Plan::new(&config), &mut ());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // The first occupies the cache for the whole test.
        let long = GenerationConfig { max_new_tokens: 1_000_000, ..config.clone() };
        let first = engine.request(never());
        let mut until = |_: Certain| match is_over.load(Ordering::Relaxed) {
            true => ControlFlow::Break(crate::FinishReason::Interrupted),
            false => ControlFlow::Continue(()),
        };
        scope.spawn(move || generate_batch(&first, &[&[1]], &Plan::new(&long), &mut until).unwrap());
        while engine.metrics().running == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let cancelled = never();
        let second = engine.request(Arc::clone(&cancelled));
        let waits = scope.spawn(move || write(&second, &[2; 30]));
        while engine.metrics().waiting == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        cancelled.store(true, Ordering::Relaxed);
        assert!(matches!(waits.join().unwrap(), Err(Error::Cancelled)));
        is_over.store(true, Ordering::Relaxed);
    });
    let cancelled: Arc<AtomicBool> = Arc::new(AtomicBool::new(true));
    let before = settled(&engine).tokens;
    assert!(matches!(write(&engine.request(cancelled), &[3; 60]), Err(Error::Cancelled)));
    assert_eq!(settled(&engine).tokens, before);
}

#[test]
fn a_request_is_cancelled_while_its_prompt_is_read() {
    let engine = Engine::start(model(), Limits { tokens_per_step: 4, positions: 100 }).unwrap();
    let (cancelled, config) = (never(), GenerationConfig { max_new_tokens: 1, ..Default::default() });
    let flag = Arc::clone(&cancelled);
    // The flag is set after the first of fifteen pieces.
    let request = engine.request(cancelled).telling(move |progress| flag.store(progress.read > 0, Ordering::Relaxed));
    let ended = generate_batch(&request, &[&[3; 60]], &Plan::new(&config), &mut ());
    assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
    assert_eq!(settled(&engine).tokens, 4);
}
