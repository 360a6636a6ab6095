//! The prompts of a request, as llama.cpp's clients send them.

use ember_data::tokenizer::SpecialTokens;
use serde_json::Value;

use crate::commands::serve::error::ApiError;
use crate::commands::serve::ids::text_ids;
use crate::commands::serve::models::Model;

/// Whether these are several prompts: ids make one, alone or with texts between them.
pub(super) fn are_several(prompt: &Value) -> bool {
    prompt.as_array().is_some_and(|items| !items.is_empty() && !items.iter().any(Value::is_number))
}

/// A text, ids, both mixed, or a list of those.
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

/// A text, or ids and texts one after the other.
fn one_prompt(model: &Model, prompt: &Value, special: SpecialTokens) -> Result<Vec<u32>, ApiError> {
    let wrong = || ApiError::wrong("prompt", "a string, a list of token ids and strings, or a list of such prompts");
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
                    // Only a text that stands first opens a prompt.
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
