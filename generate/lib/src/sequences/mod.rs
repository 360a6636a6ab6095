//! Rows of token ids that grow, fork and are dropped, and the model's logits after each.
//!
//! Every strategy is written against [`Sequences`] only. [`ModelSequences`] is the model with its
//! cache; tests can substitute a table of made-up logits.

mod model;

use ember_model::GptConfig;

use crate::error::Result;

pub use model::ModelSequences;
pub(crate) use model::most_positions;

/// Rows of token ids, and a model that predicts the next token of each.
pub trait Sequences {
    /// Tokens in the vocabulary.
    fn vocab_size(&self) -> usize;

    /// Positions that the model can attend to.
    fn context_length(&self) -> usize;

    /// How many rows there are.
    fn rows(&self) -> usize;

    /// All ids of a row, the prompt's first.
    fn ids(&self, row: usize) -> &[u32];

    /// How many more tokens a row can take without a sliding window.
    fn room(&self, row: usize) -> usize {
        room(self.ids(row).len(), self.context_length())
    }

    /// Appends tokens to a row.
    fn extend(&mut self, row: usize, tokens: &[u32]);

    /// Drops everything after a row's first `len` ids.
    fn truncate(&mut self, row: usize, len: usize);

    /// Replaces the rows: new row i starts as a copy of old row `parents[i]`. An old row may appear
    /// any number of times.
    fn select(&mut self, parents: &[usize]);

    /// The logits after each of the last `counts[row]` ids of every row, row by row, oldest
    /// position first: `[sum of counts, vocab]`. One pass through the model computes what the cache
    /// does not hold. A row with count 0 is skipped. Positions attend to at most `context_length`
    /// ids; a row longer than that must have count 0 or 1.
    ///
    /// # Errors
    /// If the device fails.
    fn logits_of_last(&mut self, counts: &[usize]) -> Result<Vec<f32>>;

    /// The most probable token after every row, if the device can compute it faster than the logits
    /// can be transferred.
    ///
    /// # Errors
    /// If the device fails, or the logits are not finite.
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

/// Something that can continue prompts: a model, or a request to a shared engine.
pub trait Continues: Sync {
    /// The model's shape.
    fn config(&self) -> &GptConfig;

    /// A row for each prompt. Together they will need at most `positions` in the cache.
    fn sequences<'s>(&'s self, prompts: &[&[u32]], positions: usize) -> Box<dyn Sequences + 's>;
}

/// How many tokens may follow `len` ids. It is one more than the free positions: the last token is
/// never fed back to the model.
fn room(len: usize, context_length: usize) -> usize {
    context_length.saturating_add(1).saturating_sub(len)
}

/// The most probable token after a row; ties go to the lowest id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Argmax {
    /// Its id.
    pub id: u32,
    /// Its natural log-probability.
    pub logprob: f32,
}

/// Sequences whose logits come from a function, for tests of the strategies.
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
