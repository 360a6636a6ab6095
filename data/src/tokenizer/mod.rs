//! From text to token ids and back.

use anyhow::{Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The name of the token that stands before and after every document.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// How text becomes tokens: what `--tokenizer` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerChoice {
    /// Decided from the text.
    Auto,
    /// One token a character that occurs in the text.
    Chars,
    /// One token a byte.
    Bytes,
    /// Byte-level byte pair encoding, learnt from the text.
    Bpe {
        /// Number of token ids, `<|endoftext|>` included.
        vocab_size: usize,
    },
    /// An existing `tokenizer.json`, or a folder that holds one.
    File(PathBuf),
}

impl std::fmt::Display for TokenizerChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => write!(f, "auto"),
            Self::Chars => write!(f, "chars"),
            Self::Bytes => write!(f, "bytes"),
            Self::Bpe { vocab_size } => write!(f, "bpe:{vocab_size}"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// A tokenizer.
#[derive(Clone)]
pub struct Tokenizer {}

impl Tokenizer {
    /// Reads the tokenizer of a checkpoint or data folder: `tokenizer.json`, else GPT-2's `vocab.json` and `merges.txt`.
    pub fn from_folder(_dir: &Path) -> Result<Self> {
        bail!("not built yet")
    }

    /// Reads a `tokenizer.json`.
    pub fn from_file(_path: &Path) -> Result<Self> {
        bail!("not built yet")
    }

    /// One token a character of `alphabet`, ids in the order of code points; `<|endoftext|>`, if asked for, comes last.
    pub fn chars(_alphabet: &BTreeSet<char>, _end_of_text: bool) -> Result<Self> {
        bail!("not built yet")
    }

    /// One token a byte, its id the byte's value; `<|endoftext|>` is 256.
    pub fn bytes() -> Result<Self> {
        bail!("not built yet")
    }

    /// The ids of a plain text; a `<|endoftext|>` in it is text like any other.
    pub fn encode(&self, _text: &str) -> Result<Vec<u32>> {
        bail!("not built yet")
    }

    /// The ids of a prompt: as [`Tokenizer::encode`], but a `<|endoftext|>` in it is the token of that name.
    pub fn encode_prompt(&self, _text: &str) -> Result<Vec<u32>> {
        bail!("not built yet")
    }

    /// The text of `ids`, special tokens written by their names; bytes that are no UTF-8 become U+FFFD.
    pub fn decode_text(&self, _ids: &[u32]) -> Result<String> {
        bail!("not built yet")
    }

    /// The bytes that `id` stands for, perhaps a part of a character; `None` for an id the tokenizer does not have, or one of a
    /// kind of tokenizer in which a token alone has no fixed text.
    pub fn token_bytes(&self, _id: u32) -> Option<Vec<u8>> {
        None
    }

    /// Number of token ids: the largest and one.
    pub fn vocab_size(&self) -> usize {
        0
    }

    /// The id of `<|endoftext|>`.
    pub fn end_of_text(&self) -> Option<u32> {
        None
    }

    /// The content of `tokenizer.json`.
    pub fn to_json(&self) -> Result<String> {
        bail!("not built yet")
    }

    /// Writes `tokenizer.json` and `tokenizer_config.json`, which transformers' AutoTokenizer opens as they are.
    pub fn save(&self, _dir: &Path) -> Result<()> {
        bail!("not built yet")
    }
}
