//! Writes the token file of one side and counts what goes into it.

use super::text_hash::TextHash;
use crate::{tokenizer::Tokenizer, tokens, tokens::TokenWriter, tokens::Written};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Counts of one split; the other split is not included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitCounts {
    /// Documents.
    pub documents: u64,
    /// Tokens, including `<|endoftext|>`.
    pub tokens: u64,
    /// Bytes of UTF-8 text.
    pub bytes: u64,
    /// Characters (Unicode scalar values) of text.
    pub characters: u64,
    /// Bytes of the first token if it is text: it has no context to be predicted from. 0 if
    /// `<|endoftext|>` comes first.
    pub first_token_bytes: u64,
    /// Unknown tokens: text that the tokenizer has no token for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown: u64,
    /// xxh3 (64 bits, hexadecimal) of the token ids in the file.
    pub checksum: String,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What ends together with a piece.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// Only the piece.
    Piece,
    /// The training part of a document that is cut.
    Cut,
    /// The document.
    Document,
}

/// The token file of one side, and its counts.
pub struct Stream {
    pub writer: TokenWriter,
    pub counts: SplitCounts,
    /// Hash of the text, for validation.
    pub hash: TextHash,
    end_of_text: Option<u32>,
    /// Id of the unknown token.
    unknown: Option<u32>,
    /// What ended with the last piece.
    pub ended: Option<End>,
}

impl Stream {
    pub fn create(path: &Path, tokenizer: &Tokenizer) -> Result<Self, tokens::Error> {
        let writer = TokenWriter::create(path, tokenizer.vocab_size())?;
        let (counts, hash) = (SplitCounts::default(), TextHash::default());
        let (end_of_text, unknown) = (tokenizer.end_of_text(), tokenizer.unknown());
        Ok(Self { writer, counts, hash, end_of_text, unknown, ended: None })
    }

    pub fn reopen(path: &Path, tokenizer: &Tokenizer, saved: StreamState) -> Result<Self, tokens::Error> {
        let StreamState { written, counts, hash, ended } = saved;
        let writer = TokenWriter::reopen(path, tokenizer.vocab_size(), written)?;
        let (end_of_text, unknown) = (tokenizer.end_of_text(), tokenizer.unknown());
        Ok(Self { writer, counts, hash, end_of_text, unknown, ended })
    }

    pub fn state_to_save(&mut self) -> Result<StreamState, tokens::Error> {
        let Self { hash, ended, .. } = *self;
        Ok(StreamState { written: self.writer.written()?, counts: self.counts.clone(), hash, ended })
    }

    /// Writes tokens of text.
    pub fn push(&mut self, ids: &[u32]) -> Result<(), tokens::Error> {
        if let Some(unknown) = self.unknown {
            self.counts.unknown += ids.iter().filter(|&&id| id == unknown).count() as u64;
        }
        self.writer.push(ids)
    }

    /// Writes the end-of-text token that separates documents, if the tokenizer has one.
    pub fn write_separator(&mut self, ids_used: &mut [bool]) -> Result<(), tokens::Error> {
        if let Some(end) = self.end_of_text {
            self.writer.push(&[end])?;
            ids_used[end as usize] = true;
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<SplitCounts, tokens::Error> {
        self.counts.tokens = self.writer.count;
        self.counts.checksum = format!("{:016x}", self.writer.finish()?);
        Ok(self.counts)
    }
}

/// A [`Stream`] as saved in a checkpoint.
#[derive(Serialize, Deserialize)]
pub struct StreamState {
    written: Written,
    counts: SplitCounts,
    hash: TextHash,
    ended: Option<End>,
}
