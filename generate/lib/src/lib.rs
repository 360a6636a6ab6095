//! Writing with a GPT: prefill and decode, logits processors, sampling, stopping, streaming, scoring.
//!
//! What it is: inference. A prompt fills the key-value cache in one pass; after that each new token costs one position's work
//! ([`sequences`], [`engine`]), its logits go through a chain of small processors ([`processors`]),
//! and one token is chosen ([`sampler`]). Known text is only measured, not continued, by [`score`].
//!
//! What it is not: training. There is no loss to minimise, no gradient, no optimizer, and no automatic differentiation.
//!
//! Invariants:
//! 1. Engines take and give token ids. Text enters and leaves at the edges, with [`stream`] and [`stop`].
//! 2. The cache changes speed, never tokens: cached equals uncached, batched equals alone, sliding equals recomputed.
//! 3. A draw is a function of (seed, sequence, step) and the logits.
//! 4. Scores and log-probabilities are those of the unmodified model, whatever knobs chose the tokens.
//! 5. What a stream has shown is final: no half characters, nothing taken back.

pub mod batches;
pub mod beam;
pub mod bench;
pub mod chosen;
pub mod config;
pub mod constraint;
pub mod engine;
pub mod error;
pub mod exact;
#[cfg(test)]
mod made_up;
pub mod memory;
pub mod multiple_choice;
pub mod named;
pub mod processors;
pub mod run_folder;
pub mod sampler;
pub mod score;
pub mod semantics;
pub mod sequences;
pub mod softmax;
pub mod speculative;
pub mod stop;
pub mod stream;
pub mod trace;

pub use config::{EarlyStopping, GenerationConfig, Overflow, Strategy};
pub use engine::{ChosenToken, Completion, Event, Plan, generate, generate_batch};
pub use error::{Error, Result};
pub use score::token_log_probabilities;
pub use stop::FinishReason;
