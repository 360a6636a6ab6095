//! How `ember-generate text` shows what was written.

use std::io::Write;

use anyhow::Result;
use serde::Serialize;

use super::loaded::Loaded;
use super::text::Prompt;
use crate::engine::{ChosenToken, Completion};
use crate::stop::{FinishReason, StopStrings};
use crate::stream::TextStream;

/// The text of one sequence as it grows.
pub(super) struct Row {
    stream: TextStream,
    text: String,
}

impl Row {
    pub(super) fn new(stops: StopStrings) -> Self {
        Self { stream: TextStream::new(stops), text: String::new() }
    }

    /// Takes a token's bytes and gives out the text that is now certain.
    pub(super) fn push(&mut self, token: &[u8]) -> String {
        let certain = self.stream.push(token);
        self.text += &certain;
        certain
    }

    pub(super) fn stopped(&self) -> bool {
        self.stream.stopped()
    }

    /// The text that was held back and now is certain, since nothing follows.
    pub(super) fn finish(&mut self) -> String {
        let rest = self.stream.finish();
        self.text += &rest;
        rest
    }
}

/// One finished continuation and where it belongs.
pub(super) struct Answer<'a> {
    pub(super) loaded: &'a Loaded,
    pub(super) prompt_index: usize,
    pub(super) sequence_index: usize,
    pub(super) prompt: &'a Prompt,
    pub(super) row: Row,
    pub(super) completion: &'a Completion,
}

/// The JSON object of one continuation, its keys in this order.
#[derive(Serialize)]
struct JsonAnswer<'a> {
    prompt_index: usize,
    sequence_index: usize,
    prompt: Option<&'a str>,
    prompt_ids: &'a [u32],
    text: Option<&'a str>,
    ids: &'a [u32],
    finish_reason: FinishReason,
    score: f64,
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

impl Answer<'_> {
    pub(super) fn write_json(&self, out: &mut dyn Write, with_logprobs: bool) -> Result<()> {
        let has_text = self.loaded.tokenizer.is_some();
        let completion = self.completion;
        let answer = JsonAnswer {
            prompt_index: self.prompt_index,
            sequence_index: self.sequence_index,
            prompt: self.prompt.text.as_deref(),
            prompt_ids: &self.prompt.ids,
            text: has_text.then_some(self.row.text.as_str()),
            ids: &completion.ids,
            finish_reason: completion.finish_reason,
            score: completion.score,
            logprobs: with_logprobs.then(|| completion.tokens.iter().map(|token| self.json_token(token)).collect()),
            seconds: completion.seconds,
            tokens_per_s: completion.tokens_per_s(),
        };
        Ok(writeln!(out, "{}", serde_json::to_string(&answer)?)?)
    }

    /// The text, or without a tokenizer the ids; several are set apart by a line of dashes.
    pub(super) fn write_text(&self, out: &mut dyn Write) -> Result<()> {
        if self.sequence_index > 0 {
            writeln!(out, "---")?;
        }
        if self.loaded.tokenizer.is_some() {
            writeln!(out, "{}", self.row.text)?;
        } else {
            let ids: Vec<String> = self.completion.ids.iter().map(u32::to_string).collect();
            writeln!(out, "{}", ids.join(","))?;
        }
        Ok(())
    }

    fn json_token(&self, token: &ChosenToken) -> JsonToken {
        let candidate = |id: u32, logprob: f32| {
            let bytes = self.loaded.tokenizer.as_ref().map(|_| self.loaded.bytes_of(id));
            JsonCandidate { id, token: bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()), logprob }
        };
        JsonToken {
            chosen: candidate(token.id, token.logprob),
            top: token.top.iter().map(|&(id, logprob)| candidate(id, logprob)).collect(),
        }
    }
}
