//! Which parts of a document's file are its text, and in which order.
#![allow(clippy::unwrap_used)]

use super::hostile_tests::zip;
use super::*;

/// The text of a file, or its error.
fn read_of(name: &str, bytes: &[u8], clean: Clean) -> Result<String, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let mut listing = Listing::default();
    listing.add_path(&path)?;
    let options = ReadOptions { clean, ..ReadOptions::default() };
    let mut all = String::new();
    read::<Error>(&listing.files[0], &options, &AtomicU64::new(0), &mut |event| {
        if let Event::Text(text) = event {
            all.push_str(text);
        }
        Ok(())
    })?;
    Ok(all)
}

fn text_of(name: &str, bytes: &[u8]) -> String {
    read_of(name, bytes, Clean::Auto).unwrap()
}

fn latex(body: &str) -> String {
    text_of("a.tex", format!("\\begin{{document}}\n{body}\n\\end{{document}}\n").as_bytes())
}

fn rtf(body: &str) -> String {
    text_of("a.rtf", format!("{{\\rtf1\\ansi\\ansicpg1252 {body}}}").as_bytes())
}

#[test]
fn an_escaped_dollar_ends_no_formula_and_a_paragraph_ends_any() {
    assert_eq!(latex(r"It costs $x=\$5$ \emph{today}."), "It costs $x=\\$5$ today.\n");
    assert_eq!(latex("One $5 bill.\n \nTwo \\emph{words}."), "One $5 bill.\n\nTwo words.\n");
    assert_eq!(latex("$$ a\nb $$ and $c$"), "$$ a\nb $$ and $c$\n");
}

#[test]
fn labels_of_latex_items_stay() {
    let list =
        "\\begin{description}\n\\item[Apple] a fruit\n\\item[\\textbf{Pear}]another\n\\item one\n\\end{description}";
    assert_eq!(latex(list), "Apple a fruit\nPear another\none\n");
}

#[test]
fn notes_of_latex_come_behind_the_text() {
    let text = "The cat\\footnote{An \\emph{animal}.} sat\\footnote[2]{Down.\n\nAlways.}\nthere.\n\nIt slept.";
    assert_eq!(latex(text), "The cat sat there.\n\nIt slept.\n\nAn animal.\n\nDown.\n\nAlways.\n");
    assert_eq!(latex("One\\footnote{never ends. Two."), "Onenever ends. Two.\n");
}

#[test]
fn latex_with_line_ends_of_windows_has_its_paragraphs() {
    let text = text_of("a.tex", b"\\begin{document}\r\nOne.\r\n\r\nTwo.\r\n\\end{document}\r\n");
    assert_eq!(text, "One.\n\nTwo.\n");
}

#[test]
fn a_blank_may_stand_between_an_accent_of_latex_and_its_letter() {
    assert_eq!(latex(r"fran\c cais, \v{s}, \c {c}a, \u a"), "français, š, ça, ă\n");
    assert_eq!(latex("gar\\c\n{c}on, caf\\'\n  {e}, \\v\ns"), "garçon, café, š\n");
}

#[test]
fn a_font_of_rtf_without_a_character_set_has_the_documents_encoding() {
    let fonts = r"\deff1{\fonttbl{\f0\fcharset204 Cyr;}{\f1 Arial;}}";
    let text = rtf(&format!(r"{fonts}{{\f0 \'cf\'f0\'e8}}\par\f0 \'e4\'e0 \f1 caf\'e9 \f0\plain z\'e9ro\par"));
    assert_eq!(text, "При\n\nда café zéro\n");
}

#[test]
fn text_boxes_of_rtf_are_text_but_for_those_of_page_headers() {
    let shape = |text: &str| {
        format!(r"{{\shp{{\*\shpinst{{\sp{{\sn a}}{{\sv 1}}}}{{\shptxt \pard {text}\par}}}}{{\shprslt old\par}}}}")
    };
    let (header, shape) = (shape("In a header."), shape("In the box."));
    let text = rtf(&format!(r"{{\header{header}}}Before.\par{shape}After.\par"));
    assert_eq!(text, "Before.\n\nIn the box.\n\nAfter.\n");
}

#[test]
fn text_boxes_of_rtf_come_behind_their_paragraph() {
    for end in [r"\par", ""] {
        let shape = format!(r"{{\shp{{\*\shpinst{{\shptxt \pard In box{end}}}}}{{\shprslt old\par}}}}");
        assert_eq!(rtf(&format!(r"Hello {shape}world.\par Bye.\par")), "Hello world.\n\nIn box\n\nBye.\n");
    }
}

#[test]
fn text_boxes_of_rtf_may_stand_in_a_group_or_in_the_result_alone() {
    let group = r"{\shpgrp{\*\shpinst{\shp{\*\shpinst{\shptxt \pard In group\par}}}}{\shprslt In result\par}}";
    assert_eq!(rtf(&format!(r"A\par{group}B\par")), "A\n\nIn group\n\nB\n");
    let result = r"{\shp{\*\shpinst{\sp{\sn a}}}{\shprslt {\*\do\dptxbx{\dptxbxtext In box\par}}plain}}";
    assert_eq!(rtf(&format!(r"{group}A {result}B\par")), "In group\n\nA B\n\nIn box\n\nplain\n");
}

#[test]
fn plain_text_of_rtf_has_the_code_page_of_the_document_where_the_font_is_ansi() {
    let fonts = r"\deff0{\fonttbl{\f0\fnil\fcharset0 Arial;}}";
    let text = format!(r"{{\rtf1\ansi\ansicpg1251{fonts}\pard\plain \'cf\'f0\'e8\par\f0 caf\'e9\par}}");
    assert_eq!(text_of("a.rtf", text.as_bytes()), "При\n\ncafé\n");
}

#[test]
fn deleted_text_of_rtf_is_left_out() {
    let text = r"We meet {\deleted\revauthdel1 Monday}{\revised Tuesday} at \deleted one\deleted0 nine.\par";
    assert_eq!(rtf(text), "We meet Tuesday at nine.\n");
}

#[test]
fn an_empty_cell_of_rtf_leaves_its_row_alone() {
    let text =
        rtf(r"before\par\trowd\cell b\cell\row\trowd a\cell\cell c\cell\trowd\row\trowd\cell d\cell\row after\par");
    assert_eq!(text, "before\n\nb\na\tc\nd\nafter\n");
}

#[test]
fn a_table_of_rtf_whose_last_row_does_not_end_is_over_with_its_paragraphs() {
    let text = rtf(concat!(
        r"one\par\trowd\pard\plain\intbl a\cell\pard\plain\intbl b\cell\row",
        r"\trowd\pard\intbl c\cell d\cell\pard\plain after\par\pard more\par",
    ));
    assert_eq!(text, "one\n\na\tb\nc\td\n\nafter\n\nmore\n");
}

#[test]
fn plain_text_of_rtf_is_neither_hidden_nor_deleted() {
    assert_eq!(rtf(r"One {\v hidden\plain shown}, {\deleted gone\plain back}.\par"), "One shown, back.\n");
}

#[test]
fn a_table_of_rtf_stands_apart_where_its_first_row_is_empty() {
    let text = rtf(r"before\par\trowd\pard\intbl\cell\cell\row\trowd\pard\intbl a\cell b\cell\row\pard after\par");
    assert_eq!(text, "before\n\na\tb\nafter\n");
}

#[test]
fn a_table_in_a_table_of_rtf_has_cells_and_rows() {
    let end = r"{\*\nesttableprops\trowd\nestrow}{\nonesttables\par}";
    let text = rtf(&format!(r"one\nestcell two\nestcell{end}three\nestcell four\nestcell{end}\cell\row after\par"));
    assert_eq!(text, "one\ttwo\nthree\tfour\nafter\n");
}

#[test]
fn notes_of_rtf_come_behind_the_text() {
    let text = rtf(concat!(
        r"The cat{\super\chftn}{\footnote\pard\plain{\super\chftn} An animal.} sat down.\par ",
        r"Then it slept.{\footnote A rest.}\par It{\*\footnote \chftn A cat.} woke.\par",
    ));
    assert_eq!(text, "The cat sat down.\n\nThen it slept.\n\nIt woke.\n\nAn animal.\n\nA rest.\n\nA cat.\n");
}

#[test]
fn what_a_picture_of_opendocument_is_called_is_no_text() {
    let plain = "<svg:title>ALT</svg:title><svg:desc>A cat</svg:desc>";
    let nested = "<svg:title><text:note-body>A <svg:desc>cat</svg:desc></text:note-body></svg:title>";
    for titles in [plain, nested] {
        let picture = format!("<draw:frame>{titles}</draw:frame>");
        let field = "<text:title>its title</text:title>";
        let body = format!("<office:body><text:p>One {picture}goes on with {field}.</text:p></office:body>");
        let file = zip(&[("mimetype", b"application/vnd.oasis.opendocument.text"), ("content.xml", body.as_bytes())]);
        assert_eq!(text_of("a.odt", &file), "One goes on with its title.\n");
    }
}

#[test]
fn boxes_of_office_files_come_behind_their_paragraph() {
    let inside = "<w:p><w:t>In box</w:t></w:p><w:p><w:t>two</w:t></w:p>";
    let in_box =
        format!("<mc:Choice><w:txbxContent>{inside}</w:txbxContent></mc:Choice><mc:Fallback>{inside}</mc:Fallback>");
    let body = format!("<w:body><w:p><w:t>One </w:t>{in_box}<w:t>line.</w:t></w:p><w:p><w:t>End</w:t></w:p></w:body>");
    let word = zip(&[("word/document.xml", body.as_bytes())]);
    assert_eq!(text_of("a.docx", &word), "One line.\n\nIn box\n\ntwo\n\nEnd\n");
    let in_box = "<draw:frame><draw:text-box><text:p>In box</text:p><text:p>two</text:p></draw:text-box></draw:frame>";
    let body = format!("<office:body>{in_box}<text:p>One {in_box}line.</text:p><text:p>End</text:p></office:body>");
    let file = zip(&[("mimetype", b"application/vnd.oasis.opendocument.text"), ("content.xml", body.as_bytes())]);
    assert_eq!(text_of("a.odt", &file), "In box\n\ntwo\n\nOne line.\n\nIn box\n\ntwo\n\nEnd\n");
}

#[test]
fn the_main_part_of_a_word_file_may_have_another_name() {
    let kind = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument";
    let main = format!("<Relationships><Relationship Type=\"{kind}\" Target=\"/word/document2.xml\"/></Relationships>");
    let file = zip(&[("_rels/.rels", main.as_bytes()), ("word/document2.xml", b"<w:p><w:t>two</w:t></w:p>")]);
    assert_eq!(text_of("a.docx", &file), "two\n");
}

#[test]
fn a_line_of_a_mail_that_no_program_escaped_begins_no_other() {
    let mail = |from: &str, text: &str| format!("{from}\nSubject: x\n\n{text}\n\n");
    let dated = "From ann@b.org Tue May  4 10:00:00 2021";
    let text = "One.\n\nFrom the hill we saw it at 10:30.";
    let mailbox = mail(dated, text) + &mail(dated, "Two.");
    assert_eq!(text_of("a.mbox", mailbox.as_bytes()), format!("{text}\nTwo.\n"));
    let without_dates = mail("From ann@b.org", "One.") + &mail("From bob", "Two.");
    assert_eq!(text_of("a.mbox", without_dates.as_bytes()), "One.\nTwo.\n");
}

#[test]
fn an_encrypted_file_of_an_archive_is_left_out_and_said() {
    let mut file = zip(&[("a.txt", b"One"), ("b.txt", b"Two")]);
    for (header, flags) in [(b"PK\x03\x04", 6), (b"PK\x01\x02", 8)] {
        let at = file.windows(4).position(|window| window == header).unwrap();
        file[at + flags] |= 1;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zip");
    std::fs::write(&path, file).unwrap();
    let mut listing = Listing::default();
    listing.add_path(&path).unwrap();
    assert_eq!((listing.files.len(), listing.left_out.len()), (1, 1));
    let reason = &listing.left_out[0].reason;
    assert!(reason.contains("a.zip/a.txt: it is encrypted or compressed by an unsupported method"), "{reason}");
}

#[test]
fn a_book_is_locked_where_chapters_are_encrypted_and_not_where_fonts_are() {
    let book = |encrypted: &str| {
        let encrypted = format!("<encryption><CipherReference URI=\"{encrypted}\"/></encryption>");
        let package = "<package><manifest><item id=\"a\" href=\"my%20one.xhtml\" media-type=\"application/xhtml+xml\"/>\
                       </manifest><spine><itemref idref=\"a\"/></spine></package>";
        let file = zip(&[
            ("mimetype", b"application/epub+zip"),
            ("META-INF/container.xml", b"<container><rootfile full-path=\"in/c.opf\"/></container>"),
            ("META-INF/encryption.xml", encrypted.as_bytes()),
            ("in/c.opf", package.as_bytes()),
            ("in/my one.xhtml", b"<p>One</p>"),
        ]);
        read_of("a.epub", &file, Clean::Auto)
    };
    assert_eq!(book("in/font.otf").unwrap(), "One\n");
    let error = book("in/my%20one.xhtml").unwrap_err().to_string();
    assert!(error.ends_with("is copy-protected: its chapters are encrypted; give one that is not"), "{error}");
}

#[test]
fn lines_of_subtitles_that_roll_are_said_once() {
    let rolling = concat!(
        "WEBVTT\n\n00:00:00.000 --> 00:00:02.350\n \nOne<00:00:00.480><c> old</c><00:00:01.000><c> light</c>\n\n",
        "00:00:02.350 --> 00:00:02.360\nOne old light\n \n\n",
        "00:00:02.360 --> 00:00:04.000\nOne old light\nstood<00:00:03.000><c> here</c>\n\n",
        "00:00:04.000 --> 00:00:04.010\nstood here\n \n\n",
    );
    assert_eq!(text_of("a.vtt", rolling.as_bytes()), "One old light\nstood here\n");
    let said_twice = "1\n00:00:01,000 --> 00:00:02,000\nNo.\n\n2\n00:00:02,000 --> 00:00:03,000\nNo.\n";
    assert_eq!(text_of("a.srt", said_twice.as_bytes()), "No.\nNo.\n");
}

#[test]
fn numbers_and_blank_lines_of_subtitles_are_text_where_no_time_follows() {
    let time = "00:00:01,000 --> 00:00:02,000";
    let cues = format!("1\n{time}\nOne\n\ntwo\n\n2\n{time}\n3\n\n3\n{time}\n\n4\n{time}\n5\n{time}\nSix\n\n6\n");
    assert_eq!(text_of("a.srt", cues.as_bytes()), "One\ntwo\n3\nSix\n");
    let unnumbered = format!("{time}\n10\n\n{time}\n9\n\n{time}\nLift off\n");
    assert_eq!(text_of("a.srt", unnumbered.as_bytes()), "10\n9\nLift off\n");
    let empty = format!("1\n{time}\n2\n{time}\n\n3\n\n{time}\n\n");
    assert_eq!(text_of("a.srt", empty.as_bytes()), "");
    let marked = format!("WEBVTT\n\n{time}\n5\n\n{time}\nOne\n\nNOTE a word\nof mine\n\nintro\n{time}\n7\n");
    assert_eq!(text_of("a.vtt", marked.as_bytes()), "5\nOne\n7\n");
}

#[test]
fn what_whatsapp_says_itself_is_left_out_on_all_phones() {
    let time = "[12.03.24, 18:05:00]";
    let chat = format!(
        "{time} Us: \u{200e}Messages are end-to-end encrypted.\n\
         {time} Ann: Hello.\nand more <This message was edited>\n\
         {time} Ann: \u{200e}You deleted this message.\n\
         \u{200e}{time} Ben: \u{200e}<attached: 0001-PHOTO.jpg>\nAt sea.\n\
         {time} Ben: null\n\
         {time} Ben: \u{200e}POLL:\nWhere shall we eat?\n\
         {time} Ann: Dusk \u{200e}<attached: 0002-PHOTO.jpg>\n"
    );
    assert_eq!(
        text_of("a_chat.txt", chat.as_bytes()),
        "Ann: Hello.\nand more\nBen: At sea.\nBen: Where shall we eat?\nAnn: Dusk\n"
    );
    let danish = "12.03.24, 18.05 - Ann: Hej\n12.03.24, 18.06 - Ben: IMG-1-WA0001.jpg (vedhæftet fil)\nMin.\n";
    assert_eq!(text_of("a.txt", danish.as_bytes()), "Ann: Hej\nBen: Min.\n");
}

#[test]
fn what_stands_under_a_picture_of_whatsapp_is_said_by_who_sent_it() {
    let chat = "31/12/21, 10:14 - Bob: <Media omitted>\nThe lighthouse.\nAt dusk.\n\
                31/12/21, 10:15 - Ann: <Media omitted>\n31/12/21, 10:16 - Ann: Mine.\n";
    assert_eq!(text_of("a_chat.txt", chat.as_bytes()), "Bob: The lighthouse.\nAt dusk.\nAnn: Mine.\n");
}

#[test]
fn what_discord_says_itself_is_no_turn() {
    let message = |kind: &str, text: &str| {
        format!("{{\"type\": \"{kind}\", \"content\": \"{text}\", \"author\": {{\"name\": \"Ann\"}}}}")
    };
    let messages = [
        message("GuildMemberJoin", "Joined the server."),
        message("Default", "Hello."),
        message("ChannelPinnedMessage", "Pinned a message."),
        message("Reply", "Yes."),
        message("20", "You rolled 5."),
    ];
    let channel = "{\"guild\": {\"name\": \"g\"}, \"channel\": {\"name\": \"c\"}, \"messages\": [";
    assert_eq!(
        text_of("a.json", format!("{channel}{}]}}", messages.join(", ")).as_bytes()),
        "Ann: Hello.\nAnn: Yes.\nAnn: You rolled 5.\n"
    );
}

#[test]
fn a_signed_post_of_a_channel_of_telegram_is_read() {
    let posts = r#"[{"type": "message", "from": "News", "author": "Ann", "text": "One."},
        {"type": "message", "author": "Bob", "text": ["Two ", {"type": "bold", "text": "words"}]}]"#;
    let channel = format!("{{\"name\": \"News\", \"type\": \"public_channel\", \"messages\": {posts}}}");
    assert_eq!(text_of("a.json", channel.as_bytes()), "News: One.\nBob: Two words\n");
}

#[test]
fn an_odd_message_of_telegram_leaves_its_chat_alone() {
    let messages = r#"[{"type": "message", "from": "Ann", "text": "One."},
        {"type": "message", "from": "Ann", "text": 7}, {"type": "message", "from": "Ann", "text": null},
        {"type": "message", "text": "Two."}, {"type": "message", "from": 5, "text": {"text": "Three."}},
        null, 5, {"type": "message", "from": "Ann", "text": "?", "is_unsent": 0},
        {"type": 7, "from": "Ann", "author": 9, "text": ["Four", 4, {"type": "custom_emoji"}, ["."]]}]"#;
    let chat = format!("{{\"name\": 1, \"type\": \"personal_chat\", \"messages\": {messages}}}");
    assert_eq!(text_of("a.json", chat.as_bytes()), "Ann: One.\n?: Two.\n?: Three.\nAnn: Four.\n");
}

#[test]
fn a_chat_of_facebook_begins_with_its_oldest_message_and_is_written_right() {
    let chat = r#"{"participants": [{"name": "Zo\u00c3\u00a9"}, {"name": "Tom"}], "messages": [
        {"sender_name": "Tom", "timestamp_ms": 7, "content": "caf\u00c3\u00a9 \u00e2\u009d\u00a4"},
        {"sender_name": "Tom", "timestamp_ms": 6, "content": "Reacted \u00e2\u009d\u00a4 to your message "},
        {"sender_name": "Tom", "timestamp_ms": 5, "photos": [{"uri": "x"}]},
        {"sender_name": "Zo\u00c3\u00a9", "timestamp_ms": 4, "content": "Zo\u00c3\u00a9 sent an attachment."},
        {"sender_name": "Tom", "timestamp_ms": 3, "content": "Tom called you.", "call_duration": 0},
        {"sender_name": "Tom", "timestamp_ms": 2, "content": "Gone.", "is_unsent": true},
        {"sender_name": "Zo\u00c3\u00a9", "timestamp_ms": 1, "content": "na\u00efve", "type": "Generic"}
    ], "title": "Zo\u00c3\u00a9", "is_still_participant": true}"#;
    assert_eq!(text_of("message_1.json", chat.as_bytes()), "Zoé: naïve\nTom: café ❤\n");
    let many = r#"{"name": "Tom"}, "#.repeat(2000);
    let chat = format!(
        "{{\n  \"participants\": [{many}{{}}],\n\"messages\": [{{\"sender_name\": \"Tom\", \"content\": \"One\"}}]}}"
    );
    assert_eq!(text_of("message_1.json", chat.as_bytes()), "Tom: One\n");
}

#[test]
fn an_encrypted_chat_of_messenger_is_read_in_the_order_of_its_times() {
    let message = |sender: &str, time: u64, text: &str, more: &str| {
        format!("{{{more}, \"senderName\": \"{sender}\", \"text\": \"{text}\", \"timestamp\": {time}}}")
    };
    let text = r#""isUnsent": false, "type": "text""#;
    let mut messages = [
        message("Ann", 1_700_000_000_000, "Ã© is naïve?", text),
        message("Zoé", 1_700_000_000_001, "One\\nand two.", text),
        message("Ann", 1_700_000_000_002, "Gone.", r#""isUnsent": true, "type": "text""#),
        message("Ann", 1_700_000_000_003, "", r#""isUnsent": false, "type": "media""#),
        message("Ann", 1_700_000_000_004, "You sent something.", r#""isUnsent": false, "type": "placeholder""#),
        message("Ann", 1_700_000_000_005, "https://example.org", r#""isUnsent": false, "type": "link""#),
    ];
    for _ in ["oldest first", "newest first"] {
        let chat = format!(
            "{{\"participants\": [\"Ann\", \"Zoé\"], \"threadName\": \"Zoé\", \"messages\": [{}]}}",
            messages.join(", ")
        );
        let expected = "Ann: Ã© is naïve?\nZoé: One\nand two.\nAnn: https://example.org\n";
        assert_eq!(text_of("a.json", chat.as_bytes()), expected);
        messages.reverse();
    }
}

#[test]
fn a_flat_file_of_opendocument_is_read_as_the_package_is() {
    let picture = "<draw:frame><draw:image><office:binary-data>AAAA</office:binary-data></draw:image></draw:frame>";
    let file = format!(
        "<?xml version=\"1.0\"?>\n<office:document office:mimetype=\"application/vnd.oasis.opendocument.text\">\
         <office:meta><dc:title>Mine</dc:title></office:meta>\
         <office:master-styles><text:p>Header <text:title>Mine</text:title></text:p></office:master-styles>\
         <office:body><office:text><text:p>One{picture} two.</text:p></office:text></office:body></office:document>"
    );
    for name in ["a.fodt", "a.xml"] {
        assert_eq!(text_of(name, file.as_bytes()), "One two.\n", "{name}");
    }
    let error = read_of("a.fodt", b"One two.", Clean::Auto).unwrap_err().to_string();
    assert!(error.ends_with("a.fodt is not an OpenDocument text; save it again"), "{error}");
}

#[test]
fn a_page_that_a_browser_saved_in_one_file_is_read_as_a_page() {
    let file = "From: <Saved by Blink>\r\nSubject: T\r\nMIME-Version: 1.0\r\nContent-Type: multipart/related;\r\n\
                \ttype=\"text/html\";\r\n\tboundary=\"----Multi--abc----\"\r\n\r\n\r\n------Multi--abc----\r\n\
                Content-Type: text/html\r\nContent-Transfer-Encoding: quoted-printable\r\n\
                Content-Location: https://example.org/\r\n\r\n\
                <html><head><meta charset=3D\"UTF-8\"><title>T</title></head><body><p>caf=C3=A9 an=\r\nd more</p>\
                <blockquote type=3D\"cite\">Said</blockquote></body></html>\r\n------Multi--abc----\r\n\
                Content-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\
                Content-Location: https://example.org/x.png\r\n\r\niVBORw0KGgo=\r\n------Multi--abc------\r\n";
    for name in ["a.mhtml", "a.MHT", "page"] {
        assert_eq!(text_of(name, file.as_bytes()), "café and more\n\nSaid\n", "{name}");
    }
    let error = read_of("a.mht", b"Subject: T\r\n\r\nOne.\r\n", Clean::Auto).unwrap_err().to_string();
    assert!(error.ends_with("a.mht is not a saved page: it has no HTML; save it as HTML"), "{error}");
}

#[test]
fn parquet_whose_compression_is_not_read_says_what_helps() {
    // Written by `pyarrow.parquet.write_table`.
    let brotli = include_bytes!("../../tests/fixtures/brotli.parquet");
    let error = read_of("a.parquet", brotli, Clean::Auto).unwrap_err().to_string();
    assert!(error.ends_with("(not supported); write it again with zstd, gzip or snappy"), "{error}");
}

#[test]
fn line_ends_of_old_macintoshes_are_made_line_feeds_in_a_text_of_any_length() {
    for (ends, lines) in [("\r", 100_000), ("\r\r", 100_000), ("\u{2028}", 100_000)] {
        let text = format!("A line of text.{ends}").repeat(lines);
        let expected = format!("A line of text.{}", "\n".repeat(ends.chars().count())).repeat(lines);
        let cleaned = read_of("a.txt", text.as_bytes(), Clean::All).unwrap();
        assert!(cleaned.trim_end() == expected.trim_end(), "{ends:?}");
    }
}

#[test]
fn a_chat_may_be_longer_than_a_message() {
    let message = format!("{{\"from\": \"Ann\", \"text\": \"{}\"}}", "a".repeat(7 << 20));
    let messages = [message.as_str(); 3].join(", ");
    let chat = format!("{{\"name\": \"x\", \"type\": \"personal_chat\", \"messages\": [{messages}]}}");
    assert_eq!(text_of("result.json", chat.as_bytes()).len(), 3 * ("Ann: \n".len() + (7 << 20)));
}
