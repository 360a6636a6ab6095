//! Decoding steps that the device records and replays, compared with the CPU's.

use burn::tensor::{Device, FloatDType};
use ember_model::{Gpt, KvCache, RecordedStep};

use super::{gpt2, gpu, largest_difference, newest, values};

/// Prompts of three rows, and a token for each of them at every step.
const PROMPTS: [&[u32]; 3] = [&[3, 1, 4, 1, 5], &[9, 2], &[6, 5, 3, 5]];

fn tokens(step: u32) -> [u32; 3] {
    [step, (7 * step + 1) % 32, 31 - step]
}

fn token_by_token(gpt: &Gpt, tokens: &[u32], cache: &mut KvCache) -> Vec<f32> {
    let tokens: Vec<&[u32]> = tokens.chunks(1).collect();
    values(gpt.forward_cached(&tokens, cache))
}

fn record(gpt: &Gpt, tokens: &[u32], cache: &mut KvCache) -> RecordedStep {
    assert!(RecordedStep::can_record(gpt, cache));
    RecordedStep::record(gpt, tokens, cache, |logits| logits).expect("wgpu records")
}

#[test]
fn a_replayed_step_computes_what_a_step_computes() {
    let Some(device) = gpu() else { return };
    for config in [gpt2(), newest()] {
        let [here, there] = [Device::flex(), device.clone()].map(|device| Gpt::new(&config, 1, &device).unwrap());
        let mut caches = [&here, &there].map(|gpt| KvCache::new(&config, 3, 40, &gpt.device()));
        for (gpt, cache) in [&here, &there].into_iter().zip(&mut caches) {
            gpt.forward_cached(&PROMPTS, cache);
        }
        let [cache_here, cache_there] = &mut caches;
        let mut recorded: Option<RecordedStep> = None;
        for step in 0..8 {
            if step == 4 {
                // The slot lists of rows change: replayed launches must read the new table.
                cache_here.select(&[2, 0, 0]);
                cache_there.select(&[2, 0, 0]);
            }
            let expected = token_by_token(&here, &tokens(step), cache_here);
            let step = match &mut recorded {
                Some(recorded) => {
                    assert!(recorded.fits(cache_there));
                    recorded.step(&tokens(step), cache_there);
                    recorded
                }
                none => none.insert(record(&there, &tokens(step), cache_there)),
            };
            let error = largest_difference(&values(step.output()), &expected);
            assert!(error < 1e-5, "logits differ by {error}");
        }
        // Steps that are not replayed see what replayed steps left in the cache.
        drop(recorded);
        let [got, expected] =
            [(&there, cache_there), (&here, cache_here)].map(|(gpt, cache)| token_by_token(gpt, &tokens(8), cache));
        let error = largest_difference(&got, &expected);
        assert!(error < 1e-5, "logits differ by {error}");
    }
}

#[test]
fn a_recorded_step_is_no_longer_used_when_it_does_not_fit() {
    let Some(device) = gpu() else { return };
    let config = gpt2();
    let gpt = Gpt::new(&config, 1, &device).unwrap();
    let mut cache = KvCache::new(&config, 1, 6, &device);
    gpt.forward_cached(&[&[1, 2, 3]], &mut cache);
    let recorded = record(&gpt, &[4], &mut cache);
    assert!(recorded.fits(&cache));
    cache.select(&[0, 0]);
    assert!(!recorded.fits(&cache), "another number of rows");
    cache.select(&[0]);
    assert!(recorded.fits(&cache));
    gpt.forward_cached(&[&[5, 6]], &mut cache);
    assert!(!recorded.fits(&cache), "no room");
    assert!(!RecordedStep::can_record(&gpt, &cache));
    gpt.forward_cached(&[&[7]], &mut cache);
    assert!(!recorded.fits(&cache), "another place");
    assert!(RecordedStep::can_record(&gpt, &cache));
    let on_the_cpu = Gpt::new(&config, 1, &Device::flex()).unwrap();
    assert!(!RecordedStep::can_record(&on_the_cpu, &KvCache::new(&config, 1, 6, &Device::flex())));
}

/// A cache keeps the model's type of computation, even when it grows and when slots are reclaimed.
#[test]
fn a_cache_of_half_precision_grows() {
    let Some(device) = gpu().filter(|device| device.supports_dtype(FloatDType::F16)) else { return };
    let config = gpt2();
    let gpt = Gpt::new(&config, 1, &device).unwrap().with_precision(FloatDType::F16);
    let [mut narrow, mut wide] = [3, 60].map(|slots| KvCache::new(&config, 3, slots, &device));
    for step in 0..6 {
        let pass = |cache: &mut KvCache| {
            cache.select(&[1, 0, 1]);
            token_by_token(&gpt, &tokens(step), cache)
        };
        assert_eq!(pass(&mut narrow), pass(&mut wide));
    }
}
