//! What is held out for validation.

use super::*;

#[test]
fn a_single_document_is_split_by_characters() {
    let prepared = text("abcdefghijklmnopqrsé", "auto");
    let (train, val) = prepared.ids();
    assert_eq!((train, val), ((0..18).collect::<Vec<_>>(), vec![18, 19]));
    let manifest = &prepared.manifest;
    assert_eq!((manifest.tokenizer.as_str(), manifest.vocab_size, manifest.end_of_text), ("chars", 20, None));
    assert_eq!((manifest.train.characters, manifest.val.bytes), (18, 3));
    assert_eq!(manifest.window_rule, WindowRule::Anywhere);
    assert_eq!(manifest.marks, None);
}

#[test]
fn a_cut_document_opens_in_training_and_closes_in_validation() {
    let (train, val) = text("abcdefghij", "bytes").ids();
    assert_eq!(train, [256, 97, 98, 99, 100, 101, 102, 103, 104, 105]);
    assert_eq!(val, [106, 256]);
}

#[test]
fn no_document_of_validation_stands_in_training() {
    let prepared = text(&many_documents(3000), "bytes");
    let (train, val) = prepared.ids();
    let documents = |ids: &[u32]| {
        ids.split(|&id| id == 256).map(<[u32]>::to_vec).filter(|d| !d.is_empty()).collect::<BTreeSet<_>>()
    };
    assert!(documents(&train).is_disjoint(&documents(&val)));
    assert_eq!(documents(&train).len() + documents(&val).len(), 2700);
    let report = &prepared.manifest.report;
    assert_eq!((report.duplicates.exact, report.duplicates.on_both_sides), (300, 0));
    assert_eq!(report.documents.iter().sum::<u64>(), 3000);
}

#[test]
fn a_long_document_without_an_end_is_cut_safely() {
    // A megabyte of words, and three of a single word, without a safe place to cut.
    let words: String = (0..200_000u64).map(|i| format!("{:x} ", crate::random::mix(i) % 500)).collect();
    for content in [words, "x".repeat(3 << 20)] {
        let prepared = text(&content, "bpe:300");
        let (train, val) = prepared.ids();
        let tokenizer = &prepared.data.tokenizer;
        let cut = (content.len() as f64 * 0.9) as usize;
        assert_eq!(tokenizer.decode_text(&train[1..]).unwrap(), content[..cut]);
        assert_eq!(tokenizer.decode_text(&val[..val.len() - 1]).unwrap(), content[cut..]);
        if content.contains(' ') {
            assert_eq!(train[1..], tokenizer.encode(&content[..cut]).unwrap());
        }
    }
}

#[test]
fn a_long_text_and_two_notes_validate_on_a_tenth_of_all() {
    let long = "It was a dark and stormy night, and so on. ".repeat(2000);
    let folder = folder_of(&[("a.txt", b"a note"), ("b.txt", long.as_bytes()), ("c.txt", b"and another")]);
    for (tokenizer, separated) in [("chars", true), ("bytes", true), ("bpe:300", true)] {
        let options = options(folder.path(), vec![Input::Path(folder.path().join("texts"))], tokenizer);
        let manifest = prepare(&options, &Silent).unwrap();
        let data = Dataset::open(&options.out).unwrap();
        let share = manifest.val.bytes as f64 / (manifest.val.bytes + manifest.train.bytes) as f64;
        assert!((share - 0.1).abs() < 1e-3, "{share}");
        let read = |tokens: &TokenFile| {
            let mut ids = Vec::new();
            tokens.get(0..tokens.len(), &mut ids).unwrap();
            ids
        };
        let end = data.tokenizer.end_of_text();
        assert_eq!(end.is_some(), separated);
        let texts = |ids: &[u32]| -> Vec<String> {
            ids.split(|&id| Some(id) == end).map(|ids| data.tokenizer.decode_text(ids).unwrap()).collect()
        };
        // Validation: both notes, and between them the end of the long text. Training: its
        // beginning, without an end token.
        let (train, val) = (texts(&read(&data.train)), texts(&read(&data.val)));
        assert_eq!((train.len(), train[0].as_str()), (2, ""));
        assert_eq!((val.len(), [0, 1, 3, 4].map(|i| val[i].as_str())), (5, ["", "a note", "and another", ""]));
        assert_eq!(train[1].clone() + &val[2], long);
        assert_eq!((manifest.train.documents, manifest.val.documents), (1, 3));
        let whole = read(&data.train);
        TrainWindows::new(&data.train, whole.len() - 1, 0, manifest.window_rule, end).unwrap();
    }
}

#[test]
fn where_the_share_is_missed_the_report_says_so() {
    let note_of = |of: &str| {
        let notes = text(of, "bytes").manifest.report.notes;
        notes.into_iter().find(|note| note.starts_with("Validation is "))
    };
    let note = note_of("aaaa<|endoftext|>bbb").unwrap();
    assert!(note.starts_with("Validation is 42.9% of the bytes, not 10%: short documents are not split"), "{note}");
    assert_eq!(note_of(&many_documents(3000)), None);
    // It is cut by characters; the last ones have four bytes each.
    assert_eq!(note_of(&("a".repeat(9000) + &"🙂".repeat(1000))), None);
    // A few stories, none of which is cut, and one of which is more than a tenth.
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), vec![Input::Stories { count: 3 }], "bytes");
    let notes = prepare(&options, &Silent).unwrap().report.notes;
    let note = notes.into_iter().find(|note| note.starts_with("Validation is ")).unwrap();
    assert!(note.ends_with("% of the bytes, not 10%."), "{note}");
}

#[test]
#[cfg(feature = "readers")]
fn the_mails_with_the_latest_dates_are_held_out() {
    let mail = |day: u64| {
        let words: Vec<String> =
            (0..60).map(|place| format!("w{}", crate::random::mix(day << 8 | place) % 997)).collect();
        format!(
            "From: a@example.org\nSubject: Tea\nDate: {day} Mar 2020 09:00:00 +0100\n\nThe {day}th. {}\n",
            words.join(" ")
        )
    };
    // An unsorted mailbox, and mails in separate files.
    let mailbox: String = [9, 20, 3, 17, 11, 5].map(|day| format!("From a\n{}\n", mail(day))).concat();
    let folder = folder_of(&[
        ("a.eml", mail(19).as_bytes()),
        ("b.mbox", mailbox.as_bytes()),
        ("c.eml", mail(2).as_bytes()),
        ("d.eml", mail(14).as_bytes()),
    ]);
    let options = options(folder.path(), vec![Input::Path(folder.path().join("texts"))], "bytes");
    prepare(&PrepareOptions { hold_out: HoldOut::Last, val_fraction: 0.25, ..options.clone() }, &Silent).unwrap();
    let data = Dataset::open(&options.out).unwrap();
    let mut ids = Vec::new();
    data.val.get(0..data.val.len(), &mut ids).unwrap();
    let held_out = data.tokenizer.decode_text(&ids).unwrap();
    assert!(held_out.contains("The 20th.") && held_out.contains("The 19th."), "{held_out}");
    assert_eq!(held_out.matches("th. ").count(), 2, "{held_out}");
}
