//! Mail (RFC 5322 and MIME): mailboxes in the mbox form, and a mail a file (`.eml`, Maildir).

use super::html::Page;
use crate::source::clean::{Clean, quotes};
use crate::source::event::{Documents, Halt};
use crate::source::reader::{About, Reader, hand_on};
use crate::source::start::Start;
use crate::source::{content::Content, error::Error, event::Dated, event::Event};
use ember_host::panics::quietly;
use mail_parser::{Message, MessageParser, PartType};
use std::io::{BufRead, BufReader, Read};

/// What is read of a mail: what lies behind it are attachments.
const MOST_BYTES: u64 = 64 << 20;

/// Parts of a mail that are read: nobody writes more.
const MOST_PARTS: usize = 64;

/// A mail a file.
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

    /// In a Maildir, whose files have no ending, mails lie in `cur` and `new`.
    fn begins(&self, start: &Start) -> bool {
        let mut folders = start.name.rsplit(['/', '\\']).skip(1);
        let in_maildir = folders.next().is_some_and(|folder| folder == "cur" || folder == "new");
        let line = start.text().lines().next().unwrap_or_default();
        let is_header = line.split_once(':').is_some_and(|(name, _)| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        });
        in_maildir && is_header
    }

    fn read(&self, content: &Content<'_>, sink: &mut Documents<'_>) -> Result<(), Halt> {
        let mut bytes = Vec::new();
        let read = content.bytes()?.take(MOST_BYTES).read_to_end(&mut bytes);
        read.map_err(|error| content.cannot_read("0 bytes", error))?;
        if !hand_on_mail(&bytes, content, sink)? {
            return Err(Error::unusable(content.name(), "is no mail: it has no headers; leave it out").into());
        }
        Ok(())
    }
}

/// A mailbox.
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

    fn begins(&self, start: &Start) -> bool {
        let mut lines = start.text().lines();
        let header = |line: &str| line.split_once(": ").is_some_and(|(name, _)| !name.contains(' '));
        start.is_unnamed()
            && lines.next().is_some_and(|line| line.starts_with("From ") && line.contains(':'))
            && lines.next().is_some_and(header)
    }

    fn is_text(&self) -> bool {
        false // attachments may be of any kind
    }

    /// A mail begins at a line of `From ` behind an empty one; `>From ` within it is `From `.
    fn read(&self, content: &Content<'_>, sink: &mut Documents<'_>) -> Result<(), Halt> {
        let mut reader = BufReader::with_capacity(1 << 16, content.bytes()?);
        let (mut mail, mut line, mut after_empty, mut begun) = (Vec::new(), Vec::new(), true, false);
        loop {
            line.clear();
            let read = reader.by_ref().take(MOST_BYTES).read_until(b'\n', &mut line);
            let n = read.map_err(|error| content.cannot_read("the last mail", error))?;
            let begins = after_empty && line.starts_with(b"From ");
            if n == 0 || begins {
                if begun {
                    hand_on_mail(&mail, content, sink)?;
                }
                mail.clear();
                begun = true;
            } else if mail.len() + n <= MOST_BYTES as usize {
                let arrows = line.iter().take_while(|&&byte| byte == b'>').count();
                let escaped = arrows > 0 && line[arrows..].starts_with(b"From ");
                mail.extend_from_slice(&line[usize::from(escaped)..]);
            }
            if n == 0 {
                return Ok(());
            }
            after_empty = line.trim_ascii().is_empty();
        }
    }
}

/// Hands on a mail's text; whether it is one.
fn hand_on_mail(bytes: &[u8], content: &Content<'_>, sink: &mut Documents<'_>) -> Result<bool, Halt> {
    // A damaged mail of a mailbox is no reason to leave out all others.
    let Ok(Some(message)) = quietly(|| MessageParser::default().parse(bytes)) else { return Ok(false) };
    let mut text = body(&message);
    if content.options.clean != Clean::Off {
        text = content.changed(|changes| quotes::without(&text, changes));
    }
    if let Some(date) = message.date() {
        sink(Event::Dated(Dated::At(date.to_timestamp())))?;
    }
    hand_on(message.subject(), &text, sink)?;
    Ok(true)
}

/// What somebody wrote: the parts of text, else those of HTML as text.
fn body(message: &Message<'_>) -> String {
    let mut text = String::new();
    for part in message.text_bodies().take(MOST_PARTS) {
        let shown = match &part.body {
            PartType::Text(text) => text.replace("\r\n", "\n"),
            PartType::Html(page) => Page::of(page).text,
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
