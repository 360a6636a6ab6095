#![allow(clippy::unwrap_used)]

use super::*;
use crate::prepare::{Input, Silent};
use crate::sensitive::Kind;

fn look_at(files: &[(&str, String)]) -> Look {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    let inputs = vec![Input::Path(folder.path().to_owned())];
    let options = PrepareOptions { inputs, out: folder.path().to_owned(), ..PrepareOptions::default() };
    look(&options, &Silent).unwrap()
}

/// Made-up prose of this many words, unique to its number.
fn prose(number: u64, words: u64) -> String {
    let end = |place: u64| if place % 20 == 19 { "\n" } else { " " };
    let word = |place: u64| format!("w{}{}", crate::random::mix(number << 32 | place) % 9000, end(place));
    (0..words).map(word).collect()
}

#[test]
fn a_folder_is_told_by_its_parts() {
    let footer = "Sent from my pocket telephone, excuse the brevity\n";
    let mut files: Vec<(String, String)> =
        (0..8).map(|number| (format!("mail-{}.txt", 2015 + number), prose(number, 60) + "\n" + footer)).collect();
    let novel = prose(100, 30_000) + "\nWrite to anna@example.org.\n";
    files.push(("novel.md".to_owned(), novel.clone()));
    files.push(("novel, second version.md".to_owned(), novel + "The end."));
    files.push(("main.rs".to_owned(), "fn main() {\n    let x = f(1, 2);\n    g(x);\n}\n".repeat(20)));
    files.push(("blob.txt".to_owned(), "A9f".repeat(200) + "\nring +49 30 901820, or tom@example.org\n"));
    files.push(("empty.txt".to_owned(), String::new()));
    let files: Vec<(&str, String)> = files.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
    let look = look_at(&files);

    let bytes: usize = files.iter().map(|(_, text)| text.len()).sum();
    assert_eq!((look.documents, look.bytes, look.files, look.left_out.len()), (12, bytes as u64, 12, 1));
    assert_eq!(look.characters, look.bytes);
    let kinds: Vec<(&str, u64)> = look.kinds.iter().map(|kind| (kind.name.as_str(), kind.files)).collect();
    assert_eq!(kinds, [(".md", 2), (".txt", 9), (".rs", 1)]);
    assert!(look.years.iter().any(|year| year.name == "2016" && year.files == 1));
    assert_eq!((look.repeated.groups, look.repeated.documents), (1, 1));
    assert!(look.repeated.examples[0].iter().all(|name| name.contains("novel")));
    let repeated = &look.lines.repeated[0];
    assert_eq!((repeated.line.as_str(), repeated.documents), (footer.trim(), 8));
    assert_eq!((look.lines.odd_count, look.lines.longest), (1, 600));
    assert!((0.0..0.05).contains(&look.lines.code) && look.lines.code > 0.0);
    assert_eq!(look.lengths.iter().sum::<u64>(), 12);

    let count =
        |kind: Kind| look.private.iter().find(|found| found.kind == kind).map(|found| (found.count, found.documents));
    assert_eq!((count(Kind::EmailAddress), count(Kind::TelephoneNumber)), (Some((3, 3)), Some((1, 1))));
    let place = &look.private[0].places[0];
    assert!(place.source.ends_with("blob.txt") && place.shown == "tom\u{2026}");
    assert_eq!((place.document, place.offset), (1, 601 + "ring +49 30 901820, or ".len() as u64));
    assert!(look.private[0].places.iter().all(|place| place.document == 1), "each file is one document");
    assert!(look.to_string().contains("blob.txt, document 1, byte "));
}

#[cfg(feature = "readers")]
#[test]
fn mails_are_of_the_years_that_they_say() {
    let mail = |header: &str| format!("From ann@b Mon Jan  1 00:00:00 2024\nSubject: x\n{header}\nOne mail.\n\n");
    let dates = ["Date: Mon, 2 Jan 2012 10:00:00 +0000\n", "Date: Thu, 2 Jan 2014 10:00:00 +0000\n", ""];
    let look = look_at(&[("mails of 2020.mbox", dates.map(mail).concat()), ("letter-2014.txt", prose(1, 60))]);
    let years = look.years.iter().map(|year| (year.name.as_str(), year.files, year.documents));
    assert_eq!(years.collect::<Vec<_>>(), [("2012", 1, 1), ("2014", 2, 2), ("2020", 1, 1)]);
    assert_eq!(look.years.iter().map(|year| year.bytes).sum::<u64>(), look.bytes);
}

#[test]
fn one_text_is_looked_at_alike_however_long() {
    let line = "The harbour was silent, and nobody came to tom@example.org.\n";
    let look = look_at(&[("long.txt", line.repeat(40_000))]);
    assert_eq!(look.private[0].count, 40_000);
    assert_eq!((look.private[0].places.len(), look.private[0].places[1].offset), (100, line.len() as u64 + 43));
    assert_eq!((look.lines.count, look.lines.longest, look.documents), (40_000, line.len() as u64 - 1, 1));
    assert!(look.lines.repeated.is_empty());
    assert_eq!(look.vocabulary.favourites[0].text, "harbour");
}

#[test]
fn encodings_that_were_guessed_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let russian = "Старый маяк стоял на скале много лет, и никто не ходил туда. ".repeat(20);
    let japanese = "古い灯台は長い間、崖の上に立っていた。\n".repeat(20);
    for (name, text, encoding) in [
        ("a.txt", &russian, encoding_rs::WINDOWS_1251),
        ("b.txt", &russian, encoding_rs::WINDOWS_1251),
        ("c.txt", &japanese, encoding_rs::ISO_2022_JP),
        ("d.txt", &russian, encoding_rs::UTF_8),
    ] {
        std::fs::write(folder.path().join(name), encoding.encode(text).0).unwrap();
    }
    let inputs = vec![Input::Path(folder.path().to_owned())];
    let options = PrepareOptions { inputs, out: folder.path().to_owned(), ..PrepareOptions::default() };
    let look = look(&options, &Silent).unwrap();
    assert_eq!(look.bytes as usize, 3 * russian.len() + japanese.len());
    let expected =
        "3 files are not UTF-8, so the encoding was guessed (1 ISO-2022-JP, 2 windows-1251); least certain: ";
    assert!(look.encodings.as_ref().is_some_and(|line| line.starts_with(expected)), "{:?}", look.encodings);
    assert!(look.to_string().contains(expected));
}

#[test]
fn a_text_of_nothing_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), " \n").unwrap();
    let inputs = vec![Input::Path(folder.path().join("a.txt"))];
    let options = PrepareOptions { inputs, out: folder.path().to_owned(), ..PrepareOptions::default() };
    assert!(look(&options, &Silent).unwrap_err().to_string().contains("the text is empty"));
}
