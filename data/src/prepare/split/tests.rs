#![allow(clippy::unwrap_used)]

use super::repeated::Repeated;
use super::*;
use crate::near_duplicates::NearDuplicates;
use crate::source::Dated;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn split(texts: &[String], val_fraction: f64, seed: u64) -> Result<(Split, Duplicates), Error> {
    let mut builder = SplitBuilder::new(val_fraction);
    let mut hash = ContentHash::new(seed);
    for text in texts {
        hash.update(text);
        builder.push(hash.finish(), text.len() as u64, text.chars().count() as u64);
    }
    builder.finish()
}

#[test]
fn the_only_document_is_cut_as_nanogpt_cuts_it() {
    let mut builder = SplitBuilder::new(0.1);
    builder.push(1, 1_115_394, 1_115_394);
    // int(0.9 * 1115394), the length of nanoGPT's train.bin for tiny Shakespeare.
    assert_eq!(builder.finish().unwrap().0.cut(0), Some(1_003_854));
}

#[test]
fn few_documents_fill_the_share_in_bytes() {
    let texts: Vec<String> = (0..40).map(|i| format!("{i} ").repeat(50 + i)).collect();
    let (split, _) = split(&texts, 0.25, 7).unwrap();
    let all: usize = texts.iter().map(String::len).sum();
    let val: usize = (0..40).filter(|&i| split.side(i) == Side::Val).map(|i| texts[i as usize].len()).sum();
    let share = val as f64 / all as f64;
    assert!((0.22..=0.25).contains(&share), "{share}");
}

#[test]
fn of_two_large_documents_the_smaller_validates() {
    let (split, _) = split(&["aaaa".to_owned(), "bbb".to_owned()], 0.1, 0).unwrap();
    assert_eq!((split.side(0), split.side(1)), (Side::Train, Side::Val));
}

/// The validation share in characters.
fn held_out(split: &Split, texts: &[String]) -> f64 {
    let characters: Vec<u64> = texts.iter().map(|text| text.chars().count() as u64).collect();
    let of = |(number, all): (u64, &u64)| match (split.side(number), split.cut(number)) {
        (Side::Val, cut) => {
            assert_eq!(cut, None);
            *all
        }
        (Side::Train, Some(before)) => {
            assert!(0 < before && before < *all);
            all - before
        }
        (Side::Train, None) => 0,
    };
    (0..).zip(&characters).map(of).sum::<u64>() as f64 / characters.iter().sum::<u64>() as f64
}

#[test]
fn of_a_long_text_and_two_notes_the_end_of_the_long_one_validates_too() {
    let texts = ["a long text. ".repeat(10_000), "a short note".to_owned(), "another".to_owned()];
    let (split, _) = split(&texts, 0.1, 0).unwrap();
    assert!((held_out(&split, &texts) - 0.1).abs() < 1e-4, "{}", held_out(&split, &texts));
    assert!(split.cut(0).is_some() && split.cut(1).is_none());
    assert!(
        split.rule.ends_with("to make up the 10%, the last 10.0% of the characters of the one long document"),
        "{}",
        split.rule
    );
}

#[test]
fn of_a_few_long_documents_each_gives_its_end() {
    let texts: Vec<String> = (0..5).map(|i| format!("{i} chapter ").repeat(1000 + i)).collect();
    let (split, _) = split(&texts, 0.1, 0).unwrap();
    assert!((held_out(&split, &texts) - 0.1).abs() < 1e-3);
    assert!((0..5).all(|i| split.cut(i).is_some()));
    assert!(split.rule.ends_with("the last 10.0% of the characters of each of 5 long documents"), "{}", split.rule);
}

#[test]
fn copies_of_a_long_document_are_cut_at_one_place() {
    let long = "the same long text. ".repeat(500);
    let texts = [long.clone(), "a note".to_owned(), long];
    let (split, duplicates) = split(&texts, 0.1, 0).unwrap();
    assert!(split.cut(0).is_some() && split.cut(0) == split.cut(2));
    assert_eq!((duplicates.exact, duplicates.on_both_sides), (1, 0));
}

#[test]
fn where_chance_fails_many_documents_the_long_ones_are_chosen_or_cut() {
    for giants in [1, 2, 30] {
        for seed in 0..20 {
            let mut texts: Vec<String> = (0..3000).map(|i| format!("note {i}")).collect();
            texts.extend((0..giants).map(|i| format!("{i} and on ").repeat(300_000 / giants)));
            let (split, duplicates) = split(&texts, 0.1, seed).unwrap();
            let share = held_out(&split, &texts);
            assert!((0.05..=0.15).contains(&share), "{giants} {seed}: {share} by {}", split.rule);
            assert_eq!(duplicates.on_both_sides, 0);
        }
    }
}

#[test]
fn whole_documents_are_kept_where_they_are_asked_for() {
    let texts: Vec<String> = (0..3).map(|i| format!("{i} story ").repeat(1000 + i)).collect();
    let mut builder = SplitBuilder::of_whole_documents(0.1);
    for (text, hash) in texts.iter().zip(0..) {
        builder.push(hash, text.len() as u64, text.len() as u64);
    }
    let (split, _) = builder.finish().unwrap();
    assert_eq!((0..3).map(|i| split.side(i)).collect::<Vec<_>>(), [Side::Val, Side::Train, Side::Train]);
    assert!((0..3).all(|i| split.cut(i).is_none()));
}

#[test]
fn copies_of_one_document_are_refused() {
    let error = split(&["same".to_owned(), "same".to_owned()], 0.1, 0).err().unwrap().to_string();
    assert!(error.contains("all 2 documents are equal"), "{error}");
    assert!(split(&[], 0.1, 0).is_err());
}

#[test]
fn many_documents_are_split_by_chance_and_the_seed_decides() {
    let texts: Vec<String> = (0..20_000).map(|i| format!("document {i}")).collect();
    let chosen = |seed| {
        let (split, _) = split(&texts, 0.1, seed).unwrap();
        (0..20_000u64).filter(|&i| split.side(i) == Side::Val).collect::<Vec<_>>()
    };
    // 2,000 expected with a standard deviation of 42.
    assert!((1790..2210).contains(&chosen(1).len()));
    assert_eq!(chosen(1), chosen(1));
    assert_ne!(chosen(1), chosen(2));
}

#[test]
fn a_leak_would_be_seen() {
    let mut sides = BitVec::default();
    [false, true, true, false].into_iter().for_each(|side| sides.push(side));
    let split = Split { rule: String::new(), whole: sides, cuts: BTreeMap::new() };
    let near = NearDuplicateCounts::default();
    let duplicates = Duplicates::count(vec![10, 10, 20, 30], &split, near);
    assert_eq!(duplicates, Duplicates { examined: 4, exact: 1, on_both_sides: 1, near });
}

/// Made-up prose of this many words, unique to its number.
fn prose(number: u64, words: u64) -> String {
    let word = |place: u64| format!("w{} ", crate::random::mix(number << 32 | place) % 9000);
    (0..words).map(word).collect()
}

/// The same with every `distance`-th word replaced.
fn version(text: &str, distance: usize) -> String {
    let other = |(place, word): (usize, &str)| if place % distance == 1 { "other ".into() } else { format!("{word} ") };
    text.split_whitespace().enumerate().map(other).collect()
}

/// Splits as the survey does, with near-duplicates; `sources` gives the documents of each source.
fn split_near(
    texts: &[String],
    mut builder: SplitBuilder,
    sources: &[u64],
) -> Result<(Split, Duplicates, Vec<Vec<Candidate>>), Error> {
    let (mut hash, mut near) = (ContentHash::new(0), NearDuplicates::default());
    for text in texts {
        hash.update(text);
        near.add(text);
        near.end_document(builder.push(hash.finish(), text.len() as u64, text.chars().count() as u64));
    }
    let near = near.finish();
    let groups = near.groups.clone();
    builder.keep_together(near);
    builder.in_sources(sources.iter().copied());
    let (split, duplicates) = builder.finish()?;
    Ok((split, duplicates, groups))
}

/// Whether a group is entirely on one side.
fn is_together(split: &Split, group: &[Candidate]) -> bool {
    let first = split.side(group[0].number);
    group.iter().all(|document| split.side(document.number) == first && split.cut(document.number).is_none())
}

#[test]
fn near_duplicates_are_on_one_side() {
    for (count, words) in [(30, 300), (900, 120)] {
        let texts: Vec<String> =
            (0..count).map(|number| prose(number, words)).flat_map(|text| [version(&text, 70), text]).collect();
        for builder in [SplitBuilder::new, SplitBuilder::of_the_last] {
            let (split, duplicates, groups) = split_near(&texts, builder(0.1), &[2 * count]).unwrap();
            assert_eq!((groups.len() as u64, duplicates.near.documents), (count, count));
            assert!(groups.iter().all(|group| is_together(&split, group)), "{}", split.rule);
            assert_eq!((duplicates.near.on_both_sides, duplicates.near.groups), (0, count));
            let share = held_out(&split, &texts);
            assert!((0.05..=0.15).contains(&share), "{share} by {}", split.rule);
        }
    }
}

#[test]
fn drafts_of_one_text_are_cut_at_one_share() {
    let novel = prose(1, 20_000);
    let drafts = [version(&novel, 50), version(&novel, 70), novel];
    let (split, duplicates, groups) = split_near(&drafts, SplitBuilder::new(0.1), &[1; 3]).unwrap();
    assert_eq!((groups.len(), duplicates.near.on_both_sides), (1, 1));
    assert!((held_out(&split, &drafts) - 0.1).abs() < 1e-3 && (0..3).all(|draft| split.cut(draft).is_some()));
    // Beside another text the drafts are training text, and the end of the other is validation
    // text.
    let beside = [&drafts[..], &[prose(2, 15_000)]].concat();
    let (split, duplicates, _) = split_near(&beside, SplitBuilder::new(0.1), &[1; 4]).unwrap();
    assert_eq!(duplicates.near.on_both_sides, 0);
    assert!((held_out(&split, &beside) - 0.1).abs() < 1e-3 && split.cut(3).is_some(), "{}", split.rule);
    assert!(split.rule.contains("equal documents and near-duplicates together"), "{}", split.rule);
    // Two short notes that are nearly the same must be separated.
    let notes = [prose(3, 40), version(&prose(3, 40), 39)];
    let (split, ..) = split_near(&notes, SplitBuilder::new(0.1), &[1; 2]).unwrap();
    assert_ne!(split.side(0), split.side(1));
}

#[test]
fn a_letter_sent_many_times_does_not_take_the_share_along() {
    let mut texts: Vec<String> = (0..1200).map(|number| prose(number, 50)).collect();
    texts.extend((0..900).map(|number| version(&prose(7, 50), 40) + &format!("{number}")));
    for seed in 0..8 {
        texts.push(format!("seed {seed}"));
        let (split, duplicates, groups) = split_near(&texts, SplitBuilder::new(0.1), &[1]).unwrap();
        let share = held_out(&split, &texts);
        assert!((0.05..=0.15).contains(&share), "{share} by {}", split.rule);
        assert!(groups.iter().all(|group| is_together(&split, group)) && duplicates.near.on_both_sides == 0);
    }
}

#[test]
fn the_last_of_each_source_validate() {
    // A chat of twenty messages, and three letters, each in its own file.
    let mut texts: Vec<String> = (0..20).map(|number| prose(number, 50)).collect();
    texts.extend((20..23).map(|number| prose(number, 400)));
    let (split, ..) = split_near(&texts, SplitBuilder::of_the_last(0.1), &[20, 1, 1, 1]).unwrap();
    let validate = |split: &Split| (0..texts.len() as u64).filter(|&n| split.side(n) == Side::Val).collect::<Vec<_>>();
    let share = held_out(&split, &texts);
    assert!((0.08..=0.11).contains(&share), "{share}");
    assert!(validate(&split).iter().all(|number| (18..20).contains(number)), "{:?}", validate(&split));
    assert!(split.cut(22).is_some() && split.cut(20).is_none());
    assert!(split.rule.starts_with("the last 10%: of mails by their dates"));
    texts[19] = texts[3].clone();
    let (split, duplicates, _) = split_near(&texts, SplitBuilder::of_the_last(0.1), &[20, 1, 1, 1]).unwrap();
    assert_eq!((split.side(19), duplicates.on_both_sides), (Side::Train, 0));
    assert!(split.side(18) == Side::Val, "the copy is passed over");
    // Letters only, each longer than a tenth of the whole, the last one a copy.
    let mut letters: Vec<String> = (0..7).map(|number| prose(number, 40)).collect();
    letters[6] = letters[2].clone();
    let last = || SplitBuilder::of_the_last(0.1);
    let (split, duplicates, _) = split_near(&letters, last(), &[1; 7]).unwrap();
    assert!((split.side(5) == Side::Val || split.cut(5).is_some()) && duplicates.on_both_sides == 0);
    let copies = vec![letters[0].clone(); 3];
    let Err(error) = split_near(&copies, last(), &[1; 3]) else { panic!("copies were held out") };
    assert!(error.to_string().contains("every document has a duplicate"), "{error}");
}

#[test]
fn the_mails_with_the_latest_dates_validate_and_the_end_of_each_chat() {
    // Two unsorted mailboxes, and two chats.
    let texts: Vec<String> = (0..20).map(|number| prose(number, 100)).chain((20..22).map(|n| prose(n, 2000))).collect();
    let mut builder = SplitBuilder::of_the_last(0.2);
    for (number, text) in (0u64..).zip(&texts) {
        let date = number as i64 * 7 % 20;
        builder.dated(if number < 20 { Dated::At(date) } else { Dated::Throughout });
        builder.push(number, text.len() as u64, text.chars().count() as u64);
    }
    builder.in_sources([12, 8, 2].into_iter());
    let (split, ..) = builder.finish().unwrap();
    let latest = |number: &u64| *number < 20 && number * 7 % 20 >= 17;
    assert!((0..20).filter(latest).all(|number| split.side(number) == Side::Val));
    assert!((0..20).filter(|number| number * 7 % 20 < 16).all(|number| split.cut(number).is_none()));
    assert!([20, 21].iter().all(|&chat| split.cut(chat).is_some()));
}

/// Novels, letters, notes and their versions in any numbers: with enough dissimilar text the share
/// holds, and similar texts stay together.
#[test]
fn the_share_holds_whatever_the_sizes() {
    let mut parted = 0;
    for case in 0..150u64 {
        let draw = |place: u64, below: u64| crate::random::mix(case << 8 | place) % below;
        let mut texts = Vec::new();
        for number in 0..2 + draw(0, 40) {
            let words = 40 << draw(100 + number, 9);
            let text = prose(case << 16 | number, words);
            texts.extend((0..draw(200 + number, 8).saturating_sub(5)).map(|n| version(&text, 35 + n as usize)));
            texts.push(text);
        }
        let sources = vec![1; texts.len()];
        let (split, duplicates, groups) = split_near(&texts, SplitBuilder::new(0.1), &sources).unwrap();
        let share = held_out(&split, &texts);
        let bytes: usize = texts.iter().map(String::len).sum();
        assert!((0.05..=0.15).contains(&share) || bytes < 4000, "{case}: {share} by {}", split.rule);
        parted += duplicates.near.on_both_sides;
        assert!(groups.len() as u64 >= duplicates.near.on_both_sides);
    }
    assert!(parted <= 15, "{parted}");
}

/// Documents with many copies, of several kinds: the lists of all documents.
fn much_repeated() -> Vec<Vec<String>> {
    let survey = (0..5000).map(|row| match row % 20 {
        0..9 => "n/a, see above".to_owned(),
        _ => format!("answer {row} {}", "word".repeat(1 + row % 17)),
    });
    let equally_long =
        (0..2000).map(|line| if line % 4 > 0 { "hello world".into() } else { format!("line {line:06}") });
    let hardly_others =
        (0..3000).map(|line| if line % 3 > 0 { "see above".into() } else { format!("row {}", line % 30) });
    vec![survey.collect(), equally_long.collect(), hardly_others.collect()]
}

#[test]
fn an_answer_that_is_given_often_does_not_take_the_share_along() {
    for texts in much_repeated() {
        for seed in 0..60 {
            let (split, duplicates) = split(&texts, 0.1, seed).unwrap();
            let share = held_out(&split, &texts);
            assert!((0.05..=0.15).contains(&share), "{seed}: {share} by {}", split.rule);
            assert_eq!(duplicates.on_both_sides, 0);
        }
    }
}

#[test]
fn what_chance_splits_well_is_left_to_chance() {
    let texts = &much_repeated()[0];
    let sides = |split: &Split| (0..texts.len() as u64).map(|number| split.side(number)).collect::<Vec<_>>();
    let (by_chance, others): (Vec<_>, Vec<_>) = (0..80)
        .map(|seed| (seed, split(texts, 0.1, seed).unwrap().0))
        .partition(|(_, split)| split.rule.starts_with("documents whose content has a seeded hash"));
    assert!(by_chance.len() > 40 && !others.is_empty(), "{} {}", by_chance.len(), others.len());
    for (seed, split) in by_chance {
        let mut hash = ContentHash::new(seed);
        let by_hash = texts.iter().map(|text| {
            hash.update(text);
            if (hash.finish() as f64) < 0.1 * 2f64.powi(64) { Side::Val } else { Side::Train }
        });
        assert_eq!(sides(&split), by_hash.collect::<Vec<_>>());
    }
}

#[test]
fn copies_of_one_short_document_are_refused_however_many() {
    let copies = vec!["same".to_owned(); 3000];
    let error = split(&copies, 0.1, 0).err().unwrap().to_string();
    assert!(error.contains("all 3000 documents are equal"), "{error}");
}

#[test]
fn what_is_repeated_is_found_among_any_number_of_others() {
    let mut repeated = Repeated::default();
    let hash = |number: u64| if number.is_multiple_of(1000) { 7 } else { 1000 + number };
    let hashes: Vec<u64> = (0..200_000).map(hash).collect();
    for (&hash, number) in hashes.iter().zip(0..) {
        repeated.push(&Candidate { bytes: 30, number, hash, characters: 30, resembles: false });
    }
    let copies = repeated.copies(&hashes);
    assert_eq!((copies[&7].documents, copies[&7].bytes), (200, 6000));
    assert_eq!(copies.len(), 1, "what is said once is not repeated");
}

#[test]
fn beside_an_answer_that_is_given_often_the_others_validate_wherever_they_stand() {
    // More distinct documents than are counted, in reading order.
    let answer = |row: u64| match row % 5 {
        0..3 => "not applicable, see above".to_owned(),
        _ => format!("answer {row:05}"),
    };
    let texts: Vec<String> = (0..60_000).map(answer).collect();
    for seed in 0..3 {
        let (split, duplicates) = split(&texts, 0.1, seed).unwrap();
        let share = held_out(&split, &texts);
        assert!((0.09..=0.11).contains(&share) && duplicates.on_both_sides == 0, "{share} by {}", split.rule);
        for quarter in 0..4 {
            let others = (15_000 * quarter..15_000 * (quarter + 1)).filter(|row| row % 5 >= 3);
            let val = others.filter(|&row| split.side(row) == Side::Val).count();
            // 2,475 expected of 6,000, with a standard deviation of 38.
            assert!((2275..2675).contains(&val), "{val} in quarter {quarter} by {}", split.rule);
        }
        assert!(split.rule.starts_with("of the 36000 longest or most repeated"), "{}", split.rule);
        assert!(split.rule.contains("of the others those whose hash is in the lowest 4"), "{}", split.rule);
    }
}

#[test]
fn what_is_said_beside_one_answer_teaches_as_well() {
    for (often, seldom) in [(1900, 100), (475, 25)] {
        let mut texts = vec!["n/a, see above".to_owned(); often];
        texts.extend((0..seldom).map(|row| format!("answer {row:05} {row:010}")));
        for seed in 0..20 {
            let (split, _) = split(&texts, 0.1, seed).unwrap();
            let val = (0..texts.len() as u64).filter(|&number| split.side(number) == Side::Val);
            let others = val.filter(|&number| number >= often as u64).count();
            assert!((seldom / 3..=seldom / 2).contains(&others), "{others} of {seldom} by {}", split.rule);
        }
    }
}

#[test]
fn a_builder_that_was_written_down_and_read_goes_on_as_it_was() {
    let texts = &much_repeated()[0];
    for seed in 0..20 {
        let (mut builder, mut hash) = (SplitBuilder::new(0.1), ContentHash::new(seed));
        for (number, text) in texts.iter().enumerate() {
            if number == 2500 {
                builder = rmp_serde::from_slice(&rmp_serde::to_vec_named(&builder).unwrap()).unwrap();
            }
            hash.update(text);
            builder.push(hash.finish(), text.len() as u64, text.chars().count() as u64);
        }
        let (resumed, whole) = (builder.finish().unwrap().0, split(texts, 0.1, seed).unwrap().0);
        assert_eq!((resumed.rule, resumed.whole), (whole.rule, whole.whole));
    }
}

proptest! {
    #[test]
    fn equal_documents_never_stand_on_both_sides(
        ids in proptest::collection::vec(0u8..30, 2..3000), seed: u64, val_fraction in 0.05..0.5f64,
    ) {
        let texts: Vec<String> = ids.iter().map(|id| format!("document {id}")).collect();
        if let Ok((split, duplicates)) = split(&texts, val_fraction, seed) {
            let side = |id: u8| ids.iter().position(|&other| other == id).map(|i| split.side(i as u64));
            for (i, &id) in ids.iter().enumerate() {
                prop_assert_eq!(Some(split.side(i as u64)), side(id));
            }
            let distinct = ids.iter().collect::<BTreeSet<_>>().len();
            prop_assert_eq!(duplicates.exact, (ids.len() - distinct) as u64);
            prop_assert_eq!(duplicates.on_both_sides, 0);
        }
    }
}
