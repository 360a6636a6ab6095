//! The GPT: its shape, its forward pass, its key-value cache, its checkpoint folder, and the
//! devices it runs on.
//!
//! It has no loss and no targets (those are in `ember-training`), no sampling (`ember-decoding`)
//! and no text (`ember-data`): token ids go in, logits come out.
//!
//! Invariants:
//! - There is no training flag. On a device with automatic differentiation, dropout is active and
//!   the graph is recorded, except for attention to a cache, which is for inference; on any other
//!   device neither happens. The feature `autodiff` adds the backward of our kernels and nothing
//!   else.
//! - [`Gpt::forward`] and [`Gpt::forward_cached`] agree at every position, up to rounding.
//! - A parameter's path is its name in a Hugging Face folder.
//! - On the CPU the same input gives the same bits, whatever the number of threads.

mod build;
mod cache;
pub mod checkpoint;
mod config;
pub mod device;
mod error;
pub mod folder;
mod gpt;
pub mod init;
mod inspect;
mod layers;
pub mod operations;
mod parameters;
pub mod recorded;
pub mod tuning;

pub use cache::KvCache;
pub use config::{GptConfig, MlpKind, NormKind, Positions, ShapeError};
pub use ember_kernels::packed::WeightType;
pub use error::{Error, Result};
pub use gpt::{Attention, Block, Gpt, Mlp};
pub use inspect::Inspection;
pub use layers::{Embedding, Linear, Matrix, Norm, PackedMatrix};
pub use parameters::{Parameter, ParameterMapper, ReadParameter};
pub use recorded::RecordedStep;
