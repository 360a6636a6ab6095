//! Request fields shared by several dialects, and their defaults.

use ember_decoding::config::{Knobs, Strategy};
use serde_json::{Value, json};

use super::error::ApiError;
use super::models::Model;
use super::parameter::Parameter;
use super::request::Parameters;

/// The text to continue.
pub(super) const PROMPT: Parameter = Parameter::any("prompt", "A text, token ids, or a list of either");

/// llama.cpp's grammars.
pub(super) const GRAMMAR: Parameter = Parameter::string("grammar", "a grammar in GBNF that the text must follow");

/// Returns whether anything is to be generated: a request may ask for 0 tokens, which the
/// configuration does not allow. If neither the request nor the folder sets a length, it becomes
/// `default`.
pub(super) fn settle_length(knobs: &mut Knobs, model: &Model, default: usize) -> bool {
    let writes = knobs.max_new_tokens != Some(0);
    if !writes {
        // A text without tokens has no end that a minimum could forbid.
        (knobs.max_new_tokens, knobs.min_new_tokens) = (Some(1), Some(0));
    }
    if knobs.max_new_tokens.is_none() && model.settings.knobs.max_new_tokens.is_none() {
        knobs.max_new_tokens = Some(default);
    }
    writes
}

/// Sets sampling if neither the request nor the folder sets a strategy. Naming a stack's semantics
/// counts as setting one.
pub(super) fn sample_by_default(knobs: &mut Knobs, model: &Model) {
    let by_request = knobs.strategy.is_some()
        || knobs.semantics.is_some()
        || knobs.temperature == Some(0.0)
        || knobs.num_beams.is_some_and(|beams| beams > 1);
    let folder = &model.settings.knobs;
    let by_folder =
        folder.do_sample.is_some() || folder.strategy.is_some() || folder.num_beams.is_some_and(|beams| beams > 1);
    if !by_request && !by_folder {
        knobs.strategy = Some(Strategy::Sample);
    }
}

/// Whether `stream_options` ask for token counts at the end of a stream.
pub(super) fn includes_usage(parameters: &Parameters) -> Result<bool, ApiError> {
    let Some(options) = parameters.get("stream_options") else { return Ok(false) };
    let options = options.as_object().ok_or_else(|| ApiError::wrong_type("stream_options", "an object"))?;
    // `include_obfuscation` pads chunks to hide their length, and is ignored.
    let is_known = |(name, value): (&String, &Value)| match name.as_str() {
        "include_usage" | "include_obfuscation" => true,
        "continuous_usage_stats" => *value == json!(false),
        _ => false,
    };
    if let Some((name, _)) = options.iter().find(|option| !is_known(*option)) {
        let message = format!("{name} in stream_options is not supported; leave it out");
        return Err(ApiError::param("stream_options", message));
    }
    match options.get("include_usage") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(includes)) => Ok(*includes),
        Some(_) => Err(ApiError::param("stream_options", "include_usage in stream_options must be true or false")),
    }
}
