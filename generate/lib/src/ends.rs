//! Where a text ends by itself: at a stop string, or where its grammar has nothing to add.

use ember_data::tokenizer::Tokenizer;

use crate::{constraint::Constraint, stop::StopStrings, stream::token_bytes};

/// What ends a text. Stop strings are looked for here where texts are ranked, which are nobody's
/// until the search is over; a text that is written token by token is ended by its stream.
pub(crate) struct Ends<'a> {
    pub(crate) tokenizer: Option<&'a Tokenizer>,
    pub(crate) constraint: Option<&'a Constraint>,
    pub(crate) stops: Option<&'a StopStrings>,
}

impl Ends<'_> {
    /// Whether nothing ends a text.
    pub(crate) fn is_empty(&self) -> bool {
        self.constraint.is_none() && self.stops.is_none()
    }

    /// Whether a text ends with these generated ids.
    pub(crate) fn contain(&self, generated: &[u32]) -> bool {
        self.constraint.is_some_and(|constraint| constraint.is_complete(generated))
            || self.stops.is_some_and(|stops| self.completes_a_stop_string(generated, stops))
    }

    /// Whether the text of the tokens holds a stop string that the last token completes.
    fn completes_a_stop_string(&self, generated: &[u32], stops: &StopStrings) -> bool {
        let Some((&last, before)) = generated.split_last() else { return false };
        let mut text = token_bytes(self.tokenizer, last);
        // As much of the text before it as a stop string can need, and no more.
        let enough = text.len() + stops.longest();
        for &id in before.iter().rev() {
            if text.len() >= enough {
                break;
            }
            text = [token_bytes(self.tokenizer, id), text].concat();
        }
        stops.find(&String::from_utf8_lossy(&text)).is_some()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_stop_string_ends_a_ranked_text_with_the_token_that_completes_it() {
        let tokenizer = Tokenizer::bytes().unwrap();
        let ids = |text: &str| tokenizer.encode(text).unwrap();
        let stops = StopStrings::new(vec!["\u{e9}t\u{e9}".into(), "END".into()]).unwrap();
        let ends = Ends { tokenizer: Some(&tokenizer), constraint: None, stops: Some(&stops) };
        assert!(ends.contain(&ids("the END")) && ends.contain(&ids("l'\u{e9}t\u{e9}")));
        assert!(!ends.contain(&ids("the EN")) && !ends.contain(&ids("ENDE and more")) && !ends.contain(&[]));
        assert!(Ends { stops: None, ..ends }.is_empty());
    }
}
