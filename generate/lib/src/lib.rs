//! Writing with a GPT: prefill and decode, logits processors, sampling, stopping, streaming,
//! scoring.
//!
//! What it is: inference. One pass over the prompt fills the key-value cache (prefill). Each decode
//! step then runs the model on one position ([`sequences`], [`generate`](mod@generate)), sends the
//! logits through a chain of small processors ([`processors`]) and chooses one token ([`sampler`]).
//! [`score`] measures known text without continuing it. An [`engine`] lets many concurrent requests
//! share one model.
//!
//! What it is not: training. There is no loss, gradient, optimizer or automatic differentiation.
//!
//! Invariants:
//! 1. Strategies take and return token ids. Text enters and leaves at the edge, the [`generator`].
//! 2. The cache changes speed, never tokens: cached equals uncached, batched equals alone, sliding
//!    equals recomputed.
//! 3. A draw is a function of the logits, the seed and its position: (sequence, step), plus the
//!    beam or the kind of draw where one step makes several draws.
//! 4. A token's log-probability is that of the unmodified model, whatever knobs chose it, and so is
//!    the score of a text written token by token. Beams and exact search score a text by what they
//!    rank it by: the processed log-probabilities.
//! 5. Streamed text is final: no partial characters, nothing taken back.

pub mod batches;
mod beam;
pub mod bench;
pub mod completion;
pub mod config;
pub mod constraint;
pub mod convert;
pub mod engine;
pub mod error;
mod exact;
mod foreign;
pub mod generate;
pub mod generator;
mod job;
pub mod load;
pub mod logprobs;
pub mod loops;
#[cfg(test)]
mod made_up;
pub mod memory;
pub mod multiple_choice;
pub mod named;
mod one_by_one;
pub mod plan;
pub mod processors;
pub mod run_folder;
pub mod sampler;
pub mod score;
pub mod semantics;
pub mod sequences;
pub mod softmax;
mod speculative;
pub mod stop;
pub mod stream;
mod sync;
pub mod tokens;
pub mod trace;
pub mod watch;

pub use completion::{ChosenToken, Completion, FinishReason};
pub use config::{EarlyStopping, GenerationConfig, Overflow, Strategy};
pub use error::{Error, Result};
pub use generate::{generate, generate_batch};
pub use generator::Generator;
pub use plan::Plan;
pub use score::token_log_probabilities;
pub use watch::{Certain, Traced, Watch};
