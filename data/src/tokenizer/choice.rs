//! The tokenizer that the user asks for.

use super::error::Error;
use std::{fmt, path::Path, path::PathBuf, str::FromStr};

/// The smallest vocabulary that byte pair encoding can have: 256 bytes and `<|endoftext|>`.
pub const MIN_BPE_VOCAB_SIZE: usize = 257;

/// The largest vocabulary that can be trained.
const MAX_BPE_VOCAB_SIZE: usize = 1 << 20;

/// How text becomes tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the variant says what its field is
pub enum TokenizerChoice {
    /// Chosen by the text: characters if it has at most 256 distinct ones and less than 50 KB, else
    /// byte pair encoding with about one token per kilobyte, 512 to 8,192 of them.
    Auto,
    /// One token per character that occurs in the text.
    Chars,
    /// One token per byte.
    Bytes,
    /// Byte-level byte pair encoding, trained on the text.
    Bpe { vocab_size: usize },
    /// An existing `tokenizer.json`, or a folder that holds one.
    File(PathBuf),
}

impl TokenizerChoice {
    /// Whether it may have to be trained on a text.
    pub(crate) fn may_be_learnt(&self) -> bool {
        match self {
            Self::Auto | Self::Bpe { .. } => true,
            Self::Chars | Self::Bytes | Self::File(_) => false,
        }
    }
}

impl fmt::Display for TokenizerChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => write!(f, "auto"),
            Self::Chars => write!(f, "chars"),
            Self::Bytes => write!(f, "bytes"),
            Self::Bpe { vocab_size } => write!(f, "bpe:{vocab_size}"),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

impl FromStr for TokenizerChoice {
    type Err = Error;

    fn from_str(choice: &str) -> Result<Self, Error> {
        let what = match choice {
            "auto" => return Ok(Self::Auto),
            "chars" => return Ok(Self::Chars),
            "bytes" => return Ok(Self::Bytes),
            "bpe" => " lacks the size of its vocabulary; write bpe:8192, for example".to_owned(),
            _ => match choice.strip_prefix("bpe:").map(|size| (size, size.parse::<usize>())) {
                None if Path::new(choice).exists() => return Ok(Self::File(choice.into())),
                None => " is not auto, chars, bytes, bpe:N or an existing tokenizer.json; give one of these".into(),
                Some((size, Err(_))) => format!(": \"{size}\" is not a number; write bpe:8192, for example"),
                Some((_, Ok(..MIN_BPE_VOCAB_SIZE))) => format!(
                    ": a vocabulary of bytes and <|endoftext|> has {MIN_BPE_VOCAB_SIZE} tokens already; give at least that many, or \
                     \"bytes\""
                ),
                Some((_, Ok(vocab_size @ ..=MAX_BPE_VOCAB_SIZE))) => return Ok(Self::Bpe { vocab_size }),
                Some((_, Ok(_))) => format!(": more than {MAX_BPE_VOCAB_SIZE} tokens; give fewer"),
            },
        };
        Err(Error::Unusable(format!("tokenizer \"{choice}\"{what}")))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_shown_is_what_is_read() {
        for text in ["auto", "chars", "bytes", "bpe:257", "bpe:8192"] {
            assert_eq!(text.parse::<TokenizerChoice>().unwrap().to_string(), text);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let choice: TokenizerChoice = file.path().to_str().unwrap().parse().unwrap();
        assert_eq!(choice, TokenizerChoice::File(file.path().to_owned()));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("bpe", "bpe:8192"),
            ("bpe:", "not a number"),
            ("bpe:8k", "not a number"),
            ("bpe:256", "at least that many"),
            ("bpe:9999999", "give fewer"),
            ("Chars", "is not auto, chars"),
        ] {
            let error = text.parse::<TokenizerChoice>().unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }
}
