//! [`Sequences`] on a model: rows with their part of the KV cache.

use burn::tensor::Tensor;
use ember_kernels::{argmax, is_cpu};
use ember_model::{Gpt, GptConfig, KvCache, RecordedStep, recorded};

use super::{Argmax, Continues, Sequences, room};
use crate::batches::groups;
use crate::logprobs::{finite, logprob};
use crate::{error::Result, tokens::from_tensor};

/// Most tokens in one pass through the model, if the device allows as many. It bounds the memory of
/// a long prefill.
const MAX_TOKENS: usize = 8192;

/// Decode steps in succession after which the step is recorded, if the device can: recording costs
/// as much as a few steps.
const RECORD_AFTER: usize = 16;

/// Rows of token ids, the model that continues them, and its cache.
pub struct ModelSequences<'a> {
    model: &'a Gpt,
    cache: KvCache,
    rows: Vec<Row>,
    /// Most tokens in one pass of several rows.
    most_tokens: usize,
    /// Whether to record and replay steps.
    replays: bool,
    /// Consecutive passes that gave every row one token.
    decode_streak: usize,
    recorded: Option<(Output, RecordedStep)>,
}

/// What is read from the device for each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    /// All logits.
    Logits,
    /// The most probable token: its id, its logit and the log-sum-exp.
    Argmax,
}

impl Output {
    /// The function that computes it from the logits `[positions, vocab]`.
    fn function(self) -> fn(Tensor<2>) -> Tensor<2> {
        match self {
            Self::Logits => |logits| logits,
            Self::Argmax => argmax,
        }
    }
}

#[derive(Clone, Debug)]
struct Row {
    ids: Vec<u32>,
    /// Offset in `ids` of the window that the cache holds.
    begin: usize,
}

impl<'a> ModelSequences<'a> {
    /// A row for each prompt, and memory for `positions` in total; the cache grows if that is not
    /// enough.
    pub fn new(model: &'a Gpt, prompts: &[&[u32]], positions: usize) -> Self {
        let rows = prompts.iter().map(|prompt| Row { ids: prompt.to_vec(), begin: 0 }).collect();
        let device = model.device();
        let replays = !is_cpu(&device) && recorded::is_allowed().unwrap_or(true);
        let cache = KvCache::new(model.config(), prompts.len(), positions, &device);
        let most_tokens = model.tokens_at_once(MAX_TOKENS);
        Self { model, cache, rows, most_tokens, replays, decode_streak: 0, recorded: None }
    }

    /// Whether decode steps are being replayed from a recording.
    pub fn is_replaying(&self) -> bool {
        self.recorded.is_some()
    }

    /// Drops the cache entries of a row that are no longer valid, and those of the window's last
    /// `count` ids. Returns the index of the first id that is not in the cache.
    fn unread(&mut self, row: usize, count: usize) -> usize {
        let Row { ids, begin } = &mut self.rows[row];
        // Learned positions: when the window slides, every token in it gets another position, so
        // all that was computed for the old positions is invalid.
        let window = ids.len().saturating_sub(self.model.config().context_length);
        if *begin != window {
            self.cache.truncate(row, 0);
            *begin = window;
        }
        self.cache.truncate(row, ids.len() - window - count);
        window + self.cache.len(row)
    }

    /// The output at the positions of [`Sequences::logits_of_last`], row by row.
    fn read(&mut self, counts: &[usize], output: Output) -> Result<Vec<f32>> {
        let unread: Vec<usize> = counts
            .iter()
            .enumerate()
            .map(|(row, &count)| if count == 0 { self.rows[row].ids.len() } else { self.unread(row, count) })
            .collect();
        if self.is_recordable(counts, &unread, output) {
            self.decode_streak += 1;
        } else {
            self.decode_streak = 0;
            // The recording shares the cache, which then could not be written in place.
            self.recorded = None;
        }
        if self.decode_streak > RECORD_AFTER {
            return match self.recorded_step(output) {
                Some(values) => from_tensor(values),
                None => self.read(counts, output),
            };
        }
        self.forward(counts, &unread, output)
    }

    /// The output after the last `counts[row]` ids of every row, in passes of at most `most_tokens`
    /// tokens (or of one row). Ids from `unread[row]` on are not in the cache yet.
    fn forward(&mut self, counts: &[usize], unread: &[usize], output: Output) -> Result<Vec<f32>> {
        let sizes: Vec<usize> = self.rows.iter().zip(unread).map(|(row, &from)| row.ids.len() - from).collect();
        let mut read = Vec::new();
        for pass in groups(&sizes, self.most_tokens) {
            if sizes[pass.clone()].iter().all(|&size| size == 0) {
                continue;
            }
            // The other rows take part in the pass with no tokens.
            let mut news: Vec<&[u32]> = vec![&[]; self.rows.len()];
            let mut wanted = vec![0; self.rows.len()];
            for row in pass {
                (news[row], wanted[row]) = (&self.rows[row].ids[unread[row]..], counts[row]);
            }
            let part = output.function()(self.model.forward_cached_last(&news, &wanted, &mut self.cache));
            let part = from_tensor(part)?;
            if read.is_empty() { read = part } else { read.extend(part) }
        }
        Ok(read)
    }

    /// Whether the pass is a decode step (one id in every row) that matches the recorded step or
    /// can be recorded.
    fn is_recordable(&self, counts: &[usize], unread: &[usize], output: Output) -> bool {
        let fits = || match &self.recorded {
            Some((recorded, step)) => *recorded == output && step.fits(&self.cache),
            None => RecordedStep::can_record(self.model, &self.cache),
        };
        self.replays
            && counts.iter().all(|&count| count == 1)
            && self.rows.iter().zip(unread).all(|(row, &from)| row.ids.len() == from + 1)
            && fits()
    }

    /// The output of a decode step, replayed from the recording or recorded now. `None` if
    /// recording failed: then the cache is empty, and nothing is recorded from then on.
    fn recorded_step(&mut self, output: Output) -> Option<Tensor<2>> {
        let tokens: Vec<u32> = self.rows.iter().filter_map(|row| row.ids.last().copied()).collect();
        if let Some((_, step)) = &mut self.recorded {
            step.step(&tokens, &mut self.cache);
        } else if let Some(step) = RecordedStep::record(self.model, &tokens, &mut self.cache, output.function()) {
            self.recorded = Some((output, step));
        } else {
            self.replays = false;
            self.cache = KvCache::new(self.model.config(), self.rows.len(), self.cache.slots(), &self.model.device());
        }
        self.recorded.as_ref().map(|(_, step)| step.output())
    }
}

impl Continues for Gpt {
    fn config(&self) -> &GptConfig {
        self.config()
    }

    fn sequences<'s>(&'s self, prompts: &[&[u32]], positions: usize) -> Box<dyn Sequences + 's> {
        Box::new(ModelSequences::new(self, prompts, positions))
    }
}

impl Sequences for ModelSequences<'_> {
    fn vocab_size(&self) -> usize {
        self.model.config().vocab_size
    }

    fn context_length(&self) -> usize {
        self.model.config().context_length
    }

    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn ids(&self, row: usize) -> &[u32] {
        &self.rows[row].ids
    }

    fn extend(&mut self, row: usize, tokens: &[u32]) {
        self.rows[row].ids.extend_from_slice(tokens);
    }

    fn truncate(&mut self, row: usize, len: usize) {
        let Row { ids, begin } = &mut self.rows[row];
        ids.truncate(len);
        self.cache.truncate(row, len.saturating_sub(*begin));
    }

    fn select(&mut self, parents: &[usize]) {
        self.rows = parents.iter().map(|&parent| self.rows[parent].clone()).collect();
        self.cache.select(parents);
    }

    fn logits_of_last(&mut self, counts: &[usize]) -> Result<Vec<f32>> {
        self.read(counts, Output::Logits)
    }

    fn argmax(&mut self) -> Result<Option<Vec<Argmax>>> {
        if is_cpu(&self.model.device()) {
            return Ok(None);
        }
        let read = self.read(&vec![1; self.rows.len()], Output::Argmax)?;
        let rows = read.chunks_exact(3).map(|row| {
            let log_sum_exp = finite(f64::from(row[2]))?;
            Ok(Argmax { id: row[0] as u32, logprob: logprob(row[1], log_sum_exp) })
        });
        rows.collect::<Result<_>>().map(Some)
    }
}

/// Most positions that the cache will hold if each prompt is continued as `rows` rows at a time:
/// the prompt once, plus what every row adds to it. That is limited by the context unless the
/// window `slides`.
pub(crate) fn most_positions(
    prompts: &[&[u32]],
    rows: usize,
    max_new_tokens: usize,
    context_length: usize,
    slides: bool,
) -> usize {
    let each = |prompt: &&[u32]| {
        let room = room(prompt.len(), context_length);
        match slides && max_new_tokens > room {
            true => rows * context_length + max_new_tokens.min(context_length), // slid rows share nothing
            false => prompt.len() + rows * max_new_tokens.min(room),
        }
    };
    prompts.iter().map(each).sum()
}
