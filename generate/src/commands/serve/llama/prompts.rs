//! The prompts of a request in llama.cpp's format.

use ember_data::tokenizer::SpecialTokens;
use serde_json::Value;

use crate::commands::serve::error::ApiError;
use crate::commands::serve::ids::text_ids;
use crate::commands::serve::models::Model;

/// Whether this is a list of prompts; a list that contains ids is a single prompt.
pub(super) fn are_several(prompt: &Value) -> bool {
    prompt.as_array().is_some_and(|items| !items.is_empty() && !items.iter().any(Value::is_number))
}

/// Parses the prompts: a text, ids, both mixed, or a list of those.
pub(super) fn prompts(
    model: &Model,
    prompt: Option<&Value>,
    special: SpecialTokens,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let prompt = prompt.ok_or_else(|| ApiError::param("prompt", "there is no prompt; send a string"))?;
    match prompt {
        Value::Array(items) if are_several(prompt) => {
            items.iter().map(|item| one_prompt(model, item, special)).collect()
        }
        prompt => Ok(vec![one_prompt(model, prompt, special)?]),
    }
}

/// Parses one prompt: a text, or a mixed list of ids and texts.
fn one_prompt(model: &Model, prompt: &Value, special: SpecialTokens) -> Result<Vec<u32>, ApiError> {
    let wrong =
        || ApiError::wrong_type("prompt", "a string, a list of token ids and strings, or a list of such prompts");
    let text = |text: &str| text_ids(model, "prompt", text, special);
    match prompt {
        Value::String(whole) => text(whole),
        Value::Object(object) if object.len() == 1 => {
            text(object.get("prompt_string").and_then(Value::as_str).ok_or_else(wrong)?)
        }
        Value::Array(items) => {
            let mut ids = Vec::new();
            for (place, item) in items.iter().enumerate() {
                match (item, &model.tokenizer) {
                    (Value::Number(id), _) => {
                        ids.push(id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(wrong)?);
                    }
                    // Only a text in first position gets the tokens that start a prompt.
                    (Value::String(more), Some(tokenizer)) if place > 0 => {
                        let more = tokenizer.encode_with(more, special);
                        ids.extend(more.map_err(|error| ApiError::param("prompt", error.to_string()))?);
                    }
                    (Value::String(first), _) => ids.extend(text(first)?),
                    _ => return Err(wrong()),
                }
            }
            Ok(ids)
        }
        _ => Err(wrong()),
    }
}
