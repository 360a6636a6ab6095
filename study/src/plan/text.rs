//! What a text is like to a model that is about to learn it: how much there is, and how far
//! counting alone predicts it. [`super::fit`] begins from that.

use ember_data::ngrams::MOST_ORDER;
use ember_data::prepare::Dataset;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use ember_training::config::TextFacts;

/// A text in numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Tokens to train on.
    pub train_tokens: u64,
    /// Tokens held out.
    pub val_tokens: u64,
    /// Different tokens.
    pub vocab_size: usize,
    /// [`Dataset::ngram_losses`].
    pub ngram_losses: [f64; MOST_ORDER],
    /// Bytes of held-out text for each token of it.
    pub bytes_per_token: f64,
    /// The least loss that any model can have, where it is known: on the built-in stories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entropy_floor: Option<f64>,
}

impl Statistics {
    /// The statistics of a prepared text that is a `share` of the whole, which its counts are
    /// scaled up to.
    ///
    /// # Errors
    /// When the tokens cannot be read.
    pub fn new(dataset: &Dataset, share: f64) -> Result<Self> {
        let whole = |tokens: u64| (tokens as f64 / share) as u64;
        let manifest = &dataset.manifest;
        Ok(Self {
            train_tokens: whole(manifest.train.tokens),
            val_tokens: whole(manifest.val.tokens),
            vocab_size: manifest.vocab_size,
            ngram_losses: dataset.ngram_losses()?,
            bytes_per_token: manifest.val.bytes as f64 / manifest.val.tokens.max(1) as f64,
            entropy_floor: manifest.marks.map(|marks| marks.entropy_floor),
        })
    }

    /// What the choice of a configuration needs.
    pub fn facts(&self) -> TextFacts {
        TextFacts { train_tokens: self.train_tokens, val_tokens: self.val_tokens, vocab_size: self.vocab_size }
    }
}
