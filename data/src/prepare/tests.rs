#![allow(clippy::unwrap_used)]

mod folder;
mod held_out;

use super::*;
use crate::stories;
use crate::tokenizer::{END_OF_TEXT, SpecialTokens, Tokenizer};
use crate::windows::{TrainWindows, ValWindows};
use proptest::prelude::*;
use std::{collections::BTreeSet, path::Path, path::PathBuf};

struct Prepared {
    folder: tempfile::TempDir,
    manifest: Manifest,
    data: Dataset,
}

impl Prepared {
    fn ids(&self) -> (Vec<u32>, Vec<u32>) {
        let (mut train, mut val) = (Vec::new(), Vec::new());
        self.data.train.get(0..self.data.train.len(), &mut train).unwrap();
        self.data.val.get(0..self.data.val.len(), &mut val).unwrap();
        (train, val)
    }
}

fn options(folder: &Path, inputs: Vec<Input>, tokenizer: &str) -> PrepareOptions {
    PrepareOptions {
        inputs,
        tokenizer: tokenizer.parse().unwrap(),
        out: folder.join("out"),
        ..PrepareOptions::default()
    }
}

fn try_text(text: &str, tokenizer: &str) -> anyhow::Result<Prepared> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.txt");
    std::fs::write(&path, text).unwrap();
    let options = options(folder.path(), vec![Input::Path(path)], tokenizer);
    let manifest = prepare(&options, &Silent)?;
    let data = Dataset::open(&options.out)?;
    Ok(Prepared { folder, manifest, data })
}

fn text(text: &str, tokenizer: &str) -> Prepared {
    try_text(text, tokenizer).unwrap()
}

fn many_documents(count: usize) -> String {
    (0..count).map(|i| format!("This is document {}.\n{END_OF_TEXT}", i % (count - count / 10))).collect()
}

#[test]
fn documents_stand_between_ends_of_text() {
    let prepared = text(&format!("aa{END_OF_TEXT}\n{END_OF_TEXT}b{END_OF_TEXT}a"), "chars");
    // "aa", "b" and "a" (the blank document is left out); a b <|endoftext|> are 0 1 2.
    let (train, val) = prepared.ids();
    assert_eq!(prepared.manifest.vocab_size, 3);
    let documents = |ids: &[u32]| {
        assert_eq!((ids.first(), ids.last()), (Some(&2), Some(&2)));
        ids.split(|&id| id == 2).filter(|document| !document.is_empty()).map(<[u32]>::to_vec).collect::<Vec<_>>()
    };
    let mut all = [documents(&train), documents(&val)].concat();
    all.sort();
    assert_eq!(all, [vec![0], vec![0, 0], vec![1]]);
    assert_eq!(documents(&val).len() as u64, prepared.manifest.val.documents);
}

#[test]
fn bits_per_byte_are_of_the_tokens_that_are_predicted_and_of_their_text() {
    for (of, tokenizer, tokens, predicted, text_bytes) in [
        (format!("aaaaaaaaa{END_OF_TEXT}abc"), "bytes", 5, 4.0, 3.0), // <|endoftext|> is the context
        ("abcdefghijklmnopqrstuvwxyzabcd".to_owned(), "bytes", 4, 3.0, 2.0), // the first byte is the context
        ("abcdefghijklmnopqrsé".to_owned(), "chars", 2, 1.0, 2.0),
    ] {
        let manifest = text(&of, tokenizer).manifest;
        assert_eq!(manifest.val.tokens, tokens, "{of}");
        let bits = manifest.bits_per_byte(std::f64::consts::LN_2).unwrap();
        assert!((bits - predicted / text_bytes).abs() < 1e-12, "{of}: {bits}");
    }
}

#[test]
fn of_what_the_tokenizer_lacks_no_bits_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokenizer.json");
    let words = r#"{"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1, "b": 2}, "unk_token": "[UNK]"}}"#;
    std::fs::write(&file, words).unwrap();
    let prepared = |of: &str| try_text(&of.repeat(50), file.to_str().unwrap()).unwrap().manifest;
    let known = prepared("a b ");
    assert!(known.bits_per_byte(1.0).is_some() && known.train.unknown == 0);
    let unknown = prepared("a b c d ");
    assert_eq!((unknown.bits_per_byte(1.0), unknown.train.unknown * 2), (None, unknown.train.tokens));
    let is_reported =
        |manifest: &Manifest| manifest.report.notes.iter().any(|note| note.starts_with("50.0% of the tokens"));
    assert!(is_reported(&unknown) && !is_reported(&known), "{:?}", unknown.report.notes);
}

#[test]
fn what_auto_chooses() {
    let kinds = |text: &str| try_text(text, "auto").unwrap().manifest.tokenizer;
    assert_eq!(kinds(&"plain words ".repeat(100)), "chars");
    assert_eq!(kinds(&"plain words ".repeat(10_000)), "bpe:512");
    assert_eq!(kinds(&"plain words ".repeat(100_000)), "bpe:1024");
    let many: String = (0..300).filter_map(|i| char::from_u32(0x4e00 + i)).collect();
    assert_eq!(kinds(&many), "bpe:1024");
    let bpe = |bytes| text_tokenizer::bpe_for(bytes, 100).to_string();
    assert_eq!([3_500_000, 10_000_000, u64::MAX].map(bpe), ["bpe:4096", "bpe:8192", "bpe:8192"]);
}

#[test]
fn an_unknown_character_is_placed_in_its_document() {
    let folder = tempfile::tempdir().unwrap();
    Tokenizer::chars(&"ab\n".chars().collect(), true).unwrap().save(folder.path()).unwrap();
    let long = "ab\n".repeat(300_000) + "aé";
    let error = format!("{:#}", try_text(&long, folder.path().to_str().unwrap()).err().unwrap());
    assert!(
        error.starts_with("the tokenizer lacks 1 different character of the text, 1 in total")
            && error.contains("'é' once"),
        "{error}"
    );
    assert!(error.contains("'é' (U+00E9) in line 300001, character 900002"), "{error}");
}

#[test]
fn the_built_in_corpus_carries_its_marks() {
    let folder = tempfile::tempdir().unwrap();
    let options = options(folder.path(), vec![Input::Stories { count: 2000 }], "auto");
    let manifest = prepare(&options, &Silent).unwrap();
    let data = Dataset::open(&options.out).unwrap();
    assert_eq!(manifest.tokenizer, stories::TOKENIZER.to_string());
    assert_eq!(manifest.window_rule, WindowRule::DocumentStart);
    let marks = manifest.marks.unwrap();
    assert!(marks.forgetful_loss >= 1.3 * marks.entropy_floor);

    let mut ids = Vec::new();
    data.val.get(0..data.val.len(), &mut ids).unwrap();
    let end = data.tokenizer.end_of_text().unwrap();
    let texts = ids.split(|&id| id == end).filter(|document| !document.is_empty());
    let nats: f64 =
        texts.map(|document| stories::parse(&data.tokenizer.decode_text(document).unwrap()).unwrap().nats).sum();
    let windows = ValWindows::new(&data.val, 128, manifest.window_rule, Some(end)).unwrap();
    let floor = nats / windows.targets() as f64;
    assert!((floor - marks.entropy_floor).abs() < 1e-9, "{floor} {}", marks.entropy_floor);
    assert!(TrainWindows::new(&data.train, 128, 1, manifest.window_rule, Some(end)).unwrap().windows_per_pass() > 1700);
}

/// The built-in stories with a tokenizer whose end token has another name: it separates them, and
/// prompts begin with it.
#[test]
fn stories_take_a_tokenizer_whose_end_has_another_name() {
    let folder = tempfile::tempdir().unwrap();
    let json = Tokenizer::bytes().unwrap().to_json().unwrap().replace(END_OF_TEXT, "</s>");
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, json).unwrap();
    std::fs::write(folder.path().join("tokenizer_config.json"), r#"{"eos_token": "</s>"}"#).unwrap();
    let options = options(folder.path(), vec![Input::Stories { count: 200 }], path.to_str().unwrap());
    let manifest = prepare(&options, &Silent).unwrap();
    assert_eq!((manifest.end_of_text, manifest.window_rule), (Some(256), WindowRule::DocumentStart));
    let note = "Names of special tokens (</s>) in the text are plain text; only <|endoftext|> separates documents of plain text.";
    assert!(manifest.report.notes.contains(&note.to_owned()), "{:?}", manifest.report.notes);
    let data = Dataset::open(&options.out).unwrap();
    let mut first = Vec::new();
    data.train.get(0..1, &mut first).unwrap();
    assert_eq!((first, data.tokenizer.end_of_text()), (vec![256], Some(256)));
    assert_eq!(data.tokenizer.encode_prompt("O", SpecialTokens::Parse).unwrap(), [256, u32::from(b'O')]);
    assert!(TrainWindows::new(&data.train, 128, 1, manifest.window_rule, manifest.end_of_text).is_ok());
}

#[test]
fn the_same_text_prepares_to_the_same_bytes() {
    let content = many_documents(500);
    let (one, two) = (text(&content, "bpe:300"), text(&content, "bpe:300"));
    for file in ["train.bin", "val.bin", "tokenizer.json"] {
        let read = |prepared: &Prepared| std::fs::read(prepared.folder.path().join("out").join(file)).unwrap();
        assert!(read(&one) == read(&two), "{file}");
    }
}

#[test]
fn what_cannot_be_prepared_is_named() {
    let error = |content: &str| try_text(content, "auto").err().unwrap().to_string();
    assert!(error(" \n\n ").contains("the text is empty"));
    for (content, what) in [
        ("x".to_owned(), "the text is one character long"),
        ("xy".to_owned(), "one of the splits has fewer than the two tokens"),
        (format!("same{END_OF_TEXT}same"), "all 2 documents are equal"),
    ] {
        let line = error(&content);
        assert!(line.contains(&format!("text.txt: {what}")), "{line}");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut bad = options(folder.path(), Vec::new(), "auto");
    assert!(prepare(&bad, &Silent).unwrap_err().to_string().contains("no text was named"));
    bad.val_fraction = 1.0;
    assert!(prepare(&bad, &Silent).unwrap_err().to_string().contains("val_fraction is 1"));
    std::fs::write(folder.path().join("out2"), "a file").unwrap();
    bad = options(folder.path(), vec![Input::Stories { count: 10 }], "auto");
    bad.out = folder.path().join("out2");
    assert!(prepare(&bad, &Silent).unwrap_err().to_string().ends_with("out2 is a file; name a folder"));
}

#[test]
fn a_mistyped_name_costs_nothing() {
    let Prepared { folder, .. } = text(&many_documents(100), "chars");
    let mistyped = options(folder.path(), vec![Input::Path(PathBuf::from("no/such/file"))], "chars");
    assert!(prepare(&mistyped, &Silent).unwrap_err().to_string().contains("no/such/file"));
    assert!(Dataset::open(&mistyped.out).is_ok());
    let elsewhere = PrepareOptions { out: folder.path().join("new"), ..mistyped };
    prepare(&elsewhere, &Silent).unwrap_err();
    assert!(!elsewhere.out.exists(), "a folder is left");
}

#[test]
fn the_report_reads_well() {
    let report = text(&many_documents(2000), "bytes").manifest.report.to_string();
    assert!(
        report.contains("vocabulary used       ") && report.contains("exact duplicates      200 documents"),
        "{report}"
    );
    assert!(report.contains("in both splits        0 documents"), "{report}");
}

/// A tar archive of these files, of which several may have one name.
pub(super) fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, name, *content).unwrap();
    }
    archive.into_inner().unwrap()
}

#[test]
fn of_two_files_of_one_name_only_the_unusable_one_is_left_out() {
    let story = b"Once upon a time. ".repeat(50);
    let good = ("a.jsonl", &b"{\"text\": \"usable words\"}"[..]);
    let bad = ("a.jsonl", &b"{\"text\": \"one\"}\nno JSON"[..]);
    for files in [[good, bad, ("b.txt", &story)], [bad, good, ("b.txt", &story)]] {
        let folder = folder_of(&[("x.tar", &tar_of(&files))]);
        let manifest =
            prepare(&options(folder.path(), vec![Input::Path(folder.path().join("texts"))], "chars"), &Silent).unwrap();
        let bytes: Vec<u64> = manifest.sources.iter().map(|source| source.bytes).collect();
        assert_eq!((bytes, manifest.left_out.len()), (vec![12, story.len() as u64], 1));
        assert!(manifest.left_out[0].name.ends_with("x.tar/a.jsonl"));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn of_two_files_whose_names_are_shown_alike_only_the_unusable_one_is_left_out() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
    let folder = folder_of(&[("b.txt", &b"Once upon a time. ".repeat(50))]);
    let texts = folder.path().join("texts");
    std::fs::write(texts.join(OsStr::from_bytes(b"a\xfe.jsonl")), "{\"text\": \"one\"}\nno JSON").unwrap();
    std::fs::write(texts.join(OsStr::from_bytes(b"a\xff.jsonl")), "{\"text\": \"usable words\"}").unwrap();
    let manifest = prepare(&options(folder.path(), vec![Input::Path(texts)], "chars"), &Silent).unwrap();
    assert_eq!((manifest.sources.len(), manifest.left_out.len()), (2, 1));
    assert_eq!(manifest.sources[0].bytes, 12);
}

/// White space has no safe cut; searched anew at every line, this would take an hour.
#[test]
fn a_long_run_of_blank_lines_in_small_pieces_is_soon_encoded() {
    const LINES: usize = 1_200_000;
    let chat = format!("01.01.20, 10:00 - Ann: hi\n{}", "\n".repeat(LINES));
    let folder = folder_of(&[("_chat.txt", chat.as_bytes())]);
    let path = folder.path().join("texts/_chat.txt");
    let manifest = prepare(&options(folder.path(), vec![Input::Path(path)], "bpe:300"), &Silent).unwrap();
    assert_eq!(manifest.sources[0].bytes, ("Ann: hi\n".len() + LINES) as u64);
    assert_eq!(manifest.report.bytes.iter().sum::<u64>(), manifest.sources[0].bytes);
}

/// A folder of texts with these names.
fn folder_of(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = folder.path().join("texts").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    folder
}

#[test]
fn what_cannot_be_used_in_a_folder_is_left_out_and_said() {
    let late = ["é".as_bytes(), &vec![b'a'; 3_000_000], &[0xe9]].concat();
    let folder = folder_of(&[
        ("a.txt", &b"Once upon a time. ".repeat(500)[..]),
        ("b.jsonl", b"{\"body\": \"no text\"}"),
        ("c.txt", &late),
        ("d.jsonl", b"{\"text\": \"usable\"}"),
        ("e.txt.gz", b"not gzip at all"),
        ("f.parquet", b"PAR1 broken"),
        ("g.txt", b""),
        ("h.png", b"\x89PNG\0\0"),
        ("i.jsonl", b"{}"),
    ]);
    let texts = folder.path().join("texts");
    let manifest = prepare(&options(folder.path(), vec![Input::Path(texts.clone())], "chars"), &Silent).unwrap();
    let names: Vec<_> = manifest.sources.iter().map(|source| source.name.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["a.txt", "d.jsonl"]);
    assert_eq!(manifest.report.documents, [1, 2]);
    let mut left_out: Vec<_> = manifest.left_out.iter().map(|one| one.name.rsplit('/').next().unwrap()).collect();
    left_out.sort_unstable();
    assert_eq!(left_out, ["b.jsonl", "c.txt", "e.txt.gz", "f.parquet", "g.txt", "h.png", "i.jsonl"]);
    let report = manifest.report.to_string().replace(&format!("{}/", texts.display()), "");
    for line in [
        "Left out: 1 empty file: g.txt\n",
        "Left out: 1 file that is not text: h.png looks binary (byte 4 is zero)\n",
        "Left out: 2 text files that cannot be used, the first: c.txt is not UTF-8 text: byte 3000002 (0xE9)",
        "Left out: 2 JSON Lines files that cannot be used, the first: b.jsonl:1: no field \"text\"; name one of these: body\n",
        "Left out: 1 Parquet file that cannot be used: cannot read f.parquet as Parquet",
        "manifest.json lists everything that was left out, with the reason.\n",
    ] {
        assert!(report.contains(line), "{line}\n{report}");
    }
    // As an explicit input it is an error, and so is a folder with nothing else.
    let named = |name: &str| {
        let options = options(folder.path(), vec![Input::Path(texts.join(name))], "chars");
        format!("{:#}", prepare(&options, &Silent).unwrap_err())
    };
    assert!(named("b.jsonl").contains("no field \"text\""));
    assert!(named("c.txt").contains("is not UTF-8"));
    for name in ["a.txt", "d.jsonl"] {
        std::fs::remove_file(texts.join(name)).unwrap();
    }
    assert!(named("").starts_with("none of the files can be used; give others (1 empty file: "), "{}", named(""));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn all_text_comes_back(documents in proptest::collection::btree_set("[a-z é\n]{0,40}[a-z]", 2..30), bpe: bool) {
        let content = documents.iter().cloned().collect::<Vec<_>>().join(END_OF_TEXT);
        let prepared = text(&content, if bpe { "bpe:280" } else { "chars" });
        let (train, val) = prepared.ids();
        let end = prepared.data.tokenizer.end_of_text().unwrap();
        let mut found = BTreeSet::new();
        for document in [train, val].iter().flat_map(|ids| ids.split(|&id| id == end)).filter(|ids| !ids.is_empty()) {
            found.insert(prepared.data.tokenizer.decode_text(document).unwrap());
        }
        prop_assert_eq!(found, documents);
    }
}

#[test]
fn a_masked_text_has_tags_on_both_sides_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.txt");
    let letter = |number: u64| format!("Letter {number}: write to tom{number}@example.org or ring +49 30 901820.\n");
    std::fs::write(&path, (0..3000).map(letter).collect::<String>()).unwrap();
    let plain = options(folder.path(), vec![Input::Path(path)], "bytes");
    let masked = PrepareOptions { mask: true, ..plain.clone() };
    assert_ne!(plain.fingerprint().unwrap(), masked.fingerprint().unwrap());
    let manifest = prepare(&masked, &Silent).unwrap();
    let note = "Masked: 3,000 e-mail addresses, 3,000 telephone numbers.";
    assert!(manifest.report.notes.contains(&note.to_owned()), "{:?}", manifest.report.notes);
    let data = Dataset::open(&masked.out).unwrap();
    for tokens in [&data.train, &data.val] {
        let mut ids = Vec::new();
        tokens.get(0..tokens.len(), &mut ids).unwrap();
        let text = data.tokenizer.decode_text(&ids).unwrap();
        assert!(text.contains("write to [e-mail] or ring [telephone].") && !text.contains('@'));
    }
    let leakage = manifest.report.leakage;
    assert!(leakage.tokens == 64 && leakage.stretches > 10_000, "{leakage:?}");
}

#[test]
fn titles_that_a_manifest_keeps_are_masked_before_they_are_cut() {
    let title = "a word ".repeat(28) + "anna.lee@example.org";
    let note = format!("---\ntitle: {title}\n---\n{}", "One note of a few words. ".repeat(50));
    let folder = folder_of(&[("a.md", note.as_bytes())]);
    let plain = options(folder.path(), vec![Input::Path(folder.path().join("texts"))], "bytes");
    let title = |options: &PrepareOptions| prepare(options, &Silent).unwrap().sources[0].titles[0].1.clone();
    assert!(title(&plain).ends_with(" word anna"));
    assert!(title(&PrepareOptions { mask: true, ..plain }).ends_with(" word [e-m"));
}

#[test]
fn a_manifest_says_what_each_file_was_and_held() {
    let page = "<!DOCTYPE html><title>A page</title><p>One and two and three and four and five.</p>";
    let russian = "Старый маяк стоял на скале много лет, и никто не ходил туда. ".repeat(20);
    let old = encoding_rs::WINDOWS_1251.encode(&russian).0;
    let mail =
        "From: a@example.org\nSubject: Tea\nContent-Type: text/plain\n\nAt nine.\n\nOn 3 May Ann wrote:\n> When?\n";
    let folder = folder_of(&[
        ("a.html", page.as_bytes()),
        ("b.txt", old.as_ref()),
        ("c.eml", mail.as_bytes()),
        ("d.md", b"---\ntitle: Notes\n---\nOne note.\n<|endoftext|>Another, without a title.\n"),
    ]);
    let manifest =
        prepare(&options(folder.path(), vec![Input::Path(folder.path().join("texts"))], "bytes"), &Silent).unwrap();
    let [page, old, mail, notes] = &manifest.sources[..] else { panic!("{:?}", manifest.sources) };
    assert_eq!(page.titles, [(1, "A page".to_owned())]);
    assert_eq!(old.encoding.unwrap().encoding.name(), "windows-1251");
    assert_eq!((mail.changes.quoted_lines, mail.titles[0].1.as_str()), (2, "Tea"));
    assert_eq!(notes.titles, [(1, "Notes".to_owned())]);
    // A document may be cut, and then counts in both.
    let counted =
        manifest.sources.iter().fold([0, 0], |sum, one| [sum[0] + one.documents[0], sum[1] + one.documents[1]]);
    assert_eq!(counted, [manifest.train.documents, manifest.val.documents]);
    let report = manifest.report.to_string();
    assert!(report.contains("1 file is not UTF-8, so the encoding was guessed"), "{report}");
    assert!(report.contains("Cleaned: 2 lines of quoted mail."), "{report}");
    let again = Dataset::open(&folder.path().join("out")).unwrap().manifest;
    assert_eq!(again.sources, manifest.sources, "the manifest reads back");
}
