//! Grammar constraints of one model's requests. Those with the same end tokens share a prepared
//! vocabulary, which is slow to build.

use std::sync::{Arc, Mutex, PoisonError};

use ember_data::tokenizer::Tokenizer;
use ember_decoding::constraint::{Constraint, Grammar, GrammarError, Vocabulary};

/// Vocabularies that are kept: each takes megabytes. Requests with the model's end tokens may
/// alternate with some that have others, as with `ignore_eos` or `stop_token_ids`.
const MAX_KEPT: usize = 2;

/// Builds the constraints of one model.
#[derive(Default)]
pub(super) struct Constraints {
    /// The end tokens and the vocabulary of the last requests, the last one at the end.
    kept: Mutex<Vec<(Vec<u32>, Arc<Vocabulary>)>>,
}

impl Constraints {
    /// The constraint of `grammar` for a vocabulary of this size and these end tokens.
    ///
    /// # Errors
    /// Without a tokenizer, and as [`Constraint::new`].
    pub(super) fn of(
        &self,
        grammar: &Grammar,
        tokenizer: Option<&Tokenizer>,
        vocab_size: usize,
        end_tokens: &[u32],
    ) -> Result<Constraint, GrammarError> {
        let name = || grammar.source().to_owned();
        let tokenizer = tokenizer.ok_or_else(|| GrammarError::NoTokenizer { grammar: name() })?;
        let vocabulary = self.vocabulary(|| Vocabulary::new(tokenizer, vocab_size, end_tokens), end_tokens);
        let unfit = |source| GrammarError::Tokenizer { grammar: name(), source };
        Constraint::of(grammar.clone(), vocabulary.map_err(unfit)?)
    }

    /// The vocabulary that is kept for these end tokens, else a new one.
    fn vocabulary<E>(
        &self,
        new: impl FnOnce() -> Result<Vocabulary, E>,
        end_tokens: &[u32],
    ) -> Result<Arc<Vocabulary>, E> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let used = match kept.iter().position(|(ends, _)| ends == end_tokens) {
            Some(place) => kept.remove(place),
            None => (end_tokens.to_vec(), Arc::new(new()?)),
        };
        let vocabulary = Arc::clone(&used.1);
        if kept.len() == MAX_KEPT {
            kept.remove(0);
        }
        kept.push(used);
        Ok(vocabulary)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ember_decoding::processors::{LogitsProcessor, Step};

    #[test]
    fn requests_whose_texts_end_alike_share_a_vocabulary() {
        let (constraints, tokenizer) = (Constraints::default(), Tokenizer::bytes().unwrap());
        let of = |ends: &[u32]| constraints.vocabulary(|| Vocabulary::new(&tokenizer, 257, ends), ends).unwrap();
        let [usual, other, again, third] = [of(&[256]), of(&[]), of(&[256]), of(&[97])];
        assert!(Arc::ptr_eq(&usual, &again) && !Arc::ptr_eq(&usual, &other) && !Arc::ptr_eq(&usual, &third));
        // Of three, the two used last are kept.
        assert!(Arc::ptr_eq(&usual, &of(&[256])) && !Arc::ptr_eq(&other, &of(&[])));
        let two = || Grammar::regex("regex", "ab?").unwrap();
        let constraint = |ends: &[u32]| constraints.of(&two(), Some(&tokenizer), 257, ends).unwrap();
        let allowed = |ends: &[u32], id: u32| {
            let mut logits = [0.0; 257];
            let step = Step { prompt: &[], generated: &[b'a'.into()] };
            constraint(ends).process(&step, &mut logits);
            logits[id as usize] == 0.0
        };
        assert!(allowed(&[256], 256) && !allowed(&[], 256) && allowed(&[], b'b'.into()));
    }

    #[test]
    fn patterns_that_together_take_gigabytes_are_refused_and_others_are_followed() {
        let (constraints, tokenizer) = (Constraints::default(), Tokenizer::bytes().unwrap());
        let patterns: Vec<String> = (1..60).map(|length| format!("/(.|\\n)*[a-z]{{{length}}}(.|\\n)*/")).collect();
        let many = Grammar::lark("many", &format!("start: A\nA: {}", patterns.join(" & ")));
        let error = many.and_then(|grammar| constraints.of(&grammar, Some(&tokenizer), 257, &[256])).err();
        assert!(error.unwrap().to_string().contains("is too complex to follow"));
        let few = Grammar::regex("few", "ab?").unwrap();
        constraints.of(&few, Some(&tokenizer), 257, &[256]).unwrap();
    }
}
