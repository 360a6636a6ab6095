//! Removes quoted replies and signatures from mails.

use super::Changes;

/// An attribution line ("On Monday, Ann wrote:") stands right above a quotation, ends in a colon
/// and has one of these words, in the languages of mail programs.
const ATTRIBUTION_WORDS: [&str; 12] = [
    "wrote",
    "writes",
    "schrieb",
    "écrit",
    "escribió",
    "scritto",
    "schreef",
    "skrev",
    "написал",
    "пише",
    "napisał",
    "escreveu",
];

/// Beginnings of the first line of an attribution that takes two.
const ATTRIBUTION_STARTS: [&str; 10] = ["On ", "Am ", "Le ", "El ", "Il ", "Op ", "Den ", "Em ", "W dniu ", "Dnia "];

/// Separators above a whole quoted mail.
const SEPARATORS: [&str; 6] = [
    "-----Original Message-----",
    "-----Ursprüngliche Nachricht-----",
    "-----Message d'origine-----",
    "-----Mensaje original-----",
    "-----Messaggio originale-----",
    "---------- Forwarded message ---------",
];

/// The line that Outlook draws above a quoted mail; other programs draw it between the parts of one.
const OUTLOOK_RULE: &str = "________________________________";

/// The header fields at the start of a mail that Outlook quotes, in its languages: sender, date,
/// recipients, subject.
const HEADER_FIELDS: [[&str; 4]; 20] = [
    ["From", "Sent", "To", "Subject"],
    ["From", "Date", "To", "Subject"],
    ["Von", "Gesendet", "An", "Betreff"],
    ["Von", "Datum", "An", "Betreff"],
    ["De", "Envoyé", "À", "Objet"],
    ["De", "Date", "À", "Objet"],
    ["De", "Enviado", "Para", "Asunto"],
    ["De", "Enviado el", "Para", "Asunto"],
    ["De", "Fecha", "Para", "Asunto"],
    ["De", "Enviado", "Para", "Assunto"],
    ["De", "Enviada em", "Para", "Assunto"],
    ["Da", "Inviato", "A", "Oggetto"],
    ["Van", "Verzonden", "Aan", "Onderwerp"],
    ["Från", "Skickat", "Till", "Ämne"],
    ["Fra", "Sendt", "Til", "Emne"],
    ["Lähettäjä", "Lähetetty", "Vastaanottaja", "Aihe"],
    ["Od", "Wysłano", "Do", "Temat"],
    ["От", "Отправлено", "Кому", "Тема"],
    ["差出人", "送信日時", "宛先", "件名"],
    ["发件人", "发送时间", "收件人", "主题"],
];

/// Date fields that a memo may have as well; the date of a mail has a time.
const DATE_FIELDS: [&str; 3] = ["Date", "Datum", "Fecha"];

/// The most lines of such a header: many recipients take several.
const MAX_HEADER_LINES: usize = 50;

/// The most non-blank lines of a signature below its delimiter `-- ` (RFC 3676); those of companies
/// are long.
const MAX_SIGNATURE_LINES: usize = 25;

/// The most below dashes without the space: above more lines they are a divider.
const MAX_UNMARKED_LINES: usize = 6;

/// The text of a mail without quoted lines and their attributions, without a whole quoted mail at
/// its end, and without the signature.
pub fn remove(text: &str, changes: &mut Changes) -> String {
    let mut kept = remove_quotations(text, changes);
    if let Some(at) = signature(&kept) {
        changes.signature_lines += (kept.len() - at) as u64;
        kept.truncate(at);
        pop_blank(&mut kept);
    }
    kept.into_iter().flat_map(|line| [line, "\n"]).collect()
}

fn remove_quotations<'a>(text: &'a str, changes: &mut Changes) -> Vec<&'a str> {
    let mut kept: Vec<&str> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let is_separator = SEPARATORS.contains(&line.trim()) || is_outlook_separator(line, lines.clone());
        if is_separator || begins_quoted_mail(line, lines.clone()) {
            changes.quoted_lines += 1 + lines.count() as u64;
            break;
        }
        if !line.starts_with('>') {
            kept.push(line);
            continue;
        }
        changes.quoted_lines += 1;
        // The attribution is above it, on one line or two.
        pop_blank(&mut kept);
        if kept.last().is_some_and(|line| is_attribution(line)) {
            let ends = kept.pop().unwrap_or_default();
            changes.quoted_lines += 1;
            let is_whole = ends.contains(|character: char| character.is_ascii_digit()) || ends.starts_with("On ");
            if !is_whole && kept.last().is_some_and(|line| may_begin_attribution(line)) {
                kept.pop();
                changes.quoted_lines += 1;
            }
        }
        pop_blank(&mut kept);
        if !kept.is_empty() {
            kept.push("");
        }
        while lines.next_if(|line| line.starts_with('>')).is_some() {
            changes.quoted_lines += 1;
        }
        while lines.next_if(|line| line.trim().is_empty()).is_some() {}
    }
    pop_blank(&mut kept);
    kept
}

/// Removes blank lines at the end.
fn pop_blank(lines: &mut Vec<&str>) {
    while lines.last().is_some_and(|line| line.trim().is_empty()) {
        lines.pop();
    }
}

/// The index of the delimiter, `-- ` or `--`, that begins a mail's signature.
fn signature(lines: &[&str]) -> Option<usize> {
    let (mut begins, mut below) = (None, 0);
    for (at, &line) in lines.iter().enumerate().rev() {
        if line == "-- " || (line == "--" && at + 1 < lines.len() && below <= MAX_UNMARKED_LINES) {
            begins = Some(at);
        }
        below += usize::from(!line.trim().is_empty());
        if below > MAX_SIGNATURE_LINES {
            break;
        }
    }
    begins
}

/// Whether this is Outlook's rule above a quoted mail, whose first two header fields follow, in any
/// language.
fn is_outlook_separator<'a>(line: &str, below: impl Iterator<Item = &'a str>) -> bool {
    let is_field = |line: &str| {
        let name = field_name(line);
        let value = line.split_once(':').map_or("", |(_, value)| value.trim_start_matches('*'));
        (1..=2).contains(&name.split_whitespace().count()) && value.starts_with(char::is_whitespace)
    };
    let fields = below.skip_while(|line| line.trim().is_empty()).take(2).filter(|line| is_field(line));
    line.trim() == OUTLOOK_RULE && fields.count() == 2
}

/// Whether this line begins a mail that Outlook quotes: its header fields follow in order, the
/// second right below the first, and no blank line comes between.
fn begins_quoted_mail<'a>(line: &str, below: impl Iterator<Item = &'a str> + Clone) -> bool {
    let first = field_name(line);
    HEADER_FIELDS.iter().filter(|fields| fields[0] == first).any(|[_, sent, to, subject]| {
        let block = below.clone().take_while(|line| !line.trim().is_empty()).take(MAX_HEADER_LINES);
        let mut names = block.map(field_name);
        let is_mails = !DATE_FIELDS.contains(sent) || below.clone().next().is_some_and(has_time);
        is_mails && names.next() == Some(*sent) && names.any(|name| name == *to) && names.any(|name| name == *subject)
    })
}

/// Whether a line has a time of day in it, such as 10:00.
fn has_time(line: &str) -> bool {
    let is_time = |four: &[u8]| four[1] == b':' && [0, 2, 3].iter().all(|&at: &usize| four[at].is_ascii_digit());
    line.as_bytes().windows(4).any(is_time)
}

/// The name of the header field on a line. French puts a blank before the colon, and bold type may
/// have become asterisks.
fn field_name(line: &str) -> &str {
    line.split_once(':').map_or("", |(name, _)| name.trim().trim_matches('*'))
}

fn is_attribution(line: &str) -> bool {
    let line = line.trim();
    line.ends_with(':') && ATTRIBUTION_WORDS.iter().any(|word| line.contains(word))
}

/// Whether this may be the first of two attribution lines: it has a digit or an address, or a
/// typical beginning, and does not end like a sentence, which would be the author's own.
fn may_begin_attribution(line: &str) -> bool {
    let line = line.trim();
    let has_some = line.contains(|character: char| character.is_ascii_digit() || character == '@');
    (has_some || ATTRIBUTION_STARTS.iter().any(|start| line.starts_with(start))) && !line.ends_with(['.', '!', '?'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_is_left_out_and_counted() {
        let mail = "Yes, at nine.\n\nOn Monday, 3 May 2021, Ann wrote:\n> Shall we meet?\n>\n>> When?\n\nSee you\n-- \nTom\nOslo\n";
        let mut changes = Changes::default();
        assert_eq!(remove(mail, &mut changes), "Yes, at nine.\n\nSee you\n");
        assert_eq!(changes, Changes { quoted_lines: 4, signature_lines: 3, ..Changes::default() });
        let two_lines =
            "Fine.\n\nAm 3. Mai um 10:00 Uhr hat Ann <ann@example.org>\nfolgendes geschrieben (schrieb):\n> Gut?\n";
        assert_eq!(remove(two_lines, &mut Changes::default()), "Fine.\n");
        let by_name = "Fine.\n\nOn Monday Ann of the long name\nwrote:\n> Gut?\n";
        assert_eq!(remove(by_name, &mut Changes::default()), "Fine.\n");
        for own in ["Hello,\n\nI do not agree with any of this.\n", "We meet at 9!\n", "Nor do I\n"] {
            assert_eq!(remove(&format!("{own}Ann wrote:\n> a quote\n"), &mut Changes::default()), own);
        }
        let outlook = "Fine.\n\n-----Original Message-----\nFrom: Ann\nGood?\n";
        assert_eq!(remove(outlook, &mut Changes::default()), "Fine.\n");
        let turkish = format!("Fine.\n\n{OUTLOOK_RULE}\nKimden: Ann\nGönderildi: Pazartesi\n\nGood?\n");
        assert_eq!(remove(&turkish, &mut Changes::default()), "Fine.\n");
        let divided = format!("One.\n{OUTLOOK_RULE}\nNote: two.\nhttps://example.org\n");
        assert_eq!(remove(&divided, &mut Changes::default()), divided);
        for whole in ["A line that ends in a colon:\nand goes on\n", "a > b\n", "-- a dash begins this\n", ""] {
            assert_eq!(remove(whole, &mut Changes::default()), whole);
        }
    }

    #[test]
    fn what_stands_below_the_fields_of_another_mail_is_left_out_in_every_language() {
        for [from, sent, to, subject] in HEADER_FIELDS {
            let block = format!("{from}: Ann\n{sent}: 3.5.2021 10:00\n{to}: Tom; Eve;\n Cy\nCc: Bob\n{subject}: Tea");
            let mut changes = Changes::default();
            assert_eq!(remove(&format!("Fine.\n\n{block}\n\nGood?\n"), &mut changes), "Fine.\n", "{block}");
            assert_eq!(changes.quoted_lines, 8);
        }
        let bold = "Fine.\n\n*From:* Ann\n*Sent:* Monday\n*To:* Tom\n*Subject:* Tea\n\nGood?\n";
        assert_eq!(remove(bold, &mut Changes::default()), "Fine.\n");
        let french = "Bien.\n\nDe\u{a0}: Ann\nEnvoyé : lundi\nÀ : Tom\nObjet : Thé\n\nBon ?\n";
        assert_eq!(remove(french, &mut Changes::default()), "Bien.\n");
        for own in [
            "From: the sea\nTo: the hills\nSubject: a walk\n",
            "To: All\nFrom: The head\nDate: 3 May\nSubject: Parking\n\nPlease park behind the house.\n",
            "From: Ann\nSent: flowers\n\nTo: nobody\nSubject: none\n",
            "Here is the memo.\n\nFrom: The board\nDate: 3 May 2021\nTo: All\nSubject: Hours\n\nWe open at nine.\n",
            "Von: Berlin\nDatum: 3.5.2021\nAn: Paris\nBetreff: zwei Plätze\n\nGern am Fenster.\n",
            "From: Ann\n",
        ] {
            assert_eq!(remove(own, &mut Changes::default()), own);
        }
    }

    #[test]
    fn a_signature_is_short_and_ends_the_mail() {
        let divided = format!("One.\n--\n{}", "Two.\n\n".repeat(7));
        let mut changes = Changes::default();
        assert_eq!(remove(&divided, &mut changes), divided.trim_end().to_owned() + "\n");
        assert!(changes.is_none());
        assert_eq!(remove(&format!("{divided}-- \nTom\n"), &mut changes), divided.trim_end().to_owned() + "\n");
        assert_eq!(changes.signature_lines, 2);
        let above = "One.\n-- \nTom\n\n-----Original Message-----\nFrom: Ann\n1\n2\n3\n4\n5\n6\n7\n";
        assert_eq!(remove(above, &mut Changes::default()), "One.\n");
        let firms = format!("One.\n-- \n{}", "A line of a firm\n".repeat(12));
        assert_eq!(remove(&firms, &mut Changes::default()), "One.\n");
        let two = "One.\n-- \nTom\nOslo\n--\nThe list\n";
        assert_eq!(remove(two, &mut Changes::default()), "One.\n");
    }
}
