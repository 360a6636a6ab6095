//! GPT-2's pre-tokenization: splits a text into words, within which byte pairs are merged.
//!
//! The published rule is this regular expression (openai/gpt-2, `src/encoder.py`):
//!
//! ```text
//! 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//! ```
//!
//! A hand-written version runs many times faster than a general engine with look-ahead, and it
//! shows where a long text can be cut without changing its words. A property test compares it with
//! the library's engine.

use regex_syntax::hir::{Class as HirClass, HirKind};
use std::sync::LazyLock;

/// The classes of characters that the rule distinguishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Class {
    Other,
    Letter,
    Number,
    Space,
}

/// The class of every code point.
static CLASSES: LazyLock<Vec<Class>> = LazyLock::new(|| {
    let mut classes = vec![Class::Other; char::MAX as usize + 1];
    for (pattern, class) in [(r"\p{L}", Class::Letter), (r"\p{N}", Class::Number), (r"\s", Class::Space)] {
        let hir = regex_syntax::parse(pattern).expect("a pattern of our own");
        let HirKind::Class(HirClass::Unicode(set)) = hir.kind() else { unreachable!("{pattern} is a class") };
        for range in set.ranges() {
            classes[range.start() as usize..=range.end() as usize].fill(class);
        }
    }
    classes
});

/// Iterator over the words of a text; their concatenation is the text.
pub struct Words<'a> {
    rest: &'a str,
    classes: &'static [Class],
}

/// Splits `text` into words.
pub fn words(text: &str) -> Words<'_> {
    Words { rest: text, classes: &CLASSES }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        if self.rest.is_empty() {
            return None;
        }
        let (word, rest) = self.rest.split_at(self.first_word_bytes());
        self.rest = rest;
        Some(word)
    }
}

impl Words<'_> {
    fn first_word_bytes(&self) -> usize {
        let bytes = self.rest.as_bytes();
        if bytes[0] == b'\'' {
            match bytes.get(1..) {
                Some([b's' | b't' | b'm' | b'd', ..]) => return 2,
                Some([b'r' | b'v', b'e', ..] | [b'l', b'l', ..]) => return 3,
                _ => {}
            }
        }
        // A space belongs to the word after it, unless another space follows.
        let start = usize::from(bytes[0] == b' ');
        if let Some((class, _)) = self.class_at(start)
            && class != Class::Space
        {
            return self.run_end(start, class);
        }
        let end = self.run_end(0, Class::Space);
        let last = self.rest[..end].char_indices().next_back().map_or(0, |(at, _)| at);
        // The last of several spaces belongs to the next word.
        if end == self.rest.len() || last == 0 { end } else { last }
    }

    /// The end of the run of one class that begins at `start`.
    fn run_end(&self, start: usize, class: Class) -> usize {
        let mut at = start;
        while let Some((other, bytes)) = self.class_at(at) {
            if other != class {
                break;
            }
            at += bytes;
        }
        at
    }

    /// The class of the character at byte `at`, and its length in bytes.
    fn class_at(&self, at: usize) -> Option<(Class, usize)> {
        let first = *self.rest.as_bytes().get(at)?;
        if first < 128 {
            return Some((self.classes[first as usize], 1));
        }
        let character = self.rest[at..].chars().next()?;
        Some((self.classes[character as usize], character.len_utf8()))
    }
}

/// The last position at which `text` can be cut so that its two parts have the same words as the
/// whole, whatever text follows.
///
/// No word continues from a letter to another class, from a number to another class, or from
/// anything to a space; and no word depends on the text before it. `None` if there is no such
/// position inside the text.
pub fn safe_cut(text: &str) -> Option<usize> {
    let mut after = None;
    for (at, character) in text.char_indices().rev() {
        let before = CLASSES[character as usize];
        let word_ends = |after| match before {
            Class::Letter | Class::Number => after != before,
            Class::Other => after == Class::Space,
            Class::Space => false,
        };
        if after.is_some_and(word_ends) {
            return Some(at + character.len_utf8());
        }
        after = Some(before);
    }
    None
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    fn library_words(text: &str) -> Vec<String> {
        let mut pretokenized = PreTokenizedString::from(text);
        ByteLevel::new(false, false, true).pre_tokenize(&mut pretokenized).unwrap();
        let splits = pretokenized.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(_, (start, end), _)| text[start..end].to_owned()).collect()
    }

    #[test]
    fn words_by_hand() {
        let split = |text: &'static str| words(text).collect::<Vec<_>>();
        assert_eq!(split("I'll say it's 42!"), ["I", "'ll", " say", " it", "'s", " 42", "!"]);
        assert_eq!(split("a  b\n\n c\n\nd"), ["a", " ", " b", "\n\n", " c", "\n", "\n", "d"]);
        assert_eq!(split("  "), ["  "]);
        assert_eq!(split("'rest ''s"), ["'re", "st", " ''", "s"]);
        assert_eq!(split("x<|endoftext|>"), ["x", "<|", "endoftext", "|>"]);
    }

    #[test]
    fn cuts_by_hand() {
        assert_eq!(safe_cut("one two"), Some(3));
        assert_eq!(safe_cut("one two "), Some(7));
        assert_eq!(safe_cut("one!"), Some(3));
        assert_eq!(safe_cut("one"), None);
        assert_eq!(safe_cut("  '"), None);
        assert_eq!(safe_cut("!\n\n"), Some(1));
    }

    /// Text with the characters that the rule treats specially, and with any others.
    pub(crate) fn tricky() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            4 => proptest::sample::select(vec![
                " ", "  ", "\n", "\r\n", "\t", "'", "'s", "'ll", "'re", "a", "Z", "7", "½", "é", "e\u{301}", "ǅ", "中", "!",
                "<|endoftext|>", "\u{a0}", "\u{3000}", "\u{85}", "\u{200b}", "🙂", "👩‍👧", "\u{0}", "Ⅷ", "_",
            ]).prop_map(str::to_owned),
            1 => any::<char>().prop_map(String::from),
        ];
        proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn words_are_the_librarys(text in tricky()) {
            prop_assert_eq!(words(&text).collect::<Vec<_>>(), library_words(&text));
        }

        #[test]
        fn a_safe_cut_changes_no_word(text in tricky(), more in tricky()) {
            if let Some(cut) = safe_cut(&text) {
                prop_assert!(cut > 0 && cut < text.len());
                let whole = text.clone() + &more;
                let rest = &whole[cut..];
                let parts: Vec<&str> = words(&text[..cut]).chain(words(rest)).collect();
                prop_assert_eq!(parts, words(&whole).collect::<Vec<_>>());
            }
        }
    }
}
