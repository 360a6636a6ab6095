//! Times the logits processors on GPT-2's vocabulary, each alone and all together.
//!
//!     cargo run --release -p ember-decoding --example processors_speed
//!
//! A step of one row after a prompt of 1,000 tokens and 100 generated ones; the median and the
//! slowest tenth of 300 steps. Then a grammar's mask: a constraint is a processor, too.

mod constraints;

use std::time::Instant;

use ember_decoding::processors::{Chain, Step};
use ember_decoding::{GenerationConfig, Strategy};

/// The allocator of `ember-generate`: each step allocates and frees vectors of 200 kB.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VOCAB: usize = 50_257;
const STEPS: usize = 300;

fn main() {
    let off = GenerationConfig { strategy: Strategy::Sample, end_tokens: vec![50_256], ..Default::default() };
    let all = GenerationConfig {
        logit_bias: vec![(vec![11], 1.0), (vec![13], -1.0), (vec![198, 198], -3.0)],
        repetition_penalty: 1.1,
        presence_penalty: 0.2,
        frequency_penalty: 0.2,
        no_repeat_ngram_size: 3,
        bad_words: (0..20).map(|word| vec![word, word + 1]).collect(),
        min_new_tokens: 200,
        suppress_tokens: vec![100, 200, 300],
        temperature: 0.8,
        top_k: 50,
        top_p: 0.95,
        min_p: 0.02,
        typical_p: 0.95,
        epsilon_cutoff: 3e-4,
        eta_cutoff: 3e-4,
        ..off.clone()
    };
    let alone = [
        GenerationConfig { logit_bias: all.logit_bias.clone(), ..off.clone() },
        GenerationConfig { repetition_penalty: all.repetition_penalty, ..off.clone() },
        GenerationConfig { presence_penalty: all.presence_penalty, ..off.clone() },
        GenerationConfig { frequency_penalty: all.frequency_penalty, ..off.clone() },
        GenerationConfig { no_repeat_ngram_size: all.no_repeat_ngram_size, ..off.clone() },
        GenerationConfig { bad_words: all.bad_words.clone(), ..off.clone() },
        GenerationConfig { min_new_tokens: all.min_new_tokens, ..off.clone() },
        GenerationConfig { suppress_tokens: all.suppress_tokens.clone(), ..off.clone() },
        GenerationConfig { temperature: all.temperature, ..off.clone() },
        GenerationConfig { top_k: all.top_k, ..off.clone() },
        GenerationConfig { top_p: all.top_p, ..off.clone() },
        GenerationConfig { min_p: all.min_p, ..off.clone() },
        GenerationConfig { typical_p: all.typical_p, ..off.clone() },
        GenerationConfig { epsilon_cutoff: all.epsilon_cutoff, ..off.clone() },
        GenerationConfig { eta_cutoff: all.eta_cutoff, ..off.clone() },
    ];
    for config in &alone {
        report(&Chain::new(config, None).names().join(", "), config);
    }
    report("all together", &all);
    report("all but top-k: the others see the whole vocabulary", &GenerationConfig { top_k: 0, ..all.clone() });
    let weak = GenerationConfig { top_k: 0, top_p: 0.9999, min_p: 1e-6, typical_p: 0.9999, ..all.clone() };
    report("all but top-k, and the others remove next to nothing", &weak);
    constraints::report();
}

fn report(name: &str, config: &GenerationConfig) {
    let chain = Chain::new(config, None);
    let ids: Vec<u32> = (0..1_100).map(|place| (uniform(place) * 400.0) as u32).collect();
    let step = Step { prompt: &ids[..1_000], generated: &ids[1_000..] };
    let mut times: Vec<f64> = (0..STEPS as u64)
        .map(|number| {
            let mut logits = logits(number);
            let started = Instant::now();
            chain.process(&step, &mut logits);
            started.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("{:7.0} µs, slowest tenth {:7.0} µs: {name}", times[STEPS / 2], times[STEPS - STEPS / 10]);
}

/// Logits like a language model's: a normal distribution of width 2.5, and a few high outliers.
fn logits(number: u64) -> Vec<f32> {
    let place = |id: u64| (number * VOCAB as u64 + id) * 4;
    let bell = |id: u64| (0..4).map(|part| uniform(place(id) + part)).sum::<f32>() - 2.0;
    let outstanding = |id: u64| if id % 1_000 == number { 8.0 * uniform(place(id)) } else { 0.0 };
    (0..VOCAB as u64).map(|id| 4.3 * bell(id) + outstanding(id)).collect()
}

/// A pseudo-random number in [0, 1) for each position (splitmix64's last step).
fn uniform(place: u64) -> f32 {
    let mut x = place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 40) as f32 / (1 << 24) as f32
}
