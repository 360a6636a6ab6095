//! Exposure: in training a model only reads real text, in inference its own. Does it go astray on
//! its own words?
//!
//! Each window of validation text gives a prefix. It is followed by the real words, by words that
//! the model samples at temperature 1, or by its most probable words (greedy), and the scoring that
//! evaluates a model measures all three by position:
//!
//! - loss: -ln p of the actual word. Sampled words have the loss that the model expects; real ones
//!   have more if it is overconfident, less if it is too unsure, the same if it is well calibrated;
//!   greedy ones have less, falling where it repeats itself.
//! - expected loss: the entropy of the model's own distribution at that position. On real words,
//!   expected loss and loss are equal if the model is well calibrated.
//! - drift: the expected loss on sampled words minus that on real ones. Right after the prefix it
//!   is 0, since both have read the same. A model whose own words lead it nowhere that real text
//!   does not go stays at 0; one that goes astray does not.
//! - repetition: the share of positions at which a run of tokens ends that occurred earlier in the
//!   window.
//!
//! Not measured is the loss of the real words after a prefix written by the model: no real words
//! follow that. (Bengio et al., "Scheduled Sampling", 2015, name the problem; He et al., "Exposure
//! Bias versus Self-Recovery", 2021, ask whether it grows with length, which is why everything here
//! is by position.)

mod loops;
mod page;

use std::{collections::HashSet, ops::ControlFlow, ops::Range};

use burn::tensor::activation::log_softmax;
use ember_decoding::config::{GenerationConfig, Strategy};
use ember_decoding::score::{MAX_LOGITS, Stretch as Scored, score_stretches};
use ember_decoding::tokens::{from_tensor, to_tensor};
use ember_decoding::{Certain, FinishReason, Plan, generate_batch, memory::batch_size};
use ember_host::memory::{ASSUMED_BYTES, available_bytes};
use ember_model::Gpt;
use serde::Serialize;

use crate::error::{Error, Result, proceed_if};

pub use loops::{Loops, MIN_TOKENS, TIMES};
pub use page::page;

/// Number of tokens read at once for their entropies.
const TOKENS_AT_ONCE: usize = 4096;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Real tokens at the start: 1 or more, and fewer than the context holds.
    pub prefix: usize,
    /// Texts sampled for each window, 1 or more.
    pub samples: usize,
    /// Tokens generated after each prefix to look for loops; 0 skips that.
    pub loop_tokens: usize,
    /// Length in tokens of a run that counts as repeated, 1 or more.
    pub repeated_tokens: usize,
    /// Seed of the sampling.
    pub seed: u64,
}

/// A window of real text: a prefix and its continuation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// `context_length + 1` tokens: the last is only predicted.
    pub ids: Vec<u32>,
    /// The real continuation of the prefix, as long as the texts that are searched for loops, or up
    /// to the text's end.
    pub long: Vec<u32>,
}

/// A mean over windows, with its uncertainty.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Its standard error, over windows.
    pub standard_error: f64,
}

/// Means of one kind of text over some positions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// -ln p of the actual token, nats.
    pub loss: f64,
    /// The entropy of the model's distribution at that position, nats.
    pub expected_loss: f64,
    /// p of the actual token.
    pub probability: f64,
    /// Share of the positions at which a run ends that occurred earlier in the window.
    pub repeated: f64,
}

/// The three kinds of text at some positions after the prefix.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stretch {
    /// The first position; 1 is right after the prefix.
    pub from: usize,
    /// The last position.
    pub to: usize,
    /// The real words.
    pub real: Figures,
    /// Words sampled from the model at temperature 1.
    pub sampled: Figures,
    /// The model's most probable words.
    pub greedy: Figures,
    /// Loss of the real words minus that of sampled ones, nats.
    pub gap: Estimate,
    /// Expected loss on sampled words minus that on real ones, nats.
    pub drift: Estimate,
}

/// All measurements.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exposure {
    /// Number of windows.
    pub windows: usize,
    /// Positions in a window.
    pub context_length: usize,
    /// The settings.
    #[serde(flatten)]
    pub settings: Settings,
    /// By position: 1, 2, 3 to 4, 5 to 8 and so on.
    pub positions: Vec<Stretch>,
    /// The second half of the positions, which shows effects that grow with length.
    pub second_half: Stretch,
    /// All positions together.
    pub whole: Stretch,
    /// How many texts end in a loop; empty if that was skipped.
    pub loops: Vec<Loops>,
}

/// Measures `gpt`, on a device without automatic differentiation, on at least two windows of real
/// text.
///
/// # Errors
/// When windows or settings do not fit the model, its logits are not finite, or `interrupted` says
/// to stop.
pub fn measure(gpt: &Gpt, windows: &[Window], settings: &Settings, interrupted: &dyn Fn() -> bool) -> Result<Exposure> {
    let Settings { prefix, samples, loop_tokens, seed, .. } = *settings;
    let context_length = gpt.config().context_length;
    let new = context_length + 1 - prefix;
    let prefixes: Vec<&[u32]> = windows.iter().map(|window| &window.ids[..prefix]).collect();
    let knobs = |strategy, each, tokens| GenerationConfig {
        strategy,
        num_return_sequences: each,
        max_new_tokens: tokens,
        seed,
        ..GenerationConfig::default()
    };
    let sampled = write(gpt, &prefixes, &knobs(Strategy::Sample, samples, new), interrupted)?;
    // Greedy text starts the same whatever its length: one is both measured and searched for loops.
    let greedy = write(gpt, &prefixes, &knobs(Strategy::Greedy, 1, new.max(loop_tokens)), interrupted)?;

    let mut loops = Vec::new();
    if loop_tokens > 0 {
        let long = write(gpt, &prefixes, &knobs(Strategy::Sample, 1, loop_tokens), interrupted)?;
        let real = windows.iter().map(|window| window.long.as_slice()).filter(|long| long.len() == loop_tokens);
        loops.push(Loops::count("real", real));
        loops.push(Loops::count("sampled", long.iter().map(Vec::as_slice)));
        loops.push(Loops::count("greedy", greedy.iter().map(|text| &text[..loop_tokens])));
    }

    let with_prefix = |texts: &[Vec<u32>], each: usize| -> Vec<Vec<u32>> {
        texts.iter().enumerate().map(|(i, text)| [prefixes[i / each], &text[..new]].concat()).collect()
    };
    let reading = |rows: Vec<Vec<u32>>, each| Reading::new(gpt, &rows, each, settings, interrupted);
    let readings = Readings {
        real: reading(windows.iter().map(|window| window.ids.clone()).collect(), 1)?,
        sampled: reading(with_prefix(&sampled, samples), samples)?,
        greedy: reading(with_prefix(&greedy, 1), 1)?,
    };
    Ok(Exposure {
        windows: windows.len(),
        context_length,
        settings: *settings,
        positions: doubling(new).into_iter().map(|positions| readings.stretch(positions)).collect(),
        second_half: readings.stretch(new / 2..new),
        whole: readings.stretch(0..new),
        loops,
    })
}

/// 0..1, 1..2, 2..4, 4..8 and so on up to `end`.
fn doubling(end: usize) -> Vec<Range<usize>> {
    let starts = std::iter::once(0).chain(std::iter::successors(Some(1_usize), |start| start.checked_mul(2)));
    starts.take_while(|&start| start < end).map(|start| start..(2 * start).max(1).min(end)).collect()
}

/// Continues every prefix: `num_return_sequences` texts of `max_new_tokens` each, in order.
fn write(
    gpt: &Gpt,
    prefixes: &[&[u32]],
    knobs: &GenerationConfig,
    interrupted: &dyn Fn() -> bool,
) -> Result<Vec<Vec<u32>>> {
    let each = knobs.num_return_sequences;
    let mut texts = Vec::with_capacity(prefixes.len() * each);
    let memory_bytes = available_bytes().min(ASSUMED_BYTES);
    let longest = prefixes.iter().map(|prefix| prefix.len()).max().unwrap_or(0);
    let at_once = batch_size(memory_bytes, gpt.config(), longest, each, knobs.max_new_tokens);
    for prompts in prefixes.chunks(at_once) {
        // Every text has its own random numbers, whatever the batch size.
        let first_sequences: Vec<u64> = (0..prompts.len()).map(|prompt| (texts.len() + prompt * each) as u64).collect();
        let plan = Plan { first_sequences: &first_sequences, ..Plan::new(knobs) };
        let completions = generate_batch(gpt, prompts, &plan, &mut |_: Certain| {
            if interrupted() { ControlFlow::Break(FinishReason::Interrupted) } else { ControlFlow::Continue(()) }
        })?;
        proceed_if(!interrupted())?;
        texts.extend(completions.into_iter().flatten().map(|completion| completion.ids));
    }
    Ok(texts)
}

/// The model's readings of the three kinds of text, after the same prefixes.
struct Readings {
    real: Reading,
    sampled: Reading,
    greedy: Reading,
}

impl Readings {
    fn stretch(&self, positions: Range<usize>) -> Stretch {
        let Self { real, sampled, greedy } = self;
        let difference = |a: Vec<f64>, b: Vec<f64>| Estimate::new(a.iter().zip(&b).map(|(a, b)| a - b).collect());
        let [real_loss, sampled_loss] = [real, sampled].map(|texts| texts.by_window(&texts.loss, &positions));
        let [real_expected, sampled_expected] =
            [real, sampled].map(|texts| texts.by_window(&texts.expected, &positions));
        Stretch {
            from: positions.start + 1,
            to: positions.end,
            real: real.figures(&positions),
            sampled: sampled.figures(&positions),
            greedy: greedy.figures(&positions),
            gap: difference(real_loss, sampled_loss),
            drift: difference(sampled_expected, real_expected),
        }
    }
}

/// The model's reading of some rows, at every position after the prefix.
struct Reading {
    /// Number of rows for each window.
    each: usize,
    /// -ln p of each token.
    loss: Vec<Vec<f32>>,
    /// The entropy of the distribution that predicted it.
    expected: Vec<Vec<f32>>,
    /// p of each token.
    probability: Vec<Vec<f32>>,
    /// 1 where a run ends that occurred earlier in the row, else 0.
    repeated: Vec<Vec<f32>>,
}

impl Reading {
    /// Reads rows, of which `each` belong to one window.
    fn new(
        gpt: &Gpt,
        rows: &[Vec<u32>],
        each: usize,
        settings: &Settings,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Self> {
        let Settings { prefix, repeated_tokens, .. } = *settings;
        let stretches: Vec<Scored> = rows.iter().map(|ids| Scored { ids, scored: ids.len() - prefix }).collect();
        let scored = score_stretches(gpt, &stretches, &mut |_| {
            if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let logprobs: Vec<Vec<f32>> = scored.into_iter().collect::<Option<_>>().ok_or(Error::Stopped)?;
        let map = |f: fn(f32) -> f32| logprobs.iter().map(|row| row.iter().map(|&l| f(l)).collect()).collect();
        Ok(Self {
            each,
            loss: map(f32::abs), // -ln p; 0 instead of -0 for a certain token
            expected: entropies(gpt, rows, prefix, interrupted)?,
            probability: map(f32::exp),
            repeated: rows.iter().map(|ids| repeated(ids, prefix, repeated_tokens)).collect(),
        })
    }

    fn figures(&self, positions: &Range<usize>) -> Figures {
        let Self { loss, expected, probability, repeated, .. } = self;
        let all = [loss, expected, probability, repeated];
        let [loss, expected_loss, probability, repeated] = all.map(|rows| mean_over(rows, positions));
        Figures { loss, expected_loss, probability, repeated }
    }

    /// The mean over some positions for each window, of one of the lists above.
    fn by_window(&self, rows: &[Vec<f32>], positions: &Range<usize>) -> Vec<f64> {
        rows.chunks(self.each).map(|rows| mean_over(rows, positions)).collect()
    }
}

/// The entropy, in nats, of the model's distribution for every token of each row from `prefix` on;
/// all rows have the same length.
fn entropies(gpt: &Gpt, rows: &[Vec<u32>], prefix: usize, interrupted: &dyn Fn() -> bool) -> Result<Vec<Vec<f32>>> {
    let vocab_size = gpt.config().vocab_size;
    let mut entropies = Vec::with_capacity(rows.len());
    let time = rows.first().map_or(1, |row| row.len() - 1);
    for rows in rows.chunks((gpt.tokens_at_once(TOKENS_AT_ONCE) / time).max(1)) {
        proceed_if(!interrupted())?;
        let read: Vec<&[u32]> = rows.iter().map(|row| &row[..time]).collect();
        let tokens = to_tensor(&read, &gpt.device()); // [batch, time]
        let hidden = gpt.hidden(tokens).narrow(1, prefix - 1, time + 1 - prefix); // [batch, new, n_embd]
        let [batch, new, n_embd] = hidden.dims();
        let hidden = hidden.reshape([1, batch * new, n_embd]); // [1, batch * new, n_embd]
        let mut flat = Vec::with_capacity(batch * new);
        for hidden in hidden.split((MAX_LOGITS / vocab_size).max(1), 1) {
            let logprobs = log_softmax(gpt.logits(hidden), 2); // [1, positions, vocab]
            let entropy = -(logprobs.clone().exp() * logprobs).sum_dim(2); // [1, positions, 1]
            flat.extend(from_tensor(entropy)?.into_iter().map(f32::abs)); // 0 instead of -0, as above
        }
        entropies.extend(flat.chunks(new).map(<[f32]>::to_vec));
    }
    Ok(entropies)
}

/// For every token from `prefix` on: 1 if the last `run` tokens up to it occurred earlier in the
/// row, else 0.
fn repeated(ids: &[u32], prefix: usize, run: usize) -> Vec<f32> {
    let mut seen = HashSet::new();
    let all: Vec<f32> = (1..=ids.len())
        .map(|end| end.checked_sub(run).map_or(0.0, |start| if seen.insert(&ids[start..end]) { 0.0 } else { 1.0 }))
        .collect();
    all[prefix..].to_vec()
}

/// The mean over some positions of all rows.
fn mean_over(rows: &[Vec<f32>], positions: &Range<usize>) -> f64 {
    let sum: f64 = rows.iter().flat_map(|row| &row[positions.clone()]).map(|&value| f64::from(value)).sum();
    sum / (rows.len() * positions.len()) as f64
}

impl Estimate {
    /// The estimate from two or more values.
    fn new(values: Vec<f64>) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        Self { mean, standard_error: (variance / count).sqrt() }
    }

    /// Whether it differs from 0 by more than chance makes likely: if the true mean were 0, a mean over
    /// so many windows (two or more) would do so in at most one of about twenty cases.
    pub fn is_clear(self, windows: usize) -> bool {
        self.mean.abs() > t_quantile(windows) * self.standard_error
    }
}

/// The standard errors within which a mean over so many windows lies of the true one in 95% of all
/// cases: the 0.975 quantile of Student's t distribution ("The Probable Error of a Mean", 1908), for
/// one degree of freedom less than there are windows. Of many windows it is about 2; the standard
/// error of a few is often too small, so they need more.
fn t_quantile(windows: usize) -> f64 {
    const FROM_TWO_WINDOWS: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
        2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
    ];
    FROM_TWO_WINDOWS.get(windows.saturating_sub(2)).copied().unwrap_or(2.0)
}

#[cfg(test)]
mod tests;
