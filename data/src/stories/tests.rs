//! The corpus's guarantees.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::expectation::expectation;
use super::generate::Draw;
use super::grammar::{Teller, tell};
use super::{Kind, ParseError, Story, parse, story};

/// Most tokens of a story under the recommended tokenizer, the opening `<|endoftext|>` included.
const MAX_TOKENS: usize = 120;

const KINDS: [Kind; 5] = [Kind::Person, Kind::Thing, Kind::Place, Kind::Animal, Kind::Food];

fn sample() -> impl Iterator<Item = Story> {
    (0..5000).map(|index| story(1, index))
}

#[test]
fn reading_recovers_the_choices_and_their_price() {
    for index in 0..5000 {
        let mut teller = Teller::new(Draw::new(7, index));
        let Ok(()) = tell(&mut teller);
        let parsed = parse(&teller.chooser.text).unwrap();
        assert_eq!(parsed.choices, teller.chooser.choices);
        assert_eq!((parsed.nats, parsed.forgetful_nats), (teller.nats, teller.forgetful_nats));
    }
}

#[test]
fn a_story_priced_by_hand() {
    let text = "One day Tom came to Paris with a ball. One fox came with one plum. Tom lost the ball in Paris and found a \
                drum. The fox ate its plum and got one pear. Tom left Paris for Oslo. In the end Tom was in Oslo with the \
                drum. The fox had its pear.";
    let parsed = parse(text).unwrap();
    let ln_of_product = |factors: &[u32]| factors.iter().map(|&n| f64::from(n).ln()).sum::<f64>();
    let opening = [4, 64, 64, 64, 48, 48];
    // Options: whose turn it is, the event, and the new word; from the second event on, also that
    // the story continues.
    let events = [2, 3, 64, 2, 2, 48, 2, 2, 3, 63, 2];
    assert!((parsed.nats - ln_of_product(&[&opening[..], &events].concat())).abs() < 1e-9);
    // Without memory: any word of its kind, except those that the sentence has named.
    let losing = [2, 64, 3, 64, 64, 64];
    let eating = [2, 48, 2, 48, 48];
    let leaving = [2, 2, 64, 3, 64, 63];
    let closing = [2, 64, 64, 64, 48, 48];
    let factors = [&opening[..], &losing, &eating, &leaving, &closing].concat();
    assert!((parsed.forgetful_nats - ln_of_product(&factors)).abs() < 1e-9);
}

#[test]
fn the_same_story_for_ever() {
    // Any change to a story makes all recorded losses on the corpus incomparable: change the
    // grammar only on purpose.
    assert_eq!(story(1, 0).text, GOLDEN);
    assert_ne!(story(1, 0), story(1, 1));
    assert_ne!(story(1, 0), story(2, 0));
}

const GOLDEN: &str = "Once Lily came to Chicago with a violin. One seal came with one fish. Lily played with the violin in Chicago. Lily lost \
    the violin in Chicago and found a coin. In the end Lily was in Chicago with the coin. The seal had its fish.";

#[test]
fn the_expectation_is_that_of_the_stories() {
    let exact = expectation();
    let n = 20_000;
    let stories: Vec<Story> = (0..n).map(|index| story(3, index)).collect();
    for (expected, price) in
        [(exact.nats, (|s| s.nats) as fn(&Story) -> f64), (exact.forgetful_nats, |s| s.forgetful_nats)]
    {
        let mean = stories.iter().map(price).sum::<f64>() / n as f64;
        let variance = stories.iter().map(|s| (price(s) - mean).powi(2)).sum::<f64>() / n as f64;
        let standard_error = (variance / n as f64).sqrt();
        assert!((mean - expected).abs() < 4.0 * standard_error, "{mean} for {expected}, give or take {standard_error}");
    }
    assert!(exact.forgetful_nats > 1.3 * exact.nats, "{exact:?}");
    assert!(exact.stories > 1e9, "{exact:?}");
    // No distribution over that many stories has an entropy above their logarithm.
    assert!(exact.nats < exact.stories.ln());
}

#[test]
fn every_story_fits_its_tokens() {
    // Under the recommended tokenizer a word or a full stop is a token.
    let longest = sample().map(|s| 1 + s.text.split(' ').count() + s.text.matches('.').count()).max().unwrap();
    assert!(longest <= MAX_TOKENS, "{longest}");
}

#[test]
fn the_forgetful_predictor_pays_more_for_every_story() {
    assert!(sample().all(|s| s.forgetful_nats > 1.3 * s.nats));
}

#[test]
fn errors_say_what_and_where() {
    let error = parse("One day Tom was on the moon.").unwrap_err();
    assert_eq!(error.to_string(), "not one of the built-in stories: at byte 11, expected \" came to \"");
    let error = parse("One day Tom came to Paris with a ball. One fox came with one plum. Mia left").unwrap_err();
    assert!(matches!(error, ParseError::Inconsistent { offset: 67, kind: Kind::Person, found: "Mia", .. }), "{error}");
    let text = "One day Tom came to Paris with a ball. One fox came with one plum. Tom lost the kite";
    assert_eq!(
        parse(text).unwrap_err().to_string(),
        "the thing \"kite\" at byte 80 contradicts the story so far, which makes it \"ball\""
    );
    let whole = story(1, 0).text;
    assert!(matches!(parse(&format!("{whole} ")), Err(ParseError::NotGrammar { .. })));
}

proptest! {
    /// Exchanging a word for another of its kind gives a contradiction, or another story with its
    /// own probability.
    #[test]
    fn a_changed_word_is_noticed(index in 0_u64..1 << 40, place in any::<prop::sample::Index>(), by in any::<prop::sample::Index>()) {
        let text = story(5, index).text;
        let words: Vec<&str> = text.split(' ').collect();
        let named: Vec<(usize, Kind)> = (0..words.len())
            .flat_map(|i| KINDS.into_iter().map(move |kind| (i, kind)))
            .filter(|&(i, kind)| kind.words().contains(&words[i].trim_end_matches('.')))
            .collect();
        let (i, kind) = named[place.index(named.len())];
        let old = words[i].trim_end_matches('.');
        let others: Vec<&str> = kind.words().iter().copied().filter(|&word| word != old).collect();
        let new = words[i].replace(old, others[by.index(others.len())]);
        let changed = [&words[..i], &[new.as_str()], &words[i + 1..]].concat().join(" ");
        match parse(&changed) {
            Ok(parsed) => prop_assert_ne!(parsed.choices, parse(&text).unwrap().choices),
            Err(error) => prop_assert!(matches!(error, ParseError::Inconsistent { .. }), "{error}"),
        }
    }

    /// A truncated text continued with anything is refused without a panic.
    #[test]
    fn a_damaged_text_is_no_story(index in 0_u64..1 << 40, cut in any::<prop::sample::Index>(), tail in "\\PC{0,20}") {
        let text = story(5, index).text;
        let damaged = format!("{}{tail}", &text[..cut.index(text.len())]);
        prop_assert_eq!(parse(&damaged).is_ok(), damaged == text);
    }
}
