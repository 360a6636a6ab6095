//! The engine's thread: what it was asked, and which of it goes through the model in each step.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::PoisonError;
use std::time::Duration;

use ember_kernels::is_cpu;
use ember_model::Gpt;

use super::ask::{Answer, Ask, AskedRow, Logits, Message};
use super::held::HeldRows;
use super::limits::{Figures, Limits};
use super::pace::Pace;
use super::progress::Progress;
use crate::error::{Error, Result};
use crate::sync::atomic::Ordering;
use crate::sync::mpsc::{Receiver, RecvTimeoutError};
use crate::sync::{Arc, Instant, RwLock};
use crate::tokens::from_tensor;

/// An engine at rest waits for more requests after the first, and begins once none has come for so
/// long. That is longer than another thread may keep a processor from those who come (3 ms on Linux).
const GATHER: Duration = Duration::from_millis(6);

/// So long after the first request an engine at rest begins, even if others still come.
const GATHER_AT_MOST: Duration = Duration::from_millis(50);

/// How often requests that wait for room are looked at: they may have been cancelled.
const LOOK: Duration = Duration::from_millis(20);

/// The least budget of a step: less might never get a prompt of three tokens on its way.
const FEWEST_TOKENS: usize = 4;

/// A question whose rows are in the cache.
struct Reading {
    ask: Ask,
    /// Logits of each row, as far as it is read.
    logits: Vec<Vec<Logits>>,
    cached_tokens: u64,
}

/// What the engine's thread has. A request first waits for room in the cache; from then on it is
/// admitted until it leaves, and in turns has asked for logits, or is choosing tokens by those that
/// it got, in its own thread.
pub(super) struct Worker {
    model: Gpt,
    limits: Limits,
    held: HeldRows,
    /// Questions of requests that wait for room, in the order in which they came.
    waiting: VecDeque<Ask>,
    /// Questions of admitted requests that are being answered, the oldest first.
    reading: Vec<Reading>,
    /// Requests at work, and the positions that are kept for each.
    admitted: HashMap<u64, usize>,
    pace: Pace,
    figures: Figures,
    told: Arc<RwLock<Figures>>,
}

impl Worker {
    pub(super) fn new(model: Gpt, limits: Limits, told: Arc<RwLock<Figures>>) -> Self {
        let held = HeldRows::new(&model, limits);
        let (waiting, reading, admitted) = (VecDeque::new(), Vec::new(), HashMap::new());
        let pace = Pace::default();
        Self { model, limits, held, waiting, reading, admitted, pace, figures: Figures::default(), told }
    }

    /// Answers until nobody can ask any more.
    pub(super) fn work(mut self, messages: &Receiver<Message>) {
        let mut took = Duration::ZERO;
        while self.listen(messages, took) {
            self.admit();
            took = self.step_where_it_is_quick().unwrap_or(took);
            self.tell();
        }
    }

    /// Takes in what was asked until a step is worth taking. Where there is something to read it
    /// waits for requests that are choosing, for as long as the last step took (`patience`): a step
    /// for many costs hardly more than one for few. Gives whether anybody can still ask.
    fn listen(&mut self, messages: &Receiver<Message>, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            // Also where the last request has left just now.
            if self.admitted.is_empty() && self.waiting.is_empty() {
                return self.gather(messages);
            }
            let are_choosing = self.admitted.len() > self.reading.len();
            let message = if !self.reading.is_empty() {
                // A step can be taken. It is put off only for those who may ask at any moment.
                let left = if are_choosing { until.saturating_duration_since(Instant::now()) } else { Duration::ZERO };
                messages.recv_timeout(left)
            } else if !self.waiting.is_empty() {
                // All at work are choosing, and one of them has to leave before another can begin.
                messages.recv_timeout(LOOK)
            } else {
                messages.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match message {
                Ok(message) => self.take_in(message),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return !(self.reading.is_empty() && self.waiting.is_empty()),
            }
            if self.reading.is_empty() && !self.waiting.is_empty() {
                return true; // one of them may begin
            }
        }
    }

    /// Waits for somebody to ask where nobody does, and a moment longer for those who come at the
    /// same time: their prompts are then read in one pass, and their tokens written in step. Gives
    /// whether anybody can still ask.
    fn gather(&mut self, messages: &Receiver<Message>) -> bool {
        let Ok(first) = messages.recv() else { return false };
        self.take_in(first);
        let until = Instant::now() + GATHER_AT_MOST;
        while Instant::now() < until
            && let Ok(message) = messages.recv_timeout(GATHER)
        {
            self.take_in(message);
        }
        true
    }

    fn take_in(&mut self, message: Message) {
        match message {
            Message::Ask(ask) => {
                if self.admitted.contains_key(&ask.request) {
                    self.begin(ask);
                } else {
                    self.waiting.push_back(ask);
                }
            }
            Message::Left(request) => {
                self.admitted.remove(&request);
                self.waiting.retain(|ask| ask.request != request);
                self.reading.retain(|reading| reading.ask.request != request);
                self.held.let_go(request);
                self.tell();
            }
        }
    }

    /// Lets those begin who wait, in their order, as long as there is room for what they ask; one
    /// by itself always.
    fn admit(&mut self) {
        self.waiting.retain(|ask| {
            let goes_on = !is_cancelled(ask);
            if !goes_on {
                answer(ask, Err(Error::Cancelled));
            }
            goes_on
        });
        while let Some(ask) = self.waiting.front() {
            let kept: usize = self.admitted.values().sum();
            if !self.admitted.is_empty() && kept + ask.slots > self.limits.usable_slots() {
                break;
            }
            self.admitted.insert(ask.request, ask.slots);
            if let Some(ask) = self.waiting.pop_front() {
                self.begin(ask);
            }
        }
    }

    fn begin(&mut self, ask: Ask) {
        let cached_tokens = self.held.take_up(ask.request, &ask.rows);
        self.figures.cached_tokens += cached_tokens;
        let logits = ask.rows.iter().map(|_| Vec::new()).collect();
        let reading = Reading { ask, logits, cached_tokens };
        self.tell_progress(&reading);
        self.reading.push(reading);
    }

    /// A step, on the CPU inside the pool: from outside each of its many small pieces would wake a
    /// thread, and wait for it. A GPU is always asked from this thread: for the runtime every thread
    /// is a stream of its own, and what stands in one comes in its order by itself.
    fn step_where_it_is_quick(&mut self) -> Option<Duration> {
        if is_cpu(&self.model.device()) { rayon::scope(|_| self.step()) } else { self.step() }
    }

    /// One pass through the model, and the answers that are complete with it; how long it took, or
    /// none where nothing is to be read.
    fn step(&mut self) -> Option<Duration> {
        let began = Instant::now();
        for Reading { ask, .. } in self.reading.extract_if(.., |reading| is_cancelled(&reading.ask)) {
            self.held.let_go(ask.request);
            answer(&ask, Err(Error::Cancelled));
        }
        let mut pieces = self.pieces();
        if pieces.is_empty() {
            return None;
        }
        self.held.make_room(pieces.iter().map(Piece::tokens).sum());
        // Where a row stands in the cache follows from what is kept; in its order the logits come.
        pieces.sort_by_cached_key(|piece| self.place(piece));
        let logits = self.read(&pieces);
        self.figures.steps += 1;
        self.figures.tokens += pieces.iter().map(|piece| piece.tokens() as u64).sum::<u64>();
        match logits {
            Ok(logits) => {
                self.measure(&pieces, began.elapsed());
                self.hand_out(&pieces, logits);
                self.reading.iter().for_each(|reading| self.tell_progress(reading));
                self.tell(); // before its answers are given, so that who has one finds it counted
                self.conclude();
            }
            Err(error) => self.give_up(&error),
        }
        Some(began.elapsed())
    }

    /// Where in the cache the row stands that a piece is of.
    fn place(&self, piece: &Piece) -> usize {
        self.held.place(self.reading[piece.reading].ask.request, piece.row)
    }

    /// Takes the pieces through the model: the logits that are wanted of each, one piece after the
    /// other.
    fn read(&mut self, pieces: &[Piece]) -> Result<Vec<f32>> {
        let mut news: Vec<&[u32]> = vec![&[]; self.held.rows.len()];
        let mut wanted = vec![0; self.held.rows.len()];
        for piece in pieces {
            let asked = &self.reading[piece.reading].ask.rows[piece.row];
            let place = self.place(piece);
            (news[place], wanted[place]) = (&asked.ids[piece.ids.clone()], piece.wanted(asked));
        }
        from_tensor(self.model.forward_cached_last(&news, &wanted, &mut self.held.cache))
    }

    /// Learns from how long a pass took.
    fn measure(&mut self, pieces: &[Piece], took: Duration) {
        let of_prompts = pieces.iter().map(Piece::tokens).filter(|&tokens| tokens > 1).sum();
        let written = pieces.iter().filter(|piece| piece.tokens() == 1).count();
        if written > 0 {
            self.pace.took(written, of_prompts, took.as_secs_f64());
        }
    }

    /// Gives each question its part of a pass's logits, and takes down what was read.
    fn hand_out(&mut self, pieces: &[Piece], logits: Vec<f32>) {
        let (of_step, mut from) = (Arc::new(logits), 0);
        for piece in pieces {
            let place = self.place(piece);
            let Reading { ask, logits, .. } = &mut self.reading[piece.reading];
            let asked = &ask.rows[piece.row];
            let to = from + piece.wanted(asked) * self.model.config().vocab_size;
            if to > from {
                logits[piece.row].push(Logits { of_step: Arc::clone(&of_step), range: from..to });
            }
            from = to;
            self.held.has_read(place, &asked.ids[piece.ids.clone()]);
        }
    }

    /// What goes through the model next: first rows of which one token is left to read, then
    /// pieces of the others, the oldest first, as far as the budget goes.
    fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut long = Vec::new();
        for (reading, Reading { ask, .. }) in self.reading.iter().enumerate() {
            for (row, asked) in ask.rows.iter().enumerate() {
                let read = asked.ids.len() - unread(&self.held, ask.request, row, asked);
                let piece = Piece { reading, row, ids: read..asked.ids.len() };
                match piece.tokens() {
                    0 => {}
                    1 => pieces.push(piece),
                    _ => long.push(piece),
                }
            }
        }
        // Those who are choosing a token wait for the next step, too.
        let prompts: HashSet<usize> = long.iter().map(|piece| piece.reading).collect();
        let are_written = self.admitted.len() > prompts.len();
        let most = self.limits.tokens_per_step.max(FEWEST_TOKENS);
        // Now and then a step reads no prompt, so that it is known how long such a step takes.
        let mut budget = match pieces.len() {
            _ if !are_written => most,
            written if written > 0 && self.pace.is_stale(written) => 0,
            _ => self.pace.budget().clamp(FEWEST_TOKENS, most),
        };
        for Piece { ids, .. } in &mut long {
            let mut tokens = ids.len().min(budget);
            // One left by itself would go another way through attention.
            tokens -= usize::from(ids.len() == tokens + 1);
            ids.end = ids.start + if tokens < 2 { 0 } else { tokens };
            budget -= ids.len();
        }
        pieces.extend(long.into_iter().filter(|piece| piece.tokens() > 0));
        pieces
    }

    /// Tells who wants to know how far a question's rows are read.
    fn tell_progress(&self, Reading { ask, cached_tokens, .. }: &Reading) {
        let Some(on_progress) = &ask.on_progress else { return };
        let total = ask.rows.iter().map(|row| row.ids.len()).sum();
        let rest: usize =
            ask.rows.iter().enumerate().map(|(row, asked)| unread(&self.held, ask.request, row, asked)).sum();
        on_progress(Progress { total, cached: *cached_tokens as usize, read: total - rest });
    }

    /// Answers the questions whose rows are read.
    fn conclude(&mut self) {
        let (held, mut reading) = (&self.held, std::mem::take(&mut self.reading));
        let is_read = |reading: &mut Reading| {
            let Ask { request, rows, .. } = &reading.ask;
            rows.iter().enumerate().all(|(row, asked)| unread(held, *request, row, asked) == 0)
        };
        for Reading { ask, logits, cached_tokens } in reading.extract_if(.., is_read) {
            let logits = logits.into_iter().flatten().collect();
            answer(&ask, Ok(Answer { logits, cached_tokens }));
        }
        self.reading = reading;
    }

    /// Tells all who wait for the pass that it failed.
    fn give_up(&mut self, error: &Error) {
        self.tell();
        for Reading { ask, .. } in self.reading.drain(..) {
            self.held.let_go(ask.request);
            answer(&ask, Err(Error::device(error)));
        }
    }

    fn tell(&mut self) {
        let Self { figures, held, waiting, admitted, .. } = self;
        (figures.running, figures.waiting) = (admitted.len(), waiting.len());
        figures.slots = held.in_use();
        *self.told.write().unwrap_or_else(PoisonError::into_inner) = *figures;
    }
}

/// Tokens of one row that go through the model in one step.
struct Piece {
    /// Which question it is of, and which of its rows.
    reading: usize,
    row: usize,
    /// Which of the row's ids.
    ids: Range<usize>,
}

impl Piece {
    fn tokens(&self) -> usize {
        self.ids.len()
    }

    /// Behind how many of its tokens the logits are wanted: those among the row's last.
    fn wanted(&self, asked: &AskedRow) -> usize {
        let first = asked.ids.len() - asked.count;
        self.ids.end - first.clamp(self.ids.start, self.ids.end)
    }
}

/// How many ids of a request's row are still to be read.
fn unread(held: &HeldRows, request: u64, row: usize, asked: &AskedRow) -> usize {
    match asked.count {
        0 => 0,
        _ => asked.ids.len() - held.rows[held.place(request, row)].ids.len(),
    }
}

fn is_cancelled(ask: &Ask) -> bool {
    ask.cancelled.load(Ordering::Relaxed)
}

fn answer(ask: &Ask, answer: Result<Answer>) {
    // Whoever asked may be gone.
    let _ = ask.reply.send(answer);
}
