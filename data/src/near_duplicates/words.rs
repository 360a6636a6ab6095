//! The words of a text as numbers, and runs of them: what two texts are compared by.
//!
//! A word is a run of letters and digits, whatever their case; a sign of a script that is written
//! without spaces is a word of its own. So neither line breaks, punctuation nor headings in
//! capitals make a copy look different.

/// A number for each run of `n` words of a text, one after the other; equal runs have equal
/// numbers.
pub fn shingles(text: &str, n: usize, each: &mut impl FnMut(u64)) {
    // A polynomial in the words' hashes, modulo 2^64: a word that leaves the run is taken off.
    const BASE: u64 = 0x9e37_79b9_7f4a_7c15;
    let leaves = (0..n).fold(1u64, |power, _| power.wrapping_mul(BASE));
    let (mut run, mut place, mut is_whole, mut polynomial) = (vec![0; n], 0, false, 0u64);
    words_of(text, &mut |word| {
        let oldest = std::mem::replace(&mut run[place], word);
        polynomial = polynomial.wrapping_mul(BASE).wrapping_add(word).wrapping_sub(oldest.wrapping_mul(leaves));
        place += 1;
        if place == n {
            (place, is_whole) = (0, true);
        }
        if is_whole {
            each(polynomial);
        }
    });
}

/// What a byte of ASCII is: its lower case where it belongs to a word, else 0.
const FOLDED: [u8; 128] = {
    let mut table = [0; 128];
    let mut byte = 0u8;
    while byte < 128 {
        table[byte as usize] = if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { 0 };
        byte += 1;
    }
    table
};

/// A hash of each word, in order (FNV-1a by 64-bit units, which is as fast as bytes can be told
/// apart).
fn words_of(text: &str, each: &mut impl FnMut(u64)) {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    let add = |hash: u64, unit: u32| (hash ^ u64::from(unit)).wrapping_mul(0x0100_0000_01b3);
    let bytes = text.as_bytes();
    let (mut hash, mut at) = (START, 0);
    let mut end = |hash: &mut u64| {
        if *hash != START {
            // The upper half has most of the word: the polynomial would keep it there.
            each(*hash ^ (*hash >> 32));
            *hash = START;
        }
    };
    while let Some(&byte) = bytes.get(at) {
        if byte.is_ascii() {
            match FOLDED[byte as usize] {
                0 => end(&mut hash),
                folded => hash = add(hash, folded.into()),
            }
            at += 1;
            continue;
        }
        let Some(character) = text[at..].chars().next() else { break };
        at += character.len_utf8();
        if !character.is_alphanumeric() {
            end(&mut hash);
        } else if stands_alone(character) {
            end(&mut hash);
            hash = add(hash, character.into());
            end(&mut hash);
        } else {
            hash = character.to_lowercase().fold(hash, |hash, unit| add(hash, unit.into()));
        }
    }
    end(&mut hash);
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

    fn runs(text: &str, n: usize) -> Vec<u64> {
        let mut all = Vec::new();
        shingles(text, n, &mut |run| all.push(run));
        all
    }

    #[test]
    fn case_punctuation_and_line_breaks_do_not_count() {
        assert_eq!(runs("The cat -- she SAT,\n on it.", 3), runs("the cat she sat on it", 3));
        assert_eq!(runs("Été à l'ÉGLISE", 1), runs("été à l église", 1));
        assert_ne!(runs("the cat", 2), runs("cat the", 2));
        assert_ne!(runs("ab c", 2), runs("a bc", 2));
    }

    #[test]
    fn a_run_is_the_same_wherever_it_stands() {
        let far = runs("some other words and then one two three four", 4);
        assert_eq!(runs("one two three four", 4), far[far.len() - 1..]);
        assert_eq!((runs("one two three", 4).len(), runs("", 1).len(), far.len()), (0, 0, 6));
    }

    #[test]
    fn scripts_without_spaces_have_a_word_for_each_sign() {
        assert_eq!(runs("我喜欢读书", 1).len(), 5);
        assert_eq!(runs("我喜欢读书。我", 2)[4..], runs("书我", 2));
    }
}
