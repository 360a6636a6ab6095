//! Files that try to exhaust memory, time or stack: each ends soon, with an error's line or little
//! text, and the rest of its folder is read.
#![allow(clippy::unwrap_used)]

use super::*;
use std::io::Write;
use std::time::{Duration, Instant};

pub(super) fn zip(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut archive = rawzip::ZipArchiveWriter::new(&mut bytes);
    for (name, content) in parts {
        let file = archive.new_file(name).compression_method(rawzip::CompressionMethod::DEFLATE);
        let (mut entry, config) = file.start().unwrap();
        let encoder = flate2::write::DeflateEncoder::new(&mut entry, flate2::Compression::best());
        let mut writer = config.wrap(encoder);
        writer.write_all(content).unwrap();
        let (encoder, descriptor) = writer.finish().unwrap();
        encoder.finish().unwrap();
        entry.finish(descriptor).unwrap();
    }
    archive.finish().unwrap();
    bytes
}

fn docx(body: &str) -> Vec<u8> {
    zip(&[("word/document.xml", body.as_bytes())])
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A PDF of these objects, the first of them its catalog, with a cross-reference table.
fn pdf(objects: &[&str]) -> Vec<u8> {
    let (mut bytes, mut places) = (b"%PDF-1.4\n".to_vec(), Vec::new());
    for (number, object) in (1..).zip(objects) {
        places.push(bytes.len());
        write!(bytes, "{number} 0 obj\n{object}\nendobj\n").unwrap();
    }
    let table = bytes.len();
    write!(bytes, "xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1).unwrap();
    places.iter().for_each(|place| writeln!(bytes, "{place:010} 00000 n ").unwrap());
    let size = objects.len() + 1;
    write!(bytes, "trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{table}\n%%EOF\n").unwrap();
    bytes
}

fn stream(dictionary: &str, content: &str) -> String {
    format!("<< {dictionary} /Length {} >>\nstream\n{content}\nendstream", content.len())
}

/// A PDF of one page, whose content is compressed this many times.
fn packed_pdf(content: &[&[u8]], times: usize) -> Vec<u8> {
    let mut content = content.concat();
    for _ in 0..times {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&content).unwrap();
        content = encoder.finish().unwrap();
    }
    let font = "<< /Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >>";
    let page = format!("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 99 99] /Resources {font} /Contents 4 0 R >>");
    let whole = pdf(&["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [3 0 R] /Count 1 >>", &page]);
    // The content precedes the table, whose offset then changes; readers repair that.
    let filters = "/FlateDecode ".repeat(times);
    let head = format!("4 0 obj\n<< /Filter [{filters}] /Length {} >>\nstream\n", content.len());
    let table = whole.windows(5).position(|window| window == b"xref\n").unwrap();
    [&whole[..table], head.as_bytes(), &content, b"\nendstream\nendobj\n", &whole[table..]].concat()
}

fn mail_of_parts(count: usize) -> Vec<u8> {
    let part = "--b\r\nContent-Type: text/plain\r\n\r\nx\r\n";
    format!(
        "Subject: s\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n{}",
        part.repeat(count)
    )
    .into_bytes()
}

fn nested_mail(depth: usize) -> Vec<u8> {
    let mut mail = "Subject: s\r\nMIME-Version: 1.0\r\n".to_owned();
    for level in 0..depth {
        mail += &format!("Content-Type: multipart/mixed; boundary=b{level}\r\n\r\n--b{level}\r\n");
    }
    (mail + "\r\nx\r\n").into_bytes()
}

fn files() -> Vec<(&'static str, Vec<u8>)> {
    const MANY: usize = 300_000;
    let mib = |character: u8, count: usize| vec![character; count << 20];
    let page =
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Resources << /XObject << /F 4 0 R >> >> /Contents 5 0 R >>";
    let laughs: String =
        (1..10).map(|n| format!("<!ENTITY l{n} \"{}\">", format!("&l{};", n - 1).repeat(10))).collect();
    let long_glyph = format!(
        "begincmap /CMapName /A def 1 begincodespacerange <00> <ff> endcodespacerange 1 beginbfchar <41> <{}> endbfchar endcmap",
        "0041".repeat(1 << 20)
    );
    let opf = |spine: &str| {
        let container = "<container><rootfile full-path=\"a.opf\"/></container>";
        let book = format!(
            "<package><manifest><item id=\"c\" href=\"c.html\" media-type=\"application/xhtml+xml\"/></manifest>{spine}</package>"
        );
        let chapter = "word ".repeat(100_000);
        zip(&[
            ("mimetype", b"application/epub+zip"),
            ("META-INF/container.xml", container.as_bytes()),
            ("a.opf", book.as_bytes()),
            ("c.html", chapter.as_bytes()),
        ])
    };
    vec![
        ("bomb.docx", docx(&format!("<p><t>{}", " ".repeat(200 << 20)))),
        ("bomb.txt.gz", gzip(&mib(b'a', 200))),
        ("bomb.txt.zst", zstd::encode_all(&mib(b'a', 200)[..], 1).unwrap()),
        ("bomb.zip", zip(&[("a.txt", &mib(b'a', 200))])),
        ("laughs.docx", docx(&format!("<!DOCTYPE w [<!ENTITY l0 \"lol\">{laughs}]><p><t>&l9;</t></p>"))),
        ("nested.docx", docx(&"<p><t>".repeat(MANY))),
        (
            "spaces.odt",
            zip(&[
                ("mimetype", b"application/vnd.oasis.opendocument.text"),
                ("content.xml", format!("<body><p>{}", "<s c=\"1000\"/>".repeat(200_000)).as_bytes()),
            ]),
        ),
        ("nested.fodt", "<office:body><text:p>".repeat(MANY).into_bytes()),
        ("empty.docx", zip(&[("word/other.xml", b"<a/>")])),
        ("nested.html", "<div><table><tr><td><ul><li><b>".repeat(MANY / 6).into_bytes()),
        (
            "attributes.html",
            format!("<p {}>text", (0..MANY).map(|n| format!("a{n}=1 ")).collect::<String>()).into_bytes(),
        ),
        ("nested.rtf", format!("{{\\rtf1 {}", "{".repeat(MANY)).into_bytes()),
        (
            "words.rtf",
            format!("{{\\rtf1 {}", "\\ansicpg1252\\f1\\uc9\\u-1\\bin99999999999".repeat(MANY / 10)).into_bytes(),
        ),
        ("mac.rtf", format!("{{\\rtf1{}{}", "{".repeat(4000), "\\mac".repeat(10 * MANY)).into_bytes()),
        ("headings.tex", "\\section{\\textbf{".repeat(MANY).into_bytes()),
        ("definitions.tex", "\\newcommand\\a[\\<1%\n".repeat(MANY / 4).into_bytes()),
        ("unclosed.tex", "\\ref{\\item[\\def\\a$".repeat(MANY / 4).into_bytes()),
        ("nested.ipynb", "[".repeat(MANY).into_bytes()),
        ("deep.ipynb", format!("{{\"cells\": {}", "[{\"a\":".repeat(MANY)).into_bytes()),
        (
            "chat.json",
            format!("{{\"name\": \"a\", \"type\": \"b\", \"messages\": {}", "[{\"text\":".repeat(MANY)).into_bytes(),
        ),
        (
            "message.json",
            format!("{{\"name\": \"a\", \"type\": \"b\", \"messages\": [{{\"text\": \"{}\"}}]}}", "a".repeat(80 << 20))
                .into_bytes(),
        ),
        ("chats.json", format!("{{\"personal_information\": 1, {}", "\"chats\":{".repeat(MANY)).into_bytes()),
        ("quote.csv", ["text\n\"".as_bytes(), &mib(b'a', 80)].concat()),
        ("marks.srt", format!("1\n00:00:01,000 --> 00:00:02,000\n{}\n", "{\\".repeat(MANY)).into_bytes()),
        ("letters.vtt", ["WEBVTT\n\n".as_bytes(), "é".repeat(2 << 20).as_bytes()].concat()),
        ("line.vtt", ["WEBVTT\n\n".as_bytes(), &mib(b'a', 3)].concat()),
        ("parts.eml", mail_of_parts(10_000)),
        ("nested.eml", nested_mail(10_000)),
        ("nested.mhtml", nested_mail(10_000)),
        ("fields.eml", format!("Subject: s\n\n{}", "From: a\nSent: b\n".repeat(MANY)).into_bytes()),
        ("froms.mbox", "From a\n\n".repeat(MANY).into_bytes()),
        ("pages.pdf", pdf(&["<< /Type /Catalog /Pages 2 0 R >>", "<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>"])),
        (
            "forms.pdf",
            pdf(&[
                "<< /Type /Catalog /Pages 2 0 R >>",
                "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
                page,
                &stream(
                    "/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /F 4 0 R >> >>",
                    "/F Do /F Do",
                ),
                &stream("", "/F Do"),
            ]),
        ),
        ("bomb.pdf", packed_pdf(&[&b" ".repeat(200 << 20)], 2)),
        ("draws.pdf", packed_pdf(&[b"BT /F 1 Tf ", &b"(abcdefghij) Tj ".repeat(1_000_000)], 1)),
        (
            "glyphs.pdf",
            pdf(&[
                "<< /Type /Catalog /Pages 2 0 R >>",
                "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Resources << /Font << /F 4 0 R >> >> /Contents 5 0 R >>",
                "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 6 0 R >>",
                &stream("", &format!("BT /F 1 Tf ({}) Tj ET", "A".repeat(100_000))),
                &stream("", &long_glyph),
            ]),
        ),
        ("objects.pdf", pdf(&["1 0 R", "2 0 R"])),
        ("nested.pdf", pdf(&["<< /Type /Catalog /Pages 2 0 R >>", &"[".repeat(MANY), &"<</A".repeat(MANY)])),
        (
            "begins.pdf",
            format!("%PDF-1.7\n{}", "1 0 obj << /Length 9999999999 >> stream\n".repeat(MANY / 30)).into_bytes(),
        ),
        ("spine.epub", opf(&format!("<spine>{}</spine>", "<itemref idref=\"c\"/>".repeat(MANY / 3)))),
        ("none.epub", opf("<spine/>")),
    ]
}

#[test]
fn hostile_files_end_soon_and_the_rest_of_their_folder_is_read() {
    const MAX_TEXT: usize = 100 << 20;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.txt"), "usable").unwrap();
    let files = files();
    for (name, bytes) in &files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let mut listing = Listing::default();
    listing.add_path(folder.path()).unwrap();
    let mut usable = String::new();
    for file in &listing.files {
        let (started, mut text_bytes) = (Instant::now(), 0);
        let read = read::<Error>(file, &ReadOptions::default(), &AtomicU64::new(0), &mut |event| {
            if let Event::Text(text) = event {
                text_bytes += text.len();
                if file.name.ends_with("a.txt") && file.path().ends_with("a.txt") {
                    usable.push_str(text);
                }
            }
            Ok(())
        });
        if let Err(error) = read {
            let line = ember_host::file_error::with_causes(&error);
            for (name, told) in [("glyphs.pdf", "than 64 MiB of text"), ("message.json", "a message longer than")] {
                assert!(!file.name.ends_with(name) || line.contains(told), "{line}");
            }
            assert!(!file.name.ends_with(".vtt") || line.contains("too long for subtitles"), "{line}");
            assert!(line.contains(&*file.name) && !line.contains('\n') && line.len() < 1000, "{line}");
        }
        assert!(text_bytes < MAX_TEXT, "{}: {text_bytes} bytes of text", file.name);
        assert!(started.elapsed() < Duration::from_secs(30), "{}: {:?}", file.name, started.elapsed());
    }
    assert_eq!(usable, "usable");
    let names = listing.files.iter().map(|file| &*file.name);
    let names: Vec<&str> = names.chain(listing.left_out.iter().map(|one| one.name.as_str())).collect();
    for (name, _) in &files {
        assert!(names.iter().any(|one| one.contains(name)), "{name} is neither read nor left out");
    }
}

#[cfg(unix)]
#[test]
fn links_in_circles_hidden_files_and_what_git_ignores_are_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for (name, text) in [
        (".gitignore", "build/\n*.log\n!kept.log\n"),
        ("a.txt", "a"),
        ("b.log", "ignored"),
        ("kept.log", "b"),
        ("build/c.txt", "ignored"),
        (".hidden/d.txt", "hidden"),
        ("inner/.gitignore", "e.txt\n"),
        ("inner/e.txt", "ignored"),
        ("inner/f.txt", "c"),
    ] {
        write(name, text);
    }
    std::os::unix::fs::symlink(folder.path(), folder.path().join("inner/circle")).unwrap();
    std::os::unix::fs::symlink("self", folder.path().join("self")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("a.txt"), folder.path().join("linked.txt")).unwrap();
    let mut listing = Listing::default();
    listing.add_path(folder.path()).unwrap();
    let names: Vec<&str> = listing.files.iter().map(|file| file.name.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["a.txt", "f.txt", "kept.log", "linked.txt"]);
}

#[test]
fn archives_are_folders() {
    let folder = tempfile::tempdir().unwrap();
    let inner = zip(&[("x.txt", b"x")]);
    let parts: [(&str, &[u8]); 5] = [
        ("b/two.txt", b"two"),
        ("a.jsonl", b"{\"text\": \"one\"}"),
        (".hidden", b"no"),
        ("inner.zip", &inner),
        ("word.docx", &docx("<p><t>three</t></p>")),
    ];
    std::fs::write(folder.path().join("z.zip"), zip(&parts)).unwrap();
    let mut listing = Listing::default();
    listing.add_path(&folder.path().join("z.zip")).unwrap();
    let mut texts = Vec::new();
    for file in &listing.files {
        read::<Error>(file, &ReadOptions::default(), &AtomicU64::new(0), &mut |event| {
            if let Event::Text(text) = event {
                texts.push((file.name.rsplit("z.zip/").next().unwrap().to_owned(), text.to_owned()));
            }
            Ok(())
        })
        .unwrap();
    }
    let expected = [("a.jsonl", "one"), ("b/two.txt", "two"), ("word.docx", "three\n")];
    assert_eq!(texts, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    let left_out: Vec<_> = listing.left_out.iter().map(|one| one.kind).collect();
    assert_eq!(left_out, [LeftOutKind::Archive], "an archive in an archive");
}

#[test]
fn chapters_of_a_book_are_xhtml_whether_they_say_it_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let parts: [(&str, &[u8]); 3] = [
        ("META-INF/container.xml", b"<rootfile full-path=\"a.opf\"/>"),
        (
            "a.opf",
            b"<p><item id=\"a\" media-type=\"application/xhtml+xml\" href=\"a.html\"/><itemref idref=\"a\"/></p>",
        ),
        ("a.html", b"<html><head><title/><script src=\"a.js\"/></head><body><p>All of it.</p></body></html>"),
    ];
    std::fs::write(folder.path().join("a.epub"), zip(&parts)).unwrap();
    let mut listing = Listing::default();
    listing.add_path(&folder.path().join("a.epub")).unwrap();
    let mut chapter = String::new();
    read::<Error>(&listing.files[0], &ReadOptions::default(), &AtomicU64::new(0), &mut |event| {
        if let Event::Text(text) = event {
            chapter.push_str(text);
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(chapter, "All of it.\n");
}
