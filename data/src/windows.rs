//! Windows of token ids: the rows of a batch, for training and for validation.
//!
//! A window of `context_length` positions spans one token more: its inputs are tokens
//! `start..start + context_length`, its targets the same shifted by one.
//!
//! Training draws windows without replacement: each pass visits every window once, in an order
//! keyed by (seed, pass). The window at an index is a pure function of these, so a resumed run
//! needs to know only the index.

use crate::{random::Permutation, random::mix, random::rng, tokens, tokens::TokenFile};
use rand_chacha::rand_core::Rng;
use serde::{Deserialize, Serialize};
use std::{ops::Range, sync::Arc};

/// Why no windows can be cut.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The tokens cannot be read.
    #[error(transparent)]
    Tokens(#[from] tokens::Error),
    /// No window fits: what is too short, and what would fit.
    #[error("{0}")]
    Unfit(String),
}

/// Where windows may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowRule {
    /// At any token: for long texts, of which a window is a small part.
    Anywhere,
    /// At the `<|endoftext|>` that opens a document: for short documents that must be read from
    /// their beginning. Longer documents are cut into consecutive windows.
    DocumentStart,
}

/// Rows for one training step; `inputs` and `targets` are `[batch_size, context_length]`,
/// row-major.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Input token ids.
    pub inputs: Vec<u32>,
    /// Target token ids: the inputs shifted by one.
    pub targets: Vec<u32>,
    /// Number of rows.
    pub batch_size: usize,
    /// Positions in a row.
    pub context_length: usize,
}

impl Batch {
    /// Random inputs and targets, which cost a model as much as those of a text.
    ///
    /// # Panics
    /// When `vocab_size` is 0.
    pub fn random(seed: u64, vocab_size: usize, batch_size: usize, context_length: usize) -> Self {
        let mut rng = rng(seed, &[]);
        let mut ids = || (0..batch_size * context_length).map(|_| rng.next_u32() % vocab_size as u32).collect();
        Self { inputs: ids(), targets: ids(), batch_size, context_length }
    }
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
    /// A grid of consecutive windows, shifted by a random offset in each pass.
    Grid { per_pass: u64, offsets: u64 },
    /// Start positions: the openings of documents, and the further windows of longer documents,
    /// that have a whole window after them.
    Openings(Arc<Vec<u64>>),
}

impl Starts {
    /// Consecutive windows over all tokens, of which at least one must fit.
    fn grid(tokens: &TokenFile, context_length: usize) -> Result<Self, Error> {
        let Some(slack) = tokens.len().checked_sub(context_length + 1) else {
            return Err(Error::Unfit(format!(
                "the training split has {} tokens, too few for one window of context_length {context_length} and its target; {}",
                tokens.len(),
                advice(tokens.len().saturating_sub(1))
            )));
        };
        // One window fewer than fits, so that the grid can be shifted by any offset and every pass
        // has the same number of windows.
        let per_pass = (slack / context_length).max(1);
        let offsets = (tokens.len() - per_pass * context_length).min(context_length);
        Ok(Self::Grid { per_pass: per_pass as u64, offsets: offsets as u64 })
    }

    /// The document openings, and in longer documents the consecutive windows from there on, that
    /// are followed by a whole window. There must be at least one.
    fn openings(tokens: &TokenFile, context_length: usize, end_of_text: Option<u32>) -> Result<Self, Error> {
        let mut openings = openings(tokens, end_of_text)?;
        let longest = openings.first().map_or(0, |&first| tokens.len() - 1 - first as usize);
        // The end of the last document, so that consecutive entries delimit a document.
        openings.push((tokens.len() as u64).saturating_sub(1));
        let documents = openings.windows(2).map(|pair| pair[0]..pair[1]);
        let starts = documents.flat_map(|document| cut(document, context_length)).map(|window| window.start);
        let starts: Vec<u64> = starts.filter(|start| *start as usize + context_length < tokens.len()).collect();
        if starts.is_empty() {
            return Err(Error::Unfit(format!(
                "the training split has no document with a window of context_length {context_length} after its start; {}",
                advice(longest)
            )));
        }
        Ok(Self::Openings(Arc::new(starts)))
    }
}

impl TrainWindows {
    /// The windows of `context_length` positions over `tokens`.
    ///
    /// # Errors
    /// When not one window fits (naming a length that would), or when documents are asked for and
    /// `end_of_text`, which separates them, is `None`.
    pub fn new(
        tokens: &TokenFile,
        context_length: usize,
        seed: u64,
        rule: WindowRule,
        end_of_text: Option<u32>,
    ) -> Result<Self, Error> {
        check_context_length(context_length)?;
        let starts = match rule {
            WindowRule::Anywhere => Starts::grid(tokens, context_length)?,
            WindowRule::DocumentStart => Starts::openings(tokens, context_length, end_of_text)?,
        };
        Ok(Self { tokens: tokens.clone(), context_length, seed, starts })
    }

    /// Number of windows in one pass over the data.
    pub fn windows_per_pass(&self) -> u64 {
        match &self.starts {
            Starts::Grid { per_pass, .. } => *per_pass,
            Starts::Openings(openings) => openings.len() as u64,
        }
    }

    /// The index of the first token of window number `index` of the whole run.
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
        let starts = (0..batch_size).map(|row| self.window(first_index + row as u64));
        let windows = starts.map(|start| start..start + self.context_length as u64);
        rows(&self.tokens, self.context_length, windows)
    }
}

fn check_context_length(context_length: usize) -> Result<(), Error> {
    if context_length > 0 { Ok(()) } else { Err(Error::Unfit("context_length is 0; give at least 1".to_owned())) }
}

/// Advice to the user; `longest` is the largest context length that fits.
fn advice(longest: usize) -> String {
    match longest {
        0 => "give more text".to_owned(),
        longest => format!("give more text, or a context_length of at most {longest}"),
    }
}

/// Positions of the `<|endoftext|>` tokens that open a document: all but one that ends the stream.
fn openings(tokens: &TokenFile, end_of_text: Option<u32>) -> Result<Vec<u64>, Error> {
    let Some(end_of_text) = end_of_text else {
        let what = "windows that start where a document starts need a tokenizer with <|endoftext|>; prepare with another \
                    tokenizer or the window rule \"anywhere\"";
        return Err(Error::Unfit(what.to_owned()));
    };
    let mut openings = tokens.positions(end_of_text)?;
    openings.pop_if(|last| *last as usize + 1 == tokens.len());
    Ok(openings)
}

/// The rows of windows given by the ranges of their inputs; shorter windows are padded.
fn rows(
    tokens: &TokenFile,
    context_length: usize,
    windows: impl ExactSizeIterator<Item = Range<u64>>,
) -> Result<Batch, tokens::Error> {
    let batch_size = windows.len();
    let size = batch_size * context_length;
    let (mut inputs, mut targets) = (Vec::with_capacity(size), Vec::with_capacity(size));
    let mut ids = Vec::with_capacity(context_length + 1);
    for (row, window) in windows.enumerate() {
        ids.clear();
        tokens.get(window.start as usize..window.end as usize + 1, &mut ids)?;
        inputs.extend_from_slice(&ids[..ids.len() - 1]);
        targets.extend_from_slice(&ids[1..]);
        inputs.resize((row + 1) * context_length, 0);
        targets.resize((row + 1) * context_length, 0);
    }
    Ok(Batch { inputs, targets, batch_size, context_length })
}

/// A fixed cover of the validation split in which every token but the first is a target exactly
/// once.
#[derive(Clone)]
pub struct ValWindows {
    tokens: TokenFile,
    context_length: usize,
    /// The ranges of their inputs.
    windows: Vec<Range<u64>>,
}

impl ValWindows {
    /// The cover of `tokens` by windows of `context_length` positions.
    ///
    /// [`WindowRule::Anywhere`]: consecutive windows. [`WindowRule::DocumentStart`]: each window
    /// holds as many whole documents as fit and is padded; a longer document is cut into windows of
    /// its own.
    ///
    /// # Errors
    /// When there is nothing to predict, or when documents are asked for and `end_of_text` does not
    /// open the split.
    pub fn new(
        tokens: &TokenFile,
        context_length: usize,
        rule: WindowRule,
        end_of_text: Option<u32>,
    ) -> Result<Self, Error> {
        check_context_length(context_length)?;
        if tokens.len() < 2 {
            return Err(Error::Unfit(format!(
                "the validation split has {} tokens, too few to predict one from another; give more text, or a larger val_fraction",
                tokens.len()
            )));
        }
        let last = tokens.len() as u64 - 1;
        let windows = match rule {
            WindowRule::Anywhere => cut(0..last, context_length).collect(),
            WindowRule::DocumentStart => {
                let openings = openings(tokens, end_of_text)?;
                if openings.first() != Some(&0) {
                    let what = "the validation split does not begin with <|endoftext|>; prepare the text again";
                    return Err(Error::Unfit(what.to_owned()));
                }
                whole_documents(openings, last, context_length)
            }
        };
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

    /// Number of targets, without padding, in all windows.
    pub fn targets(&self) -> u64 {
        self.windows.iter().map(|window| window.end - window.start).sum()
    }

    /// At most `max_windows` of these windows, evenly spaced: for a quick estimate of the loss.
    pub fn evenly_spaced(&self, max_windows: usize) -> Self {
        let (all, kept) = (self.len(), self.len().min(max_windows.max(1)));
        let spread = (0..kept).map(|i| self.windows[(i as u128 * all as u128 / kept as u128) as usize].clone());
        Self { tokens: self.tokens.clone(), context_length: self.context_length, windows: spread.collect() }
    }

    /// The windows of `range`, which must lie within `0..len()`, and the number of leading targets
    /// that count in each row; the rest is padding.
    ///
    /// # Errors
    /// As [`TokenFile::get`].
    pub fn batch(&self, range: Range<usize>) -> Result<(Batch, Vec<u32>), tokens::Error> {
        let windows = &self.windows[range];
        let batch = rows(&self.tokens, self.context_length, windows.iter().cloned())?;
        Ok((batch, windows.iter().map(|window| (window.end - window.start) as u32).collect()))
    }

    /// Positions in a window.
    pub fn context_length(&self) -> usize {
        self.context_length
    }
}

/// Covers the inputs of `range` with consecutive windows, the last of which may be shorter.
fn cut(range: Range<u64>, context_length: usize) -> impl Iterator<Item = Range<u64>> {
    let starts = range.clone().step_by(context_length);
    starts.map(move |start| start..range.end.min(start + context_length as u64))
}

/// Covers the inputs up to `last` with windows of as many whole documents as fit. Documents begin
/// at `openings`, the first of which is 0; a document longer than a window is cut.
fn whole_documents(mut openings: Vec<u64>, last: u64, context_length: usize) -> Vec<Range<u64>> {
    openings.push(last);
    let (mut windows, mut start) = (Vec::new(), 0);
    for pair in openings.windows(2) {
        // Targets start+1..=pair[1]: the documents since `start`, each with the `<|endoftext|>`
        // after it.
        if pair[1] - start > context_length as u64 {
            windows.extend(cut(start..pair[0], context_length));
            start = pair[0];
        }
    }
    windows.extend(cut(start..last, context_length));
    windows
}

#[cfg(test)]
mod tests;
