//! The request's side of the engine: its rows, and its queries.

use ember_model::GptConfig;

use super::messages::{Logits, Message, Query, QueryRow};
use super::progress::{OnProgress, Progress};
use crate::error::{Error, Result};
use crate::logprobs::{finite_log_sum_exp, logprob};
use crate::sampler::greedy;
use crate::sequences::{Argmax, Continues, Sequences};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::mpsc::{Sender, sync_channel};

/// One request to the engine; continues prompts as a model does.
pub struct Request {
    to_worker: Sender<Message>,
    shape: Arc<GptConfig>,
    /// The number for the next set of rows, counted over all requests.
    next_number: Arc<AtomicU64>,
    cancelled: Arc<AtomicBool>,
    cached_tokens: AtomicU64,
    on_progress: Option<OnProgress>,
}

impl Request {
    pub(super) fn new(
        to_worker: Sender<Message>,
        shape: Arc<GptConfig>,
        next_number: Arc<AtomicU64>,
        cancelled: Arc<AtomicBool>,
    ) -> Self {
        Self { to_worker, shape, next_number, cancelled, cached_tokens: AtomicU64::new(0), on_progress: None }
    }

    /// Adds a callback for prefill progress, called before the first step and after each. It runs
    /// on the engine's thread and must not block.
    pub fn telling(self, on_progress: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Self { on_progress: Some(Arc::new(on_progress)), ..self }
    }

    /// Prompt tokens that the cache already held.
    pub fn cached_tokens(&self) -> u64 {
        self.cached_tokens.load(Ordering::Relaxed)
    }
}

impl Continues for Request {
    fn config(&self) -> &GptConfig {
        &self.shape
    }

    fn sequences<'s>(&'s self, prompts: &[&[u32]], positions: usize) -> Box<dyn Sequences + 's> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        Box::new(RequestRows::new(self, number, prompts, positions))
    }
}

/// Rows of one request, whose logits the engine computes.
struct RequestRows<'a> {
    request: &'a Request,
    /// Their number, by which the engine knows them.
    number: u64,
    /// Most KV-cache positions that it will need.
    positions: usize,
    rows: Vec<Row>,
}

#[derive(Clone)]
struct Row {
    ids: Vec<u32>,
    /// The row of the previous query whose cache this row continues.
    from: Option<usize>,
    /// Where its window began in that query.
    begin: usize,
}

impl<'a> RequestRows<'a> {
    fn new(request: &'a Request, number: u64, prompts: &[&[u32]], positions: usize) -> Self {
        Self {
            request,
            number,
            positions,
            rows: prompts.iter().map(|prompt| Row { ids: prompt.to_vec(), from: None, begin: 0 }).collect(),
        }
    }

    /// Queries the engine for the logits after each of the last `counts[row]` ids of every row.
    fn query(&mut self, counts: &[usize]) -> Result<Vec<Logits>> {
        let context_length = self.context_length();
        let asked = |(row, &count): (&mut Row, &usize)| {
            let begin = row.ids.len().saturating_sub(context_length);
            // When the window slides every token gets another position, so the row starts afresh.
            let from = row.from.filter(|_| std::mem::replace(&mut row.begin, begin) == begin);
            QueryRow { ids: row.ids[begin..].to_vec(), count, from }
        };
        let is_first = self.rows.iter().all(|row| row.from.is_none());
        let rows = self.rows.iter_mut().zip(counts).map(asked).collect();
        let (reply, answer) = sync_channel(1);
        let Request { to_worker, cancelled, cached_tokens, on_progress, .. } = self.request;
        let (cancelled, on_progress) = (Arc::clone(cancelled), on_progress.clone().filter(|_| is_first));
        let query = Query { request: self.number, positions: self.positions, rows, cancelled, on_progress, reply };
        to_worker.send(Message::Query(query)).map_err(|_| Error::EngineEnded)?;
        let answer = answer.recv().map_err(|_| Error::EngineEnded)??;
        // Later queries find only the request's own tokens in the cache.
        if is_first {
            cached_tokens.fetch_add(answer.cached_tokens, Ordering::Relaxed);
        }
        self.rows.iter_mut().enumerate().for_each(|(number, row)| row.from = Some(number));
        Ok(answer.logits)
    }
}

impl Drop for RequestRows<'_> {
    fn drop(&mut self) {
        // Sending fails if the engine has ended, and then there is nothing to release.
        let _ = self.request.to_worker.send(Message::Left(self.number));
    }
}

impl Sequences for RequestRows<'_> {
    fn vocab_size(&self) -> usize {
        self.request.shape.vocab_size
    }

    fn context_length(&self) -> usize {
        self.request.shape.context_length
    }

    fn rows(&self) -> usize {
        self.rows.len()
    }

    fn ids(&self, row: usize) -> &[u32] {
        &self.rows[row].ids
    }

    fn extend(&mut self, row: usize, tokens: &[u32]) {
        self.rows[row].ids.extend_from_slice(tokens);
    }

    fn truncate(&mut self, row: usize, len: usize) {
        self.rows[row].ids.truncate(len);
    }

    fn select(&mut self, parents: &[usize]) {
        self.rows = parents.iter().map(|&parent| self.rows[parent].clone()).collect();
    }

    fn logits_of_last(&mut self, counts: &[usize]) -> Result<Vec<f32>> {
        Ok(self.query(counts)?.iter().map(|logits| &**logits).collect::<Vec<_>>().concat())
    }

    // Computed from the shared logits, which is faster than copying them.
    fn argmax(&mut self) -> Result<Option<Vec<Argmax>>> {
        let best = |logits: &Logits| {
            let log_sum_exp = finite_log_sum_exp(logits)?;
            let id = greedy(logits);
            Ok(Argmax { id, logprob: logprob(logits[id as usize], log_sum_exp) })
        };
        self.query(&vec![1; self.rows.len()])?.iter().map(best).collect::<Result<_>>().map(Some)
    }
}
