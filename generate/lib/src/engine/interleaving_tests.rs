//! Requests that share an engine, in orders of their threads that are drawn at random: what they
//! are answered, what becomes of them when they are cancelled, and how the engine ends.

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

/// As small as models are: a step is some dozen microseconds.
static MODEL: LazyLock<Gpt> = LazyLock::new(|| {
    let shape = GptConfig::new(5, 8, 1, 1, 8);
    Gpt::for_inference(&shape, &Random { seed: 3 }, WeightType::F32, &Device::flex()).unwrap()
});

/// Tokens that each request writes: the last is not read.
const WRITTEN: usize = 3;

/// Two that begin alike, and one that does not.
const PROMPTS: [&[u32]; 3] = [&[1, 2, 3, 4], &[1, 2, 3, 1, 2], &[4]];

/// Room for one of the two and the small one, not for all.
const LIMITS: Limits = Limits { tokens_per_step: 4, slots: 16 };

/// Orders that are tried by each way to draw them.
const ORDERS: usize = 10_000;

/// Steps of all threads in one order: more are threads that wait for ever.
const MAX_STEPS: usize = 100_000;

/// Runs `act` in so many orders, in which every thread may be held up anywhere, and in as many in
/// which few are, but for long.
fn explore(act: impl Fn() + Clone + Send + Sync + 'static) {
    // A pool of the thread that explores: what a step computes stays on it.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let run = |scheduler: Box<dyn Scheduler + Send>| {
        let mut config = Config::new();
        config.stack_size = 1 << 20;
        config.silence_warnings = true; // of orderings that it takes for stronger ones: tools/interleavings
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

/// What each prompt is answered by the model alone.
static ALONE: LazyLock<[Vec<u32>; 3]> = LazyLock::new(|| PROMPTS.map(|prompt| write(&*MODEL, prompt).unwrap()));

/// All that an engine did, once nobody can ask it any more.
fn closed(mut account: Account) -> Figures {
    loop {
        if let Some(figures) = account.closed() {
            return figures;
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
        // Put away while they are at work: they finish what they have begun.
        let account = engine.account();
        drop(engine);
        requests.into_iter().for_each(|request| request.join().unwrap());
        let Figures { tokens, cached_tokens, running, waiting, .. } = closed(account);
        assert_eq!((running, waiting), (0, 0));
        // Each token is read once, or was by another.
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
        let account = engine.account();
        drop(engine);
        cancelled.store(true, Ordering::Relaxed);
        asked.join().unwrap();
        other.join().unwrap();
        let Figures { running, waiting, .. } = closed(account);
        assert_eq!((running, waiting), (0, 0));
    });
}
