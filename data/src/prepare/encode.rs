//! The second pass: every document is encoded, on all cores, and written to its side of the split
//! in order.

mod share;
mod stream;
mod text_hash;

pub use stream::SplitCounts;

use super::checkpoint::{Checkpoint, Record};
use super::position::{EventPosition, Position};
use super::{
    corpus::Corpus, corpus::Purpose, error::Error, options::Progress, split::Side, split::Split, survey::Survey,
};
use crate::{source::Event, source::own::TOKEN_FILES, tokenizer, tokenizer::Tokenizer, tokens};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use share::{Counts, Piece, Share};
use stream::{End, Stream, StreamState};
use text_hash::TextHash;
use xxhash_rust::xxh3::xxh3_64;

/// Longer documents are cut into pieces of about this size for encoding.
const PIECE_BYTES: usize = 256 << 10;

/// A piece of this size is cut even where no safe place was found.
const LONGEST_PIECE_BYTES: usize = 8 * PIECE_BYTES;

/// Shares of a batch per thread: several, so that the threads finish at about the same time.
const SHARES_A_THREAD: usize = 4;

/// At most this many bytes in a batch.
const MAX_BATCH_BYTES: usize = 64 << 20;

/// At most this many pieces in a batch, however short they are.
const MAX_BATCH_PIECES: usize = 1 << 16;

/// Ids written at a time: few enough to stay in the processor's cache through several loops.
const IDS_AT_ONCE: usize = 1 << 13;

/// The result of encoding.
pub struct Encoded {
    pub train: SplitCounts,
    pub val: SplitCounts,
    /// Hash of the validation text, independent of the tokenizer.
    pub held_out: TextHash,
    /// Which ids occur in the output.
    pub ids_used: Vec<bool>,
    /// Totals, to compare with the first pass.
    pub documents: u64,
    pub bytes: u64,
}

/// Encodes the whole corpus into the [`TOKEN_FILES`] of the checkpoint, resuming an interrupted
/// call.
///
/// With an end-of-text token, each document is written as that token followed by its own tokens,
/// and a final one ends the stream. A document that is cut in two opens with one in the training
/// split and closes with one in the validation split. There its end follows the end-of-text token
/// of the document before it.
pub fn encode(
    corpus: &Corpus,
    survey: &Survey,
    tokenizer: &Tokenizer,
    checkpoint: &mut Checkpoint,
    progress: &dyn Progress,
) -> Result<Encoded, Error> {
    let identity = identity_of(tokenizer)?;
    let (from, mut encoder) = match CorpusEncoder::reopen(&survey.split, tokenizer, identity, checkpoint) {
        Some((position, encoder)) => {
            checkpoint.note_resuming("the encoding", &corpus.name_of(&position));
            (position, encoder)
        }
        None => (Position::default(), CorpusEncoder::create(&survey.split, tokenizer, identity, checkpoint)?),
    };
    let reading = corpus.read(Purpose::Encoding, from, progress, &mut |at: EventPosition<'_>, event| match event {
        _ if at.is_replayed => Ok(()),
        Event::Title(_) | Event::Dated(_) => Ok(()),
        Event::Text(text) => {
            if checkpoint.is_due() {
                checkpoint.save_once(Record::Surveyed, survey)?;
                checkpoint.save(Record::Encoding, &(at, encoder.state_to_save()?))?;
            }
            encoder.add(text)
        }
        Event::EndOfDocument => encoder.end_document(),
    })?;
    if let Some(changed) = reading.unusable.first() {
        return Err(Error::changed(&format!(" ({})", changed.report.reason)));
    }
    let mut encoded = encoder.finish()?;
    if encoded.train.tokens.min(encoded.val.tokens) < 2 {
        let what =
            "one of the splits has fewer than the two tokens that it needs; give more text, or another val_fraction";
        return Err(Error::unusable(what).of_text(&survey.sources));
    }
    if tokenizer.is_context_free() {
        for character in survey.characters.keys() {
            mark_used(&tokenizer.encode(character.encode_utf8(&mut [0; 4]))?, &mut encoded.ids_used);
        }
    }
    Ok(encoded)
}

/// Marks these ids as used.
fn mark_used(ids: &[u32], used: &mut [bool]) {
    ids.iter().for_each(|&id| used[id as usize] = true);
}

/// Identifies a tokenizer, so that tokens of one are never appended to tokens of another after its
/// file changed.
fn identity_of(tokenizer: &Tokenizer) -> Result<u64, tokenizer::Error> {
    Ok(xxh3_64(format!("{:?} {}", tokenizer.end_of_text(), tokenizer.to_json()?).as_bytes()))
}

/// Cuts documents into pieces and encodes them in batches.
struct CorpusEncoder<'a> {
    tokenizer: &'a Tokenizer,
    tokenizer_identity: u64,
    split: &'a Split,
    /// Output buffers; a batch is divided among them.
    shares: Vec<Share>,
    /// The pieces of the next batch.
    pieces: Vec<Piece>,
    /// Start of the open piece in the buffered text.
    start: usize,
    /// How many times [`PIECE_BYTES`] of the open piece were searched in vain for a safe cut.
    searched: usize,
    state: State,
    /// Training and validation.
    streams: [Stream; 2],
}

/// The state that carries over from piece to piece. While no piece waits, this and the states of
/// the streams are all that an interrupted call needs to resume.
#[derive(Serialize, Deserialize)]
struct State {
    /// Text of the pieces of the next batch, followed by that of the open piece.
    text: String,
    /// Number of the open document.
    document: u64,
    /// Side of the open piece, and whether it is the first of its document.
    side: Side,
    first: bool,
    /// Characters of the open document that still belong to training, if its end validates.
    characters_to_cut: Option<u64>,
    /// Which ids were written.
    ids_used: Vec<bool>,
    /// Characters and lines of the current document before the next piece to be written.
    place: (u64, u64),
    /// Bytes of all text so far.
    bytes: u64,
}

/// An encoder as saved in a checkpoint: the tokenizer's identity, the state and the streams. It is
/// saved from a `&State` and loaded as a [`State`].
type SavedEncoder<S> = (u64, S, [StreamState; 2]);

impl<'a> CorpusEncoder<'a> {
    /// Creates both token files.
    fn create(
        split: &'a Split,
        tokenizer: &'a Tokenizer,
        identity: u64,
        checkpoint: &Checkpoint,
    ) -> Result<Self, tokens::Error> {
        let [train, val] = TOKEN_FILES.map(|name| Stream::create(&checkpoint.file(name), tokenizer));
        Ok(Self::new(split, tokenizer, identity, [train?, val?]))
    }

    /// Reopens the token files of an interrupted call and returns the position to resume from.
    fn reopen(
        split: &'a Split,
        tokenizer: &'a Tokenizer,
        identity: u64,
        checkpoint: &Checkpoint,
    ) -> Option<(Position, Self)> {
        let (position, saved) = checkpoint.load::<(Position, SavedEncoder<State>)>(Record::Encoding)?;
        let (saved_identity, state, [train, val]) = saved;
        if saved_identity != identity {
            checkpoint.note_other_tokenizer();
            return None;
        }
        let reopen = |name, saved| {
            let path = checkpoint.file(name);
            Stream::reopen(&path, tokenizer, saved).map_err(|_| checkpoint.note_damaged(&path)).ok()
        };
        let [train_name, val_name] = TOKEN_FILES;
        let streams = [reopen(train_name, train)?, reopen(val_name, val)?];
        Some((position, Self { state, ..Self::new(split, tokenizer, identity, streams) }))
    }

    fn new(split: &'a Split, tokenizer: &'a Tokenizer, tokenizer_identity: u64, streams: [Stream; 2]) -> Self {
        Self {
            tokenizer,
            tokenizer_identity,
            split,
            shares: (0..SHARES_A_THREAD * rayon::current_num_threads()).map(|_| Share::default()).collect(),
            pieces: Vec::new(),
            start: 0,
            searched: 0,
            state: State {
                text: String::new(),
                document: 0,
                side: split.side(0),
                first: true,
                characters_to_cut: split.cut(0),
                ids_used: vec![false; tokenizer.vocab_size()],
                place: (0, 0),
                bytes: 0,
            },
            streams,
        }
    }

    /// State for a checkpoint. All closed pieces are encoded first and flushed to disk.
    fn state_to_save(&mut self) -> Result<SavedEncoder<&State>, Error> {
        self.encode_batch()?;
        let [train, val] = self.streams.each_mut().map(Stream::state_to_save);
        Ok((self.tokenizer_identity, &self.state, [train?, val?]))
    }

    fn add(&mut self, text: &str) -> Result<(), Error> {
        let mut rest = text;
        if let Some(left) = self.state.characters_to_cut {
            // Counting characters is much faster than walking to the cut.
            let characters = rest.chars().count() as u64;
            self.state.characters_to_cut = left.checked_sub(characters);
            if self.state.characters_to_cut.is_none()
                && let Some((at, _)) = rest.char_indices().nth(left as usize)
            {
                self.state.text.push_str(&rest[..at]);
                rest = &rest[at..];
                self.close(self.state.text.len(), End::Cut);
                self.state.side = Side::Val;
            }
        }
        self.state.bytes += text.len() as u64;
        self.state.text.push_str(rest);
        self.cut();
        self.encode_when_full()
    }

    /// Closes pieces of the open document while it is longer than a piece. Where it is searched for
    /// a cut does not depend on the events that bring its text, and each place is searched once.
    fn cut(&mut self) {
        loop {
            let (start, reach) = (self.start, (self.searched + 1) * PIECE_BYTES);
            if self.state.text.len() - start <= reach {
                return;
            }
            let end = self.state.text.floor_char_boundary(start + reach);
            match self.tokenizer.safe_cut(&self.state.text[start..end]) {
                Some(at) => self.close(start + at, End::Piece),
                None if reach < LONGEST_PIECE_BYTES => self.searched += 1,
                None => self.close(end, End::Piece),
            }
        }
    }

    /// Ends the open piece at byte `at` of the batch; the next begins there.
    fn close(&mut self, at: usize, end: End) {
        self.pieces.push(Piece { text: self.start..at, side: self.state.side, first: self.state.first, end });
        (self.start, self.searched, self.state.first) = (at, 0, false);
    }

    fn end_document(&mut self) -> Result<(), Error> {
        self.close(self.state.text.len(), End::Document);
        self.state.document += 1;
        self.state.first = true;
        self.state.side = self.split.side(self.state.document);
        self.state.characters_to_cut = self.split.cut(self.state.document);
        self.encode_when_full()
    }

    fn encode_when_full(&mut self) -> Result<(), Error> {
        let batch_bytes = (self.shares.len() * PIECE_BYTES).min(MAX_BATCH_BYTES);
        if self.start >= batch_bytes || self.pieces.len() >= MAX_BATCH_PIECES { self.encode_batch() } else { Ok(()) }
    }

    /// Encodes the closed pieces on all cores, then writes their ids in order.
    fn encode_batch(&mut self) -> Result<(), Error> {
        let (pieces, mut shares) = (std::mem::take(&mut self.pieces), std::mem::take(&mut self.shares));
        let share_bytes = self.start / shares.len() + 1;
        let edge = |share: usize| pieces.partition_point(|piece| piece.text.start < share * share_bytes);
        let pieces_of = |share: usize| &pieces[edge(share)..edge(share + 1)];
        let encode =
            |(number, share): (usize, &mut Share)| share.encode(&self.state.text, pieces_of(number), self.tokenizer);
        let encoded: Vec<Result<(), tokenizer::Error>> = shares.par_iter_mut().enumerate().map(encode).collect();
        for ((number, share), encoded) in shares.iter().enumerate().zip(encoded) {
            for (piece, (ids, counts)) in pieces_of(number).iter().zip(share.encoded()) {
                self.write(piece, ids, counts)?;
            }
            encoded.map_err(|error| self.with_document_position(error))?;
        }
        self.shares = shares;
        self.state.text.drain(..self.start);
        self.start = 0;
        Ok(())
    }

    /// Writes a piece to its side, after the end-of-text token that belongs before it.
    fn write(&mut self, piece: &Piece, ids: &[u32], counts: Counts) -> Result<(), Error> {
        let stream = &mut self.streams[piece.side as usize];
        // Each document opens with an end-of-text token. The validation part of a cut document has
        // none of its own, but the document before it must be ended.
        if piece.first || stream.ended == Some(End::Document) {
            stream.write_separator(&mut self.state.ids_used)?;
        }
        if let (0, Some(&first)) = (stream.writer.count, ids.first()) {
            stream.counts.first_token_bytes = self.tokenizer.token_bytes(first).map_or(0, |bytes| bytes.len() as u64);
        }
        for ids in ids.chunks(IDS_AT_ONCE) {
            stream.push(ids)?;
            // Otherwise the characters of the whole text determine the ids used ([`encode`]).
            if !self.tokenizer.is_context_free() {
                mark_used(ids, &mut self.state.ids_used);
            }
        }
        stream.ended = Some(piece.end);
        stream.counts.documents += u64::from(piece.end != End::Piece);
        stream.counts.bytes += piece.text.len() as u64;
        stream.counts.characters += counts.characters;
        stream.hash = stream.hash.followed_by(counts.hash, piece.text.len());
        let (characters, lines) = self.state.place;
        self.state.place =
            if piece.end == End::Document { (0, 0) } else { (characters + counts.characters, lines + counts.lines) };
        Ok(())
    }

    /// Converts an unknown character's position from its piece to its document.
    fn with_document_position(&self, mut error: tokenizer::Error) -> tokenizer::Error {
        if let tokenizer::Error::UnknownCharacter(unknown) = &mut error {
            unknown.position += self.state.place.0;
            unknown.line += self.state.place.1;
        }
        error
    }

    fn finish(mut self) -> Result<Encoded, Error> {
        self.encode_batch()?;
        for stream in &mut self.streams {
            if stream.ended == Some(End::Document) {
                stream.write_separator(&mut self.state.ids_used)?;
            }
        }
        let [train, val] = self.streams;
        let held_out = val.hash;
        let (train, val) = (train.finish()?, val.finish()?);
        let State { ids_used, document: documents, bytes, .. } = self.state;
        Ok(Encoded { train, val, held_out, ids_used, documents, bytes })
    }
}
