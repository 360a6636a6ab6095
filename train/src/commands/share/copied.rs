//! How much of what the model writes stands word for word in its training text.

use std::fmt;

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
) -> Result<Option<Copied>> {
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
        Ok(Documents::from_tokens(tokens, tokenizer, manifest.end_of_text, name.to_owned())?.index()?)
    };
    let (training, unseen) = (text_of(train, "the training text")?, text_of(val, "the validation text")?);
    let rule = Rule { min_chars: LEAST, min_words: 0 };
    let share = |texts: &[&str]| {
        let checked: Vec<_> = texts.iter().map(|text| check(text, &training, None, rule)).collect();
        together(texts, &checked, &training)
    };
    let found = share(&texts);
    let unseen_share = share(&beginning(&unseen, found.characters)).copied_share;
    Ok(Some(Copied { share: found.copied_share, min_chars: LEAST, characters: found.characters, unseen_share }))
}
