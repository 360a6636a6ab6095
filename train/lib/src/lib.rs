//! Training: everything that a model needs to learn and no longer needs when it writes.
//!
//! What it is: the loss ([`loss`]), the optimizer ([`optimizer`]), the loop ([`trainer`]), and around them what makes a run:
//! its configuration ([`config`]), its folder ([`run_folder`]), its checkpoints ([`checkpoint`]) and what it tells ([`report`]).
//! What it computes in is [`precision`], what it takes and how it is made to fit is [`memory`], and [`gradient`] has what saves some.
//! [`selfcheck`] compares a device with the CPU.
//! Of what was learned it measures what is only copied ([`copied`]), and how the model fares on its own words ([`exposure`]).
//! The [`ledger`] measures what all of it costs, beside what inference does, and [`mod@bench`] how fast it is. What to train in a
//! given time is a [`plan`], and a [`clock`] keeps the run to it.
//!
//! What it is not: it computes no logits of its own (that is `ember-model`), and it writes and scores text with
//! `ember-generate`, as anybody else would.
//!
//! Invariants:
//! - All that inference gets from training is the checkpoint folder.
//! - Every random draw follows from (seed, step, micro-batch): a resumed run ends in the same bits as one never interrupted.
//! - A checkpoint is whole or not there; it is saved before anything else is tried at its step.
//! - A gradient that is not finite never reaches the weights ([`guard`]), and weights that cease to be finite never reach a
//!   checkpoint.

pub mod ahead;
pub mod checkpoint;
pub mod clock;
pub mod config;
pub mod disk;
pub mod error;
pub mod evaluate;
pub mod evaluations;
pub mod gradient;
pub mod guard;
pub mod median;
pub mod memory;
pub mod note;
pub mod optimizer;
pub mod peak;
pub mod precision;
pub mod report;
pub mod run;
pub mod run_folder;
pub mod sample;
pub mod schedule;
pub mod speedometer;
pub mod team;
pub mod trainer;
pub mod verify;
pub mod windows;

pub use ember_kernels::cross_entropy as loss;
