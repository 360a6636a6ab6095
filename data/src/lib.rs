//! Text, tokens on disk, and windows of token ids.
//!
//! The crate reads the kinds of text people have ([`source`]), has tokenizers saved in the format
//! of Hugging Face's libraries ([`tokenizer`]), encodes text into token files ([`prepare`],
//! [`tokens`]), cuts them into the windows for training and validation ([`windows`]), and has a
//! built-in corpus for a first run ([`stories`]). It also analyses a text: what is in it
//! ([`look`]), what is repeated ([`near_duplicates`], [`leakage`]), what a model should perhaps not
//! learn ([`sensitive`]), and how well n-gram counts predict it ([`ngrams`]).
//!
//! It knows nothing of tensors, models or devices, and draws nothing on a screen.
//!
//! Invariants:
//! 1. No text is in both the training and the validation split: a document is on one side, or cut
//!    once between them; near-duplicates too, as long as other text can validate.
//! 2. A prepared folder opens only if it is complete and its files are those of its manifest.
//! 3. The tokens of a window are a pure function of (seed, index of the window), so that the data
//!    position of a run is one integer.
//! 4. Memory does not grow with the size of the text, except for a record for each file and one bit
//!    for each document; of the first millions also its hash, and its size and date where the last
//!    ones are held out. Buffers and samples have bounds.

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
