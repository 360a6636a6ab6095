//! Measures prefill and decode speed on this machine, relative to its memory bandwidth.
//!
//! A decode step reads every weight and every cached key and value once and does little arithmetic
//! with them, so memory bandwidth limits it. Each timed step is therefore followed at once by a
//! plain read of as many bytes, and the two times are compared: bandwidth varies from moment to
//! moment, the ratio hardly.
//!
//! [`arithmetic`] measures the limits of training, a matrix product and a copy, for
//! `ember-train bench`.

pub mod arithmetic;

use std::{hint::black_box, time::Instant};

use burn::tensor::{Device, Tensor};
use ember_kernels::arena::{Memory, Part};
use ember_kernels::is_cpu;
use ember_model::{Gpt, folder};
use rayon::prelude::*;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::sampler::greedy;
use crate::sequences::{ModelSequences, Sequences};

/// What to measure: prefill of `batch` rows of `prompt` tokens, then greedy decoding of `new`
/// tokens per row.
#[derive(Clone, Copy, Debug)]
pub struct Task {
    /// Rows.
    pub batch: usize,
    /// Tokens per prompt.
    pub prompt: usize,
    /// Tokens generated per row.
    pub new: usize,
    /// Timed repetitions, after an untimed warm-up.
    pub repeats: usize,
}

/// The result of a task.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Speed {
    /// Rows.
    pub batch: usize,
    /// Tokens per prompt.
    pub prompt_tokens: usize,
    /// Tokens generated per row.
    pub new_tokens: usize,
    /// Seconds of the prefill of all prompts.
    pub prefill_s: Spread,
    /// Prompt tokens per second, all rows together.
    pub prefill_tokens_per_s: f64,
    /// Seconds of one decode step: one token for every row, chosen and transferred to the host.
    pub step_s: Spread,
    /// Generated tokens per second, all rows together.
    pub tokens_per_s: f64,
    /// Bytes of weights that a step reads.
    pub weight_bytes: u64,
    /// Bytes of keys and values that a step in the middle of the text reads.
    pub cache_bytes: u64,
    /// Bytes per second of the plain reads.
    pub read_bytes_per_s: f64,
    /// Whether the device recorded and replayed steps, as it does after the first few.
    pub replayed: bool,
    /// The time of a plain read divided by the time of the step before it; 1 is the most that
    /// memory allows.
    pub bandwidth_share: Spread,
}

/// Median, minimum and maximum of some measured values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// The spread of at least one value; all three are NaN without any.
    pub fn of(values: Vec<f64>) -> Self {
        let [min, max] = [f64::min, f64::max].map(|of| values.iter().copied().fold(f64::NAN, of));
        Self { median: median(&values).unwrap_or(f64::NAN), min, max }
    }
}

/// The median, which is robust against outliers: the middle number, or the mean of the two in the
/// middle; `None` without any.
pub fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let above = *sorted.get(sorted.len() / 2)?;
    Some(if sorted.len().is_multiple_of(2) { (sorted[sorted.len() / 2 - 1] + above) / 2.0 } else { above })
}

/// Roughly how many bytes a task takes besides the weights: keys and values, the buffer for plain
/// reads, and each row's logits, ids and bookkeeping. It also works for tasks that no machine can
/// hold.
pub fn needed_bytes(model: &Gpt, task: Task) -> f64 {
    let config = model.config();
    let row = config.kv_cache_bytes(1, task.prompt + task.new) + config.kv_cache_bytes(1, task.prompt + task.new / 2);
    let lists = 8 * (task.prompt + task.new) + 100;
    weight_bytes(model) as f64 + task.batch as f64 * (row + 8 * config.vocab_size + lists) as f64
}

/// Measures one task. `go_on` is called before each step; if it returns false, returns `None`.
///
/// # Errors
/// If the device fails.
pub fn speed(model: &Gpt, task: Task, go_on: &dyn Fn() -> bool) -> Result<Option<Speed>> {
    let config = model.config();
    let Task { batch, prompt, new, repeats } = task;
    let prompts: Vec<Vec<u32>> =
        (0..batch).map(|row| (0..prompt).map(|i| ((row * 31 + i * 97) % config.vocab_size) as u32).collect()).collect();
    let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
    let weight_bytes = weight_bytes(model);
    let cache_bytes = config.kv_cache_bytes(batch, prompt + new / 2);
    let mut ceiling = Ceiling::new(weight_bytes + cache_bytes, &model.device())?;

    let mut replayed = false;
    let (mut prefills, mut steps, mut shares, mut reads) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for repeat in 0..=repeats {
        let mut rows = ModelSequences::new(model, &prompts, batch * (prompt + new));
        let began = Instant::now();
        let mut best = best_of(&mut rows)?;
        let prefill_s = began.elapsed().as_secs_f64();
        if repeat > 0 {
            prefills.push(prefill_s);
        }
        for _ in 0..new {
            if !go_on() {
                return Ok(None);
            }
            let began = Instant::now();
            best.iter().enumerate().for_each(|(row, &id)| rows.extend(row, &[id]));
            best = best_of(&mut rows)?;
            let step_s = began.elapsed().as_secs_f64();
            let read_s = ceiling.read_s()?;
            if repeat > 0 {
                steps.push(step_s);
                reads.push(read_s);
                shares.push(read_s / step_s);
            }
        }
        replayed = rows.is_replaying();
    }
    let (prefill_s, step_s, read_s) = (Spread::of(prefills), Spread::of(steps), Spread::of(reads));
    Ok(Some(Speed {
        batch,
        prompt_tokens: prompt,
        new_tokens: new,
        prefill_s,
        prefill_tokens_per_s: (batch * prompt) as f64 / prefill_s.median,
        step_s,
        tokens_per_s: batch as f64 / step_s.median,
        weight_bytes: weight_bytes as u64,
        cache_bytes: cache_bytes as u64,
        read_bytes_per_s: (weight_bytes + cache_bytes) as f64 / read_s.median,
        replayed,
        bandwidth_share: Spread::of(shares),
    }))
}

/// The best token after every row, computed as greedy decoding does.
fn best_of(rows: &mut ModelSequences) -> Result<Vec<u32>> {
    if let Some(best) = rows.argmax()? {
        return Ok(best.into_iter().map(|best| best.id).collect());
    }
    let vocab_size = rows.vocab_size();
    Ok(rows.logits()?.chunks_exact(vocab_size).map(greedy).collect())
}

/// Bytes of the weights that every step reads whole: all except embedding tables, from which it
/// looks up single rows.
fn weight_bytes(model: &Gpt) -> usize {
    let config = model.config();
    let is_looked_up = |name: &str| name == "wpe.weight" || (name == "wte.weight" && !config.tied_head);
    let read = folder::expected_tensors(config).into_iter().filter(|(name, _)| !is_looked_up(name));
    let bytes = read.map(|(_, shape)| match shape[..] {
        [n_in, n_out] => model.weight_type().bytes(n_in, n_out),
        _ => 4 * shape.iter().product::<usize>(),
    });
    bytes.sum()
}

/// Values that one task reads at a time.
const PIECE: usize = 1 << 16;

/// A buffer for plain reads of as many bytes as a step reads.
enum Ceiling {
    /// Read and summed by all threads; the same kind of memory as the weights.
    Cpu(Part),
    /// Copied on the device; half as large, since a copy reads and writes.
    Device(Box<Tensor<1>>),
}

impl Ceiling {
    /// A buffer for reads of `bytes`.
    fn new(bytes: usize, device: &Device) -> Result<Self> {
        if is_cpu(device) {
            let memory = Memory::new([bytes.next_multiple_of(size_of::<f32>())]);
            let mut memory = memory.map_err(|error| Error::Memory(error.into()))?.take();
            // Not zeros: untouched zero pages share one page of memory.
            memory.values_mut::<f32>().par_iter_mut().enumerate().for_each(|(i, value)| *value = i as f32);
            return Ok(Self::Cpu(memory));
        }
        let tensor = Tensor::ones([bytes / 8], device);
        device.sync().map_err(Error::device)?;
        Ok(Self::Device(Box::new(tensor)))
    }

    /// Measures the seconds of one read of the whole buffer.
    fn read_s(&mut self) -> Result<f64> {
        let began = Instant::now();
        match self {
            Self::Cpu(values) => {
                black_box(values.values::<f32>().par_chunks(PIECE).map(sum).reduce(|| 0, u32::wrapping_add));
            }
            Self::Device(tensor) => {
                let device = tensor.device();
                black_box(*tensor.clone() + 1.0);
                device.sync().map_err(Error::device)?;
            }
        }
        Ok(began.elapsed().as_secs_f64())
    }
}

/// The sum of the bits. Integers may be added in any order, so the compiler can vectorise and read
/// as fast as memory allows.
fn sum(values: &[f32]) -> u32 {
    values.iter().fold(0, |sum: u32, value| sum.wrapping_add(value.to_bits()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_even_number_the_median_is_the_mean_of_the_two_in_the_middle() {
        assert_eq!(Spread::of(vec![4.0, 1.0, 3.0, 2.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of(vec![3.0, 1.0, 9.0]), Spread { median: 3.0, min: 1.0, max: 9.0 });
        assert_eq!(median(&[]), None);
        assert!(Spread::of(Vec::new()).max.is_nan());
    }
}
