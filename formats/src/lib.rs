//! Model files of other programs.
//!
//! What it is: a model as plain data ([`Model`]: its shape, its tensors by Hugging Face's names, its
//! tokenizer), and a module for each format that says such a model: [`gguf`] of llama.cpp,
//! [`llama2c`], [`nanogpt`], and [`hf`], Hugging Face's folder, the form between them. [`Source`]
//! tells which one a file is of.
//!
//! What it is not: it computes nothing and knows no tensor library. What is wrong with a Hugging
//! Face folder is for `ember-model` to say, which opens such folders.
//!
//! Invariants:
//! 1. A size that a file states is compared with the file's length before anything of that size is
//!    allocated or walked through.
//! 2. Nothing in a file is ever executed.
//! 3. A tensor is made when its turn comes: beside the mapped file, memory holds one tensor, not
//!    the model.
//! 4. What a format cannot say is refused, and never left out in silence.

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
