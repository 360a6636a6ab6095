//! What a prepared folder says about itself.

use super::{corpus::Source, encode::SplitCounts, report::Report};
use crate::{source::LeftOut, windows::WindowRule};
use serde::{Deserialize, Serialize};

/// The version of the prepared folder's layout that this program writes and reads.
pub const FORMAT_VERSION: u32 = 1;

/// `manifest.json`, written last: a folder without it is unfinished.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the folder's layout ([`FORMAT_VERSION`]).
    pub format_version: u32,
    /// Where the text came from, in the order in which it was read.
    pub sources: Vec<Source>,
    /// What stood in folders of the text and was not read, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// What the tokenizer is: `chars`, `bytes`, `bpe:N` or the file it was read from.
    pub tokenizer: String,
    /// Why that tokenizer was chosen, in a sentence.
    pub tokenizer_reason: String,
    /// Number of token ids.
    pub vocab_size: usize,
    /// Id of `<|endoftext|>`, if the tokenizer has it.
    pub end_of_text: Option<u32>,
    /// What `train.bin` holds.
    pub train: SplitCounts,
    /// What `val.bin` holds.
    pub val: SplitCounts,
    /// xxh3 (64 bits, hexadecimal) of `tokenizer.json`.
    pub tokenizer_checksum: String,
    /// How validation text was chosen, in words.
    pub split_rule: String,
    /// The seed of that choice.
    pub seed: u64,
    /// Where windows may start.
    pub window_rule: WindowRule,
    /// [`super::PrepareOptions::fingerprint`] of what was asked for.
    pub fingerprint: String,
    /// What was found in the text.
    pub report: Report,
    /// For the built-in corpus: what any model, and the best forgetful one, can reach on this
    /// validation split.
    pub marks: Option<Marks>,
}

/// Known losses on a validation split of the built-in corpus, in nats per validation target (a
/// token or its document's end).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Marks {
    /// The source's own -ln P of the validation text: no model does better but by luck.
    pub entropy_floor: f64,
    /// The loss of the best predictor that knows the grammar and forgets what earlier sentences
    /// said.
    pub forgetful_loss: f64,
}
