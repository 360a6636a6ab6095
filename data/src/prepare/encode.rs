//! The second reading of the text: every document becomes tokens, on all cores, and is written to its side in order.

use super::corpus::Corpus;
use super::split::{Kind, Side, Split};
use super::{Progress, Split as SplitCounts};
use crate::source::Event;
use crate::tokenizer::{Tokenizer, UnknownCharacter};
use crate::tokens::TokenWriter;
use anyhow::{Result, ensure};
use rayon::prelude::*;
use std::path::Path;

/// A document longer than this is cut into pieces for encoding.
const PIECE_BYTES: usize = 256 << 10;

/// Where no safe place for a cut is found, one is made anyway once a piece is so long.
const LONGEST_PIECE_BYTES: usize = 8 * PIECE_BYTES;

/// What was written.
pub struct Encoded {
    pub train: SplitCounts,
    pub val: SplitCounts,
    /// How often each id was written.
    pub id_counts: Vec<u64>,
    /// Documents and bytes, to compare with the first reading.
    pub documents: u64,
    pub bytes: u64,
}

/// Encodes the whole corpus into `train.bin` and `val.bin` in `out`.
///
/// With an end-of-text token each document is written as that token and its own, and a last one ends the stream. A document
/// that is itself cut in two opens with one in the training split and closes with one in the validation split.
pub fn encode(
    corpus: &Corpus,
    split: &Split,
    tokenizer: &Tokenizer,
    out: &Path,
    progress: &dyn Progress,
) -> Result<Encoded> {
    let mut encoder = CorpusEncoder {
        tokenizer,
        split,
        batch: Batch::default(),
        batch_bytes: (rayon::current_num_threads() * 2 * PIECE_BYTES).clamp(8 << 20, 64 << 20),
        open: OpenPiece { start: 0, document: 0, side: split.side(0), first: true },
        characters_to_cut: match split.kind {
            Kind::WithinDocument { train_characters } => Some(train_characters),
            Kind::Documents(_) => None,
        },
        train: Stream::create(&out.join("train.bin"), tokenizer)?,
        val: Stream::create(&out.join("val.bin"), tokenizer)?,
        id_counts: vec![0; tokenizer.vocab_size()],
        place: (0, 0),
        bytes: 0,
    };
    corpus.read("encoding", progress, &mut |event| match event {
        Event::Text(text) => encoder.add(text),
        Event::EndOfDocument => encoder.end_document(),
    })?;
    encoder.finish()
}

struct CorpusEncoder<'a> {
    tokenizer: &'a Tokenizer,
    split: &'a Split,
    batch: Batch,
    batch_bytes: usize,
    open: OpenPiece,
    /// How many characters of the only document still go to the training split.
    characters_to_cut: Option<u64>,
    train: Stream,
    val: Stream,
    id_counts: Vec<u64>,
    /// Characters and lines of the current document before the piece that is written next.
    place: (u64, u64),
    bytes: u64,
}

/// Pieces of text waiting to be encoded together; the last piece is still open.
#[derive(Default)]
struct Batch {
    text: String,
    pieces: Vec<Piece>,
}

struct OpenPiece {
    start: usize,
    document: u64,
    side: Side,
    first: bool,
}

/// A part of a document that is encoded by itself.
struct Piece {
    start: usize,
    end: usize,
    side: Side,
    /// Whether a document begins with it, and whether it ends.
    first: bool,
    last: bool,
}

struct EncodedPiece {
    ids: Vec<u32>,
    characters: u64,
    lines: u64,
}

impl CorpusEncoder<'_> {
    fn add(&mut self, text: &str) -> Result<()> {
        let mut rest = text;
        if let Some(left) = self.characters_to_cut {
            match rest.char_indices().nth(left as usize) {
                None => self.characters_to_cut = Some(left - rest.chars().count() as u64),
                Some((at, _)) => {
                    self.batch.text.push_str(&rest[..at]);
                    rest = &rest[at..];
                    self.characters_to_cut = None;
                    self.close(self.batch.text.len(), false);
                    self.open.side = Side::Val;
                }
            }
        }
        self.bytes += text.len() as u64;
        self.batch.text.push_str(rest);
        self.cut()?;
        self.encode_when_full()
    }

    /// Closes pieces of the open document as long as it is too long.
    fn cut(&mut self) -> Result<()> {
        loop {
            let start = self.open.start;
            let waiting = self.batch.text.len() - start;
            if waiting <= PIECE_BYTES {
                return Ok(());
            }
            let within = self.batch.text.floor_char_boundary(start + PIECE_BYTES);
            let mut places = [within, self.batch.text.len()].into_iter();
            let at = match places.find_map(|end| self.tokenizer.safe_cut(&self.batch.text[start..end])) {
                Some(at) => at,
                None if waiting < LONGEST_PIECE_BYTES => return Ok(()),
                None => waiting,
            };
            self.close(start + at, false);
        }
    }

    /// Ends the open piece at byte `end` of the batch; the next begins there.
    fn close(&mut self, end: usize, last: bool) {
        let OpenPiece { start, side, first, .. } = self.open;
        self.batch.pieces.push(Piece { start, end, side, first, last });
        (self.open.start, self.open.first) = (end, false);
    }

    fn end_document(&mut self) -> Result<()> {
        self.close(self.batch.text.len(), true);
        self.open.document += 1;
        self.open.first = true;
        self.open.side = self.split.side(self.open.document);
        self.encode_when_full()
    }

    fn encode_when_full(&mut self) -> Result<()> {
        if self.open.start >= self.batch_bytes || self.batch.pieces.len() >= 1 << 16 {
            self.encode_batch()?;
        }
        Ok(())
    }

    fn encode_batch(&mut self) -> Result<()> {
        let Batch { text, pieces } = std::mem::take(&mut self.batch);
        let encoded: Vec<Result<EncodedPiece>> = pieces
            .par_iter()
            .with_min_len(16.min(pieces.len() / rayon::current_num_threads()).max(1))
            .map(|piece| {
                let text = &text[piece.start..piece.end];
                let characters = text.chars().count() as u64;
                let lines = text.bytes().filter(|&byte| byte == b'\n').count() as u64;
                Ok(EncodedPiece { ids: self.tokenizer.encode(text)?, characters, lines })
            })
            .collect();
        for (piece, encoded) in pieces.iter().zip(encoded) {
            let EncodedPiece { ids, characters, lines } = encoded.map_err(|error| self.placed(error))?;
            for &id in &ids {
                self.id_counts[id as usize] += 1;
            }
            let stream = match piece.side {
                Side::Train => &mut self.train,
                Side::Val => &mut self.val,
            };
            if piece.first
                && let Some(end) = stream.end_of_text
            {
                stream.writer.push(&[end])?;
                self.id_counts[end as usize] += 1;
            }
            stream.writer.push(&ids)?;
            stream.counts.documents += u64::from(piece.last);
            stream.counts.bytes += (piece.end - piece.start) as u64;
            stream.counts.characters += characters;
            self.place = if piece.last { (0, 0) } else { (self.place.0 + characters, self.place.1 + lines) };
        }
        self.batch.text = text;
        let open = self.open.start;
        self.batch.text.drain(..open);
        self.open.start = 0;
        Ok(())
    }

    /// Places an unknown character in its document instead of its piece.
    fn placed(&self, error: anyhow::Error) -> anyhow::Error {
        match error.downcast::<UnknownCharacter>() {
            Ok(mut unknown) => {
                unknown.position += self.place.0;
                unknown.line += self.place.1;
                unknown.into()
            }
            Err(error) => error,
        }
    }

    fn finish(mut self) -> Result<Encoded> {
        self.encode_batch()?;
        let within = matches!(self.split.kind, Kind::WithinDocument { .. });
        if within {
            self.train.counts.documents = 1;
        }
        for (stream, ends) in [(&mut self.train, !within), (&mut self.val, true)] {
            if ends && let Some(end) = stream.end_of_text {
                stream.writer.push(&[end])?;
                self.id_counts[end as usize] += 1;
            }
        }
        Ok(Encoded {
            documents: self.open.document,
            bytes: self.bytes,
            id_counts: self.id_counts,
            train: self.train.finish()?,
            val: self.val.finish()?,
        })
    }
}

/// One side's file and what went into it.
struct Stream {
    writer: TokenWriter,
    counts: SplitCounts,
    end_of_text: Option<u32>,
}

impl Stream {
    fn create(path: &Path, tokenizer: &Tokenizer) -> Result<Self> {
        let writer = TokenWriter::create(path, tokenizer.vocab_size())?;
        Ok(Self { writer, counts: SplitCounts::default(), end_of_text: tokenizer.end_of_text() })
    }

    fn finish(mut self) -> Result<SplitCounts> {
        self.counts.tokens = self.writer.len();
        ensure!(self.counts.tokens > 0, "nothing is left for one of the splits; give more text");
        self.counts.checksum = format!("{:016x}", self.writer.finish()?);
        Ok(self.counts)
    }
}
