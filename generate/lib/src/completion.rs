//! What comes out of decoding: chosen tokens, finished texts, why each ended, and what its strategy
//! found out.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

/// A token that was chosen, and what the model itself thought of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ChosenToken {
    /// Its id.
    pub id: u32,
    /// Its natural log-probability under the unmodified model: before temperature and every other
    /// knob.
    pub logprob: f32,
    /// The most probable tokens of this step and their log-probabilities, best first; as many as
    /// `logprobs` asks for.
    pub top: Vec<(u32, f32)>,
}

/// What one prompt was continued with.
#[derive(Clone, Debug)]
pub struct Completion {
    /// The new tokens' ids, an end token included.
    pub ids: Vec<u32>,
    /// The new tokens with their log-probabilities, one for each id.
    pub tokens: Vec<ChosenToken>,
    /// Why it ended.
    pub finish_reason: FinishReason,
    /// Sum of the chosen tokens' log-probabilities under the unmodified model, in nats; where texts
    /// are ranked, by beams or an exact search, what they are ranked by.
    pub score: f64,
    /// From the start of the prefill to this row's last token.
    pub seconds: f64,
    /// Whether a window slid while it was written, its own or that of a text beside it: from there
    /// on each token cost a pass over `context_length` tokens.
    pub slid: bool,
    /// What its strategy found out beside the text.
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

    /// New tokens a second, prefill included.
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
    /// A stop string appeared, or a grammar has nothing to add.
    Stop,
    /// The time limit.
    Time,
    /// The user asked to end.
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

/// What a strategy found out beside the text.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// Of an exact search.
    Exact {
        /// Whether no other continuation is more probable.
        proven: bool,
        /// Prefixes looked at.
        nodes: usize,
        /// No continuation that was not looked at has a log-probability above this, in nats; none
        /// where all were.
        bound: Option<f64>,
        /// Time or interruption, where one of them ended the search.
        #[serde(skip_serializing_if = "Option::is_none")]
        cut_short: Option<FinishReason>,
    },
    /// Of speculative decoding.
    Draft(Acceptance),
}

/// How the guesses of speculative decoding fared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Acceptance {
    /// Tokens guessed.
    pub proposed: usize,
    /// Those of them that are in the text.
    pub accepted: usize,
    /// Passes through the model; without guesses it takes one for each token.
    pub passes: usize,
}

impl Acceptance {
    /// The share of the guesses that was accepted, 0 when there was none.
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
