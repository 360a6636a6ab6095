//! How much of what the model writes stands word for word in its training text, and what in it one
//! might not want to give away.

use std::fmt;

use ember_data::sensitive::{self, Kind};
use ember_data::{prepare::Dataset, tokenizer::Tokenizer};
use ember_decoding::generator::{Generator, Prompts};
use ember_decoding::{config::GenerationConfig, load};
use ember_model::WeightType;
use ember_model::device::{DeviceChoice, select};
use ember_study::copied::{Documents, Rule, TrainingText, beginning, check, together};

use crate::prelude::*;

/// Texts that are written, each behind so many tokens of validation text and so many tokens long.
const TEXTS: usize = 24;
const BEHIND: usize = 16;
const TOKENS: usize = 200;

/// Characters from which on a stretch counts, as in `copied`.
const LEAST: usize = 50;

/// What was found.
#[derive(Debug, Serialize)]
pub struct Copied {
    /// Of the characters that were written.
    share: f64,
    min_chars: usize,
    characters: usize,
    /// Of as much validation text: people's phrases recur, too.
    unseen_share: f64,
}

/// What the model's texts are like.
pub struct Samples {
    /// How much of them is copied.
    pub copied: Copied,
    /// Addresses, numbers and keys in them.
    pub private: Vec<(Kind, String)>,
}

/// What was found is said to the maker, and does not stand in the page.
pub fn private_line(private: &[(Kind, String)]) -> String {
    const NAMED: usize = 8;
    if private.is_empty() {
        return "in these texts stand no addresses, telephone numbers, keys or numbers of accounts".to_owned();
    }
    let named = private.iter().take(NAMED).map(|(kind, text)| format!("{} {text:?}", kind.words()[0]));
    let named: Vec<String> = named.collect();
    let more = if private.len() > NAMED { ", and more" } else { "" };
    format!(
        "in these texts stand: {}{more}; look whether you want to give them away, or train on a text without them (--mask)",
        named.join(", ")
    )
}

impl fmt::Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { share, min_chars, characters, unseen_share } = *self;
        write!(
            f,
            "{:.1}% of {} characters that it wrote stand word for word in the training text, in stretches of {min_chars} and \
             more; of as much text that it has never seen {:.1}% do",
            100.0 * share,
            grouped(characters as u64),
            100.0 * unseen_share
        )
    }
}

/// Why a training text is not searched: its suffixes are numbered with 31 bits.
pub fn too_long(text_bytes: u64) -> Option<String> {
    (text_bytes > i32::MAX as u64).then(|| {
        let text = bytes(text_bytes);
        format!(
            "the page does not say what the model copies: its text has {text}, of which at most 2.1 GB can be searched"
        )
    })
}

/// Writes texts as the page will, and looks for them in the training text; none where the
/// validation text is too short to begin behind.
///
/// # Errors
/// When the model or the text cannot be read.
pub fn measure(
    checkpoint: &Path,
    weights: WeightType,
    tokenizer: &Tokenizer,
    config: &GenerationConfig,
    dataset: Dataset,
) -> Result<Option<Samples>> {
    let Dataset { manifest, train, val, .. } = &dataset;
    if val.len() < 2 * BEHIND * TEXTS {
        return Ok(None);
    }
    let (gpt, _) = load::load(checkpoint, weights, true, || Ok(select(DeviceChoice::Cpu)?.device))?;
    let mut starts = vec![Vec::new(); TEXTS];
    for (place, ids) in starts.iter_mut().enumerate() {
        let from = place * (val.len() / TEXTS);
        val.get(from..from + BEHIND, ids)?;
    }
    let ids: Vec<&[u32]> = starts.iter().map(Vec::as_slice).collect();
    let sequences: Vec<u64> = (0..TEXTS as u64).collect();
    let prompts = Prompts { ids: &ids, first_sequences: &sequences, ..Prompts::default() };
    let config = GenerationConfig { max_new_tokens: TOKENS.min(gpt.config().context_length), ..config.clone() };
    let written = Generator::new(&gpt, Some(tokenizer), config)?.write(&prompts, &mut ())?;
    let texts: Vec<&str> = written.iter().map(|written| written.text.as_str()).collect();

    let text_of = |tokens, name: &str| -> Result<TrainingText> {
        Ok(Documents::from_tokens(tokens, tokenizer, manifest.end_of_text, &[], name)?.index()?)
    };
    let (training, unseen) = (text_of(train, "the training text")?, text_of(val, "the validation text")?);
    let rule = Rule { min_chars: LEAST, min_words: 0 };
    let share = |texts: &[&str]| {
        let checked: Vec<_> = texts.iter().map(|text| check(text, &training, None, rule)).collect();
        together(texts, &checked, &training)
    };
    let found = share(&texts);
    let unseen_share = share(&beginning(&unseen, found.characters)).copied_share;
    let copied = Copied { share: found.copied_share, min_chars: LEAST, characters: found.characters, unseen_share };
    let in_text = |text: &&str| -> Vec<_> {
        let found = sensitive::find(text).into_iter();
        found.map(|finding| (finding.kind, text[finding.range].to_owned())).collect()
    };
    let mut private: Vec<_> = texts.iter().flat_map(in_text).collect();
    private.sort();
    private.dedup();
    Ok(Some(Samples { copied, private }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_cannot_be_searched_is_no_reason_to_make_no_page() {
        assert_eq!(too_long(2_100_000_000), None);
        assert!(too_long(2_200_000_000).unwrap_or_default().contains("has 2.2 GB, of which at most 2.1 GB"));
    }

    #[test]
    fn what_is_private_is_named_and_shown_as_it_would_be_in_a_program() {
        assert!(private_line(&[]).contains("no addresses"));
        let mail = |number: usize| (Kind::EmailAddress, format!("a{number}\u{1b}@b.org"));
        let line = private_line(&(0..9).map(mail).collect::<Vec<_>>());
        assert!(line.contains(r#"e-mail address "a0\u{1b}@b.org", e-mail address "a1"#) && line.contains(", and more"));
    }
}
