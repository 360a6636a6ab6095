//! From text to tokens on disk to windows of token ids.
//!
//! What it is: readers for the kinds of text people have ([`source`]), tokenizers saved in the form
//! that Hugging Face's libraries read ([`tokenizer`]), one pass that turns the one into files of
//! the other ([`prepare`], [`tokens`]), the windows that training and validation see ([`windows`]),
//! and a corpus of its own for a first run ([`stories`]). Of a text it says what stands in it
//! ([`look`]), what stands there twice ([`near_duplicates`], [`leakage`]), what one might not want a
//! model to learn ([`sensitive`]), and how far counting predicts it ([`ngrams`]).
//!
//! What it is not: it knows nothing of tensors, models or devices, and draws nothing on a screen.
//!
//! Invariants:
//! 1. No text stands in both the training and the validation split: a document is on one side, or
//!    cut once between them, and so are documents that are nearly the same where others can validate.
//! 2. A prepared folder is whole and undamaged, or it does not open.
//! 3. Which tokens a window holds is a pure function of (seed, index of the window), so that the
//!    data position of a run is one integer.
//! 4. Memory does not grow with the size of the text, but for one bit a document
//!    and a record for each file.

pub mod leakage;
pub mod look;
pub mod near_duplicates;
pub mod ngrams;
pub mod numbers;
pub mod prepare;
pub mod random;
pub mod sensitive;
pub mod source;
pub mod stories;
pub mod tokenizer;
pub mod tokens;
pub mod windows;
