//! Texts generated together.

use std::sync::Arc;
use std::thread;

use burn::tensor::Device;
use ember_decoding::engine::{Engine, Limits};
use ember_decoding::{ChosenToken, GenerationConfig, generate};
use ember_model::{Gpt, WeightType, init::Random};

use crate::{gpt2, gpu, newest};

/// Concurrent prompts of different lengths, two of which share a prefix: each text is what the CPU
/// writes for it alone. On a GPU the bits may differ, but not the greedy text of so small a model,
/// nor the first digits of its log-probabilities, which may reveal what the text hides.
#[test]
fn the_engine_writes_in_company_what_the_cpu_writes_alone() {
    let Some(device) = gpu() else { return };
    let prompts: [&[u32]; 4] = [&[1, 2, 3], &[4, 5, 6, 7, 8, 9, 10, 11], &[4, 5, 6, 7, 8, 9, 30], &[31]];
    let config = GenerationConfig { max_new_tokens: 6, ..GenerationConfig::default() };
    for shape in [gpt2(), newest()] {
        let model = |device: &Device| Gpt::for_inference(&shape, &Random { seed: 5 }, WeightType::F32, device).unwrap();
        let here = model(&Device::flex());
        let engine = Engine::start(model(&device), Limits { tokens_per_step: 5, positions: 64 }).unwrap();
        let together = thread::scope(|scope| {
            let write = |prompt| generate(&engine.request(Arc::default()), prompt, &config, &mut ()).unwrap();
            let started = prompts.map(|prompt| scope.spawn(move || write(prompt)));
            started.map(|thread| thread.join().unwrap())
        });
        let alone = prompts.map(|prompt| generate(&here, prompt, &config, &mut ()).unwrap());
        let same = |a: &ChosenToken, b: &ChosenToken| a.id == b.id && (a.logprob - b.logprob).abs() <= 1e-5;
        for ((prompt, there), here) in prompts.iter().zip(&together).zip(&alone) {
            let is_same = there.tokens.iter().zip(&here.tokens).all(|(there, here)| same(there, here));
            // Prints all of them: a wrong row may have read another row's data.
            assert!(is_same && there.ids.len() == here.ids.len(), "{prompt:?}: {together:#?}\nalone: {alone:#?}");
        }
    }
}
