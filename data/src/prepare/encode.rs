//! The second reading of the text: every document becomes tokens, on all cores, and is written to
//! its side in order.

mod share;
mod stream;
mod text_hash;

pub use stream::SplitCounts;

use super::checkpoint::{Checkpoint, Record};
use super::position::{Here, Position};
use super::{
    corpus::Corpus, corpus::Purpose, error::Error, options::Progress, split::Side, split::Split, survey::Survey,
};
use crate::{source::Event, source::own::TOKEN_FILES, tokenizer, tokenizer::Tokenizer, tokens};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use share::{Counts, Piece, Share};
use stream::{End, Stream, StreamSoFar};
use text_hash::TextHash;
use xxhash_rust::xxh3::xxh3_64;

/// A document longer than this is cut into pieces for encoding.
const PIECE_BYTES: usize = 256 << 10;

/// Where no safe place for a cut is found, one is made anyway once a piece is so long.
const LONGEST_PIECE_BYTES: usize = 8 * PIECE_BYTES;

/// So many shares of a batch has each thread, so that none waits long for another.
const SHARES_A_THREAD: usize = 4;

/// A batch has no more bytes than this.
const MOST_BATCH_BYTES: usize = 64 << 20;

/// Nor does it wait for more pieces, however short they are.
const MOST_BATCH_PIECES: usize = 1 << 16;

/// So many ids stay in the processor's cache while they are looked at again and again.
const WRITTEN_TOGETHER: usize = 1 << 13;

/// What was written.
pub struct Encoded {
    pub train: SplitCounts,
    pub val: SplitCounts,
    /// Of the text that validates, whatever its tokens are.
    pub held_out: TextHash,
    /// Which ids were written.
    pub ids_used: Vec<bool>,
    /// Documents and bytes, to compare with the first reading.
    pub documents: u64,
    pub bytes: u64,
}

/// Encodes the whole corpus into the [`TOKEN_FILES`] of the checkpoint, from where an interrupted
/// call was.
///
/// With an end-of-text token each document is written as that token and its own, and a last one
/// ends the stream. A document that is itself cut in two opens with one in the training split and
/// closes with one in the validation split; what would otherwise follow on another document there
/// is parted from it by one.
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
            checkpoint.say_going_on("the encoding", &corpus.name_of(&position));
            (position, encoder)
        }
        None => (Position::default(), CorpusEncoder::create(&survey.split, tokenizer, identity, checkpoint)?),
    };
    let reading = corpus.read(Purpose::Encoding, from, progress, &mut |here: Here<'_>, event| match event {
        _ if here.is_again => Ok(()),
        Event::Title(_) | Event::Dated(_) => Ok(()),
        Event::Text(text) => {
            if checkpoint.is_due() {
                checkpoint.keep_once(Record::Surveyed, survey)?;
                checkpoint.keep(Record::Encoding, &(here, encoder.so_far()?))?;
            }
            encoder.add(text)
        }
        Event::EndOfDocument => encoder.end_document(),
    })?;
    if let Some(changed) = reading.unusable.first() {
        return Err(Error::changed(&format!(" ({})", changed.reason)));
    }
    let mut encoded = encoder.finish()?;
    if tokenizer.knows_no_neighbours() {
        for character in survey.characters.keys() {
            mark(&tokenizer.encode(character.encode_utf8(&mut [0; 4]))?, &mut encoded.ids_used);
        }
    }
    Ok(encoded)
}

/// Takes note that these ids were written.
fn mark(ids: &[u32], used: &mut [bool]) {
    ids.iter().for_each(|&id| used[id as usize] = true);
}

/// By which a tokenizer can be told from another that its file has held since: the tokens of one must
/// not go on those of another.
fn identity_of(tokenizer: &Tokenizer) -> Result<u64, tokenizer::Error> {
    Ok(xxh3_64(format!("{:?} {}", tokenizer.end_of_text(), tokenizer.to_json()?).as_bytes()))
}

/// Cuts documents into pieces, and encodes many pieces at once.
struct CorpusEncoder<'a> {
    tokenizer: &'a Tokenizer,
    tokenizer_identity: u64,
    split: &'a Split,
    /// What is encoded together: a share for each of these.
    shares: Vec<Share>,
    /// The pieces that wait to be encoded together.
    pieces: Vec<Piece>,
    /// Where the open piece begins in the text that is held.
    start: usize,
    state: State,
    /// Training and validation.
    streams: [Stream; 2],
}

/// What goes on from one piece to the next. When no piece waits, this and what the streams keep of
/// themselves are all that an interrupted call needs to go on.
#[derive(Serialize, Deserialize)]
struct State {
    /// The text of the pieces that wait to be encoded together, and of the open piece behind them.
    text: String,
    /// The number of the open document.
    document: u64,
    /// Where the open piece goes, and whether its document begins with it.
    side: Side,
    first: bool,
    /// How many characters of the open document still go to the training split, where its end
    /// validates.
    characters_to_cut: Option<u64>,
    /// Which ids were written.
    ids_used: Vec<bool>,
    /// Characters and lines of the current document before the piece that is written next.
    place: (u64, u64),
    /// Of all text so far.
    bytes: u64,
}

/// What a checkpoint keeps of an encoder: the tokenizer's identity, the state and the streams. It is
/// written from a `&State`, and read back as a [`State`].
type Kept<S> = (u64, S, [StreamSoFar; 2]);

impl<'a> CorpusEncoder<'a> {
    /// Begins both files.
    fn create(
        split: &'a Split,
        tokenizer: &'a Tokenizer,
        identity: u64,
        checkpoint: &Checkpoint,
    ) -> Result<Self, tokens::Error> {
        let [train, val] = TOKEN_FILES.map(|name| Stream::create(&checkpoint.file(name), tokenizer));
        Ok(Self::new(split, tokenizer, identity, [train?, val?]))
    }

    /// Goes on with the files of an interrupted call, and says from where.
    fn reopen(
        split: &'a Split,
        tokenizer: &'a Tokenizer,
        identity: u64,
        checkpoint: &Checkpoint,
    ) -> Option<(Position, Self)> {
        let (position, kept) = checkpoint.kept::<(Position, Kept<State>)>(Record::Encoding)?;
        let (kept_identity, state, [train, val]) = kept;
        if kept_identity != identity {
            checkpoint.say_other_tokenizer();
            return None;
        }
        let reopen = |name, so_far| {
            let path = checkpoint.file(name);
            Stream::reopen(&path, tokenizer, so_far).map_err(|_| checkpoint.say_damaged(&path)).ok()
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

    /// How far it is; what was cut into pieces is in the files then, durably.
    fn so_far(&mut self) -> Result<Kept<&State>, Error> {
        self.encode_batch()?;
        let [train, val] = self.streams.each_mut().map(Stream::so_far);
        Ok((self.tokenizer_identity, &self.state, [train?, val?]))
    }

    fn add(&mut self, text: &str) -> Result<(), Error> {
        let mut rest = text;
        if let Some(left) = self.state.characters_to_cut {
            // Counting is many times faster than walking to the place.
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

    /// Closes pieces of the open document as long as it is too long.
    fn cut(&mut self) {
        loop {
            let start = self.start;
            let waiting = self.state.text.len() - start;
            if waiting <= PIECE_BYTES {
                return;
            }
            let within = self.state.text.floor_char_boundary(start + PIECE_BYTES);
            let mut places = [within, self.state.text.len()].into_iter();
            let at = match places.find_map(|end| self.tokenizer.safe_cut(&self.state.text[start..end])) {
                Some(at) => at,
                None if waiting < LONGEST_PIECE_BYTES => return,
                None => self.state.text.floor_char_boundary(start + LONGEST_PIECE_BYTES) - start,
            };
            self.close(start + at, End::Piece);
        }
    }

    /// Ends the open piece at byte `at` of the batch; the next begins there.
    fn close(&mut self, at: usize, end: End) {
        self.pieces.push(Piece { text: self.start..at, side: self.state.side, first: self.state.first, end });
        (self.start, self.state.first) = (at, false);
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
        let batch_bytes = (self.shares.len() * PIECE_BYTES).min(MOST_BATCH_BYTES);
        if self.start >= batch_bytes || self.pieces.len() >= MOST_BATCH_PIECES { self.encode_batch() } else { Ok(()) }
    }

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
            encoded.map_err(|error| self.placed(error))?;
        }
        self.shares = shares;
        self.state.text.drain(..self.start);
        self.start = 0;
        Ok(())
    }

    fn write(&mut self, piece: &Piece, ids: &[u32], counts: Counts) -> Result<(), Error> {
        let stream = &mut self.streams[piece.side as usize];
        // A document opens with an end-of-text token. The end of one that was cut has none of its
        // own, but the document before it ends with one.
        if piece.first || stream.ended == Some(End::Document) {
            stream.separate(&mut self.state.ids_used)?;
        }
        if let (0, Some(&first)) = (stream.writer.count, ids.first()) {
            stream.counts.first_token_bytes = self.tokenizer.token_bytes(first).map_or(0, |bytes| bytes.len() as u64);
        }
        for ids in ids.chunks(WRITTEN_TOGETHER) {
            stream.push(ids)?;
            // Else the characters of the text say which are used.
            if !self.tokenizer.knows_no_neighbours() {
                mark(ids, &mut self.state.ids_used);
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

    /// Places an unknown character in its document instead of its piece.
    fn placed(&self, mut error: tokenizer::Error) -> tokenizer::Error {
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
                stream.separate(&mut self.state.ids_used)?;
            }
        }
        let [train, val] = self.streams;
        let held_out = val.hash;
        let (train, val) = (train.finish()?, val.finish()?);
        let State { ids_used, document: documents, bytes, .. } = self.state;
        Ok(Encoded { train, val, held_out, ids_used, documents, bytes })
    }
}
