//! The output of decoding: chosen tokens, completions, finish reasons and the strategy's findings.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// A chosen token and its probability under the model itself.
#[derive(Clone, Debug, PartialEq)]
pub struct ChosenToken {
    /// Its id.
    pub id: u32,
    /// Its natural log-probability under the unmodified model: before temperature and every other
    /// knob.
    pub logprob: f32,
    /// The `logprobs` most probable tokens of this step with their log-probabilities, best first.
    pub top: Vec<(u32, f32)>,
}

/// A continuation of one prompt.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The new tokens' ids, an end token included.
    pub ids: Vec<u32>,
    /// The new tokens with their log-probabilities, one for each id.
    pub tokens: Vec<ChosenToken>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// Sum of the chosen tokens' log-probabilities under the unmodified model, in nats. Beam search
    /// and exact search store the score that they rank by.
    pub score: f64,
    /// Seconds from the start of the generation, whose texts have one clock, to this text's last
    /// token. Where texts are written one after another (with drafts, or by an exact search), the
    /// time of those before it is included.
    pub seconds: f64,
    /// Whether the window of this text or of one beside it slid: from there on each token cost a
    /// pass over `context_length` tokens.
    pub slid: bool,
    /// What the strategy reports besides the text.
    pub finding: Option<Finding>,
}

impl Completion {
    /// A text whose score is the sum of its tokens' log-probabilities.
    pub(crate) fn new(tokens: Vec<ChosenToken>, finish_reason: FinishReason, seconds: f64) -> Self {
        Self {
            ids: tokens.iter().map(|token| token.id).collect(),
            score: tokens.iter().map(|token| f64::from(token.logprob)).sum(),
            tokens,
            finish_reason,
            seconds,
            slid: false,
            finding: None,
        }
    }

    /// New tokens per second of [`Self::seconds`], prefill included.
    pub fn tokens_per_s(&self) -> f64 {
        self.ids.len() as f64 / self.seconds.max(1e-9)
    }
}

/// Why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FinishReason {
    /// The model chose an end token.
    Eos,
    /// `max_new_tokens`, or the context's end where the window may not slide.
    Length,
    /// A stop string appeared, or the grammar is complete.
    Stop,
    /// The time limit was reached.
    Time,
    /// The caller ended it: Ctrl-C, or a client that left.
    Interrupted,
}

impl FinishReason {
    /// The reason in a sentence.
    pub fn words(self) -> &'static str {
        match self {
            Self::Eos => "ended by its end token",
            Self::Length => "ended by length",
            Self::Stop => "ended by a stop string or a fulfilled grammar",
            Self::Time => "ended by time",
            Self::Interrupted => "interrupted",
        }
    }
}

/// What a strategy reports besides the text.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// Of an exact search.
    Exact {
        /// Whether no other continuation is more probable.
        proven: bool,
        /// Prefixes expanded.
        nodes: usize,
        /// Upper bound on the log-probability of every unexplored continuation, in nats; none if
        /// all were explored.
        bound: Option<f64>,
        /// The time limit or interruption, if one of them ended the search.
        #[serde(skip_serializing_if = "Option::is_none")]
        cut_short: Option<FinishReason>,
    },
    /// Of speculative decoding.
    Draft(Acceptance),
}

/// Acceptance counts of speculative decoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Acceptance {
    /// Tokens proposed.
    pub proposed: usize,
    /// Proposed tokens that were accepted.
    pub accepted: usize,
    /// Passes through the model; plain decoding takes one per token.
    pub passes: usize,
}

impl Acceptance {
    /// Accepted share of the proposed tokens; 0 if none were proposed.
    pub fn rate(&self) -> f64 {
        self.accepted as f64 / self.proposed.max(1) as f64
    }
}

impl AddAssign for Acceptance {
    fn add_assign(&mut self, other: Self) {
        self.proposed += other.proposed;
        self.accepted += other.accepted;
        self.passes += other.passes;
    }
}
