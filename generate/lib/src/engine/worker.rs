//! The engine's thread: takes queries, and decides which rows run in each forward pass.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

use ember_kernels::is_cpu;
use ember_model::Gpt;

use super::limits::Limits;
use super::messages::{Answer, Logits, Message, Query, QueryRow};
use super::metrics::{Metrics, MetricsHandle};
use super::pace::Pace;
use super::prefix_cache::PrefixCache;
use super::progress::Progress;
use crate::error::{Error, Result};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::mpsc::{Receiver, RecvTimeoutError};
use crate::sync::{Arc, Instant};
use crate::tokens::from_tensor;

#[cfg(test)]
mod tests;

/// After its first request an idle engine waits for more, until none has arrived for this long. It
/// is longer than the scheduler may keep an arriving thread off a processor (3 ms on Linux).
const GATHER: Duration = Duration::from_millis(6);

/// An idle engine starts at most this long after its first request, even if more keep arriving.
const MAX_GATHER: Duration = Duration::from_millis(50);

/// How often to check whether waiting requests have been cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(20);

/// Steps without a request's next query after which it is no longer waited for: its thread does not
/// keep up, as when its client reads slowly.
const MAX_MISSED_STEPS: usize = 2;

/// The smallest prompt budget of a step: with less, a prompt of three tokens might never start.
const MIN_STEP_TOKENS: usize = 4;

/// A query whose rows are in the cache.
struct ActiveQuery {
    query: Query,
    /// The logits computed so far, by row.
    logits: Vec<Vec<Logits>>,
    cached_tokens: u64,
}

/// The engine's state. A request first waits for room in the cache, and is then admitted until it
/// leaves. Until then it either has an active query, or its own thread is busy: choosing tokens, or
/// sending them.
pub(super) struct Worker {
    model: Gpt,
    limits: Limits,
    prefix_cache: PrefixCache,
    /// First queries of requests that wait for room, oldest first.
    waiting: VecDeque<Query>,
    /// Queries of admitted requests that are being answered, oldest first.
    active: Vec<ActiveQuery>,
    /// Admitted requests, and the KV-cache positions reserved for each.
    admitted: HashMap<u64, usize>,
    /// Answered requests whose next query has not come yet, and the steps run since.
    missed_steps: HashMap<u64, usize>,
    pace: Pace,
    metrics: Metrics,
    /// The copy of the metrics that other threads read.
    published: MetricsHandle,
    /// Set at the end.
    has_ended: Arc<AtomicBool>,
}

impl Drop for Worker {
    /// At the end of the thread, by a panic, too: whoever learns of it from an unanswered query of
    /// the worker finds it reported.
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

impl Worker {
    pub(super) fn new(model: Gpt, limits: Limits, published: MetricsHandle, has_ended: Arc<AtomicBool>) -> Self {
        let limits = limits.on_device_of(&model);
        let prefix_cache = PrefixCache::new(&model, limits);
        let (waiting, active) = (VecDeque::new(), Vec::new());
        let (admitted, missed_steps) = (HashMap::new(), HashMap::new());
        let (pace, metrics) = (Pace::default(), Metrics::default());
        Self {
            model,
            limits,
            prefix_cache,
            waiting,
            active,
            admitted,
            missed_steps,
            pace,
            metrics,
            published,
            has_ended,
        }
    }

    /// Runs steps until all senders are gone.
    pub(super) fn work(mut self, messages: &Receiver<Message>) {
        let mut took = Duration::ZERO;
        while self.listen(messages, took) {
            self.admit();
            took = self.run_step().unwrap_or(took);
            self.publish();
        }
    }

    /// Handles messages until a step is worth running. If some queries are active, it still waits
    /// for the requests that are expected back, for as long as the last step took (`patience`): a
    /// step for many rows costs hardly more than one for few. Returns false once all is done.
    fn listen(&mut self, messages: &Receiver<Message>, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            // The last request may have left just now.
            if self.admitted.is_empty() && self.waiting.is_empty() {
                return self.gather(messages);
            }
            let message = if !self.active.is_empty() {
                // A step could run now. Delay it only for requests that may soon want one.
                let left = if self.expects_queries() {
                    until.saturating_duration_since(Instant::now())
                } else {
                    Duration::ZERO
                };
                messages.recv_timeout(left)
            } else if !self.waiting.is_empty() {
                // All admitted requests are busy; one has to leave before another is admitted.
                messages.recv_timeout(CANCEL_POLL)
            } else {
                messages.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match message {
                Ok(message) => self.handle(message),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return !(self.active.is_empty() && self.waiting.is_empty()),
            }
            if self.active.is_empty() && !self.waiting.is_empty() {
                return true; // there may be room to admit one of them
            }
        }
    }

    /// Waits for an idle engine's first query, and a moment longer for others that arrive at the
    /// same time: their prompts then share one prefill pass, and they decode in lockstep. Returns
    /// false once all senders are gone.
    fn gather(&mut self, messages: &Receiver<Message>) -> bool {
        let Ok(first) = messages.recv() else { return false };
        self.handle(first);
        let until = Instant::now() + MAX_GATHER;
        while Instant::now() < until
            && let Ok(message) = messages.recv_timeout(GATHER)
        {
            self.handle(message);
        }
        true
    }

    /// Whether requests that were answered by the last steps will soon want another.
    fn expects_queries(&self) -> bool {
        self.missed_steps.values().any(|&steps| steps < MAX_MISSED_STEPS)
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Query(query) => {
                self.missed_steps.remove(&query.request);
                if self.admitted.contains_key(&query.request) {
                    self.activate(query);
                } else {
                    self.waiting.push_back(query);
                }
            }
            Message::Left(request) => {
                self.admitted.remove(&request);
                self.missed_steps.remove(&request);
                self.waiting.retain(|query| query.request != request);
                self.active.retain(|active| active.query.request != request);
                self.prefix_cache.release(request);
                self.publish();
            }
        }
    }

    /// Admits waiting requests in order while their positions fit into the cache. If none is
    /// admitted yet, the first is admitted whatever its size.
    fn admit(&mut self) {
        self.waiting.retain(|query| {
            let keep = !is_cancelled(query);
            if !keep {
                answer(query, Err(Error::Cancelled));
            }
            keep
        });
        while let Some(query) = self.waiting.front() {
            let reserved: usize = self.admitted.values().sum();
            if !self.admitted.is_empty() && reserved + query.positions > self.limits.usable_positions() {
                break;
            }
            self.admitted.insert(query.request, query.positions);
            if let Some(query) = self.waiting.pop_front() {
                self.activate(query);
            }
        }
    }

    fn activate(&mut self, query: Query) {
        let cached_tokens = self.prefix_cache.assign(query.request, &query.rows);
        self.metrics.cached_tokens += cached_tokens;
        let logits = query.rows.iter().map(|_| Vec::new()).collect();
        let active = ActiveQuery { query, logits, cached_tokens };
        self.report_progress(&active);
        self.active.push(active);
    }

    /// Runs a step. On the CPU it runs inside the thread pool: from outside, each of its many small
    /// tasks would wake a pool thread and wait for it. On a GPU it runs on this thread, because the
    /// runtime gives every thread its own stream, and only work within one stream is ordered.
    fn run_step(&mut self) -> Option<Duration> {
        if is_cpu(&self.model.device()) { rayon::scope(|_| self.step()) } else { self.step() }
    }

    /// Runs one forward pass and answers the queries that it completes. Returns how long it took,
    /// or `None` if there was nothing to run.
    fn step(&mut self) -> Option<Duration> {
        let began = Instant::now();
        for ActiveQuery { query, .. } in self.active.extract_if(.., |active| is_cancelled(&active.query)) {
            self.prefix_cache.release(query.request);
            answer(&query, Err(Error::Cancelled));
        }
        let mut pieces = self.pieces();
        if pieces.is_empty() {
            return None;
        }
        self.prefix_cache.make_room(pieces.iter().map(Piece::tokens).sum());
        // `make_room` may have moved rows. The logits come in the order of the cache rows.
        pieces.sort_by_cached_key(|piece| self.cache_row(piece));
        let logits = self.forward(&pieces);
        self.metrics.steps += 1;
        self.metrics.tokens += pieces.iter().map(|piece| piece.tokens() as u64).sum::<u64>();
        match logits {
            Ok(logits) => {
                self.update_pace(&pieces, began.elapsed());
                self.distribute_logits(&pieces, logits);
                self.active.iter().for_each(|active| self.report_progress(active));
                self.publish(); // before the answers, so that their receivers see this step counted
                self.send_answers();
            }
            Err(error) => self.fail_active(&error),
        }
        Some(began.elapsed())
    }

    /// The cache row of a piece.
    fn cache_row(&self, piece: &Piece) -> usize {
        self.prefix_cache.cache_row(self.active[piece.active].query.request, piece.row)
    }

    /// Runs the pieces through the model. Returns the wanted logits, piece by piece.
    fn forward(&mut self, pieces: &[Piece]) -> Result<Vec<f32>> {
        let mut new_ids: Vec<&[u32]> = vec![&[]; self.prefix_cache.rows.len()];
        let mut wanted = vec![0; self.prefix_cache.rows.len()];
        for piece in pieces {
            let query_row = &self.active[piece.active].query.rows[piece.row];
            let cache_row = self.cache_row(piece);
            (new_ids[cache_row], wanted[cache_row]) = (&query_row.ids[piece.ids.clone()], piece.wanted(query_row));
        }
        from_tensor(self.model.forward_cached_last(&new_ids, &wanted, &mut self.prefix_cache.cache))
    }

    /// Records how long a pass took.
    fn update_pace(&mut self, pieces: &[Piece], took: Duration) {
        let prompt_tokens = pieces.iter().map(Piece::tokens).filter(|&tokens| tokens > 1).sum();
        let decode_rows = pieces.iter().filter(|piece| piece.tokens() == 1).count();
        if decode_rows > 0 {
            self.pace.record(decode_rows, prompt_tokens, took.as_secs_f64());
        }
    }

    /// Gives each query its share of a pass's logits, and records which ids are now in the cache.
    fn distribute_logits(&mut self, pieces: &[Piece], logits: Vec<f32>) {
        let (step_logits, mut from) = (Arc::new(logits), 0);
        for piece in pieces {
            let cache_row = self.cache_row(piece);
            let ActiveQuery { query, logits, .. } = &mut self.active[piece.active];
            let query_row = &query.rows[piece.row];
            let to = from + piece.wanted(query_row) * self.model.config().vocab_size;
            if to > from {
                logits[piece.row].push(Logits { step_logits: Arc::clone(&step_logits), range: from..to });
            }
            from = to;
            self.prefix_cache.append(cache_row, &query_row.ids[piece.ids.clone()]);
        }
    }

    /// The batch of the next pass: first the rows with one uncached token (decode), then pieces of
    /// the other rows (prefill), oldest first, within the budget.
    fn pieces(&self) -> Vec<Piece> {
        let (mut pieces, mut prefill) = self.uncached_pieces();
        let budget = self.prefill_budget(pieces.len(), &prefill);
        cut_to_budget(&mut prefill, budget);
        pieces.extend(prefill.into_iter().filter(|piece| piece.tokens() > 0));
        pieces
    }

    /// The uncached tokens of all active queries, each row's in one piece: rows with one token
    /// (decode), and rows with several (prefill).
    fn uncached_pieces(&self) -> (Vec<Piece>, Vec<Piece>) {
        let (mut decode, mut prefill) = (Vec::new(), Vec::new());
        for (active, ActiveQuery { query, .. }) in self.active.iter().enumerate() {
            for (row, query_row) in query.rows.iter().enumerate() {
                let cached = query_row.ids.len() - uncached(&self.prefix_cache, query.request, row, query_row);
                let piece = Piece { active, row, ids: cached..query_row.ids.len() };
                match piece.tokens() {
                    0 => {}
                    1 => decode.push(piece),
                    _ => prefill.push(piece),
                }
            }
        }
        (decode, prefill)
    }

    /// How many tokens of `prefill` the next pass may read, beside `decode_rows` rows that decode.
    fn prefill_budget(&self, decode_rows: usize, prefill: &[Piece]) -> usize {
        let most = self.limits.tokens_per_step.max(MIN_STEP_TOKENS);
        // A request that is expected back counts as decoding: it waits for the next step, too.
        let in_prefill: HashSet<usize> = prefill.iter().map(|piece| piece.active).collect();
        let any_decoding = self.active.len() > in_prefill.len() || self.expects_queries();
        if !any_decoding {
            return most;
        }
        // Now and then a step runs no prefill, to measure how long a pure decode step takes.
        if decode_rows > 0 && self.pace.needs_pure_step(decode_rows) {
            return 0;
        }
        self.pace.budget().clamp(MIN_STEP_TOKENS, most)
    }

    /// Reports the prefill progress of a query to its callback, if it has one.
    fn report_progress(&self, ActiveQuery { query, cached_tokens, .. }: &ActiveQuery) {
        let Some(on_progress) = &query.on_progress else { return };
        let total = query.rows.iter().map(|row| row.ids.len()).sum();
        let left = |(row, query_row)| uncached(&self.prefix_cache, query.request, row, query_row);
        let rest: usize = query.rows.iter().enumerate().map(left).sum();
        on_progress(Progress { total, cached: *cached_tokens as usize, read: total - rest });
    }

    /// Answers the queries whose rows are complete.
    fn send_answers(&mut self) {
        self.missed_steps.values_mut().for_each(|steps| *steps += 1);
        let (prefix_cache, mut active) = (&self.prefix_cache, std::mem::take(&mut self.active));
        let is_complete = |active: &mut ActiveQuery| {
            let Query { request, rows, .. } = &active.query;
            rows.iter().enumerate().all(|(row, query_row)| uncached(prefix_cache, *request, row, query_row) == 0)
        };
        for ActiveQuery { query, logits, cached_tokens } in active.extract_if(.., is_complete) {
            let logits = logits.into_iter().flatten().collect();
            self.missed_steps.insert(query.request, 0);
            answer(&query, Ok(Answer { logits, cached_tokens }));
        }
        self.active = active;
    }

    /// Answers all active queries with the error of a failed pass.
    fn fail_active(&mut self, error: &Error) {
        self.publish();
        for ActiveQuery { query, .. } in self.active.drain(..) {
            self.prefix_cache.release(query.request);
            answer(&query, Err(Error::device(error)));
        }
    }

    /// Updates the metrics and publishes them to other threads.
    fn publish(&mut self) {
        let Self { metrics, prefix_cache, waiting, admitted, .. } = self;
        (metrics.running, metrics.waiting) = (admitted.len(), waiting.len());
        metrics.positions = prefix_cache.in_use();
        self.published.publish(*metrics);
    }
}

/// Tokens of one row that run in one step.
struct Piece {
    /// Index into [`Worker::active`].
    active: usize,
    /// Index among the query's rows.
    row: usize,
    /// Range of the row's ids.
    ids: Range<usize>,
}

impl Piece {
    fn tokens(&self) -> usize {
        self.ids.len()
    }

    /// How many of its tokens need logits: those among the row's last `count`.
    fn wanted(&self, query_row: &QueryRow) -> usize {
        let first = query_row.ids.len() - query_row.count;
        self.ids.end - first.clamp(self.ids.start, self.ids.end)
    }
}

/// Shortens pieces to at most `budget` tokens altogether. The first take what they can; later ones
/// may be left without any.
fn cut_to_budget(pieces: &mut [Piece], mut budget: usize) {
    for Piece { ids, .. } in pieces {
        let mut tokens = ids.len().min(budget);
        // Never leave a single position: it would take another path through attention.
        tokens -= usize::from(ids.len() == tokens + 1);
        ids.end = ids.start + if tokens < 2 { 0 } else { tokens };
        budget -= ids.len();
    }
}

/// How many ids of a request's row the pass still has to read; 0 if no logits are wanted.
fn uncached(prefix_cache: &PrefixCache, request: u64, row: usize, query_row: &QueryRow) -> usize {
    match query_row.count {
        0 => 0,
        _ => query_row.ids.len() - prefix_cache.rows[prefix_cache.cache_row(request, row)].ids.len(),
    }
}

fn is_cancelled(query: &Query) -> bool {
    query.cancelled.load(Ordering::Relaxed)
}

fn answer(query: &Query, answer: Result<Answer>) {
    // The receiver may be gone.
    let _ = query.reply.send(answer);
}
