//! Files from common programs compared with what pandoc, poppler and Python read in them, and
//! damaged versions of these files. `tools/check-readers --fixtures` made them.
#![allow(clippy::unwrap_used)]

use super::*;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use unicode_normalization::UnicodeNormalization;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/readers")
}

fn expected() -> BTreeMap<String, String> {
    serde_json::from_slice(&std::fs::read(folder().join("expected.json")).unwrap()).unwrap()
}

/// As `normalised` in `tools/check-readers`.
fn normalised(text: &str) -> String {
    let typed = |character: char| match character {
        '“' | '”' | '„' => Some('"'),
        '‘' | '’' => Some('\''),
        '–' | '—' | '\u{2011}' | '\u{2010}' => Some('-'),
        '\u{ad}' | '\u{200e}' | '\u{202a}'..='\u{202e}' => None,
        other => Some(other),
    };
    let text: String = text.nfkc().filter_map(typed).collect();
    text.replace("---", "-").replace("--", "-").replace('…', "...").split_whitespace().collect()
}

type Found = Result<(Vec<(Option<String>, String)>, FileNotes), Error>;

/// The titles and texts of a file's documents, with the file given explicitly.
fn documents(path: &Path, clean: Clean) -> Found {
    let mut listing = Listing::default();
    listing.add_path(path)?;
    let options = ReadOptions { clean, ..ReadOptions::default() };
    let (mut documents, mut title, mut text) = (Vec::new(), None, String::new());
    let mut notes = FileNotes::default();
    for file in &listing.files {
        notes = read::<Error>(file, &options, &AtomicU64::new(0), &mut |event| {
            match event {
                Event::Title(words) => title = Some(words.to_owned()),
                Event::Dated(_) => {}
                Event::Text(piece) => text.push_str(piece),
                Event::EndOfDocument => documents.push((title.take(), std::mem::take(&mut text))),
            }
            Ok(())
        })?;
    }
    Ok((documents, notes))
}

/// A lower bound of the characters that two texts have in common, in order: the lengths of their
/// common prefix and suffix.
fn same_at_ends(ours: &str, theirs: &str) -> usize {
    let equal = |(one, other): &(char, char)| one == other;
    let before = ours.chars().zip(theirs.chars()).take_while(equal).count();
    before + ours.chars().rev().zip(theirs.chars().rev()).take_while(equal).count()
}

#[test]
fn every_kind_reads_what_other_programs_read() {
    for (name, theirs) in expected() {
        let (documents, _) = documents(&folder().join(&name), Clean::Off).unwrap();
        let ours: String = documents.iter().map(|(_, text)| normalised(text)).collect();
        if ours == theirs {
            continue;
        }
        let (same, of) = (same_at_ends(&ours, &theirs), ours.chars().count().max(theirs.chars().count()));
        assert!(same * 1000 >= of * 995, "{name}: {same} of {of} characters\n{ours}\n{theirs}");
    }
}

#[test]
fn titles_come_with_their_documents() {
    for (name, count, expected) in [
        ("cyrillic.docx", 1, "Title cyrillic"),
        ("greek.odt", 1, "Title greek"),
        ("japanese.epub", 3, "Chapter 0"),
        ("hebrew.html", 1, "Title hebrew"),
        ("cyrillic-1251.rtf", 1, "Title"),
        ("latin.pdf", 1, "Title latin"),
        ("latin.md", 1, "Title latin"),
        ("latin.mbox", 4, "0 The old lighthouse stood on th"),
        ("telegram latin.json", 1, "Ann"),
        ("discord japanese.json", 1, "general"),
    ] {
        let (documents, _) = documents(&folder().join(name), Clean::Auto).unwrap();
        assert_eq!(documents.len(), count, "{name}");
        assert_eq!(documents[0].0.as_deref(), Some(expected), "{name}");
    }
}

#[test]
fn what_cleaning_leaves_out_is_counted() {
    let changes = |name: &str| documents(&folder().join(name), Clean::Auto).unwrap().1.changes;
    let mail = changes("latin.mbox");
    assert_eq!((mail.quoted_lines, mail.signature_lines), (4, 8), "of four mails");
    let pdf = changes("latin.pdf");
    assert!(pdf.page_lines >= 3, "{pdf:?}");
    for (name, clean) in [("latin.mbox", Clean::Off), ("latin.pdf", Clean::Off), ("cyrillic.docx", Clean::Auto)] {
        assert_eq!(documents(&folder().join(name), clean).unwrap().1.changes, Changes::default(), "{name}");
    }
}

#[test]
fn what_an_encoding_is_taken_for_is_said() {
    let guess = |name: &str| documents(&folder().join(name), Clean::Auto).unwrap().1.guess;
    for (name, encoding) in [
        ("latin windows-1252.txt", "windows-1252"),
        ("cyrillic windows-1251.txt", "windows-1251"),
        ("cyrillic koi8-r.txt", "KOI8-U"),
        ("cyrillic utf-16-le.txt", "UTF-16LE"),
        ("greek windows-1253.txt", "windows-1253"),
        ("hebrew windows-1255.txt", "windows-1255"),
        ("japanese shift_jis.txt", "Shift_JIS"),
        ("japanese euc_jp.txt", "EUC-JP"),
        ("chinese gbk.txt", "GBK"),
        ("chinese big5.txt", "Big5"),
    ] {
        let guess = guess(name).unwrap();
        assert_eq!(guess.encoding.name(), encoding, "{name}");
        assert!((0.3..1.0).contains(&guess.confidence) && guess.replaced == 0, "{name}: {guess:?}");
    }
    for name in ["latin utf-16.txt", "latin utf-32.txt", "latin.md"] {
        assert_eq!(guess(name), None, "{name}: nothing is guessed");
    }
}

/// Thirty damaged versions of a file: truncated, bytes changed, parts removed or repeated.
fn damaged(whole: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    (0..30u64).map(|number| {
        let draw = |place: u64| crate::random::mix(number * 1000 + place) as usize;
        let mut bytes = whole.to_vec();
        match number % 3 {
            0 => bytes.truncate(draw(0) % whole.len()),
            1 => (0..1 + draw(1) % 40).for_each(|place| bytes[draw(2 + place as u64) % whole.len()] = draw(50) as u8),
            _ => {
                let (from, to) = (draw(3) % whole.len(), draw(4) % whole.len());
                let part = whole[from.min(to)..from.max(to)].to_vec();
                if number % 2 == 0 { drop(bytes.drain(from.min(to)..from.max(to))) } else { bytes.extend(part) }
            }
        }
        bytes
    })
}

#[test]
fn damaged_files_are_refused_in_a_line_or_read_and_soon() {
    let place = tempfile::tempdir().unwrap();
    for name in expected().keys() {
        let whole = std::fs::read(folder().join(name)).unwrap();
        for (number, bytes) in damaged(&whole).enumerate() {
            let path = place.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let started = Instant::now();
            if let Err(error) = documents(&path, Clean::Auto) {
                let line = ember_host::file_error::with_causes(&error);
                assert!(line.contains(name.as_str()) && !line.contains('\n'), "{name} {number}: {line}");
            }
            assert!(started.elapsed() < Duration::from_secs(20), "{name} {number}");
            std::fs::remove_file(path).unwrap();
        }
    }
}
