//! Hashes the words of a text, and shingles of words, by which two texts are compared.
//!
//! A word is a case-folded run of letters and digits; each character of a script written without
//! spaces is its own word. So neither line breaks, punctuation nor capitalized headings make a copy
//! look different.

use std::sync::LazyLock;

/// Calls `each` with a hash of every run of `N` consecutive words; equal runs have equal hashes.
pub fn shingles<const N: usize>(text: &str, each: &mut impl FnMut(u64)) {
    // A rolling polynomial hash of the words' hashes, modulo 2^64: the oldest word is subtracted. For
    // N = 3, the run a, b, c has the hash a * BASE^2 + b * BASE + c; that of b, c, d is this hash
    // times BASE, plus d, minus a * BASE^3.
    const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
    let oldest_factor = BASE.wrapping_pow(N as u32);
    let (mut run, mut words, mut polynomial) = ([0; N], 0, 0u64);
    words_of(text, &mut |word| {
        let oldest = std::mem::replace(&mut run[words % N], word);
        polynomial = polynomial.wrapping_mul(BASE).wrapping_add(word).wrapping_sub(oldest.wrapping_mul(oldest_factor));
        words += 1;
        if words >= N {
            each(polynomial);
        }
    });
}

/// Bytes classified at once, one bit each.
const BLOCK: usize = 64;

/// Calls `each` with a hash of each word, in order. A run of word bytes is one word if it is all
/// ASCII; otherwise [`mixed_words`] splits it.
///
/// The edges of all words of a block are found at once, by shifting its bits by one byte. Of a
/// block of eight bytes (here the lowest bit, that of the first byte, stands on the left):
///
/// ```text
/// text         t o _ s e a _ _
/// word_bytes   1 1 0 1 1 1 0 0
/// before       0 1 1 0 1 1 1 0    whether the byte before is a word byte
/// starts       1 0 0 1 0 0 0 0    word_bytes & !before
/// ends         0 0 1 0 0 0 1 0    !word_bytes & before
/// ```
///
/// So the words are the bytes 0..2 and 3..6.
fn words_of(text: &str, each: &mut impl FnMut(u64)) {
    let (bytes, mut buffer) = (text.as_bytes(), String::new());
    let mut open: Option<OpenWord> = None;
    // Up to and including the length: a word at the end of the text needs a byte after it.
    for at in (0..=bytes.len()).step_by(BLOCK) {
        let rest = &bytes[at..];
        let mut last = [b' '; BLOCK];
        let block = rest.first_chunk().unwrap_or_else(|| {
            last[..rest.len()].copy_from_slice(rest);
            &last
        });
        let ByteClasses { word_bytes, non_ascii } = ByteClasses::of(block);
        // The byte before the first is the last of the previous block.
        let before = word_bytes << 1 | u64::from(open.is_some());
        let (mut starts, mut ends) = (word_bytes & !before, !word_bytes & before);
        while ends != 0 {
            let end = at + take_lowest(&mut ends);
            let OpenWord { start, may_be_non_ascii } = open
                .take()
                .unwrap_or_else(|| OpenWord { start: at + take_lowest(&mut starts), may_be_non_ascii: false });
            // The first two conditions are only a cheap filter: most blocks are all ASCII.
            if (may_be_non_ascii || non_ascii != 0) && !bytes[start..end].is_ascii() {
                mixed_words(&text[start..end], &mut buffer, each);
            } else {
                each(hash(bytes, start, end, LOWER_CASE));
            }
        }
        // A start without an end: the word continues in the next block.
        if starts != 0 {
            open = Some(OpenWord { start: at + take_lowest(&mut starts), may_be_non_ascii: false });
        }
        if let Some(word) = &mut open {
            word.may_be_non_ascii |= non_ascii != 0;
        }
    }
}

/// A word that continues in the next block.
struct OpenWord {
    start: usize,
    /// Whether its blocks so far have non-ASCII bytes, in this word or in others.
    may_be_non_ascii: bool,
}

/// Clears the lowest set bit and returns its index.
#[inline]
fn take_lowest(bits: &mut u64) -> usize {
    let index = bits.trailing_zeros() as usize;
    *bits &= *bits - 1;
    index
}

/// Hashes the words of a run with non-ASCII characters, character by character. `word` is an empty
/// buffer, passed in to save allocations.
fn mixed_words(text: &str, word: &mut String, each: &mut impl FnMut(u64)) {
    let mut end = |word: &mut String| {
        if !word.is_empty() {
            let length = word.len();
            word.push_str(PADDING);
            each(hash(word.as_bytes(), 0, length, 0));
            word.clear();
        }
    };
    let bmp_classes = &**BMP_CLASSES;
    for character in text.chars() {
        match bmp_classes.get(character as usize).copied().unwrap_or_else(|| CharClass::of(character)) {
            CharClass::Lower(lower) => word.push(lower),
            CharClass::LowerSeveral => word.extend(character.to_lowercase()),
            CharClass::Word => {
                end(word);
                word.push(character);
                end(word);
            }
            CharClass::Separator => end(word),
        }
    }
    end(word);
}

/// Padding, since the hash reads eight bytes at a time.
const PADDING: &str = "\0\0\0\0\0\0\0\0";

/// The role of a character in words.
#[derive(Clone, Copy)]
enum CharClass {
    Separator,
    /// A word of its own.
    Word,
    /// A letter or digit, in lower case.
    Lower(char),
    /// A letter whose lower case is several characters.
    LowerSeveral,
}

impl CharClass {
    fn of(character: char) -> Self {
        let mut lower = character.to_lowercase();
        match (lower.next(), lower.next()) {
            _ if !character.is_alphanumeric() => Self::Separator,
            _ if stands_alone(character) => Self::Word,
            (Some(lower), None) => Self::Lower(lower),
            _ => Self::LowerSeveral,
        }
    }
}

/// The class of each character of Unicode's basic multilingual plane, which covers nearly all text:
/// Unicode's own tables are many times slower.
static BMP_CLASSES: LazyLock<Box<[CharClass]>> = LazyLock::new(|| {
    (0..=u16::MAX).map(|code| char::from_u32(code.into()).map_or(CharClass::Separator, CharClass::of)).collect()
});

/// A byte repeated in all eight bytes of a number.
const fn eight(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Setting this bit makes ASCII letters lower case and leaves digits unchanged.
const LOWER_CASE: u64 = eight(0x20);

/// Classes of the bytes of a block, the first byte in the lowest bit.
struct ByteClasses {
    /// ASCII letters and digits, and all non-ASCII bytes.
    word_bytes: u64,
    /// Not zero if there are non-ASCII bytes.
    non_ascii: u64,
}

impl ByteClasses {
    fn of(block: &[u8; BLOCK]) -> Self {
        const HIGH: u64 = eight(0x80);
        // Sets the high bit of each byte in the range: the first sum has it if the byte is at least
        // `first`, the second if it is more than `last`. For 'c' (0x63) between 'a' (0x61) and 'z'
        // (0x7a) they are 0x63 + 0x1f = 0x82 and 0x63 + 0x05 = 0x68; for '{' (0x7b) the second is
        // 0x80. Nothing is carried into the next byte, since no input byte has its high bit set.
        let between =
            |bytes: u64, first: u8, last: u8| (bytes + eight(0x80 - first)) & !(bytes + eight(0x7f - last)) & HIGH;
        // Gathers the high bits of the eight bytes in one byte: the shift moves that of byte i to
        // bit 8i, and the factor has the bits 7, 14, .., 56, of which 56 - 7i moves it on to bit
        // 56 + i of the product. All other sums of two such bits are different, so nothing is
        // carried; those above 63 are lost, and those below 56 shifted out.
        let gathered = |high: u64| (high >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        let (eights, _) = block.as_chunks();
        let (mut word_bytes, mut non_ascii) = (0, 0);
        for (place, bytes) in eights.iter().enumerate() {
            let bytes = u64::from_le_bytes(*bytes);
            let (low, high) = (bytes & !HIGH, bytes & HIGH);
            let ascii = between(low | LOWER_CASE, b'a', b'z') | between(low, b'0', b'9');
            word_bytes |= gathered(ascii | high) << (8 * place);
            non_ascii |= high;
        }
        Self { word_bytes, non_ascii }
    }
}

/// The hash of the word at `start..end`, eight bytes at a time, each with the bits of `with` set. A
/// short word is read with what follows it, which two shifts clear: of the eight bytes `Sea. Two`,
/// as a number with `S` in its lowest byte, a shift by five bytes to the left and back leaves `sea`.
fn hash(bytes: &[u8], start: usize, end: usize, with: u64) -> u64 {
    let length = end - start;
    match bytes[start..].first_chunk() {
        Some(&eight) if length <= 8 => {
            let unused = 64 - 8 * length as u32;
            folded_multiply(length as u64 ^ (u64::from_le_bytes(eight) | with) << unused >> unused)
        }
        _ => hash_of_long(bytes, start, end, with),
    }
}

/// The same for words of more than eight bytes, which are few, and near the end of the text.
#[inline(never)]
fn hash_of_long(bytes: &[u8], start: usize, end: usize, with: u64) -> u64 {
    let (mut hash, mut at) = ((end - start) as u64, start);
    loop {
        let part = bytes[at..].first_chunk().map_or_else(
            || bytes[at..].iter().rev().fold(0, |part, &byte| part << 8 | u64::from(byte)),
            |eight| u64::from_le_bytes(*eight),
        );
        let unused = 8 * (at + 8).saturating_sub(end) as u32;
        hash = folded_multiply(hash ^ (part | with) << unused >> unused);
        at += 8;
        if at >= end {
            return hash;
        }
    }
}

/// Folded multiplication: the XOR of both halves of the 128-bit product.
fn folded_multiply(number: u64) -> u64 {
    const FACTOR: u64 = 0x9fb2_1c65_1e98_df25;
    let product = u128::from(number) * u128::from(FACTOR);
    product as u64 ^ (product >> 64) as u64
}

/// Whether a letter belongs to a script that is written without spaces between words: Thai, Lao,
/// Burmese, Khmer, and the scripts of Chinese and Japanese.
fn stands_alone(letter: char) -> bool {
    matches!(letter, '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}'
        | '\u{2e80}'..='\u{31ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn runs<const N: usize>(text: &str) -> Vec<u64> {
        let mut all = Vec::new();
        shingles::<N>(text, &mut |run| all.push(run));
        all
    }

    #[test]
    fn case_punctuation_and_line_breaks_do_not_count() {
        assert_eq!(runs::<3>("The cat -- she SAT,\n on it."), runs::<3>("the cat she sat on it"));
        assert_eq!(runs::<1>("Été à l'ÉGLISE"), runs::<1>("été à l église"));
        assert_ne!(runs::<2>("the cat"), runs::<2>("cat the"));
        assert_ne!(runs::<2>("ab c"), runs::<2>("a bc"));
    }

    #[test]
    fn a_run_is_the_same_wherever_it_stands() {
        let far = runs::<4>("some other words and then one two three four");
        assert_eq!(runs::<4>("one two three four"), far[far.len() - 1..]);
        assert_eq!((runs::<4>("one two three").len(), runs::<1>("").len(), far.len()), (0, 0, 6));
    }

    #[test]
    fn scripts_without_spaces_have_a_word_for_each_sign() {
        assert_eq!(runs::<1>("我喜欢读书").len(), 5);
        assert_eq!(runs::<2>("我喜欢读书。我")[4..], runs::<2>("书我"));
    }

    proptest! {
        /// For any text, the words are those found by a simple walk over its characters.
        #[test]
        fn words_are_those_of_a_walk_over_the_characters(text in "([a-zA-Z0-9 .,éÉßК中ก\u{212a}-]{0,9}[a-z ]{0,70}){0,6}") {
            let (mut plain, mut word) = (Vec::new(), String::new());
            for character in text.chars().chain([' ']) {
                let belongs = character.is_alphanumeric();
                if !word.is_empty() && (!belongs || stands_alone(character)) {
                    plain.push(std::mem::take(&mut word));
                }
                match (belongs, stands_alone(character)) {
                    (true, true) => plain.push(character.to_string()),
                    (true, false) => word.extend(character.to_lowercase()),
                    _ => {}
                }
            }
            let expected: Vec<u64> = plain.iter().map(|word| hash(word.as_bytes(), 0, word.len(), 0)).collect();
            let mut found = Vec::new();
            words_of(&text, &mut |word| found.push(word));
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn different_words_have_different_hashes(one in "[a-z0-9]{1,20}", two in "[a-z0-9]{1,20}") {
            let hash = |word: &str| hash(word.as_bytes(), 0, word.len(), 0);
            prop_assert_eq!(one == two, hash(&one) == hash(&two));
        }
    }
}
