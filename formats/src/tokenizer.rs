//! A tokenizer as plain data.

use serde_json::{Map, Value, json};

use crate::sentencepiece::{self, Before};

/// The pattern by which a character tokenizer splits text.
pub const EVERY_CHARACTER: &str = r"[\s\S]";

/// A tokenizer: the content of a `tokenizer.json`, and what a folder's other files say of its
/// tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tokenizer {
    /// The content of `tokenizer.json`.
    pub json: Value,
    /// The tokens that end a text; the first is the tokenizer's own.
    pub end_tokens: Vec<u32>,
    /// The token that begins a text, if a folder or file names one.
    pub begin_token: Option<u32>,
    /// The chat template, in Jinja.
    pub chat_template: Option<String>,
    /// Other special tokens by a folder's keys, such as `pad_token`.
    pub named: Map<String, Value>,
}

impl Tokenizer {
    /// The `tokenizer.json` of a character tokenizer with added tokens, as `ember-data` writes it.
    pub(crate) fn of_characters(vocabulary: Map<String, Value>, added: Vec<Value>) -> Value {
        let every = json!({ "Regex": EVERY_CHARACTER });
        json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": added,
            "normalizer": null,
            "pre_tokenizer": { "type": "Split", "pattern": every, "behavior": "Isolated", "invert": false },
            "post_processor": null,
            "decoder": { "type": "Fuse" },
            "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>" },
        })
    }

    /// The `tokenizer.json` of byte-level BPE with this normalizer and pre-tokenizer.
    pub(crate) fn of_byte_pairs(
        vocabulary: Map<String, Value>,
        merges: Vec<Value>,
        added: Vec<Value>,
        [normalizer, splitter]: [Value; 2],
    ) -> Value {
        json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": added,
            "normalizer": normalizer,
            "pre_tokenizer": splitter,
            "post_processor": null,
            "decoder": Self::byte_level_rule(true),
            "model": {
                "type": "BPE",
                "dropout": null,
                "unk_token": null,
                "continuing_subword_prefix": null,
                "end_of_word_suffix": null,
                "fuse_unk": false,
                "byte_fallback": false,
                "ignore_merges": false,
                "vocab": vocabulary,
                "merges": merges,
            },
        })
    }

    /// The byte-level rule, which represents bytes as characters; with `words`, text is first split
    /// into GPT-2's words.
    pub(crate) fn byte_level_rule(words: bool) -> Value {
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": words })
    }

    /// The tokens that the post-processor adds before and after every text; `None` if it does
    /// something else.
    pub(crate) fn around(&self) -> Option<[Option<u32>; 2]> {
        let processor = &self.json["post_processor"];
        let steps = processor["processors"].as_array().map_or(std::slice::from_ref(processor), Vec::as_slice);
        let is_known =
            |step: &Value| step.is_null() || step["type"] == "ByteLevel" || step["type"] == "TemplateProcessing";
        if !steps.iter().all(is_known) {
            return None;
        }
        let mut templates = steps.iter().filter(|step| step["type"] == "TemplateProcessing");
        let Some(template) = templates.next() else { return Some([None, None]) };
        if templates.next().is_some() {
            return None;
        }
        let id = |piece: &Value| {
            let name = piece["SpecialToken"]["id"].as_str()?;
            u32::try_from(template["special_tokens"][name]["ids"][0].as_u64()?).ok()
        };
        let is_text = |piece: &Value| piece.get("Sequence").is_some();
        match template["single"].as_array().map(Vec::as_slice).unwrap_or_default() {
            [text] if is_text(text) => Some([None, None]),
            [first, text] if is_text(text) => Some([Some(id(first)?), None]),
            [text, last] if is_text(text) => Some([None, Some(id(last)?)]),
            [first, text, last] if is_text(text) => Some([Some(id(first)?), Some(id(last)?)]),
            _ => None,
        }
    }

    /// Whether a space is added before a text only if it does not begin with one; other formats
    /// always add one.
    pub fn spaces_once(&self) -> bool {
        sentencepiece::before(&self.json) == Some(Before::SpaceIfNone)
    }

    /// Whether it is SentencePiece's BPE, as in Llama 2.
    pub fn is_sentencepiece(&self) -> bool {
        sentencepiece::before(&self.json).is_some()
    }

    /// Whether names of added tokens are recognized only behind a space or at the beginning of a
    /// text, because they are normalized as texts are; other formats recognize them anywhere.
    pub fn names_behind_spaces(&self) -> bool {
        let mut added = self.json["added_tokens"].as_array().into_iter().flatten();
        sentencepiece::before(&self.json) == Some(Before::Space) && added.any(|token| token["normalized"] == true)
    }

    /// Rejects settings of a `tokenizer.json` that no other format can express. `ignores_merges` is
    /// whether the target's pre-tokenizer implies that a word that is a token is taken without
    /// merging.
    pub(crate) fn check_expressible(json: &Value, ignores_merges: bool) -> Result<(), String> {
        let model = &json["model"];
        let is_put = |key: &&str| model[*key].as_str().is_some_and(|text| !text.is_empty());
        if let Some(key) = ["continuing_subword_prefix", "end_of_word_suffix"].into_iter().find(is_put) {
            return Err(format!("this tokenizer ({key}): it cannot describe affixes of subwords"));
        }
        // Older files of tokenizers that ignore merges do not say so; their merges lead to every
        // token.
        if model["ignore_merges"] == true && !ignores_merges {
            return Err(
                "this tokenizer (ignore_merges true): it cannot describe that for this way to split text".to_owned()
            );
        }
        for token in json["added_tokens"].as_array().into_iter().flatten() {
            if let Some(key) = ["lstrip", "rstrip", "single_word"].into_iter().find(|key| token[*key] == true) {
                return Err(format!("the token {} with {key}; it matches tokens anywhere", token["content"]));
            }
        }
        Ok(())
    }

    /// The token that begins a text: the one added before every text, else the configured one, else
    /// the end token. Chat templates use it, too.
    pub(crate) fn begin(&self) -> Option<u32> {
        let [before, _] = self.around().unwrap_or_default();
        let named = self.begin_token.filter(|id| self.token(*id).is_some());
        before.or(named).or(self.end_tokens.first().copied())
    }

    /// An entry of `added_tokens`, which is matched in the raw text.
    pub(crate) fn added_token(id: usize, content: &str, special: bool) -> Value {
        json!({
            "id": id,
            "content": content,
            "single_word": false,
            "lstrip": false,
            "rstrip": false,
            "normalized": false,
            "special": special,
        })
    }

    /// The element of `rows`, one per token id, for the token with this id.
    pub(crate) fn slot<'a, T>(rows: &'a mut [T], token: &str, id: &Value) -> Result<&'a mut T, String> {
        let count = rows.len();
        match id.as_u64().and_then(|id| usize::try_from(id).ok()) {
            Some(row) if row < count => Ok(&mut rows[row]),
            _ => Err(format!("token {token:?}, whose id {id} is outside the model's {count} rows")),
        }
    }

    /// The merge of two tokens written with a space between them; `None` if the vocabulary lacks
    /// one of them or their concatenation.
    pub(crate) fn merge(vocabulary: &Map<String, Value>, both: &str) -> Option<Value> {
        let (first, second) = both.split_once(' ')?;
        let knows = |token: &str| vocabulary.contains_key(token);
        (knows(first) && knows(second) && knows(&format!("{first}{second}"))).then(|| json!([first, second]))
    }

    /// The text of a token id, whether added or in the vocabulary.
    pub(crate) fn token(&self, id: u32) -> Option<&str> {
        let added = self.json["added_tokens"].as_array().into_iter().flatten();
        let added = added.filter(|token| token["id"] == id).find_map(|token| token["content"].as_str());
        let vocabulary = || self.json["model"]["vocab"].as_object()?.iter().find(|(_, known)| **known == id);
        added.or_else(|| Some(vocabulary()?.0.as_str()))
    }

    /// The id of a token's text.
    pub(crate) fn id(&self, token: &str) -> Option<u32> {
        let mut added = self.json["added_tokens"].as_array().into_iter().flatten();
        let added = added.find(|known| known["content"] == token).map(|known| &known["id"]);
        u32::try_from(added.unwrap_or(&self.json["model"]["vocab"][token]).as_u64()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(post_processor: Value) -> Tokenizer {
        let json = json!({ "post_processor": post_processor });
        Tokenizer { json, ..Tokenizer::default() }
    }

    #[test]
    fn names_that_are_normalized_as_texts_stand_behind_spaces() {
        let stands_behind_spaces = |spaced: bool, normalized: bool| {
            let json = json!({
                "normalizer": sentencepiece::normalizer(spaced),
                "model": { "type": "BPE", "byte_fallback": true },
                "added_tokens": [{ "id": 3, "content": "<x>", "normalized": normalized }],
            });
            Tokenizer { json, ..Tokenizer::default() }.names_behind_spaces()
        };
        assert!(stands_behind_spaces(true, true));
        assert!(!stands_behind_spaces(true, false) && !stands_behind_spaces(false, true));
    }

    #[test]
    fn what_is_put_around_texts_by_other_rules_than_a_template_is_not_taken_for_nothing() {
        let template = json!({
            "type": "TemplateProcessing",
            "single": [{ "SpecialToken": { "id": "<s>", "type_id": 0 } }, { "Sequence": { "id": "A", "type_id": 0 } }],
            "special_tokens": { "<s>": { "id": "<s>", "ids": [1], "tokens": ["<s>"] } },
        });
        let bytes = Tokenizer::byte_level_rule(true);
        let sequence = |steps: &[&Value]| json!({ "type": "Sequence", "processors": steps });
        assert_eq!(with(Value::Null).around(), Some([None, None]));
        assert_eq!(with(bytes.clone()).around(), Some([None, None]));
        assert_eq!(with(sequence(&[&bytes, &template])).around(), Some([Some(1), None]));
        assert_eq!(with(sequence(&[&template, &template])).around(), None);
        for name in ["RobertaProcessing", "BertProcessing"] {
            let other = json!({ "type": name, "sep": ["</s>", 2], "cls": ["<s>", 1] });
            assert_eq!(with(sequence(&[&bytes, &other])).around(), None);
            assert_eq!(with(other).around(), None);
        }
    }
}
