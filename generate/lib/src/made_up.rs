//! Made-up models for tests of the strategies.

use ember_data::random::mix;

use crate::error::Result;
use crate::sequences::{Scripted, Sequences};

/// Pseudo-random logits between -`spread` and `spread` that depend only on `seed` and the last two
/// ids. With so short a memory texts become repetitive, like real ones.
pub(crate) fn logits(seed: u64, vocab_size: usize, spread: f32) -> impl Fn(&[u32]) -> Vec<f32> {
    move |ids| {
        let last_two = &ids[ids.len().saturating_sub(2)..];
        let place = last_two.iter().fold(mix(seed), |place, &id| mix(place ^ (u64::from(id) + 1)));
        let unit = |id: usize| (mix(place.wrapping_add(id as u64)) >> 40) as f32 / (1_u64 << 24) as f32; // in [0, 1)
        (0..vocab_size).map(|id| (2.0 * unit(id) - 1.0) * spread).collect()
    }
}

/// One row of ids on a made-up model.
pub(crate) fn sequences<F: Fn(&[u32]) -> Vec<f32>>(prompt: &[u32], vocab_size: usize, logits_after: F) -> Scripted<F> {
    Scripted { vocab_size, rows: vec![prompt.to_vec()], logits_after }
}

/// A made-up model with a context of `context` ids that asserts the preconditions of
/// [`Sequences`].
pub(crate) struct Short<S> {
    pub(crate) context: usize,
    pub(crate) inner: S,
}

impl<S: Sequences> Sequences for Short<S> {
    fn vocab_size(&self) -> usize {
        self.inner.vocab_size()
    }

    fn context_length(&self) -> usize {
        self.context
    }

    fn rows(&self) -> usize {
        self.inner.rows()
    }

    fn ids(&self, row: usize) -> &[u32] {
        self.inner.ids(row)
    }

    fn extend(&mut self, row: usize, tokens: &[u32]) {
        self.inner.extend(row, tokens);
    }

    fn truncate(&mut self, row: usize, len: usize) {
        self.inner.truncate(row, len);
    }

    fn select(&mut self, parents: &[usize]) {
        assert!(parents.iter().all(|&parent| parent < self.rows()));
        self.inner.select(parents);
    }

    fn logits_of_last(&mut self, counts: &[usize]) -> Result<Vec<f32>> {
        assert_eq!(counts.len(), self.rows());
        for (row, &count) in counts.iter().enumerate() {
            let len = self.ids(row).len();
            assert!(count <= len && (count <= 1 || len <= self.context), "{count} of {len} ids");
        }
        self.inner.logits_of_last(counts)
    }
}
