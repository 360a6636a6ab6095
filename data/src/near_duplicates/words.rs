//! The words of a text as numbers, and runs of them: what two texts are compared by.
//!
//! A word is a run of letters and digits, whatever their case; a sign of a script that is written
//! without spaces is a word of its own. So neither line breaks, punctuation nor headings in
//! capitals make a copy look different.

use std::sync::LazyLock;

/// A number for each run of `N` words of a text, one after the other; equal runs have equal
/// numbers.
pub fn shingles<const N: usize>(text: &str, each: &mut impl FnMut(u64)) {
    // A polynomial in the words' hashes, modulo 2^64: a word that leaves the run is taken off.
    const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
    let leaves = BASE.wrapping_pow(N as u32);
    let (mut run, mut words, mut polynomial) = ([0; N], 0, 0u64);
    words_of(text, &mut |word| {
        let oldest = std::mem::replace(&mut run[words % N], word);
        polynomial = polynomial.wrapping_mul(BASE).wrapping_add(word).wrapping_sub(oldest.wrapping_mul(leaves));
        words += 1;
        if words >= N {
            each(polynomial);
        }
    });
}

/// So many bytes are told apart at once: a bit for each.
const BLOCK: usize = 64;

/// A hash of each word, in order. What stands between signs of ASCII that are none of a word is one,
/// unless there are others in it.
fn words_of(text: &str, each: &mut impl FnMut(u64)) {
    let (bytes, mut word) = (text.as_bytes(), String::new());
    // Where a word begins that goes on in the next block, and whether that or a later one has others.
    let (mut begun, mut has_others) = (None, false);
    for at in (0..=bytes.len()).step_by(BLOCK) {
        let rest = &bytes[at..];
        let mut last = [b' '; BLOCK];
        let block = rest.first_chunk().unwrap_or_else(|| {
            last[..rest.len()].copy_from_slice(rest);
            &last
        });
        let Signs { of_words, others } = Signs::of(block);
        // A bit where a word begins, and one behind its end.
        let before = of_words << 1 | u64::from(begun.is_some());
        let (mut starts, mut ends) = (of_words & !before, !of_words & before);
        while ends != 0 {
            let end = at + ends.trailing_zeros() as usize;
            ends &= ends - 1;
            let start = begun.take().unwrap_or_else(|| {
                let start = at + starts.trailing_zeros() as usize;
                starts &= starts - 1;
                start
            });
            if (has_others || others != 0) && !bytes[start..end].is_ascii() {
                mixed_words(&text[start..end], &mut word, each);
            } else {
                each(hash(bytes, start, end, LOWER_CASE));
            }
            has_others = false;
        }
        if starts != 0 {
            begun = Some(at + starts.trailing_zeros() as usize);
        }
        has_others |= begun.is_some() && others != 0;
    }
}

/// The words of a stretch with other signs than ASCII's, character by character. `word` is empty; it
/// is only lent, since its memory would have to be asked for each time.
fn mixed_words(text: &str, word: &mut String, each: &mut impl FnMut(u64)) {
    let mut end = |word: &mut String| {
        if !word.is_empty() {
            let length = word.len();
            word.push_str(BEHIND);
            each(hash(word.as_bytes(), 0, length, 0));
            word.clear();
        }
    };
    let of_first_plane = &**OF_FIRST_PLANE;
    for character in text.chars() {
        match of_first_plane.get(character as usize).copied().unwrap_or_else(|| Part::of(character)) {
            Part::Small(small) => word.push(small),
            Part::SeveralSmall => word.extend(character.to_lowercase()),
            Part::Alone => {
                end(word);
                word.push(character);
                end(word);
            }
            Part::None => end(word),
        }
    }
    end(word);
}

/// So much is read behind the last byte of a word, where it can be.
const BEHIND: &str = "\0\0\0\0\0\0\0\0";

/// What a character is of a word.
#[derive(Clone, Copy)]
enum Part {
    None,
    /// All of it.
    Alone,
    /// A letter or a digit, which is this one when it is small.
    Small(char),
    /// A letter that becomes several.
    SeveralSmall,
}

impl Part {
    fn of(character: char) -> Self {
        let mut small = character.to_lowercase();
        match (small.next(), small.next()) {
            _ if !character.is_alphanumeric() => Self::None,
            _ if stands_alone(character) => Self::Alone,
            (Some(small), None) => Self::Small(small),
            _ => Self::SeveralSmall,
        }
    }
}

/// What each character of Unicode's first plane is, where nearly all text is written: asking Unicode's
/// tables takes many times as long.
static OF_FIRST_PLANE: LazyLock<Box<[Part]>> =
    LazyLock::new(|| (0..=u16::MAX).map(|code| char::from_u32(code.into()).map_or(Part::None, Part::of)).collect());

/// A byte in all eight of a number.
const fn eight(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Makes letters of ASCII small, and leaves digits as they are.
const LOWER_CASE: u64 = eight(0x20);

/// What the bytes of a block are, the first as the lowest bit.
struct Signs {
    /// Letters and digits of ASCII, and all others than ASCII.
    of_words: u64,
    /// Not zero where there are any of the latter.
    others: u64,
}

impl Signs {
    fn of(block: &[u8; BLOCK]) -> Self {
        const HIGH: u64 = eight(0x80);
        // The high bit of each byte between two: without a carry, as none has its own high bit set.
        let between =
            |bytes: u64, first: u8, last: u8| (bytes + eight(0x80 - first)) & !(bytes + eight(0x7f - last)) & HIGH;
        // The product moves the bit of each byte to its place in the highest byte.
        let gathered = |high: u64| (high >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        let (eights, _) = block.as_chunks();
        let (mut of_words, mut others) = (0, 0);
        for (place, bytes) in eights.iter().enumerate() {
            let bytes = u64::from_le_bytes(*bytes);
            let (low, high) = (bytes & !HIGH, bytes & HIGH);
            let ascii = between(low | LOWER_CASE, b'a', b'z') | between(low, b'0', b'9');
            of_words |= gathered(ascii | high) << (8 * place);
            others |= high;
        }
        Self { of_words, others }
    }
}

/// The hash of the word that stands in `bytes`, eight of them at a time, each with the bits of
/// `with` set.
fn hash(bytes: &[u8], start: usize, end: usize, with: u64) -> u64 {
    let length = end - start;
    match bytes[start..].first_chunk() {
        Some(&eight) if length <= 8 => {
            let unused = 64 - 8 * length as u32;
            folded(length as u64 ^ (u64::from_le_bytes(eight) | with) << unused >> unused)
        }
        _ => hash_of_long(bytes, start, end, with),
    }
}

/// The same of any word: of one with more than eight bytes, as few have, or at the end of a text.
#[inline(never)]
fn hash_of_long(bytes: &[u8], start: usize, end: usize, with: u64) -> u64 {
    let (mut hash, mut at) = ((end - start) as u64, start);
    loop {
        let part = bytes[at..].first_chunk().map_or_else(
            || bytes[at..].iter().rev().fold(0, |part, &byte| part << 8 | u64::from(byte)),
            |eight| u64::from_le_bytes(*eight),
        );
        let unused = 8 * (at + 8).saturating_sub(end) as u32;
        hash = folded(hash ^ (part | with) << unused >> unused);
        at += 8;
        if at >= end {
            return hash;
        }
    }
}

/// Both halves of a product, laid on one another.
fn folded(number: u64) -> u64 {
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
        /// Of any text, the words are those that a plain walk over its characters finds.
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
