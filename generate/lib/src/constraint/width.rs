//! Limits how many rules of a grammar can start at one position of a text.

use std::{collections::HashSet, slice};

use llguidance::earley::{CGrammar, CSymIdx};

/// Most rule steps that may start together at the beginning of a text. The parser searches all of
/// them for each one, so its time grows with their square, and checks its own limit only then:
/// 30,000 take ten seconds a token.
const MAX_AT_FIRST: usize = 5_000;

/// Most rule steps that may start together later: with the one that they follow, they are the 2,000
/// that the parser allows in the middle of a text.
const MAX_LATER: usize = 1_999;

/// Most steps examined in total, which takes less than a second: a grammar of a megabyte can have a
/// hundred times as many.
const MAX_IN_ALL: usize = 5_000_000;

/// Whether more rules start at one position than the parser can follow, or than can be counted
/// quickly.
pub(super) fn is_too_wide(grammar: &CGrammar) -> bool {
    let start = grammar.start();
    let mut left = MAX_IN_ALL;
    if starting_with(grammar, start, MAX_AT_FIRST, &mut left).is_none() {
        return true;
    }
    let (mut seen, mut open) = (HashSet::from([start]), vec![start]);
    // The symbols that start together with a checked symbol start no more than it does.
    let mut checked = HashSet::new();
    while let Some(symbol) = open.pop() {
        for &rule in grammar.rules_of(symbol) {
            let parts = grammar.rule_rhs(rule).0;
            // A rule's first part starts where the rule starts, so it is already counted.
            for &part in parts.iter().skip(1) {
                if !checked.contains(&part) {
                    let Some(together) = starting_with(grammar, part, MAX_LATER, &mut left) else { return true };
                    checked.extend(together);
                }
            }
            open.extend(parts.iter().copied().filter(|&part| seen.insert(part)));
        }
    }
    false
}

/// The symbols that start where this one starts, itself included; `None` if that takes more than
/// `most` steps, or more than are `left`.
fn starting_with(grammar: &CGrammar, symbol: CSymIdx, most: usize, left: &mut usize) -> Option<HashSet<CSymIdx>> {
    let (mut starting, mut open, mut steps) = (HashSet::from([symbol]), vec![symbol], 0);
    while let Some(symbol) = open.pop() {
        for &rule in grammar.rules_of(symbol) {
            let first = grammar.sym_idx_dot(rule);
            // After a part that may be empty, the next part can start here, too. Read the whole
            // rule only in that case, since that takes time proportional to its length.
            let may_be_empty = grammar.sym_data(first).is_nullable;
            let parts = if may_be_empty { grammar.rule_rhs(rule).0 } else { slice::from_ref(&first) };
            *left = left.checked_sub(parts.len())?;
            for &part in parts {
                steps += 1;
                if steps > most {
                    return None;
                }
                if starting.insert(part) {
                    open.push(part);
                }
                if !grammar.sym_data(part).is_nullable {
                    break;
                }
            }
        }
    }
    Some(starting)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::Grammar;

    fn words(count: usize) -> String {
        (0..count).map(|word| format!("\"w{word}\"")).collect::<Vec<_>>().join(" | ")
    }

    fn refusal(lark: &str) -> String {
        Grammar::lark("lark", lark).unwrap_err().to_string()
    }

    #[test]
    fn less_may_begin_in_the_middle_of_a_text_than_at_its_beginning() {
        Grammar::lark("lark", &format!("start: ({}) \"b\"", words(3000))).unwrap();
        Grammar::lark("lark", &format!("start: \"a\" ({})", words(1900))).unwrap();
        let later = refusal(&format!("start: \"a\" ({})", words(3000)));
        assert!(later.contains("it is too complex to follow"), "{later}");
        // At both limits.
        let again = refusal(&format!("start: word+\nword: {}", words(3000)));
        assert!(again.contains("it is too complex to follow"), "{again}");
    }

    #[test]
    fn many_places_of_which_each_is_just_narrow_enough_are_refused_soon() {
        let rules: Vec<String> = (0..3000).map(|rule| format!("r{rule}: word \"a\" | word \"b\"")).collect();
        let all: Vec<String> = (0..3000).map(|rule| format!("r{rule}")).collect();
        let lark = format!("start: \"s\" {}\nword: {}\n{}", all.join(" "), words(1900), rules.join("\n"));
        let refusal = refusal(&lark);
        assert!(refusal.contains("it is too complex to follow"), "{refusal}");
    }
}
