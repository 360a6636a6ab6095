//! Makes the tokenizer of a text: the requested one, or the one that `auto` selects.

use super::{error::Error, options::PrepareOptions, options::Progress, options::report_progress, survey::Survey};
use crate::{numbers::counted, source::Input, stories, tokenizer, tokenizer::Tokenizer, tokenizer::TokenizerChoice};
use std::collections::BTreeSet;

/// `auto` selects characters only for a text with at most this many distinct ones.
const MAX_CHARACTERS: usize = 256;

/// `auto` selects characters only for a text with fewer bytes: from more, frequent parts of words
/// can be learnt, with which a model reads twice as far in every step.
const ENOUGH_BYTES: u64 = 50_000;

/// The range of vocabulary sizes that `auto` chooses from.
const VOCAB_SIZES: std::ops::RangeInclusive<u64> = 512..=8192;

/// One token per this many bytes of text, so that every token is seen often (`bench/LEARNING.md`).
const BYTES_A_TOKEN: u64 = 1000;

/// Returns the tokenizer, the resolved choice, and the reason for it.
pub fn make_tokenizer(
    options: &PrepareOptions,
    survey: &Survey,
    progress: &dyn Progress,
) -> Result<(Tokenizer, TokenizerChoice, String), Error> {
    let (choice, reason) = match &options.tokenizer {
        TokenizerChoice::Auto => choose(&options.inputs, survey),
        choice => (choice.clone(), "as requested".to_owned()),
    };
    let tokenizer = match &choice {
        TokenizerChoice::Chars => {
            let alphabet: BTreeSet<char> = survey.characters.keys().copied().collect();
            Tokenizer::chars(&alphabet, survey.documents > 1)?
        }
        TokenizerChoice::Bytes => Tokenizer::bytes()?,
        TokenizerChoice::Bpe { vocab_size } => {
            report_progress(progress, "training the tokenizer", 0, Some(survey.sample.bytes as u64))?;
            Tokenizer::train_bpe(*vocab_size, survey.sample.training_texts(&survey.split))?
        }
        TokenizerChoice::File(path) => Tokenizer::from_file(path)?,
        TokenizerChoice::Auto => unreachable!("it was resolved above"),
    };
    // Every window of the stories begins a document, so a prompt must too.
    let tokenizer = if options.only_stories() { tokenizer.opening_prompts()? } else { tokenizer };
    Ok((tokenizer, choice, reason))
}

/// Extends the error about a first unknown character to all unknown characters of the text.
pub fn count_unknown(error: Error, survey: &Survey, tokenizer: &Tokenizer) -> Error {
    const NAMED: usize = 8;
    let source = match error {
        Error::Tokenizer(tokenizer::Error::UnknownCharacter(first)) => first,
        other => return other,
    };
    let is_unknown = |character: char| tokenizer.encode(character.encode_utf8(&mut [0; 4])).is_err();
    let mut unknown: Vec<_> = survey.characters.iter().filter(|(character, _)| is_unknown(**character)).collect();
    unknown.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let all = unknown.iter().map(|(_, count)| *count).sum();
    let named = unknown.iter().take(NAMED).map(|(character, count)| match count {
        1 => format!("{character:?} once"),
        _ => format!("{character:?} {count} times"),
    });
    let named: Vec<String> = named.collect();
    let more = if unknown.len() > NAMED { ", ..." } else { "" };
    Error::UnknownCharacters { different: unknown.len(), all, examples: named.join(", ") + more, source }
}

/// Resolves `auto` for this text.
fn choose(inputs: &[Input], survey: &Survey) -> (TokenizerChoice, String) {
    let (characters, bytes) = (survey.characters.len(), survey.bytes);
    if inputs.iter().all(|input| matches!(input, Input::Stories { .. })) {
        (stories::TOKENIZER, "every word of the built-in stories becomes one token".to_owned())
    } else if characters <= MAX_CHARACTERS && bytes < ENOUGH_BYTES {
        let different = counted(characters, "different character");
        let reason = format!("{different}, and too little text for byte pair encoding");
        (TokenizerChoice::Chars, reason)
    } else {
        (bpe_for(bytes, characters), "each token occurs often enough to be trained".to_owned())
    }
}

/// Byte pair encoding for a text with this many bytes and distinct characters: the power of two
/// nearest to what the bytes can teach, and room for every character if there are many.
pub fn bpe_for(bytes: u64, characters: usize) -> TokenizerChoice {
    let of_bytes = 2f64.powf(((bytes / BYTES_A_TOKEN).max(1) as f64).log2().round()) as u64;
    let of_characters = if characters > MAX_CHARACTERS { 2 * characters as u64 } else { 0 };
    let wanted = of_bytes.max(of_characters).next_power_of_two();
    TokenizerChoice::Bpe { vocab_size: wanted.clamp(*VOCAB_SIZES.start(), *VOCAB_SIZES.end()) as usize }
}
