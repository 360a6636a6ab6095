//! Which stretches of a text count as copied, and the totals for several texts.

use std::ops::Range;

use serde::Serialize;

use super::novelty::{Ngrams, Novel, word_places};
use super::{spans::longest_span, spans::maximal_spans, training_text::Place, training_text::TrainingText};
use crate::error::{Result, proceed_if};

/// The length from which a stretch counts as copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Minimal number of characters, 1 or more.
    pub min_chars: usize,
    /// Minimal number of whole words: runs of letters, digits and apostrophes, or single other
    /// characters.
    pub min_words: usize,
}

/// A stretch of a text that occurs word for word in another and cannot be extended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// Its offset in the text in characters.
    pub start: usize,
    /// Its length in characters.
    pub characters: usize,
    /// The stretch itself.
    pub text: String,
    /// How often it occurs there.
    pub times: usize,
    /// The first place where it occurs.
    pub place: Option<Place>,
    /// Its byte range in the text.
    #[serde(skip)]
    pub bytes: Range<usize>,
}

/// The result for one text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// Its length in characters.
    pub characters: usize,
    /// Characters within a copied span.
    pub copied_characters: usize,
    /// Length in characters of the longest stretch that occurs in the training text, whether or not
    /// it counts as copied.
    pub longest: usize,
    /// The copied spans, in order; they may overlap.
    pub spans: Vec<Span>,
    /// Spans that the rule counts as copied, but that occur only in the validation text, which the
    /// model never saw.
    pub only_in_validation: Vec<Span>,
}

/// Totals of several texts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Together {
    /// Number of texts.
    pub texts: usize,
    /// Number of characters.
    pub characters: usize,
    /// Characters within copied spans.
    pub copied_characters: usize,
    /// The share of the characters that is copied.
    pub copied_share: f64,
    /// Number of copied spans.
    pub spans: usize,
    /// Length in characters of the longest stretch that occurs in the training text.
    pub longest: usize,
    /// Counts of n-grams that the training text does not have.
    pub novel: Vec<Novel>,
}

/// Checks one text against the training text, and against the validation text if there is one.
///
/// # Errors
/// When `interrupted` says to stop.
pub fn check(
    text: &str,
    training: &TrainingText,
    validation: Option<&TrainingText>,
    rule: Rule,
    interrupted: &dyn Fn() -> bool,
) -> Result<Checked> {
    let spans = counted(text, training, rule, interrupted)?;
    let within = |span: &Span| spans.iter().any(|s| s.bytes.start <= span.bytes.start && span.bytes.end <= s.bytes.end);
    let in_validation = validation.map(|validation| counted(text, validation, rule, interrupted)).transpose()?;
    let only_in_validation = in_validation.into_iter().flatten().filter(|span| !within(span)).collect();
    let mut copied_characters = 0;
    let mut reached = 0;
    for span in &spans {
        copied_characters += characters(&text[span.bytes.start.max(reached)..span.bytes.end]);
        reached = span.bytes.end;
    }
    Ok(Checked {
        characters: characters(text),
        copied_characters,
        longest: characters(&text[longest_span(&training.index, text, interrupted)?]),
        spans,
        only_in_validation,
    })
}

/// Sums up checked texts, and counts which of their n-grams are new.
///
/// # Errors
/// When `interrupted` says to stop.
pub fn together(
    texts: &[&str],
    checked: &[Checked],
    training: &TrainingText,
    interrupted: &dyn Fn() -> bool,
) -> Result<Together> {
    let sum = |of: fn(&Checked) -> usize| checked.iter().map(of).sum::<usize>();
    let (characters, copied_characters) = (sum(|text| text.characters), sum(|text| text.copied_characters));
    let mut ngrams = Ngrams::new(texts.iter().copied());
    for document in training.texts() {
        proceed_if(!interrupted())?;
        ngrams.read(document);
    }
    Ok(Together {
        texts: texts.len(),
        characters,
        copied_characters,
        copied_share: copied_characters as f64 / characters.max(1) as f64,
        spans: sum(|text| text.spans.len()),
        longest: checked.iter().map(|text| text.longest).max().unwrap_or(0),
        novel: ngrams.novel(),
    })
}

/// The beginning of a text's documents, up to this many characters in all.
pub fn beginning(text: &TrainingText, characters: usize) -> Vec<&str> {
    let mut left = characters;
    let mut taken = Vec::new();
    for document in text.texts() {
        let end = document.char_indices().nth(left).map_or(document.len(), |(at, _)| at);
        taken.push(&document[..end]);
        left -= self::characters(&document[..end]);
        if left == 0 {
            break;
        }
    }
    taken
}

/// The maximal spans of `text` in `learned` that the rule counts.
fn counted(text: &str, learned: &TrainingText, rule: Rule, interrupted: &dyn Fn() -> bool) -> Result<Vec<Span>> {
    // A word has at least one character.
    let least = rule.min_chars.max(rule.min_words).max(1);
    let spans = maximal_spans(&learned.index, text, least, interrupted)?;
    let places: Vec<Range<usize>> = word_places(text).collect();
    let whole_words = |bytes: &Range<usize>| {
        let first = places.partition_point(|word| word.start < bytes.start);
        places[first..].iter().take_while(|word| word.end <= bytes.end).count()
    };
    let long_enough = |bytes: &Range<usize>| whole_words(bytes) >= rule.min_words;
    let (mut start, mut before) = (0, 0);
    let span = |bytes: Range<usize>| -> Result<Span> {
        proceed_if(!interrupted())?;
        start += characters(&text[before..bytes.start]);
        before = bytes.start;
        let stretch = &text[bytes.clone()];
        let (times, place) = learned.find(stretch);
        Ok(Span { start, characters: characters(stretch), text: stretch.to_owned(), times, place, bytes })
    };
    spans.into_iter().filter(long_enough).map(span).collect()
}

fn characters(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Documents;
    use super::*;
    use crate::error::Error;
    use std::cell::Cell;

    fn never() -> bool {
        false
    }

    /// A training text with these documents.
    fn learned(documents: &[&str]) -> TrainingText {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("learned.txt");
        std::fs::write(&path, documents.join("<|endoftext|>")).unwrap();
        Documents::from_files(&[path], &ember_data::source::ReadOptions::default()).unwrap().index().unwrap()
    }

    #[test]
    fn overlapping_spans_cover_each_character_once() {
        let training = learned(&["to be or not", "or not to be"]);
        let rule = Rule { min_chars: 8, min_words: 0 };
        let checked = check("é to be or not to be!", &training, None, rule, &never).unwrap();
        let found: Vec<_> = checked.spans.iter().map(|span| (span.start, span.text.as_str())).collect();
        assert_eq!(found, [(2, "to be or not"), (8, "or not to be")]);
        assert_eq!((checked.characters, checked.copied_characters, checked.longest), (21, 18, 12));
        let place = checked.spans[1].place.as_ref().unwrap();
        assert_eq!((place.document, place.offset_bytes, checked.spans[1].times), (2, 0, 1));
    }

    #[test]
    fn what_stands_in_the_validation_text_alone_is_not_copied() {
        let (training, validation) = (learned(&["a red fox ran by"]), learned(&["a red fox ran", "the grey owl"]));
        let rule = Rule { min_chars: 9, min_words: 0 };
        let text = "a red fox ran, the grey owl slept";
        let checked = check(text, &training, Some(&validation), rule, &never).unwrap();
        assert_eq!(checked.spans.len(), 1);
        assert_eq!(checked.copied_characters, 13);
        assert_eq!(
            checked.only_in_validation.iter().map(|span| span.text.as_str()).collect::<Vec<_>>(),
            ["the grey owl"]
        );
        assert_eq!(
            check("the grey owl", &training, None, rule, &never).unwrap().longest,
            2,
            "what is too short to count is measured too"
        );
    }

    #[test]
    fn words_count_where_asked_for() {
        let training = learned(&["one two three four"]);
        let rule = |min_words| Rule { min_chars: 1, min_words };
        let spans = |text, words| check(text, &training, None, rule(words), &never).unwrap().spans.len();
        assert_eq!((spans("one two three", 3), spans("one two three", 4)), (1, 0));
        assert_eq!((spans("bone two threes", 1), spans("bone two threes", 2)), (1, 0), "a part of a word is none");
    }

    #[test]
    fn texts_are_summed_up() {
        let training = learned(&["the cat sat"]);
        let texts = ["the cat", "a cat sat", ""];
        let rule = Rule { min_chars: 7, min_words: 0 };
        let checked: Vec<Checked> =
            texts.iter().map(|text| check(text, &training, None, rule, &never).unwrap()).collect();
        let all = together(&texts, &checked, &training, &never).unwrap();
        assert_eq!((all.texts, all.characters, all.copied_characters, all.spans, all.longest), (3, 16, 15, 2, 8));
        assert_eq!((all.novel[0].ngrams, all.novel[0].novel), (5, 1));
        assert_eq!((all.novel[1].ngrams, all.novel[1].novel), (3, 1));
    }

    #[test]
    fn an_interruption_ends_the_check_of_a_long_text() {
        let training = learned(&["one two three four five"]);
        let text = "two three, four five; ".repeat(100);
        let rule = Rule { min_chars: 5, min_words: 0 };
        let asked = Cell::new(0);
        let after = |most: usize| {
            asked.set(0);
            let interrupted = || asked.replace(asked.get() + 1) == most;
            check(&text, &training, Some(&training), rule, &interrupted)
        };
        after(usize::MAX).unwrap();
        let all = asked.get();
        assert!(all > 600, "each stretch is a place to stop at, not {all} in all");
        for most in (0..all).step_by(7) {
            assert!(matches!(after(most), Err(Error::Stopped)));
            assert_eq!(asked.get(), most + 1, "and nothing is looked for any more");
        }
        assert!(matches!(together(&[text.as_str()], &[], &training, &|| true), Err(Error::Stopped)));
    }

    #[test]
    fn the_beginning_ends_between_characters() {
        let text = learned(&["née", "ab"]);
        assert_eq!(beginning(&text, 2), ["né"]);
        assert_eq!(beginning(&text, 4), ["née", "a"]);
        assert_eq!(beginning(&text, 100).concat(), "néeab");
    }
}
