//! Guesses the encoding of a text, with a confidence.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, ISO_2022_JP, UTF_16BE, UTF_16LE};
use memchr::{memchr, memchr_iter};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Bytes at the start of a text that are checked for UTF-16 without a byte order mark.
pub const UTF16_SAMPLE_BYTES: u64 = 8 << 10;

/// The text is guessed as a whole, and again in this many pieces to see whether they agree.
const PIECES: usize = 8;

/// The fewest non-ASCII bytes in a piece: a few alone say nothing.
const MIN_PIECE_BYTES: usize = 24;

/// Damaged text counts as UTF-8 if at least this share of its non-ASCII characters is valid.
const MIN_VALID_SHARE: f64 = 0.9;

/// A guessed encoding.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Guess {
    /// Serialized by its name in the WHATWG Encoding Standard.
    #[serde(serialize_with = "name", deserialize_with = "by_name")]
    pub encoding: &'static Encoding,
    /// How sure the guess is, from 0 to 1: the number of pieces that give the same guess, divided
    /// by `n + 1` for `n` pieces (eight, fewer for a short text).
    pub confidence: f64,
    /// Invalid sequences that were replaced by U+FFFD.
    pub replaced: u64,
}

fn name<S: Serializer>(encoding: &&'static Encoding, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(encoding.name())
}

fn by_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<&'static Encoding, D::Error> {
    let name = String::deserialize(deserializer)?;
    Encoding::for_label(name.as_bytes()).ok_or_else(|| de::Error::custom(format!("no encoding is called {name}")))
}

/// Guesses the encoding of a text with non-ASCII bytes or an escape sequence; `None` if it is
/// UTF-8, even slightly damaged. `last`: the text ends with this sample.
pub fn guess_unless_utf8(sample: &[u8], last: bool) -> Option<Guess> {
    if is_iso_2022_jp(sample, last) {
        return Some(Guess { encoding: ISO_2022_JP, confidence: 0.5, replaced: 0 });
    }
    if is_nearly_utf8(sample) {
        return None;
    }
    let encoding = detect(sample, last);
    let pieces: Vec<&[u8]> = pieces(sample);
    let agreeing = pieces.iter().filter(|piece| detect(piece, last) == encoding).count();
    let confidence = agreeing as f64 / (pieces.len() + 1) as f64;
    Some(Guess { encoding, confidence, replaced: 0 })
}

fn detect(sample: &[u8], last: bool) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(sample, last);
    detector.guess(None, Utf8Detection::Deny)
}

/// Whether a text has one of the escape sequences with which ISO-2022-JP switches to Japanese.
pub fn has_escape_to_japanese(text: &[u8]) -> bool {
    memchr_iter(ESCAPE, text).any(|at| matches!(text[at + 1..], [b'$', b'@' | b'B', ..]))
}

/// The number of bytes at the end of a text that may begin such a sequence.
pub fn partial_escape_bytes(text: &[u8]) -> usize {
    match text {
        [.., ESCAPE, b'$'] => 2,
        [.., ESCAPE] => 1,
        _ => 0,
    }
}

const ESCAPE: u8 = 0x1b;

/// Whether a text is valid ISO-2022-JP, which consists of ASCII bytes only.
fn is_iso_2022_jp(sample: &[u8], last: bool) -> bool {
    if !sample.is_ascii() || !has_escape_to_japanese(sample) {
        return false;
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    detector.feed(sample, last);
    detector.guess(None, Utf8Detection::Deny) == ISO_2022_JP
}

/// Whether the non-ASCII part of a text is UTF-8, with at most a little damage.
fn is_nearly_utf8(sample: &[u8]) -> bool {
    let (valid, invalid) = count_valid_and_invalid(sample);
    // A character cut off at the end is not an error. If it is the only one and just one byte, that
    // byte may be a character of another encoding.
    let cut = std::str::from_utf8(sample)
        .is_err_and(|error| error.error_len().is_none() && (valid > 0 || sample.len() - error.valid_up_to() > 1));
    cut || invalid == 0 || valid as f64 >= MIN_VALID_SHARE * (valid + invalid) as f64
}

/// The number of valid non-ASCII characters in UTF-8, and the number of invalid sequences.
pub fn count_valid_and_invalid(text: &[u8]) -> (u64, u64) {
    let (mut valid, mut invalid) = (0, 0);
    for chunk in text.utf8_chunks() {
        valid += chunk.valid().chars().filter(|character| !character.is_ascii()).count() as u64;
        invalid += u64::from(!chunk.invalid().is_empty());
    }
    (valid, invalid)
}

/// Cuts a text at spaces or line ends into pieces with about equally many non-ASCII bytes.
fn pieces(sample: &[u8]) -> Vec<&[u8]> {
    let high = sample.iter().filter(|byte| !byte.is_ascii()).count();
    let each = (high / PIECES).max(MIN_PIECE_BYTES);
    let (mut pieces, mut start, mut seen) = (Vec::new(), 0, 0);
    for (at, byte) in sample.iter().enumerate() {
        seen += usize::from(!byte.is_ascii());
        if seen >= each && matches!(byte, b' ' | b'\n') {
            pieces.push(&sample[start..=at]);
            (start, seen) = (at + 1, 0);
        }
    }
    if seen >= MIN_PIECE_BYTES || pieces.is_empty() {
        pieces.push(&sample[start..]);
    }
    pieces
}

/// Recognises UTF-16 without a byte order mark: nearly all zero bytes have even positions, or
/// nearly all have odd ones, and the start decodes to valid characters.
pub fn utf16(start: &[u8]) -> Option<Guess> {
    let start = &start[..start.len().min(UTF16_SAMPLE_BYTES as usize) & !1];
    // Nearly all texts have no zero byte and leave here.
    memchr(0, start)?;
    let zeros = |place: usize| start.iter().skip(place).step_by(2).filter(|&&byte| byte == 0).count();
    let (even, odd) = (zeros(0), zeros(1));
    // A few characters have a zero as their low byte: 一, Ā.
    let encoding = if odd > 4 * even {
        UTF_16LE
    } else if even > 4 * odd {
        UTF_16BE
    } else {
        return None;
    };
    // A twentieth of the code units: spaces and line ends alone are about a seventh of a text.
    let enough = even.max(odd) * 20 >= start.len() / 2 && start.len() >= 8;
    (enough && reads_as_utf16(start, encoding)).then_some(Guess { encoding, confidence: 0.5, replaced: 0 })
}

/// Whether the start of a file is valid in this UTF-16, without control characters other than those
/// usual in text.
pub fn reads_as_utf16(start: &[u8], encoding: &Encoding) -> bool {
    let unit = |pair: &[u8]| match encoding == UTF_16LE {
        true => u16::from_le_bytes([pair[0], pair[1]]),
        false => u16::from_be_bytes([pair[0], pair[1]]),
    };
    let mut units: Vec<u16> = start.chunks_exact(2).map(unit).collect();
    if units.last().is_some_and(|unit| (0xd800..0xdc00).contains(unit)) {
        units.pop();
    }
    let is_text = |character: char| !character.is_control() || matches!(character, '\t' | '\n' | '\r' | '\u{c}');
    char::decode_utf16(units).all(|character| character.is_ok_and(is_text))
}
