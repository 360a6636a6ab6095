#![allow(clippy::unwrap_used)]

use super::*;
use std::path::Path;

/// The table in docs/texts.md, between its marks. `EMBER_BLESS=1` rewrites it.
#[test]
fn the_documents_have_the_table_of_kinds() {
    let cell = |text: &str| text.replace('|', "\\|");
    let row = |kind: Kind| {
        let About { name, endings, document, without, .. } = kind.about();
        let endings: Vec<String> = endings.iter().map(|ending| format!("`{ending}`")).collect();
        format!("| {name} | {} | {} | {} |\n", endings.join(" "), cell(document), cell(without))
    };
    let head = "| kind | names end in | a document is | left out |\n|---|---|---|---|\n";
    let table: String = std::iter::once(head.to_owned()).chain(Kind::all().map(row)).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/texts.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once("<!-- kinds:begin -->\n").unwrap();
    let (written, after) = rest.split_once("<!-- kinds:end -->").unwrap();
    if std::env::var_os("EMBER_BLESS").is_some() {
        let page = format!("{before}<!-- kinds:begin -->\n{table}<!-- kinds:end -->{after}");
        std::fs::write(path, page).unwrap();
    } else {
        assert_eq!(written, table, "EMBER_BLESS=1 writes it");
    }
}

#[test]
fn content_counts_before_the_name_and_names_of_other_texts_do_not() {
    for (name, bytes, expected) in [
        ("a.txt", &b"%PDF-1.7"[..], "pdf"),
        ("a.pdf", b"PAR1", "parquet"),
        ("a.doc", b"{\\rtf1", "rtf"),
        ("page", b"<!DOCTYPE html><p>", "html"),
        ("a.rs", b"<html>", "text"),
        ("a.txt", b"WEBVTT\n\n", "subtitles"),
        ("a.txt", b"From a@b Mon Jan  1 00:00:00 2024\nSubject: x\n", "mbox"),
        ("a.txt", b"From here: on\nit is text\n", "text"),
        ("box/cur/1234.host:2,s", b"Return-Path: <a@b>\n", "mail"),
        ("a.txt", b"[03.05.21, 10:00:00] Ann: hello\n", "whatsapp"),
        ("a.txt", "03/05/2021 à 10:00 - Ann: hello\n".as_bytes(), "whatsapp"),
        ("a.txt", b"2021-05-03 10:00 - up early\n2021-05-04 10:00 - late\n", "text"),
        ("a.json", b"{\"name\": \"a\", \"type\": \"personal_chat\", \"messages\": []}", "chat_json"),
        ("message_1.json", b"{\"participants\": [], \"messages\": [{\"sender_name\": \"a\"}]}", "chat_json"),
        ("Ann_1.json", b"{\"participants\": [\"Ann\"], \"messages\": [{\"senderName\": \"a\"}]}", "chat_json"),
        ("package.json", b"{\"name\": \"a\", \"type\": \"module\"}", "text"),
        ("a.txt", b"12.03.24, 18.05 - Ann: hello\n", "whatsapp"),
        ("page", b"From: <Saved by Blink>\nMIME-Version: 1.0\n", "mhtml"),
        ("page.mhtml", b"MIME-Version: 1.0\n", "mhtml"),
        ("a.tex", b"x", "latex"),
        ("a", b"\\documentclass{article}", "latex"),
        ("a.unknown", b"x", "text"),
    ] {
        let start = Start { bytes: bytes.to_owned(), name: name.to_owned() };
        assert_eq!(Kind::of(&start).about().id, expected, "{name}");
    }
}

#[test]
fn kinds_differ_in_their_words() {
    for kind in Kind::all() {
        assert_eq!(Kind::by_id(kind.about().id), Some(kind));
        let same = Kind::all().filter(|other| other.about().name == kind.about().name).count();
        assert_eq!(same, 1, "{kind:?}");
    }
}
