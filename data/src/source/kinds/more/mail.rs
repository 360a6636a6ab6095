//! Mail (RFC 5322 and MIME): mbox mailboxes, and files with a single mail (`.eml`, Maildir).

use super::html::{Page, declared_encoding};
use crate::source::clean::{Clean, quotes};
use crate::source::event::{EventSink, Halt};
use crate::source::guess::{count_valid_and_invalid, has_escape_to_japanese};
use crate::source::reader::{About, Reader, emit_document};
use crate::source::start::Start;
use crate::source::{content::Content, error::Error, event::Dated, event::Event};
use ember_host::panics::quietly;
use mail_parser::decoders::quoted_printable::quoted_printable_decode;
use mail_parser::decoders::{base64::base64_decode, charsets::map::charset_decoder};
use mail_parser::{Encoding, Message, MessageParser, MessagePart, MimeHeaders, PartType};
use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read};

/// The most that is read of a mail: what comes after that is attachments.
const MAX_BYTES: u64 = 64 << 20;

/// The most MIME parts of a mail that are read.
const MAX_PARTS: usize = 64;

/// The format of a file with a single mail.
pub struct Mail;

const MAIL: About = About {
    id: "mail",
    name: "mail",
    endings: &[".eml"],
    document: "a mail: its text, else the text of its HTML; the subject is the title",
    without: "headers, attachments, quoted replies, signatures",
};

impl Reader for Mail {
    fn about(&self) -> &About {
        &MAIL
    }

    /// Recognises the files of a Maildir, which have no extension, by the folders `cur` and `new`.
    fn matches(&self, start: &Start) -> bool {
        let mut folders = start.name.rsplit(['/', '\\']).skip(1);
        let in_maildir = folders.next().is_some_and(|folder| folder == "cur" || folder == "new");
        let line = start.text().lines().next().unwrap_or_default();
        let is_header = line.split_once(':').is_some_and(|(name, _)| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        });
        in_maildir && is_header
    }

    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        if !emit_mail(&read_beginning(content)?, content, sink)? {
            return Err(Error::unusable(content.name(), "is not a mail: it has no headers; leave it out").into());
        }
        Ok(())
    }
}

/// Reads the beginning of a file with a single mail.
///
/// # Errors
/// When it cannot be read.
pub fn read_beginning(content: &Content<'_>) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let read = content.bytes()?.take(MAX_BYTES).read_to_end(&mut bytes);
    read.map_err(|error| content.cannot_read("0 bytes", error))?;
    Ok(bytes)
}

/// The format of a mailbox.
pub struct Mbox;

const MBOX: About = About {
    id: "mbox",
    name: "mbox",
    endings: &[".mbox", ".mbx"],
    document: "a mail: its text, else the text of its HTML; the subject is the title",
    without: "headers, attachments, quoted replies, signatures",
};

impl Reader for Mbox {
    fn about(&self) -> &About {
        &MBOX
    }

    fn matches(&self, start: &Start) -> bool {
        let mut lines = start.text().lines();
        let header = |line: &str| line.split_once(": ").is_some_and(|(name, _)| !name.contains(' '));
        start.has_generic_name()
            && lines.next().is_some_and(|line| line.starts_with("From ") && line.contains(':'))
            && lines.next().is_some_and(header)
    }

    fn is_text(&self) -> bool {
        false // attachments may be of any kind
    }

    /// A mail begins with a line `From ...` after an empty line.
    fn read(&self, content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<(), Halt> {
        let mut reader = BufReader::with_capacity(1 << 16, content.bytes()?);
        // `None` until the first mail begins: what comes before it is left out.
        let mut mail: Option<Vec<u8>> = None;
        let (mut line, mut after_empty) = (Vec::new(), true);
        // Not all programs escape `From ` in a mail's text. So if the file's first mail begins with
        // a date, only lines with a date begin a mail.
        let mut needs_date = false;
        loop {
            line.clear();
            let read = reader.by_ref().take(MAX_BYTES).read_until(b'\n', &mut line);
            let n = read.map_err(|error| content.cannot_read("the last mail", error))?;
            let begins = after_empty && line.starts_with(b"From ") && (!needs_date || has_date(&line));
            if n == 0 || begins {
                match mail.replace(Vec::new()) {
                    Some(whole) => _ = emit_mail(&whole, content, sink)?,
                    None if n == 0 => {
                        let problem = "is not a mailbox: no mail begins with a line \"From ...\"; leave it out";
                        return Err(Error::unusable(content.name(), problem).into());
                    }
                    None => needs_date = has_date(&line),
                }
            } else if let Some(mail) = &mut mail
                && mail.len() + n <= MAX_BYTES as usize
            {
                mail.extend_from_slice(unescaped(&line));
            }
            if n == 0 {
                return Ok(());
            }
            after_empty = line.trim_ascii().is_empty();
        }
    }
}

/// The line of a mail's text as it was written: `>From ` in a mailbox stands for `From `, and
/// `>>From ` for `>From `.
fn unescaped(line: &[u8]) -> &[u8] {
    let arrows = line.iter().take_while(|&&byte| byte == b'>').count();
    let is_escaped = arrows > 0 && line[arrows..].starts_with(b"From ");
    if is_escaped { &line[1..] } else { line }
}

/// Whether a line has words that look like a time of day and a year.
fn has_date(line: &[u8]) -> bool {
    let words = || line.split(u8::is_ascii_whitespace).filter(|word| word.first().is_some_and(u8::is_ascii_digit));
    words().any(|word| word.contains(&b':'))
        && words().any(|word| word.len() == 4 && word.iter().all(u8::is_ascii_digit))
}

/// Emits a mail's text; returns whether it is a mail.
fn emit_mail(bytes: &[u8], content: &Content<'_>, sink: &mut EventSink<'_>) -> Result<bool, Halt> {
    // A damaged mail must not make the rest of a mailbox unreadable.
    let Ok(Some(message)) = quietly(|| MessageParser::default().parse(bytes)) else { return Ok(false) };
    let mut text = body(&message, content);
    if content.options.clean != Clean::Off {
        text = content.with_changes(|changes| quotes::remove(&text, changes));
    }
    if let Some(date) = message.date() {
        sink(Event::Dated(Dated::At(date.to_timestamp())))?;
    }
    emit_document(message.subject(), &text, sink)?;
    Ok(true)
}

/// Charsets that programs declare for text whose encoding they do not know.
const UNRELIABLE_CHARSETS: [&str; 5] = ["utf-8", "utf8", "us-ascii", "ascii", "unknown-8bit"];

/// The text of a part: `text`, which the library has decoded, if the declared charset is reliable
/// and known to it; else the part is decoded again, with our detection of the encoding.
pub fn decoded<'a>(
    part: &MessagePart<'_>,
    text: &'a str,
    message: &Message<'_>,
    content: &Content<'_>,
) -> Cow<'a, str> {
    let charset = part.content_type().and_then(|kind| kind.attribute("charset"));
    let is_reliable = charset.is_some_and(|charset| {
        charset_decoder(charset.as_bytes()).is_some()
            && !UNRELIABLE_CHARSETS.iter().any(|other| other.eq_ignore_ascii_case(charset))
    });
    // All bytes of ISO-2022-JP are ASCII.
    let needs_no_decoding = text.is_ascii() && !has_escape_to_japanese(text.as_bytes());
    if is_reliable || needs_no_decoding {
        return Cow::Borrowed(text);
    }
    let raw = message.raw_message.get(part.offset_body as usize..part.offset_end as usize).unwrap_or_default();
    let bytes = match part.encoding {
        Encoding::None => Some(raw.to_vec()),
        Encoding::QuotedPrintable => quoted_printable_decode(raw),
        Encoding::Base64 => base64_decode(raw),
    };
    let is_html = matches!(part.body, PartType::Html(_));
    // A damaged part, or UTF-8 with some invalid bytes, stays as the library decoded it.
    let bytes = bytes.filter(|bytes| !is_mostly_utf8(bytes));
    let read = bytes.and_then(|bytes| content.text_of(&bytes, declared_encoding(&bytes).filter(|_| is_html)).ok());
    read.map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Whether there are more valid non-ASCII characters in UTF-8 than invalid sequences.
fn is_mostly_utf8(bytes: &[u8]) -> bool {
    let (valid, invalid) = count_valid_and_invalid(bytes);
    valid > invalid
}

/// The text of a mail's body: its plain text parts; if they are blank, its HTML parts as text.
fn body(message: &Message<'_>, content: &Content<'_>) -> String {
    let text = text_of_parts(message.text_bodies(), message, content);
    if text.trim().is_empty() { text_of_parts(message.html_bodies(), message, content) } else { text }
}

/// The text of some parts of a mail, HTML as text.
fn text_of_parts<'a>(
    parts: impl Iterator<Item = &'a MessagePart<'a>>,
    message: &Message<'_>,
    content: &Content<'_>,
) -> String {
    let mut text = String::new();
    for part in parts.take(MAX_PARTS) {
        let shown = match &part.body {
            PartType::Text(text) => decoded(part, text, message, content).replace("\r\n", "\n"),
            PartType::Html(page) if content.options.clean == Clean::Off => {
                Page::of(&decoded(part, page, message, content)).text
            }
            PartType::Html(page) => Page::of_mail(&decoded(part, page, message, content)).text,
            _ => continue,
        };
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(shown.trim_end_matches('\n'));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::source::{Listing, ReadOptions, read};
    use std::sync::atomic::AtomicU64;

    /// The text of a mail with this header and body.
    fn text(header: &str, body: &[u8], options: &ReadOptions) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.eml");
        std::fs::write(&path, [format!("From: a@b\nSubject: x\n{header}\n").as_bytes(), body].concat()).unwrap();
        let mut listing = Listing::default();
        listing.add_path(&path).unwrap();
        let mut text = String::new();
        read::<Error>(&listing.files[0], options, &AtomicU64::new(0), &mut |event| {
            if let Event::Text(piece) = event {
                text.push_str(piece);
            }
            Ok(())
        })
        .unwrap();
        text
    }

    #[test]
    fn what_a_mail_of_html_quotes_is_left_out_by_choice() {
        let header = "Content-Type: text/html\n";
        let cite =
            b"<p>Fine.</p><div>On 3 May, Ann wrote:</div><blockquote type=cite><p>Good?</p></blockquote><p>Me</p>";
        let outlook = b"<p>Fine.</p><p>Me</p><hr><div id=divRplyFwdMsg><b>Fra:</b> Ann</div><p>Good?</p>";
        let word = b"<p>Fine.</p><p>Me</p><div><p><b>Von:</b> Ann<br><b>Gesendet:</b> Montag<br><b>An:</b> Tom<br>\
                     <b>Betreff:</b> Tee</p></div><p>Good?</p>";
        for body in [&cite[..], outlook, word] {
            assert_eq!(text(header, body, &ReadOptions::default()), "Fine.\n\nMe\n");
            let whole = text(header, body, &ReadOptions { clean: Clean::Off, ..ReadOptions::default() });
            assert!(whole.contains("\nGood?\n") && whole.contains("Ann"), "{whole}");
        }
    }

    #[test]
    fn a_mailbox_in_which_no_mail_begins_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.mbox");
        std::fs::write(&path, "*mbx*\r\nSubject: x\r\n\r\nHello\r\n").unwrap();
        let mut listing = Listing::default();
        listing.add_path(&path).unwrap();
        let error = read::<Error>(&listing.files[0], &ReadOptions::default(), &AtomicU64::new(0), &mut |_| Ok(()));
        let expected = "a.mbox is not a mailbox: no mail begins with a line \"From ...\"; leave it out";
        assert!(error.unwrap_err().to_string().ends_with(expected));
    }

    #[test]
    fn a_mail_whose_plain_text_is_blank_is_read_from_its_html() {
        let header = "MIME-Version: 1.0\nContent-Type: multipart/alternative; boundary=x\n";
        let body = "--x\nContent-Type: text/plain\n\n \n--x\nContent-Type: text/html\n\n<p>Hello, Ann</p>\n--x--\n";
        assert_eq!(text(header, body.as_bytes(), &ReadOptions::default()), "Hello, Ann\n");
    }

    #[test]
    fn text_whose_encoding_a_mail_does_not_know_is_read_as_all_text() {
        let options = ReadOptions::default();
        let german = b"Gr\xfc\xdfe aus M\xfcnchen, sch\xf6ne Gr\xfc\xdfe an alle.\n";
        let expected = "Grüße aus München, schöne Grüße an alle.\n";
        let plain = "Content-Type: text/plain; charset=utf-8\n";
        let quoted = b"Gr=FC=DFe aus M=FCnchen, sch=F6ne Gr=FC=DFe an alle.\n";
        let quoted_header = "Content-Type: text/plain\nContent-Transfer-Encoding: quoted-printable\n";
        let unknown = "Content-Type: text/plain; charset=X-UNKNOWN\n";
        for (header, body) in [("", &german[..]), (plain, german), (unknown, german), (quoted_header, quoted)] {
            assert_eq!(text(header, body, &options), expected, "{header}");
        }
        assert_eq!(text(plain, expected.as_bytes(), &options), expected);
        let broken = "Grüße aus München\u{fffd}\n";
        assert_eq!(
            text(plain, b"Gr\xc3\xbc\xc3\x9fe aus M\xc3\xbcnchen\xff\n", &options),
            broken,
            "a byte among others"
        );
        let cut = "Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n";
        assert_eq!(text(cut, b"Das Caf=C3=A9 ist sch=C3=B6n =C3", &options).trim_end(), "Das Café ist schön \u{fffd}");
        let japanese = "日本語のテキスト、カタカナ。\n";
        let bytes = encoding_rs::ISO_2022_JP.encode(japanese).0.into_owned();
        let bytes = &bytes[..];
        let page = "Content-Type: text/html\n";
        let ascii = "Content-Type: text/plain; charset=us-ascii\n";
        let escaped = String::from_utf8_lossy(bytes).replace('=', "=3D").replace('\u{1b}', "=1B");
        for (header, body) in
            [("", bytes), (ascii, bytes), (page, bytes), (plain, bytes), (quoted_header, escaped.as_bytes())]
        {
            assert_eq!(text(header, body, &options), japanese, "{header}");
        }
        let bold = "\u{1b}[1mbold\u{1b}[0m and \u{1b}$B no pairs\n";
        assert_eq!(text("", bold.as_bytes(), &options), bold);
        let set = ReadOptions { encoding: Some(encoding_rs::WINDOWS_1251), ..ReadOptions::default() };
        assert_eq!(text("", b"\xcf\xf0\xe8\xe2\xe5\xf2\n", &set), "Привет\n");
        let header = "Content-Type: text/plain; charset=koi8-r\n";
        assert_eq!(text(header, b"\xf0\xd2\xc9\xd7\xc5\xd4\n", &set), "Привет\n", "what a mail says counts");
    }
}
