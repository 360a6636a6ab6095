//! What a tokenizer puts around a text.

use super::error::Error;
use super::library::of_library;
use tokenizers::{Encoding, Token, Tokenizer as Library};

/// The tokens that the file's post-processor puts around a text.
#[derive(Debug, Default, PartialEq)]
pub struct Surroundings {
    pub before: Vec<u32>,
    pub after: Vec<u32>,
}

impl Surroundings {
    /// What `library` puts around any text, seen on one of a single token.
    pub fn of(library: &Library) -> Result<Self, Error> {
        let text = Encoding::from_tokens(vec![Token::new(0, String::new(), (0, 0))], 0);
        let whole = of_library(|| library.post_process(text, None, true))?;
        let is_added: Vec<bool> = whole.get_special_tokens_mask().iter().map(|&special| special == 1).collect();
        let Some(begin) = is_added.iter().position(|added| !added) else { return Ok(Self::default()) };
        let end = is_added.iter().rposition(|added| !added).map_or(begin, |last| last + 1);
        let ids = whole.get_ids();
        Ok(Self { before: ids[..begin].to_vec(), after: ids[end..].to_vec() })
    }
}
