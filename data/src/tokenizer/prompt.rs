//! Prompts and whole texts: the tokens added around them, and the treatment of special tokens'
//! names.
//!
//! The rules are transformers' own. The post-processor of `tokenizer.json` adds tokens around a
//! text (`add_bos_token` in `tokenizer_config.json` is ignored, except beside `vocab.json` and
//! `merges.txt`); inside the text, the name of a special token is that token.

use super::{END_OF_TEXT, Encoder, Error, Tokenizer};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokenizers::{NormalizerWrapper, OffsetReferential, OffsetType, PostProcessorWrapper};

/// How the names of special tokens in a text are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpecialTokens {
    /// As the token of that name, as transformers does.
    #[default]
    Parse,
    /// As plain characters, as in training text (transformers' `split_special_tokens`).
    Text,
}

/// A post-processor that adds this token before every text. The library's builder is not used: in
/// its templates blanks, colons and dollars are syntax.
///
/// # Errors
/// When the library fails.
pub fn prepending_processor(name: &str, id: u32) -> Result<PostProcessorWrapper, Error> {
    let sequence = |id: &str, type_id: u32| json!({ "Sequence": { "id": id, "type_id": type_id } });
    let template = json!({
        "type": "TemplateProcessing",
        "single": [{ "SpecialToken": { "id": name, "type_id": 0 } }, sequence("A", 0)],
        "pair": [sequence("A", 0), sequence("B", 1)],
        "special_tokens": { name: { "id": name, "ids": [id], "tokens": [name] } },
    });
    serde_json::from_value(template).map_err(|error| {
        Error::Unusable(format!("the tokenizers library does not take a token before every text: {error}"))
    })
}

impl Tokenizer {
    /// The same tokenizer for a model trained only on text from the beginning of a document: every
    /// prompt begins with the end-of-text token, here and, through the post-processor in the file,
    /// in transformers. Without such a token nothing changes.
    ///
    /// # Errors
    /// When the library fails.
    pub fn opening_prompts(&self) -> Result<Self, Error> {
        let mut library = self.shared.library.clone();
        let named = |end| Some((end, library.id_to_token(end)?));
        let Some((end, name)) = self.end_of_text().and_then(named) else { return Ok(self.clone()) };
        library.with_post_processor(Some(prepending_processor(&name, end)?));
        Self::from_library(library, Some(name), None)
    }

    /// The ids of a prompt, a text to be continued: the tokens added before it, then its own, with
    /// special tokens' names treated as `special` says.
    ///
    /// # Errors
    /// When a character tokenizer lacks a character ([`super::UnknownCharacter`]), or the library
    /// fails.
    pub fn encode_prompt(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, Error> {
        let own = self.encode_with(text, special)?;
        Ok([self.before(text, special), &own].concat())
    }

    /// The ids of `text` alone, with special tokens' names treated as `special` says.
    ///
    /// # Errors
    /// As [`Self::encode_prompt`].
    pub fn encode_with(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, Error> {
        let mut ids = Vec::new();
        match special {
            SpecialTokens::Parse => self.parse_onto(text, &mut ids)?,
            SpecialTokens::Text => self.encode_onto(text, &mut ids)?,
        }
        Ok(ids)
    }

    /// The token sequences that spell `word`, none if it has no tokens: at the beginning of a text
    /// and, if it differs, after a space. It differs in byte-level BPE, where a word's token
    /// includes the space before it.
    ///
    /// # Errors
    /// As [`Self::encode_prompt`].
    pub fn spellings(&self, word: &str, special: SpecialTokens) -> Result<Vec<Vec<u32>>, Error> {
        let plain = self.encode_with(word, special)?;
        if plain.is_empty() {
            return Ok(Vec::new());
        }
        // If the tokenizer cannot encode a space, there is no second spelling.
        let behind_a_space = self.encode_with(&format!(" {word}"), special).ok().filter(|ids| !ids.ends_with(&plain));
        Ok([plain].into_iter().chain(behind_a_space).collect())
    }

    /// The ids of a complete text, to be scored: those of a prompt, and the tokens added after a
    /// text.
    ///
    /// # Errors
    /// As [`Self::encode_prompt`].
    pub fn encode_whole(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, Error> {
        let mut ids = self.encode_prompt(text, special)?;
        ids.extend(self.behind());
        Ok(ids)
    }

    /// The tokens added before `text`. A text that itself begins with `<|endoftext|>` does not get
    /// a second one, which would be an empty document; transformers does add one.
    pub fn before(&self, text: &str, special: SpecialTokens) -> &[u32] {
        let [before, _] = &self.shared.around;
        let begins = special == SpecialTokens::Parse && text.starts_with(END_OF_TEXT);
        let is_end = || before[..] == Vec::from_iter(self.shared.library.token_to_id(END_OF_TEXT));
        if begins && is_end() { &[] } else { before }
    }

    /// The tokens added after a complete text, often none.
    pub fn behind(&self) -> &[u32] {
        &self.shared.around[1]
    }

    /// The names of special tokens; in training text they are ordinary characters.
    pub fn special_names(&self) -> impl Iterator<Item = &str> {
        let added = self.shared.library.get_added_vocabulary().get_added_tokens_decoder();
        added.values().filter(|token| token.special).map(|token| token.content.as_str())
    }

    /// Appends the ids of `text`, with special tokens' names as these tokens.
    fn parse_onto(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), Error> {
        let library = &self.shared.library;
        if matches!(self.shared.encoder, Encoder::Library(_)) {
            return self.encode_with_library(library, text, ids);
        }
        // Our own encoders are used only if all added tokens are special and there is no
        // normalizer. Most texts contain no such name, and the library's search costs many bytes of
        // memory per byte of text.
        if !self.special_names().any(|name| text.contains(name)) {
            return self.encode_onto(text, ids);
        }
        let parts = library.get_added_vocabulary().extract_and_normalize(None::<&NormalizerWrapper>, text);
        for (part, _, tokens) in parts.get_splits(OffsetReferential::Original, OffsetType::Byte) {
            match tokens {
                Some(tokens) => ids.extend(tokens.iter().map(|token| token.id)),
                None => self.encode_onto(part, ids)?,
            }
        }
        Ok(())
    }
}
