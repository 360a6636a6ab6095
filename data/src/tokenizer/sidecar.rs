//! Reads the files beside a tokenizer: `tokenizer_config.json`, `chat_template.jinja` and, in older
//! folders, `added_tokens.json`.

use ember_host::{file_error::At, file_error::FileError, files::refuse_irregular};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, fs, path::Path};
use tokenizers::AddedToken;

/// The names of the files.
const FILES: [&str; 3] = ["tokenizer_config.json", "added_tokens.json", "chat_template.jinja"];

/// Keys of `tokenizer_config.json` whose value is a token.
const NAMES: [&str; 7] = ["bos_token", "eos_token", "unk_token", "pad_token", "cls_token", "sep_token", "mask_token"];

/// The key of the chat template, written in Jinja.
const CHAT_TEMPLATE: &str = "chat_template";

/// The content of the files; empty where a file is missing or is not JSON.
pub struct SidecarFiles {
    /// The content of `tokenizer_config.json`.
    keys: Value,
    /// `added_tokens.json`: ids by token text.
    added: Value,
    /// `chat_template.jinja`.
    template: Option<String>,
}

impl SidecarFiles {
    /// Reads the files in `dir`; one that cannot be read is treated as missing.
    ///
    /// # Errors
    /// When one is a pipe, a device or a socket.
    pub fn read(dir: &Path) -> Result<Self, FileError> {
        let [keys, added, template] = FILES.map(|name| dir.join(name));
        for path in [&keys, &added, &template] {
            refuse_irregular(path).at("cannot read", path)?;
        }
        let json = |path: &Path| -> Value {
            let content = fs::read(path).ok();
            content.and_then(|content| serde_json::from_slice(&content).ok()).unwrap_or_default()
        };
        Ok(Self { keys: json(&keys), added: json(&added), template: fs::read_to_string(&template).ok() })
    }

    /// The value of a boolean key, if set.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.keys[key].as_bool()
    }

    /// The token or other name under a key.
    pub fn name(&self, key: &str) -> Option<&str> {
        name_of(&self.keys[key])
    }

    /// The same, with a default for an absent key; null means none.
    pub fn name_or<'a>(&'a self, key: &str, absent: &'a str) -> Option<&'a str> {
        self.keys.get(key).map_or(Some(absent), name_of)
    }

    /// The entries kept whenever the tokenizer is saved, as keys of `tokenizer_config.json`: the
    /// special tokens by role, and the chat template.
    pub fn kept_entries(&self, is_token: impl Fn(&str) -> bool) -> Map<String, Value> {
        let named = |key: &&str| Some((key.to_string(), self.name(key).filter(|name| is_token(name))?.into()));
        let template = self.template.clone().map(Value::from).or_else(|| self.keys.get(CHAT_TEMPLATE).cloned());
        let template = template.map(|template| (CHAT_TEMPLATE.to_owned(), template));
        NAMES.iter().filter_map(named).chain(template).collect()
    }

    /// The tokens added to the vocabulary, by id.
    pub fn added(&self) -> BTreeMap<u32, AddedToken> {
        let mut all = self.added_before();
        all.extend(self.added_by_id());
        all
    }

    /// The tokens of `added_tokens.json`, which lists only text and id.
    fn added_before(&self) -> BTreeMap<u32, AddedToken> {
        let more = self.keys["additional_special_tokens"].as_array().into_iter().flatten().filter_map(name_of);
        let special: Vec<&str> = NAMES.iter().filter_map(|key| self.name(key)).chain(more).collect();
        let read = |(text, id): (&String, &Value)| {
            let id = u32::try_from(id.as_u64()?).ok()?;
            Some((id, AddedToken::from(text.as_str(), special.contains(&text.as_str()))))
        };
        self.added.as_object().into_iter().flatten().filter_map(read).collect()
    }

    fn added_by_id(&self) -> BTreeMap<u32, AddedToken> {
        let tokens = self.keys["added_tokens_decoder"].as_object().into_iter().flatten();
        let read = |(id, token): (&String, &Value)| {
            let is = |key: &str| token[key] == true;
            let added = AddedToken::from(name_of(token)?, is("special"));
            let added = added.single_word(is("single_word")).lstrip(is("lstrip")).rstrip(is("rstrip"));
            Some((id.parse().ok()?, added))
        };
        tokens.filter_map(read).collect()
    }

    /// Whether this is the padding token, which occurs in no text.
    pub fn is_pad(&self, token: &AddedToken) -> bool {
        self.name("pad_token") == Some(&token.content)
    }
}

/// The text of a token, which is stored as a string or as an object.
fn name_of(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token["content"].as_str())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(files: &[(&str, &str)]) -> SidecarFiles {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, content)| fs::write(folder.path().join(name), content).unwrap());
        SidecarFiles::read(folder.path()).unwrap()
    }

    #[test]
    fn what_lasts_is_named_tokens_and_the_template() {
        let keys = r#"{"eos_token": {"content": "</s>"}, "pad_token": "<pad>", "unk_token": null, "chat_template": "a", "x": 1}"#;
        let is_token = |name: &str| name == "</s>";
        let entries = of(&[("tokenizer_config.json", keys)]).kept_entries(is_token);
        assert_eq!(Value::Object(entries), serde_json::json!({ "eos_token": "</s>", "chat_template": "a" }));
        let entries = of(&[("tokenizer_config.json", keys), ("chat_template.jinja", "b")]).kept_entries(is_token);
        assert_eq!(entries["chat_template"], "b");
        assert!(of(&[("tokenizer_config.json", "{")]).kept_entries(is_token).is_empty());
    }

    #[test]
    fn tokens_are_added_by_either_file() {
        let before = ("added_tokens.json", r#"{"<|im_start|>": 300, "word": 301, "x": -1}"#);
        let keys =
            r#"{"additional_special_tokens": ["<|im_start|>"], "added_tokens_decoder": {"301": {"content": "other"}}}"#;
        let added = of(&[before, ("tokenizer_config.json", keys)]).added();
        let found: Vec<_> = added.iter().map(|(id, token)| (*id, token.content.as_str(), token.special)).collect();
        assert_eq!(found, [(300, "<|im_start|>", true), (301, "other", false)]);
    }
}
