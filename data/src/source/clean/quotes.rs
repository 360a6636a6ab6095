//! Mails without what others wrote: quoted replies, and signatures.

use super::Changes;

/// Words with which programs announce what they quote, in the languages they speak; a line that
/// ends in a colon and has one of them, right above a quotation.
const ANNOUNCING: [&str; 12] = [
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

/// How the first of two lines begins that announce a quotation.
const BEGINNINGS: [&str; 10] = ["On ", "Am ", "Le ", "El ", "Il ", "Op ", "Den ", "Em ", "W dniu ", "Dnia "];

/// Lines that stand above a whole mail that is quoted below.
const ORIGINALS: [&str; 5] = [
    "-----Original Message-----",
    "-----Ursprüngliche Nachricht-----",
    "-----Message d'origine-----",
    "---------- Forwarded message ---------",
    "________________________________",
];

/// The text of a mail without quoted lines and what announces them, without what stands below
/// another mail's beginning, and without a signature (a line of `-- `, RFC 3676).
pub fn without(text: &str, changes: &mut Changes) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "-- " || (line == "--" && lines.peek().is_some()) {
            changes.signature_lines += 1 + lines.count() as u64;
            break;
        }
        if ORIGINALS.contains(&line.trim()) {
            changes.quoted_lines += 1 + lines.count() as u64;
            break;
        }
        if !line.starts_with('>') {
            kept.push(line);
            continue;
        }
        changes.quoted_lines += 1;
        // What announces it stands above it, on one line or on two.
        while kept.last().is_some_and(|line| line.trim().is_empty()) {
            kept.pop();
        }
        if kept.last().is_some_and(|line| announces(line)) {
            let ends = kept.pop().unwrap_or_default();
            changes.quoted_lines += 1;
            let is_whole = ends.contains(|character: char| character.is_ascii_digit()) || ends.starts_with("On ");
            if !is_whole && kept.last().is_some_and(|line| begins_to_announce(line)) {
                kept.pop();
                changes.quoted_lines += 1;
            }
        }
        while kept.last().is_some_and(|line| line.trim().is_empty()) {
            kept.pop();
        }
        if !kept.is_empty() {
            kept.push("");
        }
        while lines.next_if(|line| line.starts_with('>')).is_some() {
            changes.quoted_lines += 1;
        }
        while lines.next_if(|line| line.trim().is_empty()).is_some() {}
    }
    while kept.last().is_some_and(|line| line.trim().is_empty()) {
        kept.pop();
    }
    kept.into_iter().flat_map(|line| [line, "\n"]).collect()
}

fn announces(line: &str) -> bool {
    let line = line.trim();
    line.ends_with(':') && ANNOUNCING.iter().any(|word| line.contains(word))
}

/// Whether this is the first half of what announces a quotation: it has a date or an address, or
/// begins so, and it is no sentence, which were the author's own.
fn begins_to_announce(line: &str) -> bool {
    let line = line.trim();
    let has_some = line.contains(|character: char| character.is_ascii_digit() || character == '@');
    (has_some || BEGINNINGS.iter().any(|beginning| line.starts_with(beginning))) && !line.ends_with(['.', '!', '?'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_is_left_out_and_counted() {
        let mail = "Yes, at nine.\n\nOn Monday, 3 May 2021, Ann wrote:\n> Shall we meet?\n>\n>> When?\n\nSee you\n-- \nTom\nOslo\n";
        let mut changes = Changes::default();
        assert_eq!(without(mail, &mut changes), "Yes, at nine.\n\nSee you\n");
        assert_eq!(changes, Changes { quoted_lines: 4, signature_lines: 3, ..Changes::default() });
        let two_lines =
            "Fine.\n\nAm 3. Mai um 10:00 Uhr hat Ann <ann@example.org>\nfolgendes geschrieben (schrieb):\n> Gut?\n";
        assert_eq!(without(two_lines, &mut Changes::default()), "Fine.\n");
        let by_name = "Fine.\n\nOn Monday Ann of the long name\nwrote:\n> Gut?\n";
        assert_eq!(without(by_name, &mut Changes::default()), "Fine.\n");
        for own in ["Hello,\n\nI do not agree with any of this.\n", "We meet at 9!\n", "Nor do I\n"] {
            assert_eq!(without(&format!("{own}Ann wrote:\n> a quote\n"), &mut Changes::default()), own);
        }
        let outlook = "Fine.\n\n-----Original Message-----\nFrom: Ann\nGood?\n";
        assert_eq!(without(outlook, &mut Changes::default()), "Fine.\n");
        for whole in ["A line that ends in a colon:\nand goes on\n", "a > b\n", "-- a dash begins this\n", ""] {
            assert_eq!(without(whole, &mut Changes::default()), whole);
        }
    }
}
