//! How much a grammar offers at one place of a text.

use std::collections::HashSet;

use llguidance::earley::{CGrammar, CSymIdx};

/// Most steps of rules that may begin together. The parser looks for each among all of them, so that
/// its time grows with their square, and only then counts them: 30,000 are ten seconds a token. In the
/// middle of a text more than 2,000 are too many for it.
const MOST_TOGETHER: usize = 5_000;

/// Whether more begins at one place of a text than can be followed.
pub(super) fn is_too_wide(grammar: &CGrammar) -> bool {
    let mut met = HashSet::from([grammar.start()]);
    let mut open = vec![grammar.start()];
    // What begins together with a symbol is no more than begins with that.
    let mut settled = HashSet::new();
    while let Some(symbol) = open.pop() {
        if !settled.contains(&symbol) {
            let Some(together) = begun_by(grammar, symbol) else { return true };
            settled.extend(together);
        }
        for &rule in grammar.rules_of(symbol) {
            open.extend(grammar.rule_rhs(rule).0.iter().copied().filter(|&part| met.insert(part)));
        }
    }
    false
}

/// The symbols that begin where this one does, itself among them; none where it is too much.
fn begun_by(grammar: &CGrammar, symbol: CSymIdx) -> Option<HashSet<CSymIdx>> {
    let (mut begun, mut open, mut steps) = (HashSet::from([symbol]), vec![symbol], 0);
    while let Some(symbol) = open.pop() {
        for &rule in grammar.rules_of(symbol) {
            for &part in grammar.rule_rhs(rule).0 {
                steps += 1;
                if steps > MOST_TOGETHER {
                    return None;
                }
                if begun.insert(part) {
                    open.push(part);
                }
                // What may be empty lets begin what follows it.
                if !grammar.sym_data(part).is_nullable {
                    break;
                }
            }
        }
    }
    Some(begun)
}
