//! Numbers with a checksum: payment cards (ISO/IEC 7812, Luhn) and bank accounts (ISO 13616, modulo
//! 97).

use super::neighbours::{SPACE, after, before};
use regex::{Match, Regex};
use std::{ops::Range, sync::LazyLock};

/// Groups of digits separated by single spaces or hyphens.
static DIGITS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&format!(r"[0-9]+(?:[{SPACE}\-][0-9]+)*")).expect("the pattern is valid"));

/// How digits are grouped on cards.
const GROUPS: [&[usize]; 4] = [&[4, 4, 4, 4], &[4, 6, 5], &[4, 6, 4], &[4, 4, 4, 4, 3]];

/// Ranges of card numbers.
pub fn cards(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for run in DIGITS.find_iter(text).filter(|run| run.len() >= 13) {
        let continues = |character: char| character.is_alphanumeric() || character == '_';
        if before(text, run.start()).is_some_and(continues) || after(text, run.end()).is_some_and(continues) {
            continue;
        }
        let groups = whole_numbers(text, groups(run));
        let mut first = 0;
        while first < groups.len() {
            let rest = &groups[first..];
            let is_so_grouped = |lengths: &&&[usize]| {
                rest.len() >= lengths.len() && rest.iter().zip(**lengths).all(|(group, length)| group.len() == *length)
            };
            let longest = GROUPS.iter().rev().filter(is_so_grouped).map(|lengths| lengths.len()).chain([1]);
            let card = longest.map(|count| (count, rest[0].start..rest[count - 1].end));
            let card = card.into_iter().find(|(_, range)| is_card(&text[range.clone()]));
            first += card.as_ref().map_or(1, |(count, _)| *count);
            found.extend(card.map(|(_, range)| range));
        }
    }
    found
}

/// The range of each group of digits; one separator character lies between groups.
fn groups(run: Match<'_>) -> Vec<Range<usize>> {
    let is_sign = |character: char| !character.is_ascii_digit();
    let mut at = run.start();
    let place = |with_sign: &str| {
        let start = at;
        at += with_sign.len();
        start..start + with_sign.trim_end_matches(is_sign).len()
    };
    run.as_str().split_inclusive(is_sign).map(place).collect()
}

/// Drops a first group that is the fraction of a decimal number, and a last group that a fraction
/// follows.
fn whole_numbers(text: &str, mut groups: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let before_point = groups.first().and_then(|first| text[..first.start].strip_suffix('.'));
    // Several groups after a point that follows a digit other than 0 may be a card number in a
    // numbered list.
    let is_fraction = before_point.is_some_and(|whole| match before(whole, whole.len()) {
        Some('1'..='9') => groups.len() == 1,
        sign => sign.is_none_or(|sign| !sign.is_alphabetic() && sign != '.'),
    });
    let behind_point = groups.last().and_then(|last| text[last.end..].strip_prefix('.'));
    if behind_point.is_some_and(|fraction| fraction.starts_with(|sign: char| sign.is_ascii_digit())) {
        groups.pop();
    }
    if is_fraction && !groups.is_empty() {
        groups.remove(0);
    }
    groups
}

/// Whether a number has a card network's prefix and length and a valid checksum.
fn is_card(number: &str) -> bool {
    let digits: Vec<u32> = number.chars().filter_map(|digit| digit.to_digit(10)).collect();
    let begins = |count: usize| digits.iter().take(count).fold(0, |number, digit| 10 * number + digit);
    let is_network_number = match digits.len() {
        13 | 19 => begins(1) == 4,
        14 => matches!(begins(2), 36 | 38 | 39) || matches!(begins(3), 300..=305),
        15 => matches!(begins(2), 34 | 37),
        16 => {
            matches!(begins(1), 4)
                || matches!(begins(2), 51..=55 | 62 | 65)
                || matches!(begins(3), 644..=649)
                || matches!(begins(4), 2221..=2720 | 3528..=3589 | 6011)
        }
        _ => false,
    };
    is_network_number && luhn(&digits)
}

/// The Luhn checksum: every second digit from the right counts twice, and the sum ends in 0.
fn luhn(digits: &[u32]) -> bool {
    let counted = digits.iter().rev().enumerate().map(|(place, &digit)| match place % 2 {
        0 => digit,
        _ => 2 * digit / 10 + 2 * digit % 10,
    });
    counted.sum::<u32>() % 10 == 0
}

static IBAN: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = format!("[A-Z]{{2}}[0-9]{{2}}(?:{SPACE}?[A-Z0-9]){{11,40}}");
    Regex::new(&pattern).expect("the pattern is valid")
});

/// Ranges of IBANs.
pub fn ibans(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = IBAN.find_at(text, at) {
        let begins = !before(text, next.start()).is_some_and(char::is_alphanumeric);
        let iban = iban_at(next.as_str()).filter(|_| begins).map(|length| next.start()..next.start() + length);
        let is_whole = |range: &Range<usize>| !after(text, range.end).is_some_and(char::is_alphanumeric);
        // The match may be too long and contain another IBAN.
        match iban.filter(is_whole) {
            Some(range) => {
                at = range.end;
                found.push(range);
            }
            None => at = next.start() + 1,
        }
    }
    found
}

/// The length in bytes of the IBAN at the beginning of a text, spaces included.
fn iban_at(text: &str) -> Option<usize> {
    let (_, length) = LENGTHS.iter().find(|(country, _)| text.starts_with(country))?;
    let places = text.bytes().enumerate().filter(|(_, byte)| byte.is_ascii_alphanumeric());
    let number: Vec<(usize, u8)> = places.take(*length).collect();
    let end = number.last().filter(|_| number.len() == *length)?.0 + 1;
    // The country code and check digits move to the end; letters count from 10.
    let remainder = number[4..].iter().chain(&number[..4]).fold(0u32, |remainder, &(_, byte)| match byte {
        b'0'..=b'9' => (10 * remainder + u32::from(byte - b'0')) % 97,
        _ => (100 * remainder + u32::from(byte - b'A') + 10) % 97,
    });
    (remainder == 1).then_some(end)
}

/// Length of each country's numbers (SWIFT's registry of IBANs).
#[rustfmt::skip]
const LENGTHS: [(&str, usize); 76] = [
    ("AD", 24), ("AE", 23), ("AL", 28), ("AT", 20), ("AZ", 28), ("BA", 20), ("BE", 16), ("BG", 22), ("BH", 22), ("BR", 29),
    ("BY", 28), ("CH", 21), ("CR", 22), ("CY", 28), ("CZ", 24), ("DE", 22), ("DK", 18), ("DO", 28), ("EE", 20), ("EG", 29),
    ("ES", 24), ("FI", 18), ("FO", 18), ("FR", 27), ("GB", 22), ("GE", 22), ("GI", 23), ("GL", 18), ("GR", 27), ("GT", 28),
    ("HR", 21), ("HU", 28), ("IE", 22), ("IL", 23), ("IQ", 23), ("IS", 26), ("IT", 27), ("JO", 30), ("KW", 30), ("KZ", 20),
    ("LB", 28), ("LC", 32), ("LI", 21), ("LT", 20), ("LU", 20), ("LV", 21), ("LY", 25), ("MC", 27), ("MD", 24), ("ME", 22),
    ("MK", 19), ("MR", 27), ("MT", 31), ("MU", 30), ("NL", 18), ("NO", 15), ("PK", 24), ("PL", 28), ("PS", 29), ("PT", 25),
    ("QA", 29), ("RO", 24), ("RS", 22), ("SA", 24), ("SC", 31), ("SD", 18), ("SE", 24), ("SI", 19), ("SK", 24), ("SM", 27),
    ("ST", 25), ("SV", 28), ("TN", 24), ("TR", 26), ("UA", 29), ("XK", 20),
];
