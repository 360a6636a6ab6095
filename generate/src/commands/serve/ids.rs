//! Parses the parts of a request that name tokens, by id or as text.

use std::collections::HashMap;

use ember_data::tokenizer::{SpecialTokens, Tokenizer};
use ember_decoding::config::{GenerationConfig, Knobs};
use ember_decoding::load::prompt_ids;
use serde_json::{Number, Value};

use super::error::ApiError;
use super::models::Model;
use super::request::{Parameters, find, list};

/// Most bad words, as sequences of tokens, and most biases of sequences: each is compared with every
/// text after every token.
pub(super) const MAX_SEQUENCES: usize = 16_384;

impl Parameters<'_> {
    /// Checks how many sequences of tokens are banned or biased.
    pub(super) fn check_sequences(&self, config: &GenerationConfig) -> Result<(), ApiError> {
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
        let (mut biases, mut banned, mut seen) = (Vec::new(), Vec::new(), HashMap::new());
        for (token, bias) in bias_pairs(value).ok_or_else(wrong_biases)? {
            let ids = self.biased_ids(&token)?;
            if bias == Value::Bool(false) {
                banned.extend(ids);
                continue;
            }
            let bias = self.bias(&bias)?;
            for id in ids {
                match seen.insert(id, bias) {
                    None => biases.push((vec![id], bias)),
                    Some(other) if other == bias => {} // two texts may share a token
                    Some(_) => {
                        let message = format!("logit_bias has two numbers for the token {id}; keep one of them");
                        return Err(ApiError::param("logit_bias", message));
                    }
                }
            }
        }
        knobs.logit_bias = Some(biases);
        Ok(banned)
    }

    /// The tokens of a pair in `logit_bias`: an id, or those of a text.
    fn biased_ids(&self, token: &Value) -> Result<Vec<u32>, ApiError> {
        let ids = match token {
            Value::Number(id) => vec![id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(wrong_biases)?],
            Value::String(text) => {
                // Without the tokens that are put before a prompt.
                let ids = tokenizer(self.model, "logit_bias")?.encode_with(text, SpecialTokens::Text);
                ids.map_err(|error| ApiError::param("logit_bias", error.to_string()))?
            }
            _ => return Err(wrong_biases()),
        };
        if let Some(id) = ids.iter().find(|id| **id as usize >= self.model.engine.config().vocab_size) {
            return Err(ApiError::unknown_token("logit_bias", *id));
        }
        Ok(ids)
    }

    /// The number of a pair in `logit_bias`.
    fn bias(&self, bias: &Value) -> Result<f32, ApiError> {
        let bias = bias.as_f64().ok_or_else(wrong_biases)?;
        match find(self.dialect, "logit_bias") {
            Some(knob) if !knob.range.contains(bias) => {
                let message = format!("logit_bias has {bias:e}; it must be {}", knob.range.words());
                Err(ApiError::param("logit_bias", message))
            }
            _ => Ok(bias as f32),
        }
    }
}

/// The pairs of a token and its bias in either notation of `logit_bias`.
fn bias_pairs(value: &Value) -> Option<Vec<(Value, Value)>> {
    match value {
        Value::Object(map) => Some(map.iter().map(|(key, bias)| (token_of_key(key), bias.clone())).collect()),
        value => list(value, |pair| match pair.as_array()?.as_slice() {
            [token, bias] => Some((token.clone(), bias.clone())),
            _ => None,
        }),
    }
}

/// The token that a key of an object names: an id, or a text. A key that is a number but not an id
/// is not a text either.
fn token_of_key(key: &str) -> Value {
    match (key.parse::<u32>(), key.parse::<Number>()) {
        (Ok(id), _) => id.into(),
        (_, Ok(number)) => number.into(),
        _ => key.into(),
    }
}

/// The error of a `logit_bias` in another notation.
fn wrong_biases() -> ApiError {
    ApiError::wrong_type("logit_bias", "an object or a list of pairs: token ids or texts, with numbers")
}

/// Parses a list of token ids.
pub(super) fn ids_of(value: &Value) -> Option<Vec<u32>> {
    list(value, |id| u32::try_from(id.as_u64()?).ok())
}

/// The ids of a text; an empty one starts with the model's opening token, if it has one.
pub(super) fn text_ids(model: &Model, param: &str, text: &str, special: SpecialTokens) -> Result<Vec<u32>, ApiError> {
    let ids = prompt_ids(text, tokenizer(model, param)?, model.opening, special);
    ids.map_err(|error| ApiError::param(param, error.to_string()))
}

/// The tokenizer, or an error: texts need one.
fn tokenizer<'a>(model: &'a Model, param: &str) -> Result<&'a Tokenizer, ApiError> {
    let missing = || ApiError::param(param, "this checkpoint holds no tokenizer; send token ids");
    model.tokenizer.as_ref().ok_or_else(missing)
}
