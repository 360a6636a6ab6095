//! Telephone numbers: with a country code, in common national formats, and after a word such as
//! "Tel.".
//!
//! Plain digits count only after such a word: years, prices, ISBNs and dates are far more frequent.

use super::neighbours::{SPACE, after, before};
use regex::Regex;
use std::{
    ops::{Range, RangeInclusive},
    sync::LazyLock,
};

/// A number format: its expression, the capture group with the number, and its possible digit
/// counts.
struct Shape {
    expression: Regex,
    group: usize,
    digits: RangeInclusive<usize>,
}

static SHAPES: LazyLock<[Shape; 5]> = LazyLock::new(|| {
    let shape = |pattern: &str, group, digits| {
        // Each space also matches non-breaking spaces.
        let expression = Regex::new(&pattern.replace(' ', SPACE)).expect("the pattern is valid");
        Shape { expression, group, digits }
    };
    [
        // +49 30 123456, +1 (212) 555-0123, +44 (0)20 7946 0958, 0049-30-123456
        shape(r"\+[1-9][0-9]{0,2}(?:[ .\-/]{0,3}\(?[0-9]{1,12}\)?){1,7}", 0, 8..=15),
        shape(r"00[1-9][0-9]{0,2}[ .\-/](?:[ .\-/]{0,2}\(?[0-9]{1,12}\)?){1,7}", 0, 10..=17),
        // (212) 555-0123, 212-555-0123, 1-212-555-0123
        shape(r"(?:1[ .\-])?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[.\-])[2-9][0-9]{2}[ .\-][0-9]{4}", 0, 10..=11),
        // 030 / 123 45 67, 020 7946 0958, 01 23 45 67 89, (030) 1234567
        shape(r"(?:\(0[1-9][0-9]{0,4}\)|0[1-9][0-9]{0,4})(?:(?: ?[/\-] ?|[ .])[0-9]{2,8}){1,5}", 0, 9..=12),
        shape(
            r"(?i)\b(?:tele(?:ph|f)one?|tel|t\u{e9}l|phone|fax|mobile?|cell|handy|call me (?:at|on))[.:]{0,2} {0,2}([0-9(][0-9 /().\-]{4,18}[0-9])",
            1,
            6..=15,
        ),
    ]
});

/// Characters between groups of digits.
const SEPARATORS: [char; 6] = [' ', '\u{a0}', '\u{202f}', '.', '-', '/'];

/// Ranges of telephone numbers; they may overlap if several shapes match.
pub fn find(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for shape in SHAPES.iter() {
        let mut at = 0;
        while let Some(number) = shape.expression.captures_at(text, at).and_then(|found| found.get(shape.group)) {
            at = number.end();
            if let Some(range) = shape.number_in(text, number.range()) {
                at = range.end;
                found.push(range);
            }
        }
    }
    found
}

impl Shape {
    /// The number in a match. A match with a country code may include what follows the number, such
    /// as a date or another number, and then has too many digits.
    fn number_in(&self, text: &str, range: Range<usize>) -> Option<Range<usize>> {
        let is_number = |range: &Range<usize>| {
            let number = &text[range.clone()];
            self.digits.contains(&digits_of(number))
                && is_isolated(text, range.clone())
                && !is_decimal(number)
                && (self.group == 1 || !counts_up(number)) // after "Tel." it is not a list
        };
        let found = &text[range.clone()];
        let is_international = found.starts_with('+') || found.starts_with("00");
        if !is_international || digits_of(found) <= *self.digits.end() {
            return Some(range).filter(is_number);
        }
        let ends = found.rmatch_indices(" / ").chain(found.rmatch_indices(SEPARATORS));
        let parts = ends.map(|(end, _)| found[..end].trim_end_matches(SEPARATORS));
        parts.map(|part| range.start..range.start + part.len()).find(is_number)
    }
}

fn digits_of(number: &str) -> usize {
    number.bytes().filter(u8::is_ascii_digit).count()
}

/// Whether this is a decimal fraction, such as +3.1415926535. Domain registries write 1. (and 7.)
/// before the ten digits of a telephone number, the first of which is not 0, 1, 8 or 9.
fn is_decimal(number: &str) -> bool {
    let Some((whole, fraction)) = number.trim_start_matches('+').split_once('.') else { return false };
    let is_registry =
        matches!(whole, "1" | "7") && fraction.len() == 10 && fraction.starts_with(['2', '3', '4', '5', '6', '7']);
    whole.len() == 1 && fraction.bytes().all(|byte| byte.is_ascii_digit()) && !is_registry
}

/// Whether the groups of digits count up by one, as in 01 02 03 04 05: a list.
fn counts_up(number: &str) -> bool {
    let groups: Result<Vec<u64>, _> = number.split(SEPARATORS).map(str::parse).collect();
    let is_next = |pair: &[u64]| pair[1].checked_sub(pair[0]) == Some(1);
    groups.is_ok_and(|groups| groups.len() > 2 && groups.windows(2).all(is_next))
}

/// Whether a number is not part of a longer number, a word or a path.
fn is_isolated(text: &str, range: Range<usize>) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || "._-/+#,$".contains(character);
    let continues = match after(text, range.end) {
        Some(next) if ".,-/: ".contains(next) => {
            next != ' ' && after(text, range.end + 1).is_some_and(|next| next.is_ascii_digit())
        }
        next => next.is_some_and(char::is_alphanumeric),
    };
    !continues && !before(text, range.start).is_some_and(is_part)
}
