//! What stands beside a tokenizer's files: `tokenizer_config.json`.

use serde_json::Value;
use std::{collections::BTreeMap, path::Path};
use tokenizers::AddedToken;

/// The keys of a `tokenizer_config.json`, none where there is no such file or it is no JSON.
pub struct Beside(Value);

impl Beside {
    /// Those of the file in `dir`.
    pub fn read(dir: &Path) -> Self {
        let content = std::fs::read(dir.join("tokenizer_config.json"));
        Self(content.ok().and_then(|content| serde_json::from_slice(&content).ok()).unwrap_or_default())
    }

    /// What a switch is set to, where it is set.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.0[key].as_bool()
    }

    /// The token, or another name, that a key says.
    pub fn name(&self, key: &str) -> Option<&str> {
        name_of(&self.0[key])
    }

    /// The same, where a key that is absent stands for `absent`, and null for none.
    pub fn name_or<'a>(&'a self, key: &str, absent: &'a str) -> Option<&'a str> {
        self.0.get(key).map_or(Some(absent), name_of)
    }

    /// The tokens that were added to the vocabulary, by their ids.
    pub fn added(&self) -> BTreeMap<u32, AddedToken> {
        let tokens = self.0["added_tokens_decoder"].as_object().into_iter().flatten();
        let read = |(id, token): (&String, &Value)| {
            let is = |key: &str| token[key] == true;
            let added = AddedToken::from(name_of(token)?, is("special"));
            let added = added.single_word(is("single_word")).lstrip(is("lstrip")).rstrip(is("rstrip"));
            Some((id.parse().ok()?, added))
        };
        tokens.filter_map(read).collect()
    }

    /// Whether this token pads: it stands in no text.
    pub fn pads(&self, token: &AddedToken) -> bool {
        self.name("pad_token") == Some(&token.content)
    }
}

/// A token is written as its text, or with more about it.
fn name_of(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token["content"].as_str())
}
