//! Requests that share an engine, in random interleavings of their threads: their results, their
//! cancellation, and how the engine ends.

#![allow(clippy::unwrap_used)]

use std::sync::LazyLock;

use burn::tensor::Device;
use ember_model::init::Random;
use ember_model::{Gpt, GptConfig, WeightType};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};

use super::*;
use crate::config::GenerationConfig;
use crate::error::{Error, Result};
use crate::sequences::Continues;
use crate::sync::atomic::Ordering;
use crate::{Plan, generate_batch};

/// A tiny model: a step takes some dozen microseconds.
static MODEL: LazyLock<Gpt> = LazyLock::new(|| {
    let shape = GptConfig::new(5, 8, 1, 1, 8);
    Gpt::for_inference(&shape, &Random { seed: 3 }, WeightType::F32, &Device::flex()).unwrap()
});

/// Tokens that each request generates; the last one is never read.
const WRITTEN: usize = 3;

/// Two prompts with a common prefix, and another.
const PROMPTS: [&[u32]; 3] = [&[1, 2, 3, 4], &[1, 2, 3, 1, 2], &[4]];

/// Room for one of the two and the small one, not for all three.
const LIMITS: Limits = Limits { tokens_per_step: 4, positions: 16 };

/// Interleavings for each scheduler.
const ORDERS: usize = 10_000;

/// Scheduling steps in one interleaving: if there are more, threads wait for ever.
const MAX_STEPS: usize = 100_000;

/// Runs `act` with two schedulers: one may preempt every thread anywhere, the other preempts few
/// threads, but for long.
fn explore(act: impl Fn() + Clone + Send + Sync + 'static) {
    // A pool of the exploring thread alone, so that a step's computation stays on it.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let run = |scheduler: Box<dyn Scheduler + Send>| {
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        config.silence_warnings = true; // about orderings that shuttle treats as stronger ones: tools/interleavings
        config.max_steps = shuttle::MaxSteps::FailAfter(MAX_STEPS);
        let act = act.clone();
        pool.install(|| Runner::new(scheduler, config).run(act))
    };
    let orders = run(Box::new(RandomScheduler::new_from_seed(1, ORDERS)))
        + run(Box::new(PctScheduler::new_from_seed(1, 3, ORDERS)));
    println!("{orders} orders");
}

fn write(model: &dyn Continues, prompt: &[u32]) -> Result<Vec<u32>> {
    let config = GenerationConfig { max_new_tokens: WRITTEN, ..Default::default() };
    Ok(generate_batch(model, &[prompt], &Plan::new(&config), &mut ())?.remove(0).remove(0).ids)
}

/// What the model alone generates for each prompt.
static ALONE: LazyLock<[Vec<u32>; 3]> = LazyLock::new(|| PROMPTS.map(|prompt| write(&*MODEL, prompt).unwrap()));

/// The engine's final metrics, once no requests are left.
fn metrics_at_the_end(mut handle: MetricsHandle) -> Metrics {
    loop {
        if let Some(metrics) = handle.final_metrics() {
            return metrics;
        }
        thread::yield_now();
    }
}

#[test]
fn all_are_answered_once_and_nothing_is_left_behind() {
    explore(|| {
        let engine = Engine::start(MODEL.clone(), LIMITS).unwrap();
        let requests: Vec<_> = (0..PROMPTS.len())
            .map(|i| {
                let request = engine.request(Arc::default());
                thread::spawn(move || assert_eq!(write(&request, PROMPTS[i]).unwrap(), ALONE[i]))
            })
            .collect();
        // The engine is dropped while requests run: they still finish.
        let handle = engine.metrics_handle();
        drop(engine);
        requests.into_iter().for_each(|request| request.join().unwrap());
        let Metrics { tokens, cached_tokens, running, waiting, .. } = metrics_at_the_end(handle);
        assert_eq!((running, waiting), (0, 0));
        // Each token is computed once, or taken from the cache.
        let read: usize = PROMPTS.iter().map(|prompt| prompt.len() + WRITTEN - 1).sum();
        assert_eq!(tokens + cached_tokens, read as u64);
    });
}

#[test]
fn who_is_cancelled_hears_it_at_once_and_holds_nobody_up() {
    explore(|| {
        let engine = Engine::start(MODEL.clone(), LIMITS).unwrap();
        let cancelled: Arc<AtomicBool> = Arc::default();
        let (request, flag) = (engine.request(Arc::clone(&cancelled)), Arc::clone(&cancelled));
        let asked = thread::spawn(move || {
            let mut sequences = request.sequences(&[PROMPTS[1]], 8);
            for token in 0..WRITTEN as u32 {
                let is_cancelled = flag.load(Ordering::Relaxed);
                match sequences.logits_of_last(&[1]) {
                    Ok(_) => assert!(!is_cancelled, "read, though it was cancelled before"),
                    Err(error) => {
                        assert!(matches!(error, Error::Cancelled), "{error}");
                        return;
                    }
                }
                sequences.extend(0, &[token]);
            }
        });
        let other = engine.request(Arc::default());
        let other = thread::spawn(move || assert_eq!(write(&other, PROMPTS[0]).unwrap(), ALONE[0]));
        let handle = engine.metrics_handle();
        drop(engine);
        cancelled.store(true, Ordering::Relaxed);
        asked.join().unwrap();
        other.join().unwrap();
        let Metrics { running, waiting, .. } = metrics_at_the_end(handle);
        assert_eq!((running, waiting), (0, 0));
    });
}
