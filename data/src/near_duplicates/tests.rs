#![allow(clippy::unwrap_used)]

use super::signature::SHINGLE_WORDS;
use super::*;
use crate::random::mix;
use proptest::prelude::*;
use serde::Deserialize;
use std::collections::BTreeSet;

fn groups_of(texts: &[String]) -> Vec<Vec<usize>> {
    let mut near = NearDuplicates::default();
    for (number, text) in texts.iter().enumerate() {
        near.add(text);
        near.end_document(number);
    }
    near.finish().groups
}

fn shingle_set(text: &str) -> BTreeSet<u64> {
    let mut hashes = BTreeSet::new();
    shingles::<SHINGLE_WORDS>(text, &mut |hash| {
        hashes.insert(hash);
    });
    hashes
}

fn jaccard(one: &str, two: &str) -> f64 {
    let (one, two) = (shingle_set(one), shingle_set(two));
    one.intersection(&two).count() as f64 / one.union(&two).count() as f64
}

/// A text of this many words, a pure function of its number.
fn prose(number: u64, words: u64) -> Vec<String> {
    (0..words).map(|place| format!("w{}", mix(number << 32 | place) % 5000)).collect()
}

/// The same text with every `distance`-th word replaced.
fn edited(text: &[String], distance: usize) -> String {
    let words = text.iter().enumerate().map(|(place, word)| match place % distance {
        0 => format!("x{place}"),
        _ => word.clone(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The sets of documents joined by pairs with at least this similarity.
fn joined(texts: &[String], least: f64) -> Vec<usize> {
    let mut set: Vec<usize> = (0..texts.len()).collect();
    for one in 0..texts.len() {
        for two in 0..one {
            if set[one] != set[two] && jaccard(&texts[one], &texts[two]) >= least {
                let (from, to) = (set[one], set[two]);
                set.iter_mut().filter(|set| **set == from).for_each(|set| *set = to);
            }
        }
    }
    set
}

#[derive(Deserialize)]
struct Fixture {
    documents: Vec<String>,
    jaccard: Vec<Pair>,
    groups: Vec<Vec<usize>>,
}

#[derive(Deserialize)]
struct Pair {
    pair: (usize, usize),
    exact: f64,
}

#[test]
fn the_documents_that_datasketch_finds() {
    let fixture: Fixture = serde_json::from_str(include_str!("../../tests/fixtures/near_duplicates.json")).unwrap();
    let texts = &fixture.documents;
    for Pair { pair: (one, two), exact } in &fixture.jaccard {
        assert!((jaccard(&texts[*one], &texts[*two]) - exact).abs() < 1e-12, "{one} {two}");
        let [one, two] = [one, two].map(|number| Signature::new(&texts[*number]).unwrap());
        // Four standard deviations for the shortest documents, whose shingles fill a third of the
        // bins.
        assert!((one.similarity(&two) - exact).abs() < 0.25);
    }
    assert_eq!(groups_of(texts), fixture.groups);
}

#[test]
fn the_estimate_is_fair() {
    for (words, distance) in [(60, 30), (300, 40), (300, 12), (3000, 20)] {
        let pairs = 200;
        let (mut sum, mut truth, mut square) = (0.0, 0.0, 0.0);
        for number in 0..pairs {
            let text = prose(number, words);
            let [one, two] = [text.join(" "), edited(&text, distance)];
            let exact = jaccard(&one, &two);
            let estimate = Signature::new(&one).unwrap().similarity(&Signature::new(&two).unwrap());
            sum += estimate;
            truth += exact;
            square += (estimate - exact).powi(2);
        }
        let [bias, spread] = [(sum - truth) / pairs as f64, (square / pairs as f64).sqrt()];
        assert!(bias.abs() < 0.015, "{words} {distance}: {bias}");
        assert!(spread < if words < 100 { 0.09 } else { 0.05 }, "{words} {distance}: {spread}");
    }
}

/// Compared with every pair's similarity: clearly similar texts are grouped, and no others. The
/// texts are fixed, since the estimate may fail once in many.
#[test]
fn groups_are_those_of_brute_force() {
    let mut texts = Vec::new();
    for number in 0..30 {
        let text = prose(number, 200 + mix(number) % 400);
        texts.push(text.join(" "));
        texts.extend([60, 100, 14, 7].map(|distance| edited(&text, distance + number as usize % 3)));
        texts.push(text[..text.len() * 9 / 10].join("\n"));
        texts.push(text[..text.len() / 3].join(" "));
    }
    let mut ours: Vec<usize> = (0..texts.len()).collect();
    for group in groups_of(&texts) {
        group.iter().for_each(|&member| ours[member] = group[0]);
    }
    let [surely, perhaps] = [0.82, 0.58].map(|least| joined(&texts, least));
    for one in 0..texts.len() {
        for two in 0..one {
            assert!(surely[one] != surely[two] || ours[one] == ours[two], "{one} and {two} are alike");
            assert!(ours[one] != ours[two] || perhaps[one] == perhaps[two], "{one} and {two} are not");
        }
    }
    assert!(ours.iter().enumerate().filter(|(number, group)| number != *group).count() > 60);
}

#[test]
fn of_too_many_documents_a_sample_holds_whole_groups() {
    let mut near = NearDuplicates { most_kept: 1000, ..NearDuplicates::default() };
    for number in 0..4000 {
        for _ in 0..2 {
            near.add(&prose(number, 40).join(" "));
            near.end_document(number);
        }
    }
    let found = near.finish();
    assert_eq!(found.one_in, 16);
    // 250 expected, with a standard deviation of 15.
    assert!((170..330).contains(&found.groups.len()), "{}", found.groups.len());
    assert!(found.groups.iter().all(|group| group.len() == 2 && group[0] == group[1]));
}

#[test]
fn greetings_are_too_short_to_be_near_duplicates() {
    let texts = ["Dear Anna, thank you. Yours, Tom", "Dear Anna, thank you! Yours, Tom"].map(str::to_owned);
    assert!(groups_of(&texts).is_empty());
}

#[test]
fn the_beginning_that_is_used_does_not_depend_on_the_pieces() {
    let text = "a".repeat(MAX_DOCUMENT_BYTES - 1) + "éb";
    let mut near = NearDuplicates::default();
    for pieces in [vec![&text[..]], vec![&text[..9], &text[9..]], text.split_inclusive('é').collect()] {
        pieces.into_iter().for_each(|piece| near.add(piece));
        near.end_document(0);
    }
    let [one, two, three] = &near.waiting.ends[..] else { panic!("{:?}", near.waiting.ends) };
    let used = MAX_DOCUMENT_BYTES + 1;
    assert_eq!([one.1, two.1, three.1], [used, 2 * used, 3 * used]);
}

proptest! {
    #[test]
    fn equal_documents_are_together_and_pieces_do_not_matter(
        numbers in proptest::collection::vec(0u64..12, 2..40), piece in 1usize..300,
    ) {
        let mut near = NearDuplicates::default();
        for (place, number) in numbers.iter().enumerate() {
            let text = prose(*number, 50).join(" ");
            text.as_bytes().chunks(piece).for_each(|bytes| near.add(std::str::from_utf8(bytes).unwrap()));
            near.end_document(place);
        }
        let mut expected: Vec<Vec<usize>> = Vec::new();
        for (place, number) in numbers.iter().enumerate() {
            match expected.iter_mut().find(|group| numbers[group[0]] == *number) {
                Some(group) => group.push(place),
                None => expected.push(vec![place]),
            }
        }
        expected.retain(|group| group.len() > 1);
        prop_assert_eq!(near.finish().groups, expected);
    }
}
