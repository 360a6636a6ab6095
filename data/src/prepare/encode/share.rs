//! A thread's share of a batch: consecutive pieces, and their token ids.

use super::{stream::End, text_hash::TextHash};
use crate::prepare::split::Side;
use crate::{tokenizer, tokenizer::Tokenizer};
use memchr::memchr_iter;
use std::ops::Range;

/// A part of a document that is encoded at once.
pub struct Piece {
    /// Byte range in the batch's text.
    pub text: Range<usize>,
    pub side: Side,
    /// Whether it is the first piece of its document.
    pub first: bool,
    pub end: End,
}

/// The output of a share until it is written; the buffers are reused for the next batch. Allocating
/// them anew each time would take as long as encoding bytes does.
#[derive(Default)]
pub struct Share {
    ids: Vec<u32>,
    counts: Vec<Counts>,
}

/// Counts of one piece.
#[derive(Clone, Copy)]
pub struct Counts {
    pub ids: usize,
    pub characters: u64,
    pub lines: u64,
    /// Hash of its text, if it belongs to validation.
    pub hash: TextHash,
}

impl Share {
    /// Encodes pieces of a text, up to the first that fails.
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

    /// The ids and counts of the encoded pieces, in order.
    pub fn encoded(&self) -> impl Iterator<Item = (&[u32], Counts)> {
        let mut rest = &self.ids[..];
        self.counts.iter().map(move |&counts| {
            let (ids, later) = rest.split_at(counts.ids);
            rest = later;
            (ids, counts)
        })
    }
}
