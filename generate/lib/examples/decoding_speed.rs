//! The cost of a step by strategy, on this CPU with a model of random weights: greedy rows, sampled
//! rows and beams, with and without a listener that receives the text as it comes.
//!
//!     cargo run --release -p ember-decoding --example decoding_speed [VOCAB N_LAYER N_EMBD]
//!
//! Each figure is the median of interleaved runs, so that a busy machine slows all alike.

use std::io::Write;
use std::ops::ControlFlow;
use std::time::Instant;

use burn::tensor::Device;
use ember_decoding::{Certain, GenerationConfig, Plan, Strategy, generate_batch};
use ember_model::{Gpt, GptConfig};

const PROMPT: usize = 64;
const NEW: usize = 64;
const RUNS: usize = 9;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sizes: Vec<usize> = std::env::args().skip(1).filter_map(|size| size.parse().ok()).collect();
    let [vocab, n_layer, n_embd] = sizes.try_into().unwrap_or([50_257, 4, 256]);
    let config = GptConfig::new(vocab, PROMPT + NEW, n_layer, n_embd / 64, n_embd);
    let model = Gpt::new(&config, 1, &Device::flex())?;
    let prompt: Vec<u32> = (0..PROMPT as u32).map(|i| i * 97 % vocab as u32).collect();
    println!("{n_layer} layers, {n_embd} wide, vocabulary {vocab}; a prompt of {PROMPT}, {NEW} new tokens; ms a step");

    for rows in [1, 4, 8] {
        let base = GenerationConfig { max_new_tokens: NEW, ..Default::default() };
        let greedy = base.clone();
        let sample = GenerationConfig { strategy: Strategy::Sample, ..base.clone() };
        let beams = GenerationConfig { strategy: Strategy::Beam, num_beams: rows, ..base };
        let prompts = vec![prompt.as_slice(); rows];
        let ways: [(&str, &GenerationConfig, &[&[u32]], bool); 5] = [
            ("greedy rows", &greedy, &prompts, false),
            ("greedy rows, streamed", &greedy, &prompts, true),
            ("sampled rows", &sample, &prompts, false),
            ("beams", &beams, &prompts[..1], false),
            ("beams, streamed", &beams, &prompts[..1], true),
        ];
        let mut seconds = vec![Vec::new(); ways.len()];
        for _ in 0..RUNS {
            for ((_, config, prompts, streamed), seconds) in ways.iter().zip(&mut seconds) {
                seconds.push(time(&model, prompts, config, *streamed)?);
            }
        }
        let median = |seconds: &mut Vec<f64>| {
            seconds.sort_by(f64::total_cmp);
            seconds[RUNS / 2]
        };
        let medians: Vec<f64> = seconds.iter_mut().map(median).collect();
        for ((name, ..), seconds) in ways.iter().zip(&medians) {
            println!("  {rows} {name:<22} {:8.3}  {:.3} of greedy", seconds * 1e3 / NEW as f64, seconds / medians[0]);
        }
    }
    Ok(())
}

/// Seconds for a whole generation, prefill excluded.
fn time(
    model: &Gpt,
    prompts: &[&[u32]],
    config: &GenerationConfig,
    streamed: bool,
) -> Result<f64, Box<dyn std::error::Error>> {
    let mut sink = std::io::sink();
    let mut first = None;
    let listen = &mut |Certain { tokens, .. }: Certain| {
        first.get_or_insert_with(Instant::now);
        for token in tokens.iter().filter(|_| streamed) {
            let _ = write!(sink, "{}", token.id).and_then(|()| sink.flush());
        }
        ControlFlow::Continue(())
    };
    generate_batch(model, prompts, &Plan::new(config), listen)?;
    Ok(first.map_or(0.0, |first| first.elapsed().as_secs_f64()))
}
