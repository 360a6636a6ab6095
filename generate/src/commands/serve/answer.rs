//! Turns events into an answer: a whole one, or a stream of chunks as server-sent events.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use ember_data::tokenizer::Tokenizer;
use ember_decoding::FinishReason;
use ember_decoding::completion::ChosenToken;
use ember_decoding::engine::Progress;
use ember_decoding::generator::Written;
use ember_decoding::stream::token_bytes;
use ember_decoding::trace::{BeamStep, ChoiceTrace};
use futures_util::stream::unfold;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::error::ApiError;
use super::json::Json;
use super::writing::{Event, Piece, Timings, Work};

/// A dialect's format of answers.
pub(super) trait AnswerFormat: Send + 'static {
    /// The answer to a request that does not stream.
    fn full(&mut self, work: &Work, results: Results) -> Value;

    /// The first chunks of a stream, before anything is generated.
    fn opening(&mut self, _work: &Work) -> Vec<Value> {
        Vec::new()
    }

    /// The chunks of an event: one, several, or none.
    fn chunks(&mut self, work: &Work, event: Event) -> Vec<Value>;

    /// Whether `[DONE]` closes a stream, as in OpenAI's API.
    fn ends_with_done(&self) -> bool {
        true
    }
}

/// All results of a request.
#[derive(Default)]
pub(super) struct Results {
    /// The scored tokens of each prompt, if they were scored.
    pub(super) scored: Vec<Vec<ChosenToken>>,
    /// The texts, by choice.
    pub(super) finished: Vec<(usize, Box<Written>)>,
    /// Traces of the chosen tokens, each with its choice's number, in order.
    pub(super) steps: Vec<(usize, ChoiceTrace)>,
    pub(super) beams: Vec<BeamStep>,
    pub(super) timings: Timings,
}

impl Results {
    /// The traces of a choice's tokens.
    pub(super) fn steps_of(&self, choice: usize) -> Vec<&ChoiceTrace> {
        self.steps.iter().filter(|(of, _)| *of == choice).map(|(_, step)| step).collect()
    }
}

/// Time after which a stream begins even without an event; an earlier failure gets its own HTTP
/// status.
const STATUS_DELAY: Duration = Duration::from_secs(5);

/// Interval of keep-alive messages in an idle stream.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Answers a request with its results.
pub(super) async fn respond(mut work: Work, mut format: impl AnswerFormat) -> Result<Response, ApiError> {
    if !work.parsed.stream {
        let results = collect(&mut work.events, &work.parsed.prompts).await?;
        // On a blocking thread, since the answer may be long.
        let full = spawn_blocking(move || Json(format.full(&work, results)).holding(work.into_held())).await;
        return full.map_err(|_| ApiError::internal("the answer could not be written"));
    }
    let first = first_event(&mut work.events).await?;
    let unsent = format.opening(&work).into();
    let mut state = Streaming { work, format, unsent, is_complete: false, is_closed: false };
    if let Some(event) = first {
        state.take(event);
    }
    let events = unfold(state, |mut state| async move {
        let data = state.next().await?;
        Some((data.map(|data| sse::Event::default().data(data)), state))
    });
    let stream = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL));
    // Without the charset some clients assume Latin-1.
    Ok(([(CONTENT_TYPE, "text/event-stream; charset=utf-8")], stream).into_response())
}

/// The first event of a stream; `None` if it is late.
///
/// # Errors
/// The request's, if it has already failed.
async fn first_event(events: &mut Receiver<Event>) -> Result<Option<Event>, ApiError> {
    match timeout(STATUS_DELAY, events.recv()).await {
        Ok(Some(Event::Failed(error))) => Err(error),
        Ok(None) => Err(no_answer()),
        Ok(event) => Ok(event),
        Err(_) => Ok(None),
    }
}

/// The error of a request whose events ended too soon: its thread has panicked.
fn no_answer() -> ApiError {
    ApiError::internal("the request ended without an answer")
}

/// State of a stream.
struct Streaming<T> {
    work: Work,
    format: T,
    /// Chunks to send next.
    unsent: VecDeque<Value>,
    /// Whether the last event has arrived.
    is_complete: bool,
    is_closed: bool,
}

impl<T: AnswerFormat> Streaming<T> {
    fn take(&mut self, event: Event) {
        self.is_complete |= matches!(event, Event::Done(_) | Event::Failed(_));
        self.unsent.extend(self.format.chunks(&self.work, event));
    }

    /// The next message. An error closes the connection, so that an incomplete answer does not seem
    /// complete.
    async fn next(&mut self) -> Option<io::Result<String>> {
        loop {
            if let Some(data) = self.unsent.pop_front() {
                return Some(Ok(data.to_string()));
            }
            if self.is_closed {
                return None;
            }
            match self.work.events.recv().await {
                Some(event) => self.take(event),
                None => {
                    self.is_closed = true;
                    if !self.is_complete {
                        return Some(Err(io::Error::other("the request ended without an answer")));
                    }
                    return self.format.ends_with_done().then(|| Ok("[DONE]".to_owned()));
                }
            }
        }
    }
}

/// Collects all events until the request is done.
async fn collect(events: &mut Receiver<Event>, prompts: &[Vec<u32>]) -> Result<Results, ApiError> {
    let mut results = Results { scored: vec![Vec::new(); prompts.len()], ..Results::default() };
    loop {
        match events.recv().await {
            Some(Event::Scored { prompt, tokens }) => results.scored[prompt] = tokens,
            Some(Event::Piece(piece)) => {
                if let Piece { choice, step: Some(step), .. } = *piece {
                    results.steps.push((choice, step));
                }
            }
            Some(Event::Progress { .. }) => {}
            Some(Event::Beams(step)) => results.beams.push(*step),
            Some(Event::Finished { choice, written }) => results.finished.push((choice, written)),
            Some(Event::Done(timings)) => {
                results.finished.sort_by_key(|(choice, _)| *choice);
                return Ok(Results { timings, ..results });
            }
            Some(Event::Failed(error)) => return Err(error),
            None => return Err(no_answer()),
        }
    }
}

/// The finish reason in OpenAI's API, which has two.
pub(super) fn reason(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Eos | FinishReason::Stop => "stop",
        FinishReason::Length | FinishReason::Time | FinishReason::Interrupted => "length",
    }
}

/// A token's text; its bytes in OpenAI's notation if they are not valid UTF-8.
pub(super) fn token_name(tokenizer: Option<&Tokenizer>, id: u32) -> String {
    String::from_utf8(token_bytes(tokenizer, id)).unwrap_or_else(|error| {
        let hex = error.into_bytes().into_iter().map(|byte| format!("\\x{byte:02x}"));
        format!("bytes:{}", hex.collect::<String>())
    })
}

/// Adds a text's score, and under a grammar whether the text follows it.
pub(super) fn add_score(choice: &mut Value, written: &Written) {
    choice["score"] = json!(written.completion.score);
    if let Some(valid) = written.valid {
        choice["valid"] = json!(valid);
    }
}

/// Token counts in OpenAI's format.
pub(super) fn usage(timings: &Timings) -> Value {
    let Timings { prompt_tokens, cached_tokens, written_tokens, .. } = *timings;
    json!({
        "prompt_tokens": prompt_tokens,
        "completion_tokens": written_tokens,
        "total_tokens": prompt_tokens + written_tokens,
        "prompt_tokens_details": { "cached_tokens": cached_tokens },
    })
}

/// Adds the progress of prompt processing in llama.cpp's format, with timings.
pub(super) fn add_progress(chunk: &mut Value, progress: Progress, seconds: f64) {
    let Progress { total, cached, read } = progress;
    let took = Timings { prompt_tokens: read, cached_tokens: cached, prompt_s: seconds, ..Timings::default() };
    chunk["prompt_progress"] =
        json!({ "total": total, "cache": cached, "processed": read, "time_ms": (1e3 * seconds) as u64 });
    chunk["timings"] = timings(&took);
    // Before the first pass, none.
    chunk["timings"]["prompt_n"] = json!(read - cached);
}

/// Timings in llama.cpp's format.
pub(super) fn timings(timings: &Timings) -> Value {
    let Timings { prompt_tokens, cached_tokens, written_tokens, prompt_s, writing_s } = *timings;
    // The last position is always read, whatever the cache holds: its logits give the first token.
    let read = prompt_tokens.saturating_sub(cached_tokens).max(1);
    let (prompt_ms, writing_ms) = (1e3 * prompt_s, 1e3 * writing_s);
    let later = written_tokens.saturating_sub(1) as f64;
    let rate = |count: f64, ms: f64| if count > 0.0 && ms > 0.0 { 1e3 * count / ms } else { 0.0 };
    json!({
        "cache_n": cached_tokens,
        "prompt_n": read,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / read as f64,
        "prompt_per_second": rate(read as f64, prompt_ms),
        "predicted_n": written_tokens,
        "predicted_ms": writing_ms,
        "predicted_per_token_ms": if later > 0.0 { writing_ms / later } else { 0.0 },
        "predicted_per_second": rate(later, writing_ms),
    })
}

/// The program's `system_fingerprint` in answers.
pub(super) const FINGERPRINT: &str = concat!("b-ember-", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_stream_whose_request_fails_before_it_begins_has_the_status_of_the_failure() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let status = |first: Option<Event>| {
            runtime.block_on(async {
                let (sender, mut events) = channel(1);
                if let Some(event) = first {
                    assert!(sender.send(event).await.is_ok());
                }
                drop(sender); // as when the request's thread panics
                first_event(&mut events).await.map_or_else(|error| error.into_response().status().as_u16(), |_| 200)
            })
        };
        assert_eq!(status(Some(Event::Done(Timings::default()))), 200);
        assert_eq!(status(Some(Event::Failed(ApiError::busy()))), 429);
        assert_eq!(status(None), 500);
    }
}
