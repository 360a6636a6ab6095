//! Training: everything that a model needs to learn and that inference does not need.
//!
//! Scope: a [`step`] (gradient, optimizer, guard) and the [`run`] around it (training loop, run
//! folder, checkpoints, reports), as a [`config`] describes it, in one process or several
//! ([`distributed`]). [`memory`] predicts the memory that training needs and makes it fit.
//!
//! Not in scope: the model's forward pass is `ember-model`'s, generating and scoring text
//! `ember-decoding`'s, and measuring a model or a run `ember-study`'s.
//!
//! Dependencies: `run` uses all other modules, `memory` uses `step`, `step` uses `distributed` and
//! `config`; none points back up.
//!
//! Invariants:
//! - Inference gets nothing from training except the checkpoint folder.
//! - Every random draw follows from the seed and the name of its place: a weight's path, a window's
//!   index, (step, micro-batch, segment). So a resumed run ends in the same bits as one never
//!   interrupted.
//! - A checkpoint is complete or absent; it is saved before anything else is tried at its step.
//! - A gradient that is not finite never reaches the weights ([`step::guard`]), and weights that
//!   are no longer finite never reach a checkpoint.

#[cfg(not(any(feature = "wgpu", feature = "cuda")))]
compile_error!("the optimizers' steps on a GPU need a runtime for one: switch on the feature wgpu or cuda");

pub mod config;
#[cfg(test)]
#[path = "../../../kernels/src/testing/differences.rs"]
mod differences;
pub mod distributed;
pub mod error;
mod evaluation_batch;
pub mod memory;
pub mod note;
pub mod run;
pub mod step;
pub mod units;
