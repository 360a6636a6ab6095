//! A thread's share of a batch: pieces one behind the other, and their ids.

use super::{stream::End, text_hash::TextHash};
use crate::prepare::split::Side;
use crate::{tokenizer, tokenizer::Tokenizer};
use memchr::memchr_iter;
use std::ops::Range;

/// A part of a document that is encoded by itself.
pub struct Piece {
    /// Its place in the batch.
    pub text: Range<usize>,
    pub side: Side,
    /// Whether a document begins with it.
    pub first: bool,
    pub end: End,
}

/// Holds what a share became until it is written; then the next is put into the same memory. To ask
/// the system for it again and again would take as long as the encoding of bytes.
#[derive(Default)]
pub struct Share {
    ids: Vec<u32>,
    counts: Vec<Counts>,
}

/// What is counted of a piece.
#[derive(Clone, Copy)]
pub struct Counts {
    pub ids: usize,
    pub characters: u64,
    pub lines: u64,
    /// Of the text of a piece that validates.
    pub hash: TextHash,
}

impl Share {
    /// Encodes pieces of a text, up to the first that cannot be.
    pub fn encode(&mut self, text: &str, pieces: &[Piece], tokenizer: &Tokenizer) -> Result<(), tokenizer::Error> {
        self.ids.clear();
        self.counts.clear();
        for piece in pieces {
            let (text, before) = (&text[piece.text.clone()], self.ids.len());
            tokenizer.encode_onto(text, &mut self.ids)?;
            self.counts.push(Counts {
                ids: self.ids.len() - before,
                characters: text.chars().count() as u64,
                lines: memchr_iter(b'\n', text.as_bytes()).count() as u64,
                hash: if piece.side == Side::Val { TextHash::of(text.as_bytes()) } else { TextHash::default() },
            });
        }
        Ok(())
    }

    /// The pieces that were encoded, in order.
    pub fn encoded(&self) -> impl Iterator<Item = (&[u32], Counts)> {
        let mut rest = &self.ids[..];
        self.counts.iter().map(move |&counts| {
            let (ids, later) = rest.split_at(counts.ids);
            rest = later;
            (ids, counts)
        })
    }
}
