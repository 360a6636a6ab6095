//! Model files of other programs.
//!
//! The crate has a model as plain data ([`Model`]: its shape, its tensors by Hugging Face's names,
//! its tokenizer) and a module for each format: [`gguf`] of llama.cpp, [`llama2c`], [`nanogpt`],
//! and [`hf`], Hugging Face's folder, the intermediate form. [`Source`] detects the format of a
//! file.
//!
//! It computes nothing and knows no tensor library. Hugging Face folders are opened and validated
//! by `ember-model`.
//!
//! Invariants:
//! 1. A size stated in a file is checked against the file's length before anything of that size is
//!    allocated or iterated over.
//! 2. Nothing in a file is ever executed.
//! 3. A tensor's values are made on demand: besides the mapped file, memory holds one tensor, not
//!    the model.
//! 4. What a format cannot express is an error and never silently dropped.

pub mod error;
pub mod gguf;
pub mod hf;
mod layout;
pub mod llama2c;
mod mapped;
mod model;
mod names;
pub mod nanogpt;
mod number_type;
mod numbers;
mod sentencepiece;
mod source;
mod tokenizer;

pub use error::FormatError;
pub use model::{Architecture, Model, Shape, Tensor};
pub use number_type::NumberType;
pub use source::Source;
pub use tokenizer::Tokenizer;
