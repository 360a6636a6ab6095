//! A running request: it waits for a slot, then generates on its own thread and sends events.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use ember_decoding::completion::{Acceptance, ChosenToken, Finding};
use ember_decoding::engine::{Progress, Request};
use ember_decoding::generator::{Prompts, Reader, Written};
use ember_decoding::logprobs;
use ember_decoding::sequences::Continues;
use ember_decoding::stream::token_text;
use ember_decoding::trace::{BeamStep, ChoiceTrace};
use ember_decoding::watch::Traced;
use ember_decoding::{FinishReason, Generator};
use futures_util::future::{Either, select};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

use super::error::ApiError;
use super::models::Model;
use super::parsed_request::ParsedRequest;
use super::server::{ActiveRequest, Server, Slot, count};
use super::socket::WRITE_TIMEOUT;
use crate::sync::AtomicBool;

/// Events of a request.
pub(super) enum Event {
    /// A prompt was scored: its tokens with their log-probabilities, except the first.
    Scored {
        prompt: usize,
        tokens: Vec<ChosenToken>,
    },
    /// Progress of prompt processing, after so many seconds.
    Progress {
        progress: Progress,
        seconds: f64,
    },
    /// A text grew by a token, or at its end by the text held back.
    Piece(Box<Piece>),
    /// A beam search step.
    Beams(Box<BeamStep>),
    /// One text is finished.
    Finished {
        choice: usize,
        written: Box<Written>,
    },
    /// All texts are finished.
    Done(Timings),
    Failed(ApiError),
}

/// A continuation of a text.
#[derive(Default)]
pub(super) struct Piece {
    pub(super) choice: usize,
    pub(super) text: String,
    pub(super) token: Option<ChosenToken>,
    /// How the token was chosen, if requested.
    pub(super) step: Option<ChoiceTrace>,
}

/// Token counts and times of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timings {
    pub(super) prompt_tokens: usize,
    /// Tokens of its prompts that the cache already held.
    pub(super) cached_tokens: usize,
    pub(super) written_tokens: usize,
    /// Seconds from its start in a slot to its first token, or the first step of a search, and from
    /// there to the end.
    pub(super) prompt_s: f64,
    pub(super) writing_s: f64,
}

/// The client that waits for a request's results.
struct Client {
    has_left: Arc<AtomicBool>,
    /// The place in the queue, held until the answer is sent or the client leaves.
    place: Mutex<Option<OwnedSemaphorePermit>>,
    /// The permit for the answer's candidates, held as long as the answer, which holds this client.
    memory: OnceLock<OwnedSemaphorePermit>,
}

impl Client {
    fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }

    fn leave(&self) {
        self.has_left.store(true, Ordering::Relaxed);
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// Marks the client as gone when dropped.
struct LeaveOnDrop(Arc<Client>);

impl Drop for LeaveOnDrop {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// A started request and its events.
pub(super) struct Work {
    pub(super) id: String,
    pub(super) model: Arc<Model>,
    pub(super) parsed: Arc<ParsedRequest>,
    pub(super) events: Receiver<Event>,
    client: LeaveOnDrop,
}

impl Work {
    /// What the request holds until its answer is sent: its place in the queue, and the memory for
    /// the answer.
    pub(super) fn into_held(self) -> impl Send + 'static {
        self.client
    }
}

/// Events buffered for the client before the writer has to wait.
const EVENT_BUFFER: usize = 256;

/// Prompt positions scored at a time, whose logits are on the host together.
const SCORED_AT_ONCE: usize = 128;

/// Starts a request: it runs as soon as a slot is free. Dropping the returned value cancels it.
pub(super) fn begin(
    server: &Arc<Server>,
    model: Arc<Model>,
    parsed: ParsedRequest,
    place: OwnedSemaphorePermit,
) -> Work {
    let (sender, events) = channel(EVENT_BUFFER);
    let (has_left, place) = (Arc::new(AtomicBool::new(false)), Mutex::new(Some(place)));
    let client = Arc::new(Client { has_left, place, memory: OnceLock::new() });
    let (held, parsed, id) = (parsed.held_candidates(), Arc::new(parsed), server.id());
    let written = Arc::new(AtomicU64::new(0));
    let active = ActiveRequest {
        id: id.clone(),
        model: model.name.clone(),
        prompt_tokens: parsed.prompts.iter().map(Vec::len).sum(),
        written: Arc::clone(&written),
    };
    let writer = Writer {
        server: Arc::clone(server),
        model: Arc::clone(&model),
        parsed: Arc::clone(&parsed),
        client: Arc::clone(&client),
        events: sender,
        runtime: Handle::current(),
        first_token: None,
        written,
        pending: None,
    };
    count(&server.counts.waiting, 1);
    tokio::spawn(write_when_free(writer, active, held));
    Work { id, model, parsed, events, client: LeaveOnDrop(client) }
}

/// Waits for a slot, then runs the request on its own thread; if the client leaves first, nothing
/// runs.
async fn write_when_free(mut writer: Writer, active: ActiveRequest, held: usize) {
    let server = Arc::clone(&writer.server);
    let found = {
        let gone = writer.events.clone();
        let (free, gone) = (pin!(memory_and_slot(&server, active, held)), pin!(gone.closed()));
        match select(free, gone).await {
            Either::Left((found, _)) => found,
            Either::Right(_) => None,
        }
    };
    server.counts.waiting.fetch_sub(1, Ordering::Relaxed);
    let Some((memory, slot)) = found else {
        count(&server.counts.cancelled, 1);
        return;
    };
    let _ = writer.client.memory.set(memory);
    let events = writer.events.clone();
    let spawned = std::thread::Builder::new().spawn(move || writer.work(slot));
    if let Err(error) = spawned {
        let _ = events.send(Event::Failed(ApiError::internal(format!("cannot start a thread: {error}")))).await;
    }
}

/// Waits for memory for an answer with `held` candidates, then for a slot.
async fn memory_and_slot(
    server: &Arc<Server>,
    active: ActiveRequest,
    held: usize,
) -> Option<(OwnedSemaphorePermit, Slot)> {
    // In this order, so that a request waiting for memory does not block a slot.
    let memory = server.reserve_candidates(held).await?;
    let slot = Arc::clone(server).slot(active).await?;
    Some((memory, slot))
}

/// Generates a request's texts.
struct Writer {
    server: Arc<Server>,
    model: Arc<Model>,
    parsed: Arc<ParsedRequest>,
    client: Arc<Client>,
    events: Sender<Event>,
    runtime: Handle,
    /// When the first token was chosen, or the first step of a search was done.
    first_token: Option<Instant>,
    /// Tokens written so far, for `/slots`.
    written: Arc<AtomicU64>,
    /// The next piece without its text: the trace comes first, then the token, then the text.
    pending: Option<Piece>,
}

impl Writer {
    fn work(&mut self, slot: Slot) {
        let began = Instant::now(); // the wait for a slot is no time of the prompt's
        let model = Arc::clone(&self.model);
        let mut request = model.engine.request(Arc::clone(&self.client.has_left));
        if self.parsed.reports_progress {
            let events = self.events.clone();
            // A progress event is dropped if the buffer is full.
            request = request.telling(move |progress| {
                let seconds = if progress.read > progress.cached { began.elapsed().as_secs_f64() } else { 0.0 };
                let _ = events.try_send(Event::Progress { progress, seconds });
            });
        }
        let outcome = self.write(&request);
        // Scored prompts are processed whole, and any cache hits are on their own positions.
        let cached_tokens = if self.parsed.scores_prompts { 0 } else { request.cached_tokens() as usize };
        let timings = self.timings(began, cached_tokens);
        drop(request);
        self.record(&timings, outcome.as_ref().err());
        drop(slot); // before the answer, so that a client that has read it finds the slot free
        self.send(match outcome {
            Ok(()) => Event::Done(timings),
            Err(error) => Event::Failed(error),
        });
    }

    fn timings(&self, began: Instant, cached_tokens: usize) -> Timings {
        let first = self.first_token.unwrap_or_else(Instant::now);
        Timings {
            prompt_tokens: self.parsed.prompts.iter().map(Vec::len).sum(),
            cached_tokens,
            written_tokens: self.written.load(Ordering::Relaxed) as usize,
            prompt_s: (first - began).as_secs_f64(),
            writing_s: first.elapsed().as_secs_f64(),
        }
    }

    fn record(&self, timings: &Timings, error: Option<&ApiError>) {
        let counts = &self.server.counts;
        let Timings { prompt_tokens, cached_tokens, written_tokens, .. } = *timings;
        count(&counts.prompt_tokens, prompt_tokens.saturating_sub(cached_tokens) as u64);
        count(&counts.cached_tokens, cached_tokens as u64);
        count(&counts.written_tokens, written_tokens as u64);
        count(&counts.later_tokens, written_tokens.saturating_sub(1) as u64);
        count(&counts.prompt_micros, (timings.prompt_s * 1e6) as u64);
        count(&counts.writing_micros, (timings.writing_s * 1e6) as u64);
        counts.longest.fetch_max((prompt_tokens + written_tokens) as u64, Ordering::Relaxed);
        let is_cancelled = self.client.has_left();
        if is_cancelled {
            count(&counts.cancelled, 1);
        }
        if let Some(problem) = error.and_then(ApiError::of_device) {
            self.server.device_has_failed(problem);
        }
        if let Some(log) = &self.server.setup.log {
            log.line(json!({
                "model": self.model.name, "prompts": self.parsed.prompts, "config": self.parsed.config,
                "prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens, "written_tokens": written_tokens,
                "prompt_s": timings.prompt_s, "writing_s": timings.writing_s, "cancelled": is_cancelled,
                "error": error.map(|error| error.body()["error"]["message"].clone()),
            }));
        }
    }

    /// Sends an event. If the client stops reading, the request is cancelled and sends nothing
    /// more: an answer may be cut off, but never has a gap.
    fn send(&self, event: Event) {
        if self.client.has_left() {
            return;
        }
        let Err(full) = self.events.try_send(event) else { return };
        let later = async { timeout(WRITE_TIMEOUT, self.events.send(full.into_inner())).await };
        if !matches!(self.runtime.block_on(later), Ok(Ok(()))) {
            self.client.leave();
        }
    }

    fn write(&mut self, request: &Request) -> Result<(), ApiError> {
        let (model, parsed) = (Arc::clone(&self.model), Arc::clone(&self.parsed));
        if parsed.scores_prompts {
            for (prompt, ids) in parsed.prompts.iter().enumerate() {
                let tokens = score_prompt(request, ids, parsed.config.logprobs)?;
                self.send(Event::Scored { prompt, tokens });
            }
        }
        if !parsed.generates {
            return Ok(());
        }
        let mut generator = Generator::new(request, model.tokenizer.as_ref(), parsed.config.clone())
            .map_err(|error| ApiError::param("stop", error.to_string()))?;
        if let Some(grammar) = &parsed.grammar {
            let (vocab_size, end_tokens) = (request.config().vocab_size, &parsed.config.end_tokens);
            let constraint = model.constraints.of(grammar, model.tokenizer.as_ref(), vocab_size, end_tokens);
            let constraint = constraint.map_err(|error| ApiError::grammar(grammar.source(), &error))?;
            generator = generator.constrained_by(constraint);
        }
        let ids: Vec<&[u32]> = parsed.prompts.iter().map(Vec::as_slice).collect();
        let each = parsed.config.num_return_sequences;
        let firsts: Vec<u64> = (0..ids.len()).map(|prompt| (prompt * each) as u64).collect();
        let prompts = Prompts {
            ids: &ids,
            first_sequences: &firsts,
            traced_candidates: parsed.traced_candidates,
            ..Prompts::default()
        };
        let written = generator.write(&prompts, self)?;
        if parsed.config.strategy.ranks_texts() {
            let tokens: usize = written.iter().map(|written| written.completion.ids.len()).sum();
            self.written.store(tokens as u64, Ordering::Relaxed);
        }
        for written in written {
            if let Some(Finding::Draft(Acceptance { proposed, accepted, passes })) = written.completion.finding {
                let counts = &self.server.counts;
                count(&counts.drafted, proposed as u64);
                count(&counts.accepted, accepted as u64);
                count(&counts.drafts, passes as u64);
            }
            let choice = written.prompt * each + written.number;
            self.send(Event::Finished { choice, written: Box::new(written) });
        }
        Ok(())
    }
}

/// Log-probabilities of a prompt's tokens, except the first, which has no context.
fn score_prompt(request: &Request, ids: &[u32], top: usize) -> Result<Vec<ChosenToken>, ApiError> {
    let shape = request.config();
    let (vocab_size, context) = (shape.vocab_size, shape.context_length);
    if ids.len() > context {
        return Err(ApiError::too_long("prompt", ids.len(), context));
    }
    // JSON writes NaN as null.
    let mut tokens = vec![ChosenToken { id: ids[0], logprob: f32::NAN, top: Vec::new() }];
    let mut sequences = request.sequences(&[&[]], ids.len());
    for piece in ids[..ids.len() - 1].chunks(SCORED_AT_ONCE) {
        sequences.extend(0, piece);
        let logits = sequences.logits_of_last(&[piece.len()])?;
        for logits in logits.chunks_exact(vocab_size) {
            let id = ids[tokens.len()];
            tokens.push(logprobs::chosen(id, logits, logprobs::finite_log_sum_exp(logits)?, top));
        }
    }
    Ok(tokens)
}

impl Reader for Writer {
    fn token(&mut self, row: usize, token: &ChosenToken) {
        self.first_token.get_or_insert_with(Instant::now);
        self.written.fetch_add(1, Ordering::Relaxed);
        let step = self.pending.take().and_then(|piece| piece.step);
        self.pending = Some(Piece { choice: row, token: Some(token.clone()), step, ..Piece::default() });
    }

    fn text(&mut self, row: usize, text: &str) {
        // Held-back text comes without a token.
        let piece = self.pending.take().filter(|piece| piece.choice == row).unwrap_or_default();
        let is_sent = !self.parsed.config.strategy.ranks_texts() && (piece.token.is_some() || !text.is_empty());
        if is_sent {
            self.send(Event::Piece(Box::new(Piece { choice: row, text: text.to_owned(), ..piece })));
        }
    }

    fn go_on(&mut self, _row: usize, _steps: usize) -> ControlFlow<FinishReason> {
        // A search may know its tokens only at its end.
        self.first_token.get_or_insert_with(Instant::now);
        match self.client.has_left() {
            true => ControlFlow::Break(FinishReason::Interrupted),
            false => ControlFlow::Continue(()),
        }
    }

    fn traced(&mut self, step: Traced) {
        let tokenizer = self.model.tokenizer.as_ref();
        let text = |id| token_text(tokenizer, id);
        match step {
            Traced::Choice { row, step } => {
                let mut step = step.choice.clone();
                step.candidates.iter_mut().for_each(|candidate| candidate.token = Some(text(candidate.id)));
                let piece = Piece { choice: row, step: Some(step), ..Piece::default() };
                if self.parsed.config.strategy.ranks_texts() {
                    // Texts not found token by token are traced afterwards, without tokens or text.
                    self.send(Event::Piece(Box::new(piece)));
                } else {
                    self.pending = Some(piece);
                }
            }
            Traced::Beams(step) => {
                let mut step = step.clone();
                step.beams.iter_mut().flatten().for_each(|candidate| candidate.token = Some(text(candidate.id)));
                self.send(Event::Beams(Box::new(step)));
            }
        }
    }
}
