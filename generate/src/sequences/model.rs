//! [`Sequences`] by the model itself: rows with their part of the cache.

use anyhow::{Result, anyhow};
use burn::tensor::Tensor;
use ember_model::kernels::{best, is_cpu};
use ember_model::recorded::wanted;
use ember_model::{Gpt, KvCache, RecordedStep};

use super::{Best, Sequences};
use crate::chosen::{finite, logprob};

/// Most tokens that go through the model at once: what a long prefill needs in memory grows with it.
const MOST_TOKENS: usize = 8192;

/// Passes of one token in each row after which such a step is recorded, where the device can: that costs as much as a few steps.
const STEADY: usize = 16;

/// Rows of token ids, the model that continues them, and the cache of what it has read of each.
pub struct ModelSequences<'a> {
    model: &'a Gpt,
    cache: KvCache,
    rows: Vec<Row>,
    /// Whether steps are to be recorded.
    replays: bool,
    /// Passes in a row that gave every row one token.
    steady: usize,
    recorded: Option<(Of, RecordedStep)>,
}

/// What is read of the logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    All,
    Best,
}

impl Of {
    fn function(self) -> fn(Tensor<2>) -> Tensor<2> {
        match self {
            Self::All => |logits| logits,
            Self::Best => best,
        }
    }
}

#[derive(Clone, Debug)]
struct Row {
    ids: Vec<u32>,
    /// Where the window that the cache holds begins in `ids`.
    begin: usize,
}

impl<'a> ModelSequences<'a> {
    /// A row for each prompt, and memory for `slots` positions in all; more is taken when that is not enough.
    pub fn new(model: &'a Gpt, prompts: &[&[u32]], slots: usize) -> Self {
        let rows = prompts.iter().map(|prompt| Row { ids: prompt.to_vec(), begin: 0 }).collect();
        let device = model.device();
        let replays = !is_cpu(&device) && wanted().unwrap_or(true);
        let cache = KvCache::new(model.config(), prompts.len(), slots, &device);
        Self { model, cache, rows, replays, steady: 0, recorded: None }
    }

    /// Whether the last step was one that the device had recorded and replayed by itself.
    pub fn is_replaying(&self) -> bool {
        self.recorded.as_ref().is_some_and(|(_, step)| step.is_replayed())
    }

    /// Makes the cache hold no more of a row than what remains true, all but the window's last `count` ids at most, and
    /// gives where in the row's ids the rest begins.
    fn unread(&mut self, row: usize, count: usize) -> usize {
        let Row { ids, begin } = &mut self.rows[row];
        // Learned positions: when the window slides, every token in it gets another position, and nothing that was computed
        // for the old one holds any more.
        let window = ids.len().saturating_sub(self.model.config().context_length);
        if *begin != window {
            self.cache.truncate(row, 0);
            *begin = window;
        }
        self.cache.truncate(row, ids.len() - window - count);
        window + self.cache.len(row)
    }

    /// What `of` makes of the logits `[some, vocab]` of [`Sequences::logits_of_last`], row after row.
    fn read(&mut self, counts: &[usize], of: Of) -> Result<Vec<f32>> {
        let unread: Vec<usize> = counts
            .iter()
            .enumerate()
            .map(|(row, &count)| if count == 0 { self.rows[row].ids.len() } else { self.unread(row, count) })
            .collect();
        let one_each = counts.iter().all(|&count| count == 1)
            && self.rows.iter().zip(&unread).all(|(row, &from)| row.ids.len() == from + 1);
        self.steady = if one_each { self.steady + 1 } else { 0 };
        if self.replays && self.steady > STEADY && self.cache.has_room(self.rows.len()) {
            return floats(self.recorded_step(of));
        }
        // Else it would share the cache, which could then not be written in place.
        self.recorded = None;
        let mut read = Vec::new();
        let mut row = 0;
        while row < self.rows.len() {
            // As many rows as fit into one pass, the others without a token of theirs.
            let mut news: Vec<&[u32]> = vec![&[]; self.rows.len()];
            let mut wanted = vec![0; self.rows.len()];
            let mut tokens = 0;
            while row < self.rows.len() {
                let new = &self.rows[row].ids[unread[row]..];
                if tokens > 0 && tokens + new.len() > MOST_TOKENS {
                    break;
                }
                tokens += new.len();
                (news[row], wanted[row]) = (new, counts[row]);
                row += 1;
            }
            if tokens > 0 {
                let part = floats(of.function()(self.model.forward_cached_last(&news, &wanted, &mut self.cache)))?;
                if read.is_empty() { read = part } else { read.extend(part) }
            }
        }
        Ok(read)
    }

    /// A step that gives every row its last id, by launches that the device has recorded.
    fn recorded_step(&mut self, of: Of) -> Tensor<2> {
        let tokens: Vec<u32> = self.rows.iter().filter_map(|row| row.ids.last().copied()).collect();
        match self.recorded.take().filter(|(what, step)| *what == of && step.fits(&self.cache)) {
            Some((_, mut step)) => {
                step.step(&tokens, &mut self.cache);
                self.recorded.insert((of, step)).1.output()
            }
            None => {
                let step = RecordedStep::record(self.model, &tokens, &mut self.cache, of.function());
                self.recorded.insert((of, step)).1.output()
            }
        }
    }
}

fn floats(tensor: Tensor<2>) -> Result<Vec<f32>> {
    tensor.into_data().try_into_vec::<f32>().map_err(|error| anyhow!("cannot read the logits: {error:?}"))
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
        self.read(counts, Of::All)
    }

    fn best(&mut self) -> Result<Option<Vec<Best>>> {
        if is_cpu(&self.model.device()) {
            return Ok(None);
        }
        let read = self.read(&vec![1; self.rows.len()], Of::Best)?;
        let rows = read.chunks_exact(3).map(|row| {
            let norm = finite(f64::from(row[2]))?;
            Ok(Best { id: row[0] as u32, logprob: logprob(row[1], norm) })
        });
        rows.collect::<Result<_>>().map(Some)
    }
}
