//! What requests and the engine say to each other.

use std::ops::{Deref, Range};

use super::progress::OnProgress;
use crate::error::Result;
use crate::sync::{Arc, atomic::AtomicBool, mpsc::SyncSender};

/// What a request tells the engine.
pub(super) enum Message {
    Ask(Ask),
    /// It is over.
    Left(u64),
}

/// The logits after some ids.
pub(super) struct Ask {
    pub(super) request: u64,
    /// Positions that the request will take at most.
    pub(super) slots: usize,
    /// All rows of the request.
    pub(super) rows: Vec<AskedRow>,
    pub(super) cancelled: Arc<AtomicBool>,
    /// Who is told how far its prompts are read; of a request's first question alone.
    pub(super) on_progress: Option<OnProgress>,
    pub(super) reply: SyncSender<Result<Answer>>,
}

/// A row of a question.
pub(super) struct AskedRow {
    pub(super) ids: Vec<u32>,
    /// Of how many of the last ids the logits are wanted; where of none, nothing is read.
    pub(super) count: usize,
    /// The row of the request's last question that it goes on from.
    pub(super) from: Option<usize>,
}

/// What the engine found.
pub(super) struct Answer {
    /// Of each row that logits were wanted of, row after row.
    pub(super) logits: Vec<Logits>,
    /// Tokens that other requests had read already.
    pub(super) cached_tokens: u64,
}

/// Logits of some positions of a row, `[positions, vocab]`: a part of what a step found, in which
/// others have parts, too. A copy for each would be made while all wait.
pub(super) struct Logits {
    pub(super) of_step: Arc<Vec<f32>>,
    pub(super) range: Range<usize>,
}

impl Deref for Logits {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.of_step[self.range.clone()]
    }
}
