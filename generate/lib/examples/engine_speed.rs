//! The cost of concurrency: requests in threads that share a model through the engine, compared
//! with one offline batch of the same prompts; and the wait for the next token when a long prompt
//! arrives.
//!
//!     cargo run --release -p ember-decoding --example engine_speed [VOCAB N_LAYER N_EMBD]

use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

use burn::tensor::Device;
use ember_decoding::engine::{Engine, Limits};
use ember_decoding::{Certain, GenerationConfig, Plan, generate_batch};
use ember_model::{Gpt, GptConfig, WeightType, init::Random};

const PROMPT: usize = 32;
const NEW: usize = 64;
const LONG: usize = 1000;
const RUNS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|size| size.parse().ok()).collect();
    let [vocab, n_layer, n_embd] = sizes.try_into().unwrap_or([50_257, 4, 256]);
    let shape = GptConfig::new(vocab, 1024, n_layer, n_embd / 64, n_embd);
    let model = Gpt::for_inference(&shape, &Random { seed: 1 }, WeightType::F32, &Device::flex())?;
    let config = GenerationConfig { max_new_tokens: NEW, ..Default::default() };
    let prompt = |number: usize, len: usize| -> Vec<u32> {
        (0..len).map(|i| (number * 31 + i * 97) as u32 % vocab as u32).collect()
    };
    let engine = Engine::start(model.clone(), Limits { tokens_per_step: 64, positions: 64 * 1024 })?;

    println!("{n_layer} layers, {n_embd} wide, vocabulary {vocab}; prompts of {PROMPT}, {NEW} new tokens; tokens/s");
    println!("{:>8} {:>10} {:>10} {:>6}", "at once", "offline", "engine", "ratio");
    for rows in [1, 4, 16, 64] {
        let mut rates = [Vec::new(), Vec::new()];
        for run in 0..RUNS {
            // New prompts in each run, so that nothing is cached.
            let prompts: Vec<Vec<u32>> = (0..rows).map(|row| prompt(1 + row + rows * (run + 1) * 64, PROMPT)).collect();
            let borrowed: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
            let began = Instant::now();
            generate_batch(&model, &borrowed, &Plan::new(&config), &mut ())?;
            rates[0].push((rows * NEW) as f64 / began.elapsed().as_secs_f64());
            let began = Instant::now();
            thread::scope(|scope| {
                for prompt in &prompts {
                    scope.spawn(|| write(&engine, prompt, &config));
                }
            });
            rates[1].push((rows * NEW) as f64 / began.elapsed().as_secs_f64());
        }
        let [offline, together] = rates.map(median);
        println!("{rows:>8} {offline:>10.0} {together:>10.0} {:>6.2}", together / offline);
    }

    let long = prompt(77, LONG);
    let gaps: Vec<Vec<Duration>> = thread::scope(|scope| {
        let running: Vec<_> = (0..15)
            .map(|row| {
                let (engine, config, prompt) = (&engine, &config, prompt(5000 + row, PROMPT));
                scope.spawn(move || write(engine, &prompt, config))
            })
            .collect();
        thread::sleep(Duration::from_millis(300));
        let one = GenerationConfig { max_new_tokens: 1, ..config.clone() };
        let began = Instant::now();
        write(&engine, &long, &one);
        println!("\na prompt of {LONG} beside 15 others: {:.2} s to its first token", began.elapsed().as_secs_f64());
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let mut gaps: Vec<f64> = gaps.into_iter().flatten().map(|gap| gap.as_secs_f64()).collect();
    gaps.sort_by(f64::total_cmp);
    let [median, longest] = [gaps[gaps.len() / 2], gaps[gaps.len() - 1]];
    println!("between two of their tokens: {:.1} ms in the median, {:.1} ms at most", 1e3 * median, 1e3 * longest);
    Ok(())
}

/// Generates a text and returns the times between its tokens.
fn write(engine: &Engine, prompt: &[u32], config: &GenerationConfig) -> Vec<Duration> {
    let (mut gaps, mut before) = (Vec::new(), None);
    let mut watch = |_: Certain| {
        let now = Instant::now();
        gaps.extend(before.replace(now).map(|before| now - before));
        ControlFlow::Continue(())
    };
    let request = engine.request(std::sync::Arc::default());
    generate_batch(&request, &[prompt], &Plan::new(config), &mut watch).map_err(|error| eprintln!("{error}")).ok();
    gaps
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
