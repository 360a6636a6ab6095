//! A request at work: it waits for a place, then writes on a thread of its own, and says so as it
//! goes.

use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use ember_decoding::completion::{Acceptance, ChosenToken, Finding};
use ember_decoding::constraint::GrammarError;
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
use super::server::{Busy, Desk, Server, count};
use super::socket::STALLED;
use crate::sync::AtomicBool;

/// What happens to a request.
pub(super) enum Event {
    /// A prompt was measured: its tokens with what the model thought of each but the first.
    Read {
        prompt: usize,
        tokens: Vec<ChosenToken>,
    },
    /// Prompts were read so far, after so many seconds.
    Progress {
        progress: Progress,
        seconds: f64,
    },
    /// A text goes on by a token, or at last by what was held back.
    Piece(Box<Piece>),
    /// What beams did.
    Beams(Box<BeamStep>),
    /// A text is finished.
    Finished {
        choice: usize,
        written: Box<Written>,
    },
    /// All are.
    Done(Timings),
    Failed(ApiError),
}

/// How a text goes on.
#[derive(Default)]
pub(super) struct Piece {
    pub(super) choice: usize,
    pub(super) text: String,
    pub(super) token: Option<ChosenToken>,
    /// How the token was chosen, where that was asked.
    pub(super) step: Option<ChoiceTrace>,
}

/// What a request took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timings {
    pub(super) prompt_tokens: usize,
    /// Tokens of its prompts that the cache held already.
    pub(super) cached_tokens: usize,
    pub(super) written_tokens: usize,
    /// To its first token, and from there to the end.
    pub(super) prompt_s: f64,
    pub(super) writing_s: f64,
}

/// Who waits for what comes of a request.
pub(super) struct Client {
    has_left: Arc<AtomicBool>,
    /// Theirs until all is told or they leave.
    place: Mutex<Option<OwnedSemaphorePermit>>,
    /// For the candidates that their answer holds; theirs as long as somebody holds what was made for
    /// them, which has this client.
    room: OnceLock<OwnedSemaphorePermit>,
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

/// Tells that nobody waits any more.
struct LeaveOnDrop(Arc<Client>);

impl Drop for LeaveOnDrop {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// A request, begun, and what comes of it.
pub(super) struct Work {
    pub(super) id: String,
    pub(super) model: Arc<Model>,
    pub(super) parsed: Arc<ParsedRequest>,
    pub(super) events: Receiver<Event>,
    client: LeaveOnDrop,
}

impl Work {
    /// Who waits for it.
    pub(super) fn client(&self) -> Arc<Client> {
        Arc::clone(&self.client.0)
    }
}

/// Events that wait for a reader before the writer does.
const WAITING_EVENTS: usize = 256;

/// Prompt positions whose logits are on the host at once.
const AT_ONCE: usize = 128;

/// Begins a request: it is at work as soon as there is a place. Who drops what this gives ends it.
pub(super) fn begin(
    server: &Arc<Server>,
    model: Arc<Model>,
    parsed: ParsedRequest,
    place: OwnedSemaphorePermit,
) -> Work {
    let (sender, events) = channel(WAITING_EVENTS);
    let (has_left, place) = (Arc::new(AtomicBool::new(false)), Mutex::new(Some(place)));
    let client = Arc::new(Client { has_left, place, room: OnceLock::new() });
    let (held, parsed, id) = (parsed.held(), Arc::new(parsed), server.id());
    let written = Arc::new(AtomicU64::new(0));
    let busy = Busy {
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
        began: Instant::now(),
        first_token: None,
        written,
        pending: None,
    };
    count(&server.counts.waiting, 1);
    tokio::spawn(write_when_free(writer, busy, held));
    Work { id, model, parsed, events, client: LeaveOnDrop(client) }
}

/// Waits until there is a desk, and has the request written on a thread of its own; where the client leaves
/// before, nothing is written.
async fn write_when_free(mut writer: Writer, busy: Busy, held: usize) {
    let server = Arc::clone(&writer.server);
    let found = {
        let gone = writer.events.clone();
        let (free, gone) = (pin!(room_and_desk(&server, busy, held)), pin!(gone.closed()));
        match select(free, gone).await {
            Either::Left((found, _)) => found,
            Either::Right(_) => None,
        }
    };
    server.counts.waiting.fetch_sub(1, Ordering::Relaxed);
    let Some((room, desk)) = found else {
        count(&server.counts.cancelled, 1);
        return;
    };
    let _ = writer.client.room.set(room);
    let events = writer.events.clone();
    let spawned = std::thread::Builder::new().spawn(move || writer.work(desk));
    if let Err(error) = spawned {
        let _ = events.send(Event::Failed(ApiError::ours(format!("cannot start a thread: {error}")))).await;
    }
}

/// Room for an answer that holds so many candidates, and a desk, as soon as there are both.
async fn room_and_desk(server: &Arc<Server>, busy: Busy, held: usize) -> Option<(OwnedSemaphorePermit, Desk)> {
    // In this order: a request that waits for room keeps no desk from others.
    let room = server.room(held).await?;
    let desk = Arc::clone(server).desk(busy).await?;
    Some((room, desk))
}

/// Who writes a request's texts.
struct Writer {
    server: Arc<Server>,
    model: Arc<Model>,
    parsed: Arc<ParsedRequest>,
    client: Arc<Client>,
    events: Sender<Event>,
    runtime: Handle,
    began: Instant,
    first_token: Option<Instant>,
    /// Tokens written so far, for whoever looks at the places.
    written: Arc<AtomicU64>,
    /// What is known of the next piece before its text: a step is told first, then its token, then the text.
    pending: Option<Piece>,
}

impl Writer {
    fn work(&mut self, desk: Desk) {
        let model = Arc::clone(&self.model);
        let mut request = model.engine.request(Arc::clone(&self.client.has_left));
        if self.parsed.tells_progress {
            let (events, began) = (self.events.clone(), self.began);
            // Where nobody reads the events, a stage of the progress is left out.
            request = request.telling(move |progress| {
                let seconds = if progress.read > progress.cached { began.elapsed().as_secs_f64() } else { 0.0 };
                let _ = events.try_send(Event::Progress { progress, seconds });
            });
        }
        let outcome = self.write(&request);
        // Where prompts are measured all of them is read, and what the cache holds then is their own.
        let cached_tokens = if self.parsed.measures { 0 } else { request.cached_tokens() as usize };
        let timings = self.timings(cached_tokens);
        drop(request);
        self.account(&timings, outcome.as_ref().err());
        drop(desk); // before the answer is: who has read it finds the place free
        self.tell(match outcome {
            Ok(()) => Event::Done(timings),
            Err(error) => Event::Failed(error),
        });
    }

    fn timings(&self, cached_tokens: usize) -> Timings {
        let first = self.first_token.unwrap_or_else(Instant::now);
        Timings {
            prompt_tokens: self.parsed.prompts.iter().map(Vec::len).sum(),
            cached_tokens,
            written_tokens: self.written.load(Ordering::Relaxed) as usize,
            prompt_s: (first - self.began).as_secs_f64(),
            writing_s: first.elapsed().as_secs_f64(),
        }
    }

    fn account(&self, timings: &Timings, error: Option<&ApiError>) {
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
        if let Some(log) = &self.server.log {
            log.line(json!({
                "model": self.model.name, "prompts": self.parsed.prompts, "config": self.parsed.config,
                "prompt_tokens": prompt_tokens, "cached_tokens": cached_tokens, "written_tokens": written_tokens,
                "prompt_s": timings.prompt_s, "writing_s": timings.writing_s, "cancelled": is_cancelled,
                "error": error.map(|error| error.body()["error"]["message"].clone()),
            }));
        }
    }

    /// Says what happened. Where nobody reads on, the request is over, and nothing more is said: a
    /// text is told without a hole, or not to its end.
    fn tell(&self, event: Event) {
        if self.client.has_left() {
            return;
        }
        let Err(full) = self.events.try_send(event) else { return };
        let later = async { timeout(STALLED, self.events.send(full.into_inner())).await };
        if !matches!(self.runtime.block_on(later), Ok(Ok(()))) {
            self.client.leave();
        }
    }

    fn write(&mut self, request: &Request) -> Result<(), ApiError> {
        let (model, parsed) = (Arc::clone(&self.model), Arc::clone(&self.parsed));
        if parsed.measures {
            for (prompt, ids) in parsed.prompts.iter().enumerate() {
                let tokens = measure(request, ids, parsed.config.logprobs)?;
                self.tell(Event::Read { prompt, tokens });
            }
        }
        if !parsed.writes {
            return Ok(());
        }
        let mut generator = Generator::new(request, model.tokenizer.as_ref(), parsed.config.clone())
            .map_err(|error| ApiError::param("stop", error.to_string()))?;
        if let Some(grammar) = &parsed.grammar {
            let refused = |error: GrammarError| ApiError::param(grammar.source(), error.to_string());
            let (vocab_size, end_tokens) = (request.config().vocab_size, &parsed.config.end_tokens);
            let constraint = model.constraints.of(grammar, model.tokenizer.as_ref(), vocab_size, end_tokens);
            generator = generator.constrained_by(constraint.map_err(refused)?);
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
            self.tell(Event::Finished { choice, written: Box::new(written) });
        }
        Ok(())
    }
}

/// What the model thinks of each token of a prompt but the first, which has nothing before it.
fn measure(request: &Request, ids: &[u32], top: usize) -> Result<Vec<ChosenToken>, ApiError> {
    let shape = request.config();
    let (vocab_size, context) = (shape.vocab_size, shape.context_length);
    if ids.len() > context {
        return Err(ApiError::too_long("prompt", ids.len(), context));
    }
    // In JSON what is not a number is null.
    let mut tokens = vec![ChosenToken { id: ids[0], logprob: f32::NAN, top: Vec::new() }];
    let mut sequences = request.sequences(&[&[]], ids.len());
    for piece in ids[..ids.len() - 1].chunks(AT_ONCE) {
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
        // Text that was held back comes without a token.
        let piece = self.pending.take().filter(|piece| piece.choice == row).unwrap_or_default();
        let is_told = !self.parsed.config.strategy.ranks_texts() && (piece.token.is_some() || !text.is_empty());
        if is_told {
            self.tell(Event::Piece(Box::new(Piece { choice: row, text: text.to_owned(), ..piece })));
        }
    }

    fn go_on(&mut self, _row: usize, _steps: usize) -> ControlFlow<FinishReason> {
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
                    // A text that was found otherwise than token by token is accounted for afterwards: neither its
                    // tokens nor their text come with it.
                    self.tell(Event::Piece(Box::new(piece)));
                } else {
                    self.pending = Some(piece);
                }
            }
            Traced::Beams(step) => {
                let mut step = step.clone();
                step.beams.iter_mut().flatten().for_each(|candidate| candidate.token = Some(text(candidate.id)));
                self.tell(Event::Beams(Box::new(step)));
            }
        }
    }
}
