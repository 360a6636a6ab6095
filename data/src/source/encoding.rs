//! Converts text in any encoding to UTF-8 as it is read.
//!
//! The encoding is, in this order: that of a byte order mark; the one that the user has set; UTF-8
//! if the text looks like it; else a guess. The sample for a guess is about a megabyte from the
//! first block with a non-ASCII byte on: the ASCII before it is the same in every encoding that is
//! guessed. ISO-2022-JP, all of whose bytes are ASCII, is recognised by its escape sequences.

use super::{compression::Bomb, error::EncodingOrigin, error::Error, guess};
use encoding_rs::{Decoder, DecoderResult, Encoding, UTF_8, UTF_16BE, UTF_16LE};
use std::{borrow::Cow, cell::Cell, io, io::Cursor, io::Read};

pub use super::guess::Guess;

/// The bytes to read at once.
const BLOCK_BYTES: u64 = 1 << 16;

/// The size of the sample from which the encoding is guessed.
const SAMPLE_BYTES: u64 = 1 << 20;

/// How the bytes are decoded. This is fixed at the start, except that `Ascii` becomes `Utf8`, or
/// `Other` by a guess, at the first text that is not ASCII or switches to Japanese by an escape
/// sequence.
enum State {
    /// Only ASCII so far.
    Ascii,
    Utf8(EncodingOrigin),
    /// After a byte order mark. Whether it is big-endian.
    Utf32 {
        big: bool,
    },
    Other(Box<Decoder>, EncodingOrigin),
}

/// The encoding that the byte order mark of a text declares, and the length of the mark.
fn by_mark(start: &[u8]) -> Option<(State, usize)> {
    let utf16 = |encoding: &'static Encoding| decoder_for(encoding, EncodingOrigin::Mark);
    Some(match start {
        [0xff, 0xfe, 0, 0, ..] => (State::Utf32 { big: false }, 4),
        [0, 0, 0xfe, 0xff, ..] => (State::Utf32 { big: true }, 4),
        [0xff, 0xfe, ..] => (utf16(UTF_16LE), 2),
        [0xfe, 0xff, ..] => (utf16(UTF_16BE), 2),
        [0xef, 0xbb, 0xbf, ..] => (State::Utf8(EncodingOrigin::Mark), 3),
        _ => return None,
    })
}

fn decoder_for(encoding: &'static Encoding, origin: EncodingOrigin) -> State {
    State::Other(Box::new(encoding.new_decoder_without_bom_handling()), origin)
}

/// Whether zero bytes in a file with this beginning are part of its text: it is UTF-16 or UTF-32.
pub fn may_hold_zeros(start: &[u8]) -> bool {
    matches!(by_mark(start), Some((State::Utf32 { .. } | State::Other(..), _))) || guess::utf16(start).is_some()
}

/// Whether a text is UTF-8, judging by its beginning, which may end within a character.
pub fn is_utf8(start: &[u8]) -> bool {
    let cut = |error: std::str::Utf8Error| error.error_len().is_none() && !start.is_empty();
    let valid = std::str::from_utf8(start).map_or_else(cut, |_| true);
    valid && !may_hold_zeros(start) && !guess::has_escape_to_japanese(start)
}

/// Converts `raw` to UTF-8, without its byte order mark; puts a guessed encoding into `found`. The
/// returned bytes are valid, but the end of a read may cut a character.
pub fn as_utf8<'a>(
    mut raw: Box<dyn Read + 'a>,
    set: Option<&'static Encoding>,
    found: &'a Cell<Option<Guess>>,
) -> io::Result<Box<dyn Read + 'a>> {
    let mut start = Vec::new();
    raw.by_ref().take(guess::UTF16_SAMPLE_BYTES).read_to_end(&mut start)?;
    let (state, mark_bytes) = match (by_mark(&start), set) {
        (Some((state, bytes)), _) => (state, bytes),
        (None, Some(encoding)) if encoding == UTF_8 => (State::Utf8(EncodingOrigin::User), 0),
        (None, Some(encoding)) => (decoder_for(encoding, EncodingOrigin::User), 0),
        (None, None) => match guess::utf16(&start) {
            Some(guess) => {
                found.set(Some(guess));
                (decoder_for(guess.encoding, EncodingOrigin::Guess), 0)
            }
            None => (State::Ascii, 0),
        },
    };
    start.drain(..mark_bytes);
    let raw = Box::new(Cursor::new(start).chain(raw));
    let offset = mark_bytes as u64;
    Ok(Box::new(Utf8 { raw, state, offset, bytes: Vec::new(), text: Cursor::default(), ended: false, found }))
}

/// Decodes a whole text; uses the encoding `declared` only if the bytes are not valid UTF-8.
///
/// # Errors
/// When it is invalid in the encoding of its byte order mark, or in `declared`.
pub fn text_of(bytes: &[u8], declared: Option<&'static Encoding>, found: &Cell<Option<Guess>>) -> io::Result<String> {
    let is_utf8 = std::str::from_utf8(bytes).is_ok();
    let mut text = String::new();
    as_utf8(Box::new(bytes), declared.filter(|_| !is_utf8), found)?.read_to_string(&mut text)?;
    Ok(text)
}

/// A reader that converts `raw`, after its byte order mark, to UTF-8.
struct Utf8<'a> {
    raw: Box<dyn Read + 'a>,
    state: State,
    /// The offset of `bytes` in the text, including the mark.
    offset: u64,
    /// Bytes that were read and not yet converted: between reads at most the beginning of a
    /// character or of an escape sequence.
    bytes: Vec<u8>,
    /// The converted text that the caller has not yet read.
    text: Cursor<Vec<u8>>,
    ended: bool,
    found: &'a Cell<Option<Guess>>,
}

impl Read for Utf8<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !self.ended && self.text.position() == self.text.get_ref().len() as u64 {
            let mut text = std::mem::take(&mut self.text).into_inner();
            text.clear();
            self.ended = self.convert(&mut text)?;
            self.text = Cursor::new(text);
        }
        self.text.read(buffer)
    }
}

impl Utf8<'_> {
    /// Converts the next block into the empty `text`; returns whether it was the last.
    fn convert(&mut self, text: &mut Vec<u8>) -> io::Result<bool> {
        let last = self.read_block()?;
        let Self { state, offset, bytes, found, .. } = self;
        let used = match state {
            State::Ascii => {
                let used = decided_ascii(bytes, last);
                move_beginning(bytes, used, text);
                used
            }
            State::Utf8(origin) => {
                let used = valid_utf8(bytes, last).map_err(|at| Broken {
                    at: *offset + at as u64,
                    encoding: UTF_8.name(),
                    origin: *origin,
                    byte: Some(bytes[at]),
                })?;
                move_beginning(bytes, used, text);
                used
            }
            State::Utf32 { big } => {
                let used = utf32(bytes, *big, last, text).map_err(|at| Broken {
                    at: *offset + at as u64,
                    encoding: "UTF-32",
                    origin: EncodingOrigin::Mark,
                    byte: None,
                })?;
                bytes.drain(..used);
                used
            }
            State::Other(decoder, origin) => {
                let (used, encoding) = (bytes.len(), decoder.encoding().name());
                let replaced = decode(decoder, *origin, bytes, last, text).map_err(|at| Broken {
                    at: offset.saturating_add_signed(at),
                    encoding,
                    origin: *origin,
                    byte: None,
                })?;
                found.set(found.get().map(|guess| Guess { replaced: guess.replaced + replaced, ..guess }));
                bytes.clear();
                used
            }
        };
        *offset += used as u64;
        Ok(last)
    }

    /// Reads a block into `bytes`; at the first that is not ASCII or has an escape sequence to
    /// Japanese, reads a whole sample and chooses the encoding. Returns whether the input has ended.
    fn read_block(&mut self) -> io::Result<bool> {
        let last = self.fill(BLOCK_BYTES)?;
        let is_undecided = matches!(self.state, State::Ascii);
        if is_undecided && (!self.bytes.is_ascii() || guess::has_escape_to_japanese(&self.bytes)) {
            let last = self.fill(SAMPLE_BYTES)?;
            self.decide(last);
            return Ok(last);
        }
        Ok(last)
    }

    /// Reads `more` bytes into `bytes`; returns whether the input has ended.
    fn fill(&mut self, more: u64) -> io::Result<bool> {
        let n = self.raw.by_ref().take(more).read_to_end(&mut self.bytes)?;
        Ok((n as u64) < more)
    }

    /// Chooses the encoding from the first block with non-ASCII text: UTF-8, or a guess.
    fn decide(&mut self, last: bool) {
        self.state = match guess::guess_unless_utf8(&self.bytes, last) {
            // There was an escape sequence, but it is not ISO-2022-JP.
            None if self.bytes.is_ascii() => State::Ascii,
            None => State::Utf8(EncodingOrigin::Guess),
            Some(guess) => {
                self.found.set(Some(guess));
                decoder_for(guess.encoding, EncodingOrigin::Guess)
            }
        };
    }
}

/// The text before the first invalid or incomplete character. With scattered non-ASCII characters
/// `encoding_rs` validates several times faster than the standard library.
pub fn valid_beginning(bytes: &[u8]) -> Cow<'_, str> {
    let text = |bytes| UTF_8.decode_without_bom_handling_and_without_replacement(bytes);
    text(bytes).or_else(|| text(&bytes[..Encoding::utf8_valid_up_to(bytes)])).expect("it was found valid")
}

/// Moves the first `count` of `bytes` into the empty `text`: swaps the buffers and copies back the
/// rest, which is short. So bytes that are UTF-8 already need not be copied.
fn move_beginning(bytes: &mut Vec<u8>, count: usize, text: &mut Vec<u8>) {
    std::mem::swap(bytes, text);
    bytes.extend_from_slice(&text[count..]);
    text.truncate(count);
}

/// How many of these ASCII bytes are done: all but the beginning of an escape sequence that may
/// continue in the next block.
fn decided_ascii(bytes: &[u8], last: bool) -> usize {
    if last { bytes.len() } else { bytes.len() - guess::partial_escape_bytes(bytes) }
}

/// How many bytes of a UTF-8 text are whole characters. A character that is cut at the end stays
/// for the next block; in the `last` block it is invalid. The error is the index of the first
/// invalid byte.
fn valid_utf8(bytes: &[u8], last: bool) -> Result<usize, usize> {
    let valid = Encoding::utf8_valid_up_to(bytes);
    match std::str::from_utf8(&bytes[valid..]) {
        Ok(_) => Ok(valid),
        Err(error) if error.error_len().is_none() && !last => Ok(valid),
        Err(_) => Err(valid),
    }
}

/// Appends a UTF-32 text to `text`; returns how many bytes are done. A character that is cut at the
/// end stays for the next block; in the `last` block it is invalid. The error is the index of the
/// first invalid character.
fn utf32(bytes: &[u8], big: bool, last: bool, text: &mut Vec<u8>) -> Result<usize, usize> {
    let mut at = 0;
    for unit in bytes.chunks_exact(4) {
        let unit = [unit[0], unit[1], unit[2], unit[3]];
        let code = if big { u32::from_be_bytes(unit) } else { u32::from_le_bytes(unit) };
        let character = char::from_u32(code).ok_or(at)?;
        text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        at += 4;
    }
    if last && at < bytes.len() { Err(at) } else { Ok(at) }
}

/// Appends a text in another encoding to `text`. No bytes stay for the next block: the decoder
/// itself keeps the beginning of a character. If the encoding is a guess, invalid sequences are
/// replaced, and their number is returned; else the error is the index of the first one, which is
/// negative if it begins in an earlier block.
fn decode(
    decoder: &mut Decoder,
    origin: EncodingOrigin,
    bytes: &[u8],
    last: bool,
    text: &mut Vec<u8>,
) -> Result<u64, i64> {
    let (mut at, mut replaced) = (0, 0);
    loop {
        let start = text.len();
        let room = decoder.max_utf8_buffer_length_without_replacement(bytes.len() - at).unwrap_or(bytes.len() * 4) + 4;
        text.resize(start + room, 0);
        let (result, read, written) =
            decoder.decode_to_utf8_without_replacement(&bytes[at..], &mut text[start..], last);
        text.truncate(start + written);
        at += read;
        match result {
            DecoderResult::InputEmpty => return Ok(replaced),
            DecoderResult::OutputFull => {}
            DecoderResult::Malformed(..) if origin == EncodingOrigin::Guess => {
                replaced += 1;
                text.extend_from_slice("\u{fffd}".as_bytes());
            }
            DecoderResult::Malformed(bad, after) => return Err(at as i64 - i64::from(bad + after)),
        }
    }
}

/// Text that is invalid in its encoding at a byte.
#[derive(Debug, thiserror::Error)]
#[error("byte {at} does not belong there")]
struct Broken {
    at: u64,
    encoding: &'static str,
    origin: EncodingOrigin,
    /// The byte's value, for UTF-8.
    byte: Option<u8>,
}

impl From<Broken> for io::Error {
    fn from(broken: Broken) -> Self {
        Self::new(io::ErrorKind::InvalidData, broken)
    }
}

/// The error for a failed read of the text `name`; `place` says how far the reader had come.
pub fn cannot_read(name: &str, place: &str, error: io::Error) -> Error {
    if let Some(bomb) = error.get_ref().and_then(|inner| inner.downcast_ref::<Bomb>()) {
        return Error::unusable(name, bomb.to_string());
    }
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Broken>()) {
        Some(&Broken { at, encoding, origin, byte }) => {
            let why = match origin {
                EncodingOrigin::Mark => "the encoding of its byte order mark",
                EncodingOrigin::User => "the encoding that was set",
                EncodingOrigin::Guess => "the encoding that was guessed",
            };
            let what = match byte {
                Some(byte) => format!("is not {encoding} text: byte {at} (0x{byte:02X}) does not belong there"),
                None => format!("is not text in {encoding}, {why}: byte {at} does not belong there"),
            };
            Error::Encoding { name: name.to_owned(), what, encoding, origin }
        }
        None => {
            let what = format!("{name} after {place}; if it is compressed, it is broken: compress it again");
            Error::Unreadable { what, source: error.into() }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use encoding_rs::{ISO_2022_JP, SHIFT_JIS};

    /// The text of these bytes, or the error's line; and the detected encoding.
    fn read(bytes: &[u8], set: Option<&'static Encoding>) -> (Result<String, String>, Option<&'static str>) {
        let (found, mut text) = (Cell::new(None), String::new());
        let read = as_utf8(Box::new(bytes), set, &found).and_then(|mut reader| reader.read_to_string(&mut text));
        let line = |error| cannot_read("a.txt", "0 bytes of text", error).to_string();
        let read = read.map(|_| text).map_err(line);
        (read, found.get().map(|guess: Guess| guess.encoding.name()))
    }

    #[test]
    fn japanese_between_escape_sequences_is_read_wherever_blocks_end() {
        let block = BLOCK_BYTES as usize;
        for before in [0, 100].into_iter().chain(block - 4..=block) {
            let text = "a".repeat(before) + "日本語のテキスト、カタカナ。\nand more\n";
            let bytes = ISO_2022_JP.encode(&text).0;
            assert!(bytes.is_ascii());
            assert_eq!(read(&bytes, None), (Ok(text), Some("ISO-2022-JP")), "{before}");
        }
        for other in ["\x1b[1mbold\x1b[0m\x1b(B\n", "\x1b$Bno pairs\n", "\x1b$B and é\n", "\x1b$", "\x1b"] {
            assert_eq!(read(other.as_bytes(), None), (Ok(other.to_owned()), None));
        }
    }

    #[test]
    fn what_does_not_belong_into_a_text_says_what_helps() {
        let drop = |encoding: &str| format!("drop invalid bytes with iconv -c -f {encoding} -t UTF-8 FILE > NEW");
        let damaged = ["é".repeat(20).as_bytes(), b"\xff"].concat();
        let error = |set| read(&damaged, set).0.unwrap_err();
        let is_not = "a.txt is not UTF-8 text: byte 40 (0xFF) does not belong there";
        assert_eq!(error(None), format!("{is_not}; {}, or set its encoding", drop("UTF-8")));
        assert_eq!(error(Some(UTF_8)), format!("{is_not}; set another encoding, or {}", drop("UTF-8")));
        let marked = read(b"\xff\xfea\0b", None).0.unwrap_err();
        assert!(marked.ends_with(&format!("byte 4 does not belong there; {}", drop("UTF-16LE"))), "{marked}");
    }

    #[test]
    fn an_invalid_sequence_is_named_by_its_first_byte_even_in_the_block_before() {
        let start = BLOCK_BYTES as usize - 1;
        // A lead byte at the end of a block; after it what is no trail byte, or the end of the text.
        for after in [&b"\xff"[..], b" ", b""] {
            let bytes = ["a".repeat(start).as_bytes(), b"\x82", after].concat();
            let error = read(&bytes, Some(SHIFT_JIS)).0.unwrap_err();
            assert!(error.contains(&format!("byte {start} does not belong there")), "{error}");
        }
    }
}
