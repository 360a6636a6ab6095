//! Constraints on generated text: JSON schemas, regular expressions and grammars.

use std::sync::LazyLock;

use ember_data::tokenizer::Tokenizer;
use ember_decoding::constraint::{Constraint, Grammar, GrammarError};
use ember_decoding::processors::{LogitsProcessor, Step};

use crate::harness::{Harness, check_error, one_line};

pub const HARNESSES: &[Harness] = &[
    Harness {
        name: "json-schema",
        longest: 1 << 11,
        read: |bytes| grammar(bytes, |text| Grammar::json_schema("--json-schema", text)),
    },
    Harness { name: "regex", longest: 1 << 9, read: |bytes| grammar(bytes, |text| Grammar::regex("--regex", text)) },
    Harness { name: "lark", longest: 1 << 11, read: |bytes| grammar(bytes, |text| Grammar::lark("--grammar", text)) },
];

/// Number of tokens generated under a grammar.
const STEPS: usize = 12;

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::bytes().expect("bytes make a tokenizer"));

/// Reads a grammar and generates under it, with the first or the last allowed token in turn.
fn grammar(bytes: &[u8], read: impl Fn(&str) -> Result<Grammar, GrammarError>) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Some(grammar) = check_error(read(text)) else { return };
    let vocab_size = TOKENIZER.vocab_size();
    let ends = Vec::from_iter(TOKENIZER.end_of_text());
    let Some(constraint) = check_error(Constraint::new(grammar, &TOKENIZER, vocab_size, &ends)) else { return };
    let mut written = Vec::new();
    for step in 0..STEPS {
        let allowed = allowed(&constraint, &written, vocab_size);
        let next = if step % 2 == 0 { allowed.first() } else { allowed.last() };
        let Some(&next) = next else { break };
        written.push(next);
    }
    constraint.is_accepting(&written);
    one_line(&constraint.nothing_left(&written, Vec::new()).to_string());
}

/// The tokens allowed next, in order.
fn allowed(constraint: &Constraint, written: &[u32], vocab_size: usize) -> Vec<u32> {
    let mut logits = vec![0.0; vocab_size];
    constraint.process(&Step { prompt: &[], generated: written }, &mut logits);
    (0..vocab_size as u32).zip(logits).filter(|(_, logit)| logit.is_finite()).map(|(id, _)| id).collect()
}
