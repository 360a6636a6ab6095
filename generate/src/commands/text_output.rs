//! How `ember-generate text` shows what was written.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;
use serde_json::Value;

use super::{loaded::Loaded, prompts::Prompt};
use ember_decoding::completion::Finding;
use ember_decoding::{ChosenToken, Completion, FinishReason};

/// One finished continuation and where it belongs.
pub(super) struct Answer {
    pub(super) prompt_index: usize,
    pub(super) sequence_index: usize,
    /// Without the prompt, cut before a stop string.
    pub(super) text: String,
    pub(super) completion: Completion,
    /// Under a constraint, whether the text fulfils it: false where a limit cut it off.
    pub(super) valid: Option<bool>,
}

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

impl Answer {
    /// Why the text ended: of an exact search that was cut short, what did that.
    pub(super) fn finish_reason(&self) -> FinishReason {
        match self.completion.finding {
            Some(Finding::Exact { cut_short: Some(reason), .. }) => reason,
            _ => self.completion.finish_reason,
        }
    }

    /// Whether the text is nothing but its end.
    pub(super) fn is_empty(&self) -> bool {
        self.completion.finish_reason == FinishReason::Eos && self.completion.ids.len() == 1
    }

    pub(super) fn write_json(
        &self,
        out: &mut dyn Write,
        prompt: &Prompt,
        loaded: &Loaded,
        with_logprobs: bool,
    ) -> Result<()> {
        let completion = &self.completion;
        let tokens = || completion.tokens.iter().map(|token| json_token(token, loaded)).collect();
        let answer = JsonAnswer {
            prompt_index: self.prompt_index,
            sequence_index: self.sequence_index,
            id: prompt.id.as_ref(),
            prompt: prompt.text.as_deref(),
            prompt_ids: &prompt.ids,
            text: loaded.tokenizer.is_some().then_some(self.text.as_str()),
            ids: &completion.ids,
            finish_reason: completion.finish_reason,
            score: completion.score,
            valid: self.valid,
            finding: completion.finding.as_ref(),
            logprobs: with_logprobs.then(tokens),
            seconds: completion.seconds,
            tokens_per_s: completion.tokens_per_s(),
        };
        Ok(writeln!(out, "{}", serde_json::to_string(&answer)?)?)
    }

    /// The text, or without a tokenizer the ids.
    pub(super) fn write_text(&self, out: &mut dyn Write, loaded: &Loaded) -> Result<()> {
        if loaded.tokenizer.is_some() {
            writeln!(out, "{}", self.text)?;
        } else {
            let ids: Vec<String> = self.completion.ids.iter().map(u32::to_string).collect();
            writeln!(out, "{}", ids.join(","))?;
        }
        Ok(())
    }
}

fn json_token(token: &ChosenToken, loaded: &Loaded) -> JsonToken {
    let candidate = |id: u32, logprob: f32| JsonCandidate { id, token: loaded.token_text(id), logprob };
    JsonToken {
        chosen: candidate(token.id, token.logprob),
        top: token.top.iter().map(|&(id, logprob)| candidate(id, logprob)).collect(),
    }
}
