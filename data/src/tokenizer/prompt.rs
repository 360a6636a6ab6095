//! Texts as they are given to a model: what the tokenizer puts around them, and what special
//! tokens' names in them are.
//!
//! The rules are transformers' own. Around a text stands what the post-processor of
//! `tokenizer.json` puts there (whatever `add_bos_token` in `tokenizer_config.json` says: it is
//! heeded beside `vocab.json` and `merges.txt` alone); within it the name of a special token is that
//! token.

use super::{END_OF_TEXT, Encoder, Error, Tokenizer};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokenizers::{NormalizerWrapper, OffsetReferential, OffsetType, PostProcessorWrapper};

/// What the name of a special token is where it stands in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpecialTokens {
    /// The token of that name, as transformers reads a text.
    #[default]
    Parse,
    /// The characters that it is made of, as in text that is learned from (transformers'
    /// `split_special_tokens`).
    Text,
}

/// A post-processor that puts the token of this name and id before every text. Not by the library's
/// builder, in whose templates blanks, colons and dollars have meanings of their own.
///
/// # Errors
/// When the library refuses.
pub fn opening(name: &str, id: u32) -> Result<PostProcessorWrapper, Error> {
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
    /// The same tokenizer for a model that only ever saw text from the beginning of a document:
    /// every prompt begins with the end-of-text token, here and, by the file's post-processor, in
    /// transformers. Nothing changes without such a token.
    ///
    /// # Errors
    /// When the library refuses.
    pub fn opening_prompts(&self) -> Result<Self, Error> {
        let mut library = self.shared.library.clone();
        let named = |end| Some((end, library.id_to_token(end)?));
        let Some((end, name)) = self.end_of_text().and_then(named) else { return Ok(self.clone()) };
        library.with_post_processor(Some(opening(&name, end)?));
        Self::from_library(library, Some(name), None)
    }

    /// The ids of a prompt, a text to be gone on with: what the tokenizer puts before one, and the
    /// text's own, in which the names of special tokens are what `special` says.
    ///
    /// # Errors
    /// When a tokenizer of characters lacks one ([`super::UnknownCharacter`]), or the library
    /// fails.
    pub fn encode_prompt(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, Error> {
        let own = self.encode_with(text, special)?;
        Ok([self.before(text, special), &own].concat())
    }

    /// The ids of `text` alone, in which the names of special tokens are what `special` says.
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

    /// The token sequences that write `word`, none where it makes no token: as it begins a text, and behind a
    /// space where that gives other tokens, as it does in byte-level BPE, whose words carry the space before
    /// them.
    ///
    /// # Errors
    /// As [`Self::encode_prompt`].
    pub fn spellings(&self, word: &str, special: SpecialTokens) -> Result<Vec<Vec<u32>>, Error> {
        let plain = self.encode_with(word, special)?;
        if plain.is_empty() {
            return Ok(Vec::new());
        }
        // A tokenizer without a space needs no second spelling.
        let behind_a_space = self.encode_with(&format!(" {word}"), special).ok().filter(|ids| !ids.ends_with(&plain));
        Ok([plain].into_iter().chain(behind_a_space).collect())
    }

    /// The ids of a text that is whole, to be judged: a prompt's, and what the tokenizer puts
    /// behind a text.
    ///
    /// # Errors
    /// As [`Self::encode_prompt`].
    pub fn encode_whole(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, Error> {
        let mut ids = self.encode_prompt(text, special)?;
        ids.extend(self.behind());
        Ok(ids)
    }

    /// The tokens that are put before `text`. A text that itself begins with `<|endoftext|>`, the
    /// token between documents, does not get a second one, which would be an empty document;
    /// transformers does put one there.
    pub fn before(&self, text: &str, special: SpecialTokens) -> &[u32] {
        let [before, _] = &self.shared.around;
        let begins = special == SpecialTokens::Parse && text.starts_with(END_OF_TEXT);
        let is_end = || before[..] == Vec::from_iter(self.shared.library.token_to_id(END_OF_TEXT));
        if begins && is_end() { &[] } else { before }
    }

    /// The tokens that are put behind a whole text, often none.
    pub fn behind(&self) -> &[u32] {
        &self.shared.around[1]
    }

    /// The names that are tokens of their own: in text to learn from, characters like any others.
    pub fn special_names(&self) -> impl Iterator<Item = &str> {
        let added = self.shared.library.get_added_vocabulary().get_added_tokens_decoder();
        added.values().filter(|token| token.special).map(|token| token.content.as_str())
    }

    /// Appends the ids of `text`, in which names of special tokens are these tokens.
    fn parse_onto(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), Error> {
        let library = &self.shared.library;
        if matches!(self.shared.encoder, Encoder::Library(_)) {
            return self.encode_by(library, text, ids);
        }
        // Where an encoder of our own stands in, all added tokens are special and nothing is
        // normalised. Mostly no name is there, and looking closer costs the library many bytes for
        // each of the text.
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
