//! How costs grow with the length of the text: training, inference with the cache and without.

use burn::module::Module;
use ember_data::windows::Batch;
use ember_decoding::{bench::Spread, sequences::ModelSequences, sequences::Sequences};
use ember_model::Gpt;
use serde::Serialize;

use super::meter::{Meter, positive};
use super::modes::{Plan, generation::logits_without_cache};
use crate::batch::batch_logits;
use crate::{error::Result, stepper::Stepper};
use ember_training::config::precision::float_dtype;

/// The costs at one length.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Growth {
    /// Tokens in the row.
    pub time: usize,
    /// Seconds of a training step, median.
    pub training_s: f64,
    /// Its peak memory, weights and moments included.
    pub training_bytes: u64,
    /// Seconds of a forward pass without a graph, median.
    pub forward_s: f64,
    /// Its peak memory, weights included.
    pub forward_bytes: u64,
    /// Seconds of the row's last token, with the others in the cache.
    pub cached_token_s: f64,
    /// Bytes of the cache when the row is full.
    pub cache_bytes: u64,
    /// Seconds of the row's last token without a cache.
    pub uncached_token_s: f64,
}

/// Lengths to measure at, up to `longest`: eighths of it, without repetitions.
pub fn lengths(longest: usize) -> Vec<usize> {
    let mut lengths: Vec<usize> = (1..=8).map(|eighth| (longest * eighth / 8).max(2)).collect();
    lengths.dedup();
    lengths
}

/// Measures one row of the plan's batch, cut to each of [`lengths`]. The weights take
/// `weights_bytes` by `meter`, and nothing else may hold them; `begins` receives each length.
///
/// # Errors
/// When the device fails, or the plan's `go_on` says to stop.
pub fn measure(
    mut gpt: Gpt,
    weights_bytes: i64,
    plan: &Plan,
    meter: &mut Meter,
    begins: &mut dyn FnMut(usize),
) -> Result<Vec<Growth>> {
    let Plan { batch, repeats, config, .. } = plan;
    let of_inference = gpt.precision();
    gpt = gpt.with_precision(float_dtype(config.precision));
    let mut stepper = Stepper::new(config);
    let mut all = Vec::new();
    for time in lengths(batch.context_length) {
        begins(time);
        let row = Batch {
            inputs: batch.inputs[..time].to_vec(),
            targets: batch.targets[..time].to_vec(),
            batch_size: 1,
            context_length: time,
        };
        let growth = inference(&gpt.valid().with_precision(of_inference), weights_bytes, &row, plan, meter)?;
        let mut times = Vec::new();
        let mut held = 0;
        for repeat in 0..=*repeats {
            plan.proceed()?;
            let before = meter.begin_peak()?;
            let (stepped, step_s) = meter.time(|| Ok(stepper.step(gpt, &row)))?;
            gpt = stepped;
            if repeat > 0 {
                times.push(step_s);
                // The moments were in memory before.
                held = weights_bytes + 4 * stepper.optimizer.values() as i64 + meter.peak()? - before;
            }
        }
        all.push(Growth { training_s: Spread::of(times).median, training_bytes: positive(held), ..growth });
    }
    Ok(all)
}

/// The costs of inference; those of training are left at 0.
fn inference(plain: &Gpt, weights_bytes: i64, row: &Batch, plan: &Plan, meter: &mut Meter) -> Result<Growth> {
    let time = row.context_length;
    let (last, prompt) = (row.inputs[time - 1], &row.inputs[..time - 1]);
    let [mut forward, mut cached, mut uncached] = [Vec::new(), Vec::new(), Vec::new()];
    let (mut forward_bytes, mut cache_bytes) = (0, 0);
    for repeat in 0..=plan.repeats {
        plan.proceed()?;
        let before = meter.begin_peak()?;
        let (logits, forward_s) = meter.time(|| Ok(batch_logits(plain, row)))?;
        forward_bytes = weights_bytes + meter.peak()? - before;
        drop(logits);

        let before = meter.live()?;
        let mut sequences = ModelSequences::new(plain, &[prompt], time);
        cache_bytes = meter.live()? - before;
        sequences.logits()?;
        sequences.extend(0, &[last]);
        let (_, cached_s) = meter.time(|| Ok(sequences.logits()?))?;
        let (_, uncached_s) = meter.time(|| logits_without_cache(plain, &[&row.inputs]))?;
        if repeat > 0 {
            forward.push(forward_s);
            cached.push(cached_s);
            uncached.push(uncached_s);
        }
    }
    Ok(Growth {
        time,
        forward_s: Spread::of(forward).median,
        forward_bytes: positive(forward_bytes),
        cached_token_s: Spread::of(cached).median,
        cache_bytes: positive(cache_bytes),
        uncached_token_s: Spread::of(uncached).median,
        ..Growth::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_go_up_to_the_longest_without_repeating() {
        assert_eq!(lengths(96), [12, 24, 36, 48, 60, 72, 84, 96]);
        assert_eq!(lengths(4), [2, 3, 4]);
        assert_eq!(lengths(2), [2]);
    }
}
