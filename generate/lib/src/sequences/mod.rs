//! Sequences in the making: rows of token ids that grow, are forked and are dropped, and the
//! model's word on what follows.
//!
//! Every strategy is written against [`Sequences`] alone. [`ModelSequences`] is the model with its
//! cache; a test can put a table of made-up logits in its place.

mod model;

use ember_model::GptConfig;

use crate::error::Result;

pub use model::ModelSequences;
pub(crate) use model::slots;

/// Rows of token ids, and a model that says what may follow each.
pub trait Sequences {
    /// Tokens in the vocabulary.
    fn vocab_size(&self) -> usize;

    /// Positions that the model can attend to.
    fn context_length(&self) -> usize;

    /// How many rows there are.
    fn rows(&self) -> usize;

    /// All ids of a row, the prompt's first.
    fn ids(&self, row: usize) -> &[u32];

    /// How many more tokens a row can be given without a window that slides.
    fn room(&self, row: usize) -> usize {
        room(self.ids(row).len(), self.context_length())
    }

    /// Appends tokens to a row.
    fn extend(&mut self, row: usize, tokens: &[u32]);

    /// Takes back everything after a row's first `len` ids.
    fn truncate(&mut self, row: usize, len: usize);

    /// Makes new rows of the old ones: new row i begins as old row `parents[i]`; an old row may be
    /// named never, once or often.
    fn select(&mut self, parents: &[usize]);

    /// The logits after each of the last `counts[row]` ids of every row, row after row, oldest
    /// position first: `[sum of counts, vocab]`. One pass through the model, which computes what
    /// the cache does not hold. A row with count 0 takes no part. Positions attend to at most
    /// `context_length` ids; a row longer than that has count 0 or 1.
    ///
    /// # Errors
    /// When the device fails.
    fn logits_of_last(&mut self, counts: &[usize]) -> Result<Vec<f32>>;

    /// The most probable token after every row, where the device finds them sooner than their
    /// logits could be read from it.
    ///
    /// # Errors
    /// When the device fails, or the logits are not finite.
    fn argmax(&mut self) -> Result<Option<Vec<Argmax>>> {
        Ok(None)
    }

    /// The logits after every row, `[rows, vocab]`.
    ///
    /// # Errors
    /// As [`Self::logits_of_last`].
    fn logits(&mut self) -> Result<Vec<f32>> {
        self.logits_of_last(&vec![1; self.rows()])
    }
}

/// What prompts are continued by: a model by itself, or a request's share of an engine.
pub trait Continues: Sync {
    /// The model's shape.
    fn config(&self) -> &GptConfig;

    /// A row for each prompt; all will take `positions` in a cache at most.
    fn sequences<'s>(&'s self, prompts: &[&[u32]], positions: usize) -> Box<dyn Sequences + 's>;
}

/// How many tokens may follow `len` ids: the last position too has a next token, which is never
/// read back.
fn room(len: usize, context_length: usize) -> usize {
    context_length.saturating_add(1).saturating_sub(len)
}

/// The most probable token after a row, of several the one with the lowest id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Argmax {
    /// Its id.
    pub id: u32,
    /// Its natural log-probability.
    pub logprob: f32,
}

/// Sequences whose logits a function makes up, for tests of what is chosen from them.
#[cfg(test)]
pub(crate) struct Scripted<F> {
    pub(crate) vocab_size: usize,
    pub(crate) rows: Vec<Vec<u32>>,
    /// The logits `[vocab]` after some ids.
    pub(crate) logits_after: F,
}

#[cfg(test)]
impl<F: Fn(&[u32]) -> Vec<f32>> Sequences for Scripted<F> {
    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn context_length(&self) -> usize {
        usize::MAX
    }

    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn ids(&self, row: usize) -> &[u32] {
        &self.rows[row]
    }

    fn extend(&mut self, row: usize, tokens: &[u32]) {
        self.rows[row].extend_from_slice(tokens);
    }

    fn truncate(&mut self, row: usize, len: usize) {
        self.rows[row].truncate(len);
    }

    fn select(&mut self, parents: &[usize]) {
        self.rows = parents.iter().map(|&parent| self.rows[parent].clone()).collect();
    }

    fn logits_of_last(&mut self, counts: &[usize]) -> Result<Vec<f32>> {
        let mut logits = Vec::new();
        for (ids, &count) in self.rows.iter().zip(counts) {
            for end in ids.len() + 1 - count..=ids.len() {
                logits.extend((self.logits_after)(&ids[..end]));
            }
        }
        Ok(logits)
    }
}
