//! Messages between requests and the engine.

use std::ops::{Deref, Range};

use super::progress::OnProgress;
use crate::error::Result;
use crate::sync::{Arc, atomic::AtomicBool, mpsc::SyncSender};

/// A message from a request to the engine.
pub(super) enum Message {
    Query(Query),
    /// The request with this number has ended; [`Query`] says what a request is here.
    Left(u64),
}

/// A query for the logits after some ids.
///
/// To the engine's thread, a request is one call of `Continues::sequences`, from its first query
/// until its rows are dropped. A `Request` may make several such calls.
pub(super) struct Query {
    /// The request's number, counted over the whole engine.
    pub(super) request: u64,
    /// Most KV-cache positions that the request will need.
    pub(super) positions: usize,
    /// All rows of the request.
    pub(super) rows: Vec<QueryRow>,
    pub(super) cancelled: Arc<AtomicBool>,
    /// Callback for prefill progress; only in a request's first query.
    pub(super) on_progress: Option<OnProgress>,
    pub(super) reply: SyncSender<Result<Answer>>,
}

/// One row of a query.
pub(super) struct QueryRow {
    pub(super) ids: Vec<u32>,
    /// How many of the last ids need logits; with 0 the row is not run.
    pub(super) count: usize,
    /// The row of the request's previous query that this one continues.
    pub(super) from: Option<usize>,
}

/// The engine's answer to a query.
pub(super) struct Answer {
    /// The wanted logits, row by row.
    pub(super) logits: Vec<Logits>,
    /// Tokens that the cache already held from other requests.
    pub(super) cached_tokens: u64,
}

/// Logits of some positions of a row, `[positions, vocab]`: a range of the step's logits, which all
/// its rows share. Copying them here would keep every request waiting.
pub(super) struct Logits {
    pub(super) step_logits: Arc<Vec<f32>>,
    pub(super) range: Range<usize>,
}

impl Deref for Logits {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.step_logits[self.range.clone()]
    }
}
