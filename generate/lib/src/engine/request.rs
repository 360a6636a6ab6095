//! A request's way to the engine: its rows, and its questions.

use ember_model::GptConfig;

use super::ask::{Ask, AskedRow, Logits, Message};
use super::progress::{OnProgress, Progress};
use crate::error::{Error, Result};
use crate::logprobs::{finite_log_sum_exp, logprob};
use crate::sampler::greedy;
use crate::sequences::{Argmax, Continues, Sequences};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::mpsc::{Sender, sync_channel};

/// One request's way to the engine.
pub struct Request {
    to_worker: Sender<Message>,
    shape: Arc<GptConfig>,
    /// The number of the next share, of all requests.
    next: Arc<AtomicU64>,
    cancelled: Arc<AtomicBool>,
    cached_tokens: AtomicU64,
    on_progress: Option<OnProgress>,
}

impl Request {
    pub(super) fn new(
        to_worker: Sender<Message>,
        shape: Arc<GptConfig>,
        next: Arc<AtomicU64>,
        cancelled: Arc<AtomicBool>,
    ) -> Self {
        Self { to_worker, shape, next, cancelled, cached_tokens: AtomicU64::new(0), on_progress: None }
    }

    /// The same, and somebody is told how far its prompts are read: before the first step, and after
    /// each. It is told on the engine's thread, and must not wait.
    pub fn telling(self, on_progress: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Self { on_progress: Some(Arc::new(on_progress)), ..self }
    }

    /// Tokens of its prompts that the cache held already.
    pub fn cached_tokens(&self) -> u64 {
        self.cached_tokens.load(Ordering::Relaxed)
    }
}

impl Continues for Request {
    fn config(&self) -> &GptConfig {
        &self.shape
    }

    fn sequences<'s>(&'s self, prompts: &[&[u32]], slots: usize) -> Box<dyn Sequences + 's> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Box::new(Share::new(self, number, prompts, slots))
    }
}

/// Rows of one request, whose logits the engine computes.
struct Share<'a> {
    request: &'a Request,
    number: u64,
    /// Positions that it will take at most.
    slots: usize,
    rows: Vec<Row>,
}

#[derive(Clone)]
struct Row {
    ids: Vec<u32>,
    /// What it goes on from in the cache: the row of the last question, where it has not slid since.
    from: Option<usize>,
    /// Where its window began then.
    begin: usize,
}

impl<'a> Share<'a> {
    fn new(request: &'a Request, number: u64, prompts: &[&[u32]], slots: usize) -> Self {
        Self {
            request,
            number,
            slots,
            rows: prompts.iter().map(|prompt| Row { ids: prompt.to_vec(), from: None, begin: 0 }).collect(),
        }
    }

    /// Asks the engine for the logits after each of the last `counts[row]` ids of every row.
    fn ask(&mut self, counts: &[usize]) -> Result<Vec<Logits>> {
        let context_length = self.context_length();
        let asked = |(row, &count): (&mut Row, &usize)| {
            let begin = row.ids.len().saturating_sub(context_length);
            // In a window that slides every token gets another position: it begins anew.
            let from = row.from.filter(|_| std::mem::replace(&mut row.begin, begin) == begin);
            AskedRow { ids: row.ids[begin..].to_vec(), count, from }
        };
        let is_first = self.rows.iter().all(|row| row.from.is_none());
        let rows = self.rows.iter_mut().zip(counts).map(asked).collect();
        let (reply, answer) = sync_channel(1);
        let Request { to_worker, cancelled, cached_tokens, on_progress, .. } = self.request;
        let on_progress = on_progress.clone().filter(|_| is_first);
        let ask =
            Ask { request: self.number, slots: self.slots, rows, cancelled: Arc::clone(cancelled), on_progress, reply };
        let gone = || Error::Device("the engine has ended".to_owned());
        to_worker.send(Message::Ask(ask)).map_err(|_| gone())?;
        let answer = answer.recv().map_err(|_| gone())??;
        // Later it asks for what it wrote itself.
        if is_first {
            cached_tokens.fetch_add(answer.cached_tokens, Ordering::Relaxed);
        }
        self.rows.iter_mut().enumerate().for_each(|(number, row)| row.from = Some(number));
        Ok(answer.logits)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        // Nobody is left to tell where the engine has ended.
        let _ = self.request.to_worker.send(Message::Left(self.number));
    }
}

impl Sequences for Share<'_> {
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
        Ok(self.ask(counts)?.iter().map(|logits| &**logits).collect::<Vec<_>>().concat())
    }

    // Sooner than a copy of the logits could be made.
    fn argmax(&mut self) -> Result<Option<Vec<Argmax>>> {
        let best = |logits: &Logits| {
            let log_sum_exp = finite_log_sum_exp(logits)?;
            let id = greedy(logits);
            Ok(Argmax { id, logprob: logprob(logits[id as usize], log_sum_exp) })
        };
        self.ask(&vec![1; self.rows.len()])?.iter().map(best).collect::<Result<_>>().map(Some)
    }
}
