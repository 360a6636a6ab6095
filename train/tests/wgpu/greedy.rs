//! Greedy decoding.

use burn::tensor::Device;
use ember_decoding::{GenerationConfig, generate};
use ember_model::{Gpt, GptConfig};

use crate::gpu;

/// The engine's greedy text, for which only ids and log-probabilities are read back from the
/// device.
#[test]
fn greedy_decoding_writes_what_the_cpu_writes() {
    let Some(device) = gpu() else { return };
    let shape = GptConfig::new(40, 32, 1, 2, 32);
    let config = GenerationConfig { max_new_tokens: 12, ..GenerationConfig::default() };
    let write = |device: &Device| {
        let gpt = Gpt::new(&shape, 3, device).unwrap();
        generate(&gpt, &[1, 2, 3], &config, &mut ()).unwrap()
    };
    let (there, here) = (write(&device), write(&Device::flex()));
    assert_eq!(there.ids, here.ids);
    for (there, here) in there.tokens.iter().zip(&here.tokens) {
        assert!((there.logprob - here.logprob).abs() < 1e-4, "{} {}", there.logprob, here.logprob);
    }
}
