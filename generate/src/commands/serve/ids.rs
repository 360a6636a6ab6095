//! Parses the parts of a request that name tokens, by id or as text.

use std::collections::{HashMap, HashSet};

use ember_data::tokenizer::{SpecialTokens, Tokenizer};
use ember_decoding::config::{GenerationConfig, Knobs};
use serde_json::{Number, Value};

use super::error::ApiError;
use super::models::Model;
use super::request::{Parameters, find, list};

/// Most bad words, as sequences of tokens, and most biases of sequences: each is compared with every
/// text after every token.
pub(super) const MAX_SEQUENCES: usize = 16_384;

impl Parameters<'_> {
    /// Checks how many sequences of tokens are banned or biased. A token that is banned several
    /// times counts once, as with biases; that bounds these by the vocabulary.
    pub(super) fn check_sequences(&self, config: &mut GenerationConfig) -> Result<(), ApiError> {
        let biased = config.logit_bias.iter().filter(|(ids, _)| ids.len() > 1).count();
        for (key, default, count) in
            [("bad_words_ids", "bad_words", config.bad_words.len()), ("sequence_bias", "sequence_bias", biased)]
        {
            if count > MAX_SEQUENCES {
                let name = self.sent_as(key).unwrap_or(default);
                let message = format!("{name} has {count} sequences of tokens; it can have at most {MAX_SEQUENCES}");
                return Err(ApiError::param(name, message));
            }
        }
        let mut known = HashSet::new();
        config.suppress_tokens.retain(|id| known.insert(*id));
        Ok(())
    }

    /// The token sequences that spell these words.
    pub(super) fn bad_words(&self, words: &Value) -> Result<Vec<Vec<u32>>, ApiError> {
        let tokenizer = tokenizer(self.model, "bad_words")?;
        let mut all = Vec::new();
        for word in words.as_array().into_iter().flatten().filter_map(Value::as_str) {
            let found = tokenizer.spellings(word, SpecialTokens::Text);
            let found = found.map_err(|error| ApiError::param("bad_words", error.to_string()))?;
            if found.is_empty() {
                return Err(ApiError::param("bad_words", format!("{word:?} in bad_words has no tokens; leave it out")));
            }
            all.extend(found);
        }
        Ok(all)
    }

    /// Parses `logit_bias`: an object from ids or texts to numbers, or a list of such pairs, in
    /// which strings are texts. Returns the tokens whose value is false: they are banned.
    pub(super) fn logit_bias(&self, value: &Value, knobs: &mut Knobs) -> Result<Vec<u32>, ApiError> {
        let wrong =
            || ApiError::wrong_type("logit_bias", "an object or a list of pairs: token ids or texts, with numbers");
        let pair = |pair: &Value| match pair.as_array().map(Vec::as_slice) {
            Some([token, bias]) => Some((token.clone(), bias.clone())),
            _ => None,
        };
        // A key that is a number but not an id is not a text either.
        let other = |key: &str| key.parse::<Number>().map_or_else(|_| Value::from(key), Value::from);
        let token = |key: &str| key.parse::<u32>().map_or_else(|_| other(key), Value::from);
        let pairs = match value {
            Value::Object(map) => Some(map.iter().map(|(key, bias)| (token(key), bias.clone())).collect()),
            value => list(value, pair),
        };
        let mut biases: Vec<(Vec<u32>, f32)> = Vec::new();
        let mut seen = HashMap::new();
        let mut banned = Vec::new();
        for (token, bias) in pairs.ok_or_else(wrong)? {
            let ids = match &token {
                Value::Number(id) => vec![id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(wrong)?],
                Value::String(text) => {
                    // Without the tokens that are put before a prompt.
                    let ids = tokenizer(self.model, "logit_bias")?.encode_with(text, SpecialTokens::Text);
                    ids.map_err(|error| ApiError::param("logit_bias", error.to_string()))?
                }
                _ => return Err(wrong()),
            };
            if let Some(id) = ids.iter().find(|id| **id as usize >= self.model.engine.config().vocab_size) {
                return Err(ApiError::unknown_token("logit_bias", *id));
            }
            match bias {
                Value::Bool(false) => banned.extend(ids),
                bias => {
                    let bias = bias.as_f64().ok_or_else(wrong)?;
                    if let Some(knob) = find(self.dialect, "logit_bias").filter(|knob| !knob.range.contains(bias)) {
                        let message = format!("logit_bias has {bias:e}; it must be {}", knob.range.words());
                        return Err(ApiError::param("logit_bias", message));
                    }
                    for id in ids {
                        match seen.insert(id, bias as f32) {
                            None => biases.push((vec![id], bias as f32)),
                            Some(other) if other == bias as f32 => {} // two texts may share a token
                            Some(_) => {
                                let message =
                                    format!("logit_bias has two numbers for the token {id}; keep one of them");
                                return Err(ApiError::param("logit_bias", message));
                            }
                        }
                    }
                }
            }
        }
        knobs.logit_bias = Some(biases);
        Ok(banned)
    }
}

/// Parses a list of token ids.
pub(super) fn ids_of(value: &Value) -> Option<Vec<u32>> {
    list(value, |id| u32::try_from(id.as_u64()?).ok())
}

/// The ids of a text; an empty one starts with the model's opening token.
pub(super) fn text_ids(model: &Model, param: &str, text: &str, special: SpecialTokens) -> Result<Vec<u32>, ApiError> {
    let ids = tokenizer(model, param)?.encode_prompt(text, special);
    let ids = ids.map_err(|error| ApiError::param(param, error.to_string()))?;
    Ok(match model.opening {
        Some(opening) if ids.is_empty() => vec![opening],
        _ => ids,
    })
}

/// The tokenizer, or an error: texts need one.
fn tokenizer<'a>(model: &'a Model, param: &str) -> Result<&'a Tokenizer, ApiError> {
    let missing = || ApiError::param(param, "this checkpoint holds no tokenizer; send token ids");
    model.tokenizer.as_ref().ok_or_else(missing)
}
