//! Windows of token ids: what one row of a batch holds, for training and for validation.
//!
//! A window of `context_length` positions needs one token more: its inputs are tokens `start..start + context_length`, its
//! targets the same moved on by one.
//!
//! Training draws windows without replacement: a pass visits each of its windows once, in an order keyed by (seed, pass).
//! Which window comes at which index is a pure function, so a resumed run needs to know the index and nothing else.

use crate::random::{Permutation, mix, rng};
use crate::tokens::{self, TokenFile};
use rand_chacha::rand_core::Rng;
use serde::{Deserialize, Serialize};
use std::ops::Range;

mod error;

pub use error::Error;

/// Where windows may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowRule {
    /// At any token: for long texts, of which a window is a small part.
    Anywhere,
    /// At the `<|endoftext|>` that opens a document: for short documents that are understood from their beginning.
    DocumentStart,
}

/// Rows for one training step; `inputs` and `targets` are `[batch_size, context_length]`, row after row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Token ids the model reads.
    pub inputs: Vec<u32>,
    /// Token ids it is to predict: the inputs moved on by one.
    pub targets: Vec<u32>,
    /// Number of rows.
    pub batch_size: usize,
    /// Positions in a row.
    pub context_length: usize,
}

/// The windows of the training split.
#[derive(Clone)]
pub struct TrainWindows {
    tokens: TokenFile,
    context_length: usize,
    seed: u64,
    starts: Starts,
}

#[derive(Clone)]
enum Starts {
    /// A grid of windows side by side, moved by a random offset in each pass.
    Grid { per_pass: u64, offsets: u64 },
    /// The openings of documents that have a whole window after them.
    Openings(std::sync::Arc<Vec<u64>>),
}

impl TrainWindows {
    /// The windows of `context_length` positions over `tokens`.
    ///
    /// # Errors
    /// When not one window fits (naming a length that would), or when documents are asked for and `end_of_text`, which
    /// separates them, is `None`.
    pub fn new(
        tokens: &TokenFile,
        context_length: usize,
        seed: u64,
        rule: WindowRule,
        end_of_text: Option<u32>,
    ) -> Result<Self, Error> {
        if context_length == 0 {
            return Err(Error::NoContext);
        }
        let starts = match rule {
            WindowRule::Anywhere => {
                let Some(slack) = tokens.len().checked_sub(context_length + 1) else {
                    return Err(Error::TooFewTokens { tokens: tokens.len(), context_length });
                };
                // One window less than fit, so that the grid can move by any offset and every pass has as many windows.
                let per_pass = (slack / context_length).max(1);
                let offsets = (tokens.len() - per_pass * context_length).min(context_length);
                Starts::Grid { per_pass: per_pass as u64, offsets: offsets as u64 }
            }
            WindowRule::DocumentStart => {
                let mut openings = openings(tokens, end_of_text)?;
                let longest = openings.first().map_or(0, |&first| tokens.len() - 1 - first as usize);
                openings.retain(|&start| start as usize + context_length < tokens.len());
                if openings.is_empty() {
                    return Err(Error::NoLongDocument { context_length, longest });
                }
                Starts::Openings(std::sync::Arc::new(openings))
            }
        };
        Ok(Self { tokens: tokens.clone(), context_length, seed, starts })
    }

    /// How many windows make one pass over the data.
    pub fn windows_per_pass(&self) -> u64 {
        match &self.starts {
            Starts::Grid { per_pass, .. } => *per_pass,
            Starts::Openings(openings) => openings.len() as u64,
        }
    }

    /// The token at which window number `index` of the whole run starts.
    pub fn window(&self, index: u64) -> u64 {
        let (pass, place) = (index / self.windows_per_pass(), index % self.windows_per_pass());
        let key = mix(mix(self.seed) ^ pass);
        let chosen = Permutation::new(self.windows_per_pass(), key).at(place);
        match &self.starts {
            Starts::Grid { offsets, .. } => {
                chosen * self.context_length as u64 + rng(self.seed, &[pass]).next_u64() % offsets
            }
            Starts::Openings(openings) => openings[chosen as usize],
        }
    }

    /// Windows number `first_index` to `first_index + batch_size - 1` of the run.
    ///
    /// # Errors
    /// As [`TokenFile::get`].
    pub fn batch(&self, first_index: u64, batch_size: usize) -> Result<Batch, tokens::Error> {
        let size = batch_size * self.context_length;
        let mut batch = Batch {
            inputs: Vec::with_capacity(size),
            targets: Vec::with_capacity(size),
            batch_size,
            context_length: self.context_length,
        };
        let mut ids = Vec::with_capacity(self.context_length + 1);
        for row in 0..batch_size as u64 {
            let start = self.window(first_index + row) as usize;
            ids.clear();
            self.tokens.get(start..start + self.context_length + 1, &mut ids)?;
            batch.inputs.extend_from_slice(&ids[..self.context_length]);
            batch.targets.extend_from_slice(&ids[1..]);
        }
        Ok(batch)
    }

    /// Positions in a window.
    pub fn context_length(&self) -> usize {
        self.context_length
    }
}

/// The places of the `<|endoftext|>`s that open a document: all but the one that ends the stream.
fn openings(tokens: &TokenFile, end_of_text: Option<u32>) -> Result<Vec<u64>, Error> {
    let mut openings = tokens.positions(end_of_text.ok_or(Error::NoEndOfText)?)?;
    if openings.last().is_some_and(|&last| last as usize + 1 == tokens.len()) {
        openings.pop();
    }
    Ok(openings)
}

/// Rows for evaluation; the targets after the first `counted[row]` of a row, and their inputs, are padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalBatch {
    /// Token ids the model reads, `[batch_size, context_length]`.
    pub inputs: Vec<u32>,
    /// Token ids it is to predict, `[batch_size, context_length]`.
    pub targets: Vec<u32>,
    /// How many leading targets of each row count, `[batch_size]`.
    pub counted: Vec<u32>,
    /// Number of rows.
    pub batch_size: usize,
    /// Positions in a row.
    pub context_length: usize,
}

/// A cover of the validation split in which every token but the first is a target exactly once, always the same.
#[derive(Clone)]
pub struct ValWindows {
    tokens: TokenFile,
    context_length: usize,
    windows: Vec<EvalWindow>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EvalWindow {
    start: u64,
    counted: u32,
}

impl ValWindows {
    /// The cover of `tokens` by windows of `context_length` positions.
    ///
    /// "Anywhere": one window after the other. "Document start": each window holds as many whole documents as fit and is
    /// padded; a document longer than a window is cut into windows of its own.
    ///
    /// # Errors
    /// When there is nothing to predict, or when documents are asked for and none is opened by `end_of_text`.
    pub fn new(
        tokens: &TokenFile,
        context_length: usize,
        rule: WindowRule,
        end_of_text: Option<u32>,
    ) -> Result<Self, Error> {
        if context_length == 0 {
            return Err(Error::NoContext);
        }
        if tokens.len() < 2 {
            return Err(Error::TooShortToValidate(tokens.len()));
        }
        let last = tokens.len() as u64 - 1;
        let mut windows = Vec::new();
        match rule {
            WindowRule::Anywhere => cut(0..last, context_length, &mut windows),
            WindowRule::DocumentStart => {
                let mut edges = openings(tokens, end_of_text)?;
                if edges.first() != Some(&0) {
                    return Err(Error::NoOpening);
                }
                edges.push(last);
                let mut start = 0;
                for pair in edges.windows(2) {
                    // Targets start+1..=pair[1]: the documents since `start`, each with the <|endoftext|> after it.
                    if pair[1] - start > context_length as u64 {
                        if start < pair[0] {
                            cut(start..pair[0], context_length, &mut windows);
                        }
                        start = pair[0];
                    }
                }
                cut(start..last, context_length, &mut windows);
            }
        }
        Ok(Self { tokens: tokens.clone(), context_length, windows })
    }

    /// Number of windows.
    pub fn len(&self) -> usize {
        self.windows.len()
    }

    /// Whether there is no window (there always is one).
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// How many targets count in all windows together.
    pub fn targets(&self) -> u64 {
        self.windows.iter().map(|window| u64::from(window.counted)).sum()
    }

    /// At most `max_windows` of these windows, spread evenly: for a quick look at the loss.
    pub fn evenly_spaced(&self, max_windows: usize) -> Self {
        let (all, kept) = (self.len(), self.len().min(max_windows.max(1)));
        let windows = (0..kept).map(|i| self.windows[(i as u128 * all as u128 / kept as u128) as usize]).collect();
        Self { tokens: self.tokens.clone(), context_length: self.context_length, windows }
    }

    /// The windows of `range`, which must lie within `0..len()`.
    ///
    /// # Errors
    /// As [`TokenFile::get`].
    pub fn batch(&self, range: Range<usize>) -> Result<EvalBatch, tokens::Error> {
        let rows = &self.windows[range];
        let size = rows.len() * self.context_length;
        let (mut inputs, mut targets) = (Vec::with_capacity(size), Vec::with_capacity(size));
        let mut ids = Vec::with_capacity(self.context_length + 1);
        for (row, window) in rows.iter().enumerate() {
            let (start, counted) = (window.start as usize, window.counted as usize);
            ids.clear();
            self.tokens.get(start..start + counted + 1, &mut ids)?;
            inputs.extend_from_slice(&ids[..counted]);
            targets.extend_from_slice(&ids[1..]);
            inputs.resize((row + 1) * self.context_length, 0);
            targets.resize((row + 1) * self.context_length, 0);
        }
        Ok(EvalBatch {
            inputs,
            targets,
            counted: rows.iter().map(|window| window.counted).collect(),
            batch_size: rows.len(),
            context_length: self.context_length,
        })
    }

    /// Positions in a window.
    pub fn context_length(&self) -> usize {
        self.context_length
    }
}

/// Covers the inputs of `range` with windows side by side, the last of which may be shorter.
fn cut(range: Range<u64>, context_length: usize, windows: &mut Vec<EvalWindow>) {
    for start in range.clone().step_by(context_length) {
        let counted = (range.end - start).min(context_length as u64) as u32;
        windows.push(EvalWindow { start, counted });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const END: u32 = 0;

    fn numbered(count: u32) -> TokenFile {
        TokenFile::from_ids(&(0..count).collect::<Vec<_>>(), 100_000).unwrap()
    }

    /// A stream of documents of the given lengths: [END, tokens..., END, tokens..., END].
    fn documents(lengths: &[usize]) -> TokenFile {
        let mut ids = Vec::new();
        for (i, &length) in lengths.iter().enumerate() {
            ids.push(END);
            ids.extend(std::iter::repeat_n(i as u32 + 1, length));
        }
        ids.push(END);
        TokenFile::from_ids(&ids, 100_000).unwrap()
    }

    #[test]
    fn targets_are_the_inputs_moved_on_by_one() {
        let windows = TrainWindows::new(&numbered(1000), 8, 1, WindowRule::Anywhere, None).unwrap();
        let batch = windows.batch(3, 2).unwrap();
        assert_eq!(batch.inputs.len(), 16);
        assert_eq!(u64::from(batch.inputs[8]), windows.window(4));
        assert!(batch.inputs.iter().zip(&batch.targets).all(|(input, target)| input + 1 == *target));
    }

    #[test]
    fn passes_differ_in_order_and_offset() {
        let windows = TrainWindows::new(&numbered(1000), 10, 1, WindowRule::Anywhere, None).unwrap();
        let n = windows.windows_per_pass();
        let offsets: std::collections::BTreeSet<u64> = (0..100).map(|pass| windows.window(pass * n) % 10).collect();
        assert_eq!(offsets.len(), 10, "every offset occurs in 100 passes");
        let first: Vec<u64> = (0..n).map(|i| windows.window(i) / 10).collect();
        let second: Vec<u64> = (0..n).map(|i| windows.window(n + i) / 10).collect();
        assert_ne!(first, second);
    }

    #[test]
    fn too_short_texts_are_told_what_would_fit() {
        let error =
            |tokens: &TokenFile, rule| TrainWindows::new(tokens, 64, 1, rule, Some(END)).err().unwrap().to_string();
        assert!(error(&numbered(50), WindowRule::Anywhere).contains("at most 49"));
        assert!(error(&documents(&[5, 6]), WindowRule::DocumentStart).contains("at most 13"));
        assert!(TrainWindows::new(&numbered(50), 49, 1, WindowRule::Anywhere, None).is_ok());
        assert!(TrainWindows::new(&documents(&[5, 6]), 13, 1, WindowRule::DocumentStart, Some(END)).is_ok());
        assert!(TrainWindows::new(&documents(&[5, 6]), 4, 1, WindowRule::DocumentStart, None).is_err());
    }

    #[test]
    fn whole_documents_share_a_validation_window() {
        // With their ends the documents are 4, 5, 3 and 21 targets long; 10 fit in a window.
        let windows = ValWindows::new(&documents(&[3, 4, 2, 20]), 10, WindowRule::DocumentStart, Some(END)).unwrap();
        let batch = windows.batch(0..windows.len()).unwrap();
        assert_eq!(batch.counted, [9, 3, 10, 10, 1]);
        assert_eq!(&batch.inputs[..10], [0, 1, 1, 1, 0, 2, 2, 2, 2, 0]);
        assert_eq!(&batch.targets[..10], [1, 1, 1, 0, 2, 2, 2, 2, 0, 0]);
        assert_eq!(&batch.inputs[10..13], [0, 3, 3]);
    }

    #[test]
    fn a_subset_is_spread_over_the_whole() {
        let windows = ValWindows::new(&numbered(1001), 10, WindowRule::Anywhere, None).unwrap();
        let starts: Vec<u64> = windows.evenly_spaced(4).windows.iter().map(|window| window.start).collect();
        assert_eq!(starts, [0, 250, 500, 750]);
        assert_eq!(windows.evenly_spaced(1000).len(), 100);
    }

    proptest! {
        #[test]
        fn a_pass_visits_disjoint_windows_once(count in 20u32..500, context_length in 1usize..19, seed: u64, pass in 0u64..5) {
            let windows = TrainWindows::new(&numbered(count), context_length, seed, WindowRule::Anywhere, None).unwrap();
            let n = windows.windows_per_pass();
            let mut starts: Vec<u64> = (0..n).map(|i| windows.window(pass * n + i)).collect();
            starts.sort_unstable();
            prop_assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == context_length as u64));
            prop_assert!(starts[n as usize - 1] + (context_length as u64) < u64::from(count));
            // At most one window's worth of tokens is left out at either end of a pass.
            prop_assert!((n + 2) * context_length as u64 + 1 > u64::from(count));
        }

        #[test]
        fn a_pass_visits_every_document_once(lengths in proptest::collection::vec(0usize..9, 1..40), seed: u64) {
            let tokens = documents(&lengths);
            if let Ok(windows) = TrainWindows::new(&tokens, 8, seed, WindowRule::DocumentStart, Some(END)) {
                let mut starts: Vec<u64> = (0..windows.windows_per_pass()).map(|i| windows.window(i)).collect();
                starts.sort_unstable();
                let mut expected = tokens.positions(END).unwrap();
                expected.retain(|&start| start as usize + 8 < tokens.len());
                prop_assert_eq!(starts, expected);
            }
        }

        #[test]
        fn every_target_is_counted_once(lengths in proptest::collection::vec(0usize..30, 1..40), context_length in 1usize..25) {
            let tokens = documents(&lengths);
            for rule in [WindowRule::Anywhere, WindowRule::DocumentStart] {
                let windows = ValWindows::new(&tokens, context_length, rule, Some(END)).unwrap();
                let mut targets: Vec<u64> = windows.windows.iter()
                    .flat_map(|window| window.start + 1..=window.start + u64::from(window.counted)).collect();
                targets.sort_unstable();
                prop_assert!(targets.into_iter().eq(1..tokens.len() as u64));
                prop_assert_eq!(windows.targets(), tokens.len() as u64 - 1);
                let batch = windows.batch(0..windows.len()).unwrap();
                for (row, &counted) in batch.counted.iter().enumerate() {
                    let at = row * context_length;
                    prop_assert!(counted >= 1 && counted as usize <= context_length);
                    prop_assert_eq!(&batch.inputs[at + 1..at + counted as usize], &batch.targets[at..at + counted as usize - 1]);
                    let short = lengths.iter().all(|&length| length < context_length);
                    if rule == WindowRule::DocumentStart && short {
                        prop_assert_eq!(batch.inputs[at], END);
                        prop_assert_eq!(batch.targets[at + counted as usize - 1], END);
                    }
                }
            }
        }
    }
}
