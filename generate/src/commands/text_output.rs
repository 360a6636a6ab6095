//! The output of `ember-generate text`.

use serde::Serialize;
use serde_json::Value;

use super::{loaded::Loaded, prompts::Prompt};
use ember_decoding::{ChosenToken, FinishReason, completion::Finding, generator::Written};

/// The JSON object of one continuation, its keys in this order.
#[derive(Serialize)]
struct JsonAnswer<'a> {
    prompt_index: usize,
    sequence_index: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a Value>,
    prompt: Option<&'a str>,
    prompt_ids: &'a [u32],
    text: Option<&'a str>,
    ids: &'a [u32],
    finish_reason: FinishReason,
    score: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    valid: Option<bool>,
    #[serde(flatten)]
    finding: Option<&'a Finding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<Vec<JsonToken>>,
    seconds: f64,
    tokens_per_s: f64,
}

/// A chosen token and its log-probability, in nats, under the unmodified model.
#[derive(Serialize)]
struct JsonToken {
    #[serde(flatten)]
    chosen: JsonCandidate,
    top: Vec<JsonCandidate>,
}

#[derive(Serialize)]
struct JsonCandidate {
    id: u32,
    token: Option<String>,
    logprob: f32,
}

/// A continuation as JSON; `written` holds the numbers of its prompt and sequence.
pub(super) fn json(
    written: &Written,
    prompt: &Prompt,
    loaded: &Loaded,
    with_logprobs: bool,
) -> serde_json::Result<String> {
    let completion = &written.completion;
    let candidate = |id: u32, logprob: f32| JsonCandidate { id, token: loaded.token_text(id), logprob };
    let token = |token: &ChosenToken| JsonToken {
        chosen: candidate(token.id, token.logprob),
        top: token.top.iter().map(|&(id, logprob)| candidate(id, logprob)).collect(),
    };
    serde_json::to_string(&JsonAnswer {
        prompt_index: written.prompt,
        sequence_index: written.number,
        id: prompt.id.as_ref(),
        prompt: prompt.text.as_deref(),
        prompt_ids: &prompt.ids,
        text: loaded.tokenizer.is_some().then_some(written.text.as_str()),
        ids: &completion.ids,
        finish_reason: completion.finish_reason,
        score: completion.score,
        valid: written.valid,
        finding: completion.finding.as_ref(),
        logprobs: with_logprobs.then(|| completion.tokens.iter().map(token).collect()),
        seconds: completion.seconds,
        tokens_per_s: completion.tokens_per_s(),
    })
}

/// The text of a continuation; its ids if there is no tokenizer.
pub(super) fn text(written: &Written, loaded: &Loaded) -> String {
    if loaded.tokenizer.is_some() {
        return written.text.clone();
    }
    let ids: Vec<String> = written.completion.ids.iter().map(u32::to_string).collect();
    ids.join(",")
}
