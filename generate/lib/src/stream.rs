//! Incremental detokenization: emits no partial character and never takes one back.

use ember_data::tokenizer::Tokenizer;

use crate::stop::StopStrings;

/// The bytes of one token; U+FFFD if the tokenizer does not know it or there is no tokenizer.
pub fn token_bytes(tokenizer: Option<&Tokenizer>, id: u32) -> Vec<u8> {
    let known = tokenizer.and_then(|tokenizer| tokenizer.token_bytes(id));
    known.unwrap_or_else(|| "\u{fffd}".as_bytes().to_vec())
}

/// The text of a single token; bytes that do not form a character become U+FFFD.
pub fn token_text(tokenizer: Option<&Tokenizer>, id: u32) -> String {
    String::from_utf8_lossy(&token_bytes(tokenizer, id)).into_owned()
}

/// Turns the bytes of successive tokens into text that is final as soon as it is emitted.
///
/// The emitted pieces concatenate to the decoded bytes (each malformed part as U+FFFD) up to the
/// first stop string.
#[derive(Clone, Debug, Default)]
pub struct TextStream {
    stops: StopStrings,
    /// Bytes that may be an incomplete character.
    bytes: Vec<u8>,
    /// Text that may be the beginning of a stop string.
    held: String,
    stopped: bool,
}

impl TextStream {
    /// A stream that ends before the first of `stops`.
    pub fn new(stops: StopStrings) -> Self {
        Self { stops, ..Self::default() }
    }

    /// Takes the bytes of the next token and returns the text that is now final; empty after a stop
    /// string.
    pub fn push(&mut self, token: &[u8]) -> String {
        if self.stopped {
            return String::new();
        }
        self.bytes.extend_from_slice(token);
        self.decode_whole_characters();
        if let Some(start) = self.stops.find(&self.held) {
            self.stopped = true;
            self.held.truncate(start);
            return std::mem::take(&mut self.held);
        }
        let undecided = self.held.split_off(self.stops.undecided_from(&self.held));
        std::mem::replace(&mut self.held, undecided)
    }

    /// Returns the text still held back, at the end of the tokens.
    pub fn finish(&mut self) -> String {
        if self.stopped {
            return String::new();
        }
        if !self.bytes.is_empty() {
            self.held.push(char::REPLACEMENT_CHARACTER);
            self.bytes.clear();
        }
        // The replacement itself may complete a stop string.
        if let Some(start) = self.stops.find(&self.held) {
            self.held.truncate(start);
        }
        self.stopped = true;
        std::mem::take(&mut self.held)
    }

    /// Whether a stop string appeared, so that generation should end.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Moves every complete character from `bytes` to `held`.
    fn decode_whole_characters(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.held.push_str(chunk.valid());
            let is_last = chunks.peek().is_none();
            match std::str::from_utf8(chunk.invalid()) {
                // An incomplete character: wait for the rest of its bytes.
                Err(error) if is_last && error.error_len().is_none() => self.bytes = chunk.invalid().to_vec(),
                Err(_) => self.held.push(char::REPLACEMENT_CHARACTER),
                Ok(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn stream(stops: &[&str]) -> TextStream {
        TextStream::new(StopStrings::new(stops.iter().map(|s| s.to_string()).collect()).unwrap())
    }

    #[test]
    fn half_a_character_waits_for_its_other_half() {
        let mut stream = stream(&[]);
        let bytes = "a\u{20ac}b".as_bytes(); // one byte, three bytes, one byte
        assert_eq!(stream.push(&bytes[..2]), "a");
        assert_eq!(stream.push(&bytes[2..3]), "");
        assert_eq!(stream.push(&bytes[3..]), "\u{20ac}b");
        assert_eq!(stream.push(&[0xe2, 0x82]), "");
        assert_eq!(stream.finish(), "\u{fffd}");
    }

    #[test]
    fn a_stop_string_across_tokens_is_never_shown() {
        let mut stream = stream(&["END"]);
        assert_eq!(stream.push(b"the E"), "the ");
        assert_eq!(stream.push(b"N"), "");
        assert_eq!(stream.push(b"TENT, EN"), "ENTENT, ");
        assert_eq!(stream.push(b"D of it"), "");
        assert!(stream.stopped());
        assert_eq!(stream.push(b"more"), "");
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn what_was_held_back_comes_at_the_end() {
        let mut stream = stream(&["END"]);
        assert_eq!(stream.push(b"the EN"), "the ");
        assert_eq!(stream.finish(), "EN");
    }

    proptest! {
        /// However bytes are split into tokens, the stream equals decoding the whole: with
        /// malformed bytes, characters of all lengths and stop strings.
        #[test]
        fn pieces_make_the_whole(
            tokens in prop::collection::vec(
                prop_oneof![
                    "[ab\u{e9}\u{20ac}\u{1f600}]{0,3}".prop_map(String::into_bytes),
                    prop::collection::vec(any::<u8>(), 0..4),
                    prop::collection::vec(prop::sample::select("\u{1f600}\u{20ac}a".as_bytes().to_vec()), 0..3),
                ],
                0..20,
            ),
            stops in prop::collection::vec("[ab\u{e9}\u{20ac}\u{fffd}]{1,3}", 0..3),
        ) {
            let stops = StopStrings::new(stops).unwrap();
            let whole = String::from_utf8_lossy(&tokens.concat()).into_owned();
            let expected = &whole[..stops.find(&whole).unwrap_or(whole.len())];

            let mut stream = TextStream::new(stops);
            let mut text = String::new();
            for token in &tokens {
                text += &stream.push(token);
                prop_assert!(expected.starts_with(&text), "{text:?} would have to be taken back for {expected:?}");
            }
            text += &stream.finish();
            prop_assert_eq!(text, expected);
        }
    }
}
