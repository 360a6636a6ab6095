//! Training: everything that a model needs to learn and no longer needs when it writes.
//!
//! What it is: a [`step`] (gradient, optimizer, guard) and the [`run`] around it (the loop, its
//! folder, its checkpoints, what it reports), by a [`config`], in one process or several
//! ([`distributed`]). What it takes and how it is made to fit is [`memory`].
//!
//! What it is not: it computes no logits of its own (that is `ember-model`), it writes and scores
//! text with `ember-decoding`, as anybody else would, and what measures a model or a run is
//! `ember-study`.
//!
//! Who knows whom: `run` knows all others, `memory` knows `step`, `step` knows `distributed` and
//! `config`; nothing leads back up.
//!
//! Invariants:
//! - All that inference gets from training is the checkpoint folder.
//! - Every random draw follows from the seed and the name of its place: a weight's path, a window's
//!   index, (step, micro-batch, segment). So a resumed run ends in the same bits as one never
//!   interrupted.
//! - A checkpoint is whole or not there; it is saved before anything else is tried at its step.
//! - A gradient that is not finite never reaches the weights ([`step::guard`]), and weights that
//!   cease to be finite never reach a checkpoint.

#[cfg(not(any(feature = "wgpu", feature = "cuda")))]
compile_error!("the optimizers' steps on a GPU need a runtime for one: switch on the feature wgpu or cuda");

pub mod config;
pub mod distributed;
pub mod error;
mod evaluation_batch;
pub mod memory;
pub mod note;
pub mod run;
pub mod step;
pub mod units;
