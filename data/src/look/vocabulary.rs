//! How the author writes: words, phrases, sentences, and in which language.
//!
//! Favourite words are the most frequent that are none of the words that every text needs: a few
//! hundred of English, German, French and Spanish (`common.txt`, a line for each language).

use ahash::{AHashMap, AHashSet};
use serde::Serialize;
use std::{cmp::Reverse, collections::BTreeMap, sync::LazyLock};
use xxhash_rust::xxh3::xxh3_64;

/// What was found.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Vocabulary {
    /// Words of the sample.
    pub words: u64,
    /// Different ones, whatever their case.
    pub different: u64,
    /// Of these, those that occur once.
    pub once: u64,
    /// The most frequent words that not every text has, with their counts.
    pub favourites: Vec<Counted>,
    /// Phrases of three to five words that return, with their counts.
    pub phrases: Vec<Counted>,
    /// Sentences by their number of words: 1, 2, ... and last all that are longer.
    pub sentences: Vec<u64>,
    /// Words of a sentence, on average.
    pub words_per_sentence: f64,
    /// The shares of the sample in each language, the most first; what is too short or too strange
    /// to tell is in none.
    pub languages: Vec<(String, f64)>,
}

/// A word or phrase, and how often it occurs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// As it is written most often, in lower case.
    pub text: String,
    /// How often.
    pub count: u64,
}

const MOST_WORDS: usize = 60;
const MOST_PHRASES: usize = 40;

/// A phrase is a habit from so many times on.
const HABIT: u32 = 3;

/// Sentences of more words are counted together.
const LONGEST_SENTENCE: usize = 60;

/// So much of a piece of text tells its language.
const TELLS_LANGUAGE: usize = 2000;

static COMMON: LazyLock<AHashSet<&str>> = LazyLock::new(|| include_str!("common.txt").split_whitespace().collect());

impl Vocabulary {
    /// Of a few texts.
    pub fn new(texts: &[&str]) -> Self {
        let lower: Vec<String> = texts.iter().map(|text| text.to_lowercase()).collect();
        let sentences: Vec<Vec<&str>> = lower.iter().flat_map(|text| sentences(text)).collect();
        let mut counts: AHashMap<&str, u64> = AHashMap::default();
        let mut lengths = vec![0; LONGEST_SENTENCE + 1];
        for sentence in &sentences {
            sentence.iter().for_each(|&word| *counts.entry(word).or_default() += 1);
            lengths[sentence.len().min(LONGEST_SENTENCE + 1) - 1] += 1;
        }
        let words: u64 = counts.values().sum();
        let is_own = |word: &str| word.chars().nth(1).is_some() && !is_common(word) && !is_number(word);
        let mut favourites: Vec<Counted> = counts
            .iter()
            .filter(|(word, count)| is_own(word) && **count > 1)
            .map(|(word, &count)| Counted { text: (*word).to_owned(), count })
            .collect();
        favourites.sort_by(|one, two| (two.count, &one.text).cmp(&(one.count, &two.text)));
        favourites.truncate(MOST_WORDS);
        Self {
            words,
            different: counts.len() as u64,
            once: counts.values().filter(|&&count| count == 1).count() as u64,
            favourites,
            phrases: phrases(&sentences),
            words_per_sentence: words as f64 / sentences.len().max(1) as f64,
            sentences: lengths,
            languages: languages(texts),
        }
    }
}

/// "Don't" is two common words.
fn is_common(word: &str) -> bool {
    word.split(['\'', '\u{2019}']).all(|part| COMMON.contains(part))
}

fn is_number(word: &str) -> bool {
    word.chars().all(char::is_numeric)
}

/// The words of each sentence; a blank line ends one too, as headings have no full stop.
fn sentences(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let parts = text.split("\n\n").flat_map(|paragraph| paragraph.split(['.', '!', '?', '\u{2026}']));
    parts.map(words).filter(|words| !words.is_empty())
}

/// An apostrophe inside a word belongs to it.
fn words(sentence: &str) -> Vec<&str> {
    let split = sentence.split(|sign: char| !sign.is_alphanumeric() && sign != '\'' && sign != '\u{2019}');
    split.map(|word| word.trim_matches(['\'', '\u{2019}'])).filter(|word| !word.is_empty()).collect()
}

/// Phrases that return, the longer before its parts.
fn phrases(sentences: &[Vec<&str>]) -> Vec<Counted> {
    let key = |phrase: &[&str]| xxh3_64(phrase.join(" ").as_bytes());
    let mut counts: AHashMap<u64, u32> = AHashMap::default();
    for length in 3..=5 {
        for sentence in sentences {
            sentence.windows(length).for_each(|phrase| *counts.entry(key(phrase)).or_default() += 1);
        }
    }
    counts.retain(|_, count| *count >= HABIT);
    let mut habits: BTreeMap<&[&str], u32> = BTreeMap::new();
    for length in 3..=5 {
        for phrase in sentences.iter().flat_map(|sentence| sentence.windows(length)) {
            let says_something = phrase.iter().filter(|word| !is_common(word) && !is_number(word)).count() > 0;
            if says_something && let Some(&count) = counts.get(&key(phrase)) {
                habits.insert(phrase, count);
            }
        }
    }
    let mut ranked: Vec<(&[&str], u32)> = habits.into_iter().collect();
    // A longer phrase says more: four words that return ten times are a stronger habit than three.
    ranked.sort_by_key(|(phrase, count)| (Reverse(*count as usize * (phrase.len() - 1)), *phrase));
    let mut shown: Vec<(&[&str], u32)> = Vec::new();
    for (phrase, count) in ranked {
        // A part of another, or the same a word further on.
        let overlaps =
            shown.iter().any(|(other, _)| phrase.windows(2).any(|two| other.windows(2).any(|part| part == two)));
        if !overlaps {
            shown.push((phrase, count));
        }
        if shown.len() == MOST_PHRASES {
            break;
        }
    }
    shown.into_iter().map(|(phrase, count)| Counted { text: phrase.join(" "), count: count.into() }).collect()
}

/// The share of each language in the texts, by bytes.
fn languages(texts: &[&str]) -> Vec<(String, f64)> {
    let mut bytes: BTreeMap<&str, usize> = BTreeMap::new();
    for text in texts {
        let told = whatlang::detect(&text[..text.floor_char_boundary(TELLS_LANGUAGE)]);
        if let Some(told) = told.filter(whatlang::Info::is_reliable) {
            *bytes.entry(told.lang().eng_name()).or_default() += text.len();
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
        assert!(
            found.phrases.iter().any(|phrase| phrase.count == 4 && phrase.text.contains("harbour master said")),
            "{:?}",
            found.phrases
        );
        assert_eq!(found.sentences[3] + found.sentences[1], 8, "{:?}", found.sentences);
        assert_eq!((found.once, found.words), (3, 4 * 16 + 6));
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
