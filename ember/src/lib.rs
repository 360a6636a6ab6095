//! Small GPTs from Rust.
//!
//! [`Model`] is an open checkpoint: a run of `ember-train`, one of its checkpoints, a Hugging Face
//! folder of a GPT-2, a Llama or a Qwen3, or a model file (.gguf, ckpt.pt, .bin). It generates
//! text, whole or as a stream, ranks continuations and scores texts. Its parts are public too: a
//! [`Generator`] with every knob, the [`Gpt`] and its [`KvCache`] for decoding by hand, and with
//! the feature `train` the training library as the module `train`.
//!
//! ```no_run
//! # fn main() -> Result<(), ember::Error> {
//! let model = ember::Model::open("runs/mine")?;
//! println!("{}", model.write("Once upon a time")?);
//! println!("{:.2} bits per byte", model.score("How likely is this?")?.bits_per_byte().unwrap_or_default());
//! # Ok(())
//! # }
//! ```
//!
//! Without text, token ids go in and logits come out:
//!
//! ```
//! use ember::tensor::{Device, Tensor};
//! use ember::{Gpt, GptConfig};
//!
//! # fn main() -> Result<(), ember::error::GptError> {
//! let gpt = Gpt::new(&GptConfig::new(65, 32, 2, 2, 16), 1, &Device::flex())?; // 65 tokens, seed 1
//! let logits = gpt.forward(Tensor::from_ints([[7, 8, 9]], &gpt.device()));
//! assert_eq!(logits.dims(), [1, 3, 65]); // [batch, time, vocab_size]
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! `wgpu` (on by default): GPUs through Vulkan, Metal and DirectX 12. `cuda`: NVIDIA GPUs. Without
//! either, everything runs on the CPU, and a third of the dependencies are compiled. `train`:
//! training, which enables `wgpu`; automatic differentiation is compiled in only with it.
//!
//! # Versions
//!
//! Before 1.0 a change of the second number may break callers, a change of the third does not. This
//! covers everything that is public and documented here, and the files that are written; the crates
//! below are covered only through what this crate re-exports.

mod model;

#[doc(no_inline)] // burn documents it, in forty times as many pages as this crate has
pub use burn::tensor;
pub use ember_data::tokenizer::{SpecialTokens, Tokenizer};
pub use ember_decoding::completion::{ChosenToken, Completion, FinishReason};
pub use ember_decoding::config::{EarlyStopping, GenerationConfig, Overflow, Semantics, Strategy};
pub use ember_decoding::constraint::Grammar;
pub use ember_decoding::generator::{Generator, Prompts, Reader, Written};
pub use ember_decoding::plan::Clock;
pub use ember_decoding::processors::{LogitsProcessor, Step};
pub use ember_decoding::sampler;
pub use ember_decoding::score::Tally;
pub use ember_decoding::watch::Traced;
pub use ember_model::device::DeviceChoice;
pub use ember_model::{Gpt, GptConfig, KvCache, MlpKind, NormKind, Positions, WeightType};
pub use model::{Error, Model, Opening};

/// The types inside an [`Error`], named after what went wrong.
pub mod error {
    pub use ember_data::tokenizer::Error as TokenizerError;
    pub use ember_decoding::config::{FolderError as SettingsError, KnobError};
    pub use ember_decoding::constraint::GrammarError;
    pub use ember_decoding::error::Error as DecodingError;
    pub use ember_decoding::load::LoadError;
    pub use ember_decoding::run_folder::FindError;
    pub use ember_decoding::stop::EmptyStopString;
    pub use ember_model::Error as GptError;
    pub use ember_model::folder::FolderError;
}

/// Training: a run, from its text to its last checkpoint.
#[cfg(feature = "train")]
pub mod train {
    pub use ember_data::prepare::{Dataset, Manifest, PrepareOptions};
    pub use ember_host::interrupt::Interrupt;
    pub use ember_model::device::Selected;
    pub use ember_training::config::{DeviceKind, Settings, TextFacts, TrainConfig};
    pub use ember_training::distributed::{Alone, ProcessGroup};
    pub use ember_training::error::{ConfigError, Error, Result};
    pub use ember_training::memory::fit::Fit;
    pub use ember_training::note::Note;
    pub use ember_training::run::report::{EvalReport, Reporter, Silent, StepReport};
    pub use ember_training::run::time_budget::{Pace, TimeBudget};
    pub use ember_training::run::{
        DefaultHooks, Ended, PreparedText, ResolvedRun, Run, Start, StartHooks, Trained, resume,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checked by the compiler: these types can be moved to another thread.
    #[test]
    fn what_is_handed_out_is_send() {
        fn is_send<T: Send>() {}
        is_send::<(Model, Error, Generator<'static>, Written, Completion, GenerationConfig, Grammar)>();
        is_send::<(Gpt, KvCache, GptConfig, Tokenizer, Tally, Box<dyn LogitsProcessor>)>();
        #[cfg(feature = "train")]
        is_send::<(train::Settings, train::Run, train::Trained, train::Error, train::Interrupt)>();
    }
}
