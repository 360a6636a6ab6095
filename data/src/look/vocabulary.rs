//! The author's style: words, phrases, sentences and languages.
//!
//! Favourite words are the most frequent ones except those that every text needs: a few hundred of
//! English, German, French and Spanish (`common.txt`, one line per language).

use ahash::{AHashMap, AHashSet};
use serde::Serialize;
use std::{cmp::Reverse, collections::BTreeMap, sync::LazyLock};
use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

/// Findings about the vocabulary of the sample.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Vocabulary {
    /// Number of words.
    pub words: u64,
    /// Number of distinct words, ignoring case.
    pub different: u64,
    /// Number of words that occur once.
    pub once: u64,
    /// The most frequent distinctive words, with their counts.
    pub favourites: Vec<Counted>,
    /// Repeated phrases of three to five words, with their counts.
    pub phrases: Vec<Counted>,
    /// Histogram of sentence lengths in words: 1, 2, ...; the last entry counts all longer ones.
    pub sentences: Vec<u64>,
    /// Mean number of words in a sentence.
    pub words_per_sentence: f64,
    /// The fraction of the sample in each language, the largest first; text that is too short or
    /// unclear is in none.
    pub languages: Vec<(String, f64)>,
}

/// A word or phrase, and its number of occurrences.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// In lower case.
    pub text: String,
    /// Number of occurrences.
    pub count: u64,
}

const MAX_WORDS: usize = 60;
const MAX_PHRASES: usize = 40;

/// A phrase is a habit if it occurs at least this often.
const MIN_REPEATS: u32 = 3;

/// Longer sentences (in words) share one count.
const LONGEST_SENTENCE: usize = 60;

/// A piece's language is detected from this many of its first bytes.
const DETECTION_BYTES: usize = 2000;

static COMMON_WORDS: LazyLock<AHashSet<&str>> =
    LazyLock::new(|| include_str!("common.txt").split_whitespace().collect());

impl Vocabulary {
    /// Analyses a sample given as texts.
    pub fn new(texts: &[&str]) -> Self {
        // Unify accents (combining or precomposed) and line ends (one or two characters).
        let composed = |text: &&str| text.replace("\r\n", "\n").nfc().collect::<String>();
        let lower: Vec<String> = texts.iter().map(|text| composed(text).to_lowercase()).collect();
        let mut words = Words::default();
        let sentences: Vec<Vec<u32>> = lower
            .iter()
            .flat_map(|text| sentences(text))
            .map(|sentence| sentence.into_iter().map(|word| words.add(word)).collect())
            .collect();
        let mut lengths = vec![0; LONGEST_SENTENCE + 1];
        for sentence in &sentences {
            lengths[sentence.len().min(LONGEST_SENTENCE + 1) - 1] += 1;
        }
        let all: u64 = words.all.iter().map(|word| word.count).sum();
        let mut favourites: Vec<&Word> =
            words.all.iter().filter(|word| word.is_distinctive && word.count > 1).collect();
        favourites.sort_by_key(|word| (Reverse(word.count), word.text));
        let counted = |word: &&Word| Counted { text: word.text.to_owned(), count: word.count };
        Self {
            words: all,
            different: words.all.len() as u64,
            once: words.all.iter().filter(|word| word.count == 1).count() as u64,
            favourites: favourites.iter().take(MAX_WORDS).map(counted).collect(),
            phrases: phrases(&sentences, &words.all),
            words_per_sentence: all as f64 / sentences.len().max(1) as f64,
            sentences: lengths,
            languages: languages(texts),
        }
    }
}

/// Distinct words, numbered.
#[derive(Default)]
struct Words<'a> {
    numbers: AHashMap<&'a str, u32>,
    all: Vec<Word<'a>>,
}

struct Word<'a> {
    text: &'a str,
    count: u64,
    /// Whether it is distinctive: neither a number nor a single character nor a common word.
    is_distinctive: bool,
}

impl<'a> Words<'a> {
    fn add(&mut self, text: &'a str) -> u32 {
        let next = self.all.len() as u32;
        let number = *self.numbers.entry(text).or_insert(next);
        if number == next {
            let is_distinctive = text.chars().nth(1).is_some() && !is_common(text) && !is_number(text);
            self.all.push(Word { text, count: 0, is_distinctive });
        }
        self.all[number as usize].count += 1;
        number
    }
}

/// "Don't" is two common words.
fn is_common(word: &str) -> bool {
    word.split(['\'', '\u{2019}']).all(|part| COMMON_WORDS.contains(part))
}

fn is_number(word: &str) -> bool {
    word.chars().all(char::is_numeric)
}

/// Punctuation that ends a sentence: of Latin script, of Chinese and Japanese in both widths, of
/// Hindi and its neighbours, of Arabic and Urdu, of Armenian, Ethiopic and Burmese.
const ENDS: [char; 17] = ['.', '!', '?', '…', '。', '｡', '！', '？', '．', '।', '॥', '؟', '۔', '։', '።', '፧', '။'];

/// The words of each sentence; a blank line also ends one, since headings have no full stop.
fn sentences(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let parts = text.split("\n\n").flat_map(|paragraph| paragraph.split(ENDS));
    parts.map(words).filter(|words| !words.is_empty())
}

/// Words include apostrophes between letters and any combining marks on letters.
fn words(sentence: &str) -> Vec<&str> {
    let split = sentence.split(|sign: char| !sign.is_alphanumeric() && !joins_letters(sign));
    let split = split.map(|word| word.trim_start_matches(joins_letters).trim_end_matches(is_apostrophe));
    split.filter(|word| word.contains(char::is_alphanumeric)).collect()
}

fn is_apostrophe(sign: char) -> bool {
    matches!(sign, '\'' | '\u{2019}')
}

/// Whether a character is part of a word when it stands between letters: an apostrophe, an accent,
/// a vowel sign, a joiner.
fn joins_letters(sign: char) -> bool {
    is_apostrophe(sign) || is_combining_mark(sign) || matches!(sign, '\u{200c}' | '\u{200d}')
}

/// The strongest repeated phrases; of those that share two consecutive words, only the strongest.
fn phrases(sentences: &[Vec<u32>], words: &[Word<'_>]) -> Vec<Counted> {
    // Shorter phrases are padded with a number that no word has.
    let mut counts: AHashMap<[u32; 5], u32> = AHashMap::default();
    for length in 3..=5 {
        for phrase in sentences.iter().flat_map(|sentence| sentence.windows(length)) {
            let key = std::array::from_fn(|place| phrase.get(place).copied().unwrap_or(u32::MAX));
            *counts.entry(key).or_default() += 1;
        }
        // Drop rare phrases to make room for the longer ones.
        counts.retain(|_, count| *count >= MIN_REPEATS);
    }
    let texts = |key: &[u32; 5]| -> Vec<&str> {
        key.iter().take_while(|number| **number != u32::MAX).map(|&number| words[number as usize].text).collect()
    };
    let has_distinctive_word =
        |key: &[u32; 5]| key.iter().any(|&number| words.get(number as usize).is_some_and(|word| word.is_distinctive));
    let mut ranked: Vec<(u32, Vec<&str>)> =
        counts.iter().filter(|(key, _)| has_distinctive_word(key)).map(|(key, &count)| (count, texts(key))).collect();
    // A longer phrase is a stronger habit: four words repeated ten times rank above three.
    ranked.sort_by_key(|(count, phrase)| (Reverse(*count as usize * (phrase.len() - 1)), phrase.clone()));
    let mut shown: Vec<(u32, Vec<&str>)> = Vec::new();
    for (count, phrase) in ranked {
        let is_new =
            |(_, other): &(u32, Vec<&str>)| !phrase.windows(2).any(|two| other.windows(2).any(|part| part == two));
        if shown.iter().all(is_new) {
            shown.push((count, phrase));
        }
        if shown.len() == MAX_PHRASES {
            break;
        }
    }
    shown.into_iter().map(|(count, phrase)| Counted { text: phrase.join(" "), count: count.into() }).collect()
}

/// The fraction of the texts in each language, by bytes.
fn languages(texts: &[&str]) -> Vec<(String, f64)> {
    let mut bytes: BTreeMap<&str, usize> = BTreeMap::new();
    for text in texts {
        let detected = whatlang::detect(&text[..text.floor_char_boundary(DETECTION_BYTES)]);
        if let Some(detected) = detected.filter(whatlang::Info::is_reliable) {
            *bytes.entry(detected.lang().eng_name()).or_default() += text.len();
        }
    }
    let all: usize = texts.iter().map(|text| text.len()).sum();
    let share = |(name, bytes): (&str, usize)| (name.to_owned(), bytes as f64 / all.max(1) as f64);
    let mut languages: Vec<(String, f64)> = bytes.into_iter().map(share).collect();
    languages.sort_by(|one, two| two.1.total_cmp(&one.1));
    languages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn favourites_and_habits_of_an_author() {
        let text = "The harbour was silent. And so the harbour master said to Anna: don't go!\n\nA heading\n\n"
            .repeat(4)
            + "Nobody else came to the harbour.";
        let found = Vocabulary::new(&[&text]);
        assert_eq!(found.favourites[0], Counted { text: "harbour".to_owned(), count: 9 });
        assert!(found.favourites.iter().all(|word| !["the", "and", "so", "to"].contains(&word.text.as_str())));
        let phrases: Vec<(&str, u64)> = found.phrases.iter().map(|one| (one.text.as_str(), one.count)).collect();
        let expected = ["and so the harbour master", "master said to anna don't", "harbour was silent"];
        assert_eq!(phrases, expected.map(|phrase| (phrase, 4)));
        assert_eq!(found.sentences[3] + found.sentences[1], 8, "{:?}", found.sentences);
        assert_eq!((found.once, found.words), (3, 4 * 16 + 6));
    }

    #[test]
    fn a_mark_belongs_to_the_letter_that_it_stands_on() {
        let composed = Vocabulary::new(&["Un été à l'hôtel."]);
        let decomposed = Vocabulary::new(&["Un e\u{301}te\u{301} a\u{300} l'ho\u{302}tel."]);
        assert_eq!((composed.words, decomposed.words), (4, 4));
        assert_eq!(words("हिन्दी में किताब"), ["हिन्दी", "में", "किताब"]);
        assert_eq!(words("\u{2764}\u{fe0f}love \u{1f469}\u{200d}\u{1f469} 'tis it's'"), ["love", "tis", "it's"]);
    }

    #[test]
    fn sentences_end_by_the_signs_of_their_script_and_at_blank_lines() {
        for (text, count) in [
            ("你好。你好吗？很好！", 3),
            ("यह घर है। वह पेड़ है॥", 2),
            ("كيف حالك؟ أنا بخير.", 2),
            ("A heading\r\n\r\nA line.\r\n", 2),
        ] {
            assert_eq!(Vocabulary::new(&[text]).sentences.iter().sum::<u64>(), count, "{text}");
        }
    }

    #[test]
    fn languages_by_their_bytes() {
        let [english, german] = [
            "It was a quiet evening, and nobody in the whole house thought that anything would happen before the morning. ",
            "Es war ein stiller Abend, und niemand im ganzen Haus dachte daran, dass vor dem Morgen noch etwas geschehen k\u{f6}nnte. ",
        ].map(|text| text.repeat(5));
        let found = Vocabulary::new(&[&english, &german, "?!"]).languages;
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["German", "English"]);
        assert!((found[0].1 + found[1].1 - 1.0).abs() < 0.01);
    }
}
