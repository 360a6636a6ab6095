#![allow(clippy::unwrap_used)]

use super::*;
use ::parquet::data_type::{ByteArray, ByteArrayType};
use ::parquet::{file::writer::SerializedFileWriter, schema::parser::parse_message_type};
use anyhow::Result;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::{io, io::Read, io::Write, sync::Arc};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

fn parquet(rows: &[Option<&str>]) -> Vec<u8> {
    let schema =
        parse_message_type("message m { optional binary text (STRING); optional binary other (STRING); }").unwrap();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::default()).unwrap();
    for rows in rows.chunks(3) {
        let mut group = writer.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            let values: Vec<ByteArray> = rows.iter().flatten().map(|&text| ByteArray::from(text)).collect();
            let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.is_some())).collect();
            column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
    bytes
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn reading(field: &str) -> ReadOptions {
    ReadOptions { field: field.to_owned(), ..ReadOptions::default() }
}

fn documents(path: &Path, field: &str) -> Result<Vec<String>> {
    let mut listing = Listing::default();
    listing.add_path(path)?;
    let mut documents = vec![String::new()];
    let read_bytes = AtomicU64::new(0);
    for file in &listing.files {
        read::<Error>(file, &reading(field), &read_bytes, &mut |event| {
            match event {
                Event::Title(_) | Event::Dated(_) => {}
                Event::Text(text) => documents.last_mut().unwrap().push_str(text),
                Event::EndOfDocument => documents.push(String::new()),
            }
            Ok(())
        })?;
    }
    assert_eq!(read_bytes.into_inner(), listing.bytes(), "all bytes are counted");
    documents.pop();
    Ok(documents)
}

fn read_as(name: &str, bytes: &[u8]) -> Result<Vec<String>> {
    documents(&Folder::new().write(name, bytes), "text")
}

/// The error's line, without the folder's name.
fn error_of(name: &str, bytes: &[u8]) -> String {
    let folder = Folder::new();
    let path = folder.write(name, bytes);
    let error = format!("{:#}", documents(&path, "text").unwrap_err());
    assert!(!error.contains('\n'), "{error}");
    error.replace(&format!("{}/", folder.0.path().display()), "")
}

#[test]
fn a_text_is_a_document_and_separators_make_several() {
    assert_eq!(read_as("a.txt", b"one\r\ntwo\n").unwrap(), ["one\r\ntwo\n"]);
    assert_eq!(read_as("a", b"one\n<|endoftext|>two<|endoftext|>").unwrap(), ["one\n", "two", ""]);
    assert_eq!(read_as("a.txt", "\u{feff}bom\u{feff}".as_bytes()).unwrap(), ["bom\u{feff}"]);
    assert_eq!(read_as("a.txt", b"ends in <|endoft").unwrap(), ["ends in <|endoft"]);
}

#[test]
fn half_a_character_in_json_lines_costs_the_character_and_not_the_file() {
    let lines = r#"{"text": "cut \ud83d"}
{"text": "\ude42\ud83d\ude42", "id": "\ud83d"}"#;
    assert_eq!(read_as("a.jsonl", lines.as_bytes()).unwrap(), ["cut \u{fffd}", "\u{fffd}🙂"]);
    let mut listing = Listing::default();
    let folder = Folder::new();
    listing.add_path(&folder.write("a.jsonl", br#"{"text": "\ud83d \ud83d"}"#)).unwrap();
    let notes = read::<Error>(&listing.files[0], &reading("text"), &AtomicU64::new(0), &mut |_| Ok(())).unwrap();
    assert_eq!(notes.changes.lone_surrogates, 2);
}

#[test]
fn every_form_reads_the_same_compressed() {
    let json = b"{\"text\": \"one\", \"n\": 1}\n\n{\"text\": null}\n{\"n\": 2, \"text\": \"two<|endoftext|>\\n\"}";
    let rows = parquet(&[Some("one"), None, Some("two<|endoftext|>\n")]);
    for (name, bytes) in [("a.jsonl", &json[..]), ("a.ndjson", json), ("a.parquet", &rows), ("unnamed", &rows)] {
        let expected = ["one", "two<|endoftext|>\n"];
        assert_eq!(read_as(name, bytes).unwrap(), expected, "{name}");
        if name != "unnamed" {
            assert_eq!(read_as(&format!("{name}.gz"), &gzip(bytes)).unwrap(), expected, "{name}.gz");
            assert_eq!(read_as(&format!("{name}.zst"), &zstd(bytes)).unwrap(), expected, "{name}.zst");
        }
    }
    let members = [gzip(b"one "), gzip(b"two")].concat();
    assert_eq!(read_as("a.txt.gz", &members).unwrap(), ["one two"]);
    assert_eq!(read_as("a.txt", &zstd(b"by its content")).unwrap(), ["by its content"]);
}

#[test]
fn another_field_can_be_named() {
    let folder = Folder::new();
    let json = folder.write("a.jsonl", b"{\"other\": \"x\"}");
    assert_eq!(documents(&json, "other").unwrap(), ["x"]);
    let rows = folder.write("a.parquet", &parquet(&[Some("y")]));
    assert_eq!(documents(&rows, "other").unwrap(), ["y"]);
}

#[test]
fn a_folder_is_read_in_order_without_what_is_no_text() {
    let folder = Folder::new();
    for (name, bytes) in [
        ("b.txt", &b"b"[..]),
        ("a/z.txt", b"az"),
        ("a/a.md", b"aa"),
        (".git/x", b"no"),
        ("c.bin", b"\0\x01"),
        ("d", b""),
    ] {
        folder.write(name, bytes);
    }
    assert_eq!(documents(folder.0.path(), "text").unwrap(), ["aa", "az", "b"]);
    let mut listing = Listing::default();
    listing.add_path(folder.0.path()).unwrap();
    let left_out: Vec<_> =
        listing.left_out.iter().map(|one| (one.name.rsplit('/').next().unwrap(), one.kind)).collect();
    assert_eq!(left_out, [("c.bin", LeftOutKind::Binary), ("d", LeftOutKind::Empty)]);
}

#[test]
fn files_of_other_programs_are_not_taken_for_text_and_say_what_helps() {
    let folder = Folder::new();
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(5);
    header.set_cksum();
    tar.append_data(&mut header, "xl/sheet.xml", &b"<row>"[..]).unwrap();
    let archive = tar.into_inner().unwrap();
    let old = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0words";
    for (name, bytes) in [
        ("a.txt", &b"text"[..]),
        ("letter.doc", old),
        ("memo.DOC", old),
        ("novel.pages", &archive),
        ("sums.xlsx", &archive),
        ("plain.doc", b"a text by the name of an old document"),
        ("rich.doc", b"{\\rtf1 rich}"),
        ("server.key", b"-----BEGIN KEY-----"),
        ("~$letter.docx", b"\x08Anna\0\0"),
        ("texts.tar", &archive),
    ] {
        folder.write(name, bytes);
    }
    let mut listing = Listing::default();
    listing.add_path(folder.0.path()).unwrap();
    let name = |name: &str| name.strip_prefix(&format!("{}/", folder.0.path().display())).unwrap().to_owned();
    let files: Vec<_> = listing.files.iter().map(|file| name(&file.name)).collect();
    assert_eq!(files, ["a.txt", "plain.doc", "rich.doc", "server.key", "texts.tar/xl/sheet.xml"]);
    let reported =
        LeftOut::summary(&listing.left_out).join("\n").replace(&format!("{}/", folder.0.path().display()), "");
    let expected = "3 documents in an unsupported format, the first: letter.doc is a document in an unsupported \
                    format; save it as .docx (LibreOffice converts many at once)\n\
                    1 spreadsheet: sums.xlsx is a spreadsheet; save the sheet that has text as CSV";
    assert_eq!(reported, expected);
    for one in listing.left_out {
        let again: LeftOut = serde_json::from_str(&serde_json::to_string(&one).unwrap()).unwrap();
        assert_eq!(again, one, "a manifest keeps it");
    }
    assert!(error_of("sums.ods", &archive).starts_with("sums.ods is a spreadsheet; save"));
}

#[test]
fn folders_that_these_programs_wrote_are_no_text() {
    let folder = Folder::new();
    let tokens = crate::tokens::TokenWriter::create(&folder.write("half/train.bin", b""), 65).unwrap();
    tokens.finish().unwrap();
    for (name, content) in [
        ("text.txt", "text"),
        ("half/tokenizer.json", "{}"),
        ("whole/manifest.json", "{\"format_version\": 1, \"tokenizer_checksum\": \"0\", \"tokenizer\": \"chars\"}"),
        ("whole/tokenizer.json", "{}"),
        ("runs/a/config.toml", "n_layer = 1"),
        ("runs/a/metrics.jsonl", "{}"),
        ("theirs/manifest.json", "{\"files\": []}"),
        ("theirs/config.toml", "text"),
        ("theirs/train.bin", "other people's tokens"),
    ] {
        folder.write(name, content.as_bytes());
    }
    let mut listing = Listing::default();
    listing.add_path(folder.0.path()).unwrap();
    let name = |name: &str| name.strip_prefix(&format!("{}/", folder.0.path().display())).unwrap().to_owned();
    let files: Vec<_> = listing.files.iter().map(|file| name(&file.name)).collect();
    assert_eq!(files, ["text.txt", "theirs/config.toml", "theirs/manifest.json", "theirs/train.bin"]);
    let left_out: Vec<_> = listing.left_out.iter().map(|one| (name(&one.name), one.kind)).collect();
    let expected = [("half", LeftOutKind::Prepared), ("runs/a", LeftOutKind::Run), ("whole", LeftOutKind::Prepared)];
    assert_eq!(left_out, expected.map(|(name, kind)| (name.to_owned(), kind)));
    for (named, expected) in [("runs/a", "is a run, not text"), ("whole", "is a prepared text already")] {
        let error = Listing::default().add_path(&folder.0.path().join(named)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn pages_and_recipes_that_these_programs_wrote_are_no_text() {
    let folder = Folder::new();
    let page = |head: &str| format!("<!DOCTYPE html>\n<head>{head}</head><p>text").into_bytes();
    let mark = "<meta name=\"generator\" content=\"ember-page\">";
    for (name, content) in [
        ("about.md", format!("A page has `{mark}` in its head.\n").into_bytes()),
        ("mine.html", page("<meta name=\"generator\" content=\"ember-cli\">")),
        ("other.toml", b"# Planned for Monday\nseed = 1\n".to_vec()),
        ("plan.toml", format!("{RECIPE_HEAD} 10 minutes on cpu\nseed = 1\n").into_bytes()),
        ("theirs.html.gz", gzip(&page(mark))),
        ("theirs.html", page(mark)),
    ] {
        folder.write(name, &content);
    }
    let mut listing = Listing::default();
    listing.add_path(folder.0.path()).unwrap();
    let name = |name: &str| name.strip_prefix(&format!("{}/", folder.0.path().display())).unwrap().to_owned();
    let files: Vec<_> = listing.files.iter().map(|file| name(&file.name)).collect();
    assert_eq!(files, ["about.md", "mine.html", "other.toml"]);
    let reported =
        LeftOut::summary(&listing.left_out).join("\n").replace(&format!("{}/", folder.0.path().display()), "");
    assert_eq!(reported, "3 files written by Ember, the first: plan.toml");
    let line = error_of("page.html", &page(mark));
    assert_eq!(line, "page.html is a page or a recipe that Ember wrote, not text; name the text itself");
}

fn utf16(text: &str, order: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(order).collect()
}

#[test]
fn text_in_utf16_with_its_mark_is_text() {
    for order in [u16::to_le_bytes, u16::to_be_bytes] {
        let bytes = utf16("\u{feff}one é 🙂\r\n<|endoftext|>two\u{feff}", order);
        assert_eq!(read_as("a.txt", &bytes).unwrap(), ["one é 🙂\r\n", "two\u{feff}"]);
        assert_eq!(read_as("a.txt.gz", &gzip(&bytes)).unwrap(), ["one é 🙂\r\n", "two\u{feff}"]);
        let bytes = utf16("\u{feff}{\"text\": \"é\"}\n{\"text\": \"zwei\"}\n", order);
        assert_eq!(read_as("a.jsonl", &bytes).unwrap(), ["é", "zwei"]);
        let folder = Folder::new();
        folder.write("a.txt", &utf16("\u{feff}in a folder", order));
        assert_eq!(documents(folder.0.path(), "text").unwrap(), ["in a folder"]);
        // A surrogate pair across the end of a block of 65,536 bytes after the byte order mark.
        let long = format!("{}🙂{}", "a".repeat(32767), "b".repeat(70_000));
        assert_eq!(read_as("a.txt", &utf16(&format!("\u{feff}{long}"), order)).unwrap(), [long]);
    }
}

#[test]
fn text_that_is_said_to_be_utf16_is_not_taken_for_binary() {
    let folder = Folder::new();
    // Many of its characters have a zero low byte, so the encoding is not detected.
    let text = "一一一一 Ā\n";
    let path = folder.write("a.txt", &utf16(text, u16::to_le_bytes));
    assert!(documents(&path, "text").is_err());
    let options = ReadOptions { encoding: Some(encoding_rs::UTF_16LE), ..ReadOptions::default() };
    let mut listing = Listing::new(&options);
    listing.add_path(&path).unwrap();
    let mut found = String::new();
    read::<Error>(&listing.files[0], &options, &AtomicU64::new(0), &mut |event| {
        if let Event::Text(piece) = event {
            found.push_str(piece);
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(found, text);
    let few = "一 and 中文 in a line of words\n";
    assert_eq!(read_as("a.txt", &utf16(few, u16::to_le_bytes)).unwrap(), [few]);
}

#[test]
fn gzip_is_read_past_its_members_to_the_zeros_that_pad_it() {
    let padded = [gzip(b"one "), gzip(b"two"), vec![0; 600_000]].concat();
    assert_eq!(read_as("a.txt.gz", &padded).unwrap(), ["one two"]);
    let between = [gzip(b"one "), vec![0; 512], gzip(b"two")].concat();
    assert_eq!(read_as("a.txt.gz", &between).unwrap(), ["one two"]);
    let followed = [gzip(b"one"), vec![0; 512], b"else".to_vec()].concat();
    assert!(error_of("a.txt.gz", &followed).starts_with("cannot read a.txt.gz after 0 bytes of text"));
}

#[test]
fn damaged_parquet_never_panics_out_of_the_library() {
    let whole = parquet(&[Some("one"), None, Some("two"), Some("three")]);
    for place in 4..whole.len() {
        for bit in [0, 3, 6, 7] {
            let mut damaged = whole.clone();
            damaged[place] ^= 1 << bit;
            let folder = Folder::new();
            let mut listing = Listing::default();
            listing.add_path(&folder.write("a.parquet", &damaged)).unwrap();
            // Any result is fine if the process survives; an error names the file.
            if let Err(error) =
                read::<anyhow::Error>(&listing.files[0], &reading("text"), &AtomicU64::new(0), &mut |_| Ok(()))
            {
                let error = format!("{error:#}");
                assert!(error.contains("a.parquet") && !error.contains('\n'), "{error}");
            }
        }
    }
}

#[test]
fn standard_input_is_copied_and_recognised() {
    let folder = Folder::new();
    let mut listing = Listing::default();
    assert!(listing.add_stdin(io::Cursor::new(gzip(b"piped")), folder.0.path(), &|| false).unwrap());
    assert_eq!(&*listing.files[0].name, "standard input");
    let mut text = String::new();
    let mut sink = |event: Event<'_>| {
        if let Event::Text(piece) = event {
            text.push_str(piece);
        }
        Ok(())
    };
    read::<Error>(&listing.files[0], &reading("text"), &AtomicU64::new(0), &mut sink).unwrap();
    assert_eq!(text, "piped");
    drop(listing);
    assert_eq!(std::fs::read_dir(folder.0.path()).unwrap().count(), 0);
    for marked in ["\u{feff}piped".as_bytes().to_vec(), utf16("\u{feff}piped", u16::to_be_bytes)] {
        let mut listing = Listing::default();
        assert!(listing.add_stdin(io::Cursor::new(marked), folder.0.path(), &|| false).unwrap());
        let mut text = String::new();
        read::<Error>(&listing.files[0], &reading("text"), &AtomicU64::new(0), &mut |event| {
            if let Event::Text(piece) = event {
                text.push_str(piece);
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(text, "piped", "without its mark");
    }
    let error = Listing::default().add_stdin(&b""[..], folder.0.path(), &|| false).unwrap_err();
    assert_eq!(error.to_string(), "standard input is empty; pipe text into it");
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_says_no_length_is_read_and_not_called_empty() {
    let mut listing = Listing::default();
    listing.add_path(Path::new("/proc/self/status")).unwrap();
    assert!(listing.bytes() > 0);
}

#[test]
fn errors_name_the_file_and_the_place() {
    let late = ["é".as_bytes(), &vec![b'a'; 3_000_000], &[0xe9, b'b']].concat();
    for (name, bytes, expected) in [
        ("a.txt", &b""[..], "a.txt is empty"),
        ("a.txt", &late, "a.txt is not UTF-8 text: byte 3000002 (0xE9)"),
        ("a.txt", b"ends early \xf0\x9f", "byte 11 (0xF0)"),
        (
            "a.txt",
            b"\xff\xfeh\0i",
            "a.txt is not text in UTF-16LE, the encoding of its byte order mark: byte 4 does not belong there",
        ),
        ("a.jsonl", b"\xfe\xff\0{\xdc\0\0}", "a.jsonl is not text in UTF-16BE, the encoding of its byte order mark"),
        ("a.txt", b"h\0\0i\0", "byte 1 is zero"),
        ("a.zip", b"PK\x03\x04...", "cannot read a.zip as an archive; it is damaged"),
        ("a.gz", b"plain", "named as a compressed file"),
        ("a.txt.gz", &gzip(&[b'x'; 10_000])[..20], "cannot read a.txt.gz after"),
        ("a.txt.zst", &zstd(&late)[..20], "cannot read a.txt.zst after"),
        ("a.jsonl", b"{\"text\": \"x\"}\n{\"text\"", "a.jsonl:2: not a JSON object"),
        ("a.jsonl", b"[1]", "a.jsonl:1: not a JSON object"),
        ("a.jsonl", b"{\"body\": \"x\", \"id\": 1}", "a.jsonl:1: no field \"text\"; name one of these: body, id"),
        ("a.jsonl", b"{\"text\": 7}", "a.jsonl:1: the field \"text\" is not a string"),
        ("a.jsonl", b"{\"text\": [{\"a\": 1}]}", "a.jsonl:1: the field \"text\" is not a string"),
        ("a.jsonl", b"{\"text\": \"x\"} {}", "a.jsonl:1: not a JSON object"),
        ("a.parquet", b"PAR1 broken", "cannot read a.parquet as Parquet"),
    ] {
        let error = error_of(name, bytes);
        assert!(error.contains(expected), "{error:?} should contain {expected:?}");
    }
    let error = documents(&Folder::new().write("a.parquet", &parquet(&[None])), "body").unwrap_err().to_string();
    assert!(error.contains("no column \"body\"; name one of these: text, other"), "{error}");
    let empty = Folder::new();
    assert!(documents(empty.0.path(), "text").unwrap_err().to_string().contains("holds no file with text"));
    let missing = format!("{:#}", documents(Path::new("no/such/file"), "text").unwrap_err());
    assert!(missing.starts_with("cannot read no/such/file; name a file or folder that exists"), "{missing}");
}

/// A reader that returns a few bytes at a time.
struct Trickle<'a>(&'a [u8], usize);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = buffer.len().min(self.1);
        self.0.read(&mut buffer[..n])
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn separators_and_characters_survive_the_borders_of_blocks(before in 0usize..40, step in 1usize..100_000) {
        // A separator, or a multi-byte character, crosses the end of the first megabyte block.
        let first = "é".repeat(((1 << 20) - before) / 2);
        for border in ["<|endoftext|>", "<|end<|endoftext|>", "🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂"] {
            let whole = format!("{first}{border}rest");
            let mut documents = vec![String::new()];
            let cannot_read = |_, _| unreachable!("nothing fails");
            kinds::text::stream_documents(&mut Trickle(whole.as_bytes(), step), &cannot_read, &mut |event| {
                match event {
                    Event::Title(_) | Event::Dated(_) => {}
                    Event::Text(text) => documents.last_mut().unwrap().push_str(text),
                    Event::EndOfDocument => documents.push(String::new()),
                }
                Ok(())
            }).unwrap();
            documents.pop();
            prop_assert!(documents.iter().map(String::as_str).eq(whole.split("<|endoftext|>")));
        }
    }
}
