//! Reads a tokenizer from a file's keys.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::keys::{Keys, Value as KeyValue};
use super::tokens::{END_KEYS, GPT2_SPLIT, MERGED, PIECES, SPACE_BEFORE, SPLITS, TokenKind};
use crate::{Tokenizer, error::shown, sentencepiece};

/// The tokenizer of a file, if it has one; `rows` is the model's vocabulary size.
pub fn read(keys: &Keys, rows: usize) -> Result<Option<Tokenizer>, String> {
    let model = match keys.text("tokenizer.ggml.model") {
        None | Some("none" | "no_vocab") => return Ok(None),
        Some(model) => model,
    };
    let count = keys.list("tokenizer.ggml.tokens").map_or(0, |tokens| tokens.len());
    if count > rows {
        return Err(format!("its tokenizer has {count} tokens, but its embedding has {rows} rows"));
    }
    let json = match model {
        MERGED => byte_level(keys)?,
        PIECES => pieces(keys)?,
        other => {
            return Err(format!(
                "its tokenizer is of the type {}; only \"gpt2\", \"llama\" and \"none\" can be read",
                shown(other)
            ));
        }
    };
    let mut end_tokens: Vec<u32> = Vec::new();
    for id in END_KEYS.iter().filter_map(|key| id(keys, key)) {
        if !end_tokens.contains(&id) {
            end_tokens.push(id);
        }
    }
    let chat_template = keys.text("tokenizer.chat_template").map(str::to_owned);
    let begin_token = id(keys, "bos_token_id");
    Ok(Some(Tokenizer { json, end_tokens, begin_token, chat_template, ..Tokenizer::default() }))
}

/// The token id under a key. Files of SentencePiece's pieces may lack those of the tokens around
/// texts: as in llama.cpp, these are then SentencePiece's own.
fn id(keys: &Keys, key: &str) -> Option<u32> {
    let own = match key {
        "bos_token_id" => Some(sentencepiece::BEGIN),
        "eos_token_id" => Some(sentencepiece::END),
        _ => None,
    };
    let given = keys.whole(&format!("tokenizer.ggml.{key}")).and_then(|id| u32::try_from(id).ok());
    given.or(own.filter(|_| has_pieces(keys)))
}

/// Whether a file's tokenizer is SentencePiece's.
fn has_pieces(keys: &Keys) -> bool {
    keys.text("tokenizer.ggml.model") == Some(PIECES)
}

/// A token of the file: its id, type and text.
struct Token<'a> {
    id: usize,
    kind: u64,
    text: &'a str,
}

fn tokens<'a>(keys: &Keys<'a>) -> Vec<Token<'a>> {
    let kinds = keys.list("tokenizer.ggml.token_type");
    let mut kinds = kinds.into_iter().flat_map(|kinds| kinds.values());
    let mut kind = || match kinds.next() {
        Some(KeyValue::Whole(kind)) => kind,
        _ => TokenKind::Normal as u64,
    };
    let texts = keys.texts("tokenizer.ggml.tokens").enumerate();
    texts.map(|(id, text)| Token { id, kind: kind(), text }).collect()
}

/// The `tokenizer.json` of a byte, byte-level BPE, or character tokenizer.
fn byte_level(keys: &Keys) -> Result<Value, String> {
    let tokens = tokens(keys);
    let of_kind = |kind: TokenKind| tokens.iter().filter(move |token| token.kind == kind as u64);
    let own = |kind: TokenKind| -> Map<String, Value> {
        of_kind(kind).map(|token| (token.text.to_owned(), token.id.into())).collect()
    };
    check_texts(&tokens)?;
    let is_character = |token: &Token| token.text.chars().nth(1).is_none();
    let has_normal = of_kind(TokenKind::Normal).next().is_some();
    if !has_normal
        && of_kind(TokenKind::UserDefined).next().is_some()
        && of_kind(TokenKind::UserDefined).all(is_character)
    {
        let all = added(of_kind(TokenKind::Control), true);
        let json = Tokenizer::of_characters(with_added(own(TokenKind::UserDefined), &all), all);
        return with_post_processor(keys, &tokens, json);
    }
    let vocabulary = own(TokenKind::Normal);
    // Merges that do not result in a token are dropped; llama.cpp requires at least one merge, so
    // files without any have a dummy.
    let merge = |both: &str| Tokenizer::merge(&vocabulary, both);
    let merges: Vec<Value> = keys.texts("tokenizer.ggml.merges").filter_map(merge).collect();
    let (splitter, normalizer) = splitter(keys.text("tokenizer.ggml.pre").unwrap_or_default(), !merges.is_empty())?;
    let mut all = added(of_kind(TokenKind::Control), true);
    all.extend(added(of_kind(TokenKind::UserDefined), false));
    all.sort_by_key(|token| token["id"].as_u64());
    let mut json = Tokenizer::of_byte_pairs(with_added(vocabulary, &all), merges, all, [normalizer, splitter]);
    json["model"]["ignore_merges"] = json!(keys.text("tokenizer.ggml.pre") == Some("llama-bpe"));
    with_post_processor(keys, &tokens, json)
}

/// Rejects tokens with equal texts, since a `tokenizer.json` identifies tokens by text.
fn check_texts(tokens: &[Token]) -> Result<(), String> {
    let added = [TokenKind::Control, TokenKind::UserDefined].map(|kind| kind as u64);
    let mut texts = HashSet::new();
    for token in tokens {
        let is_added = added.contains(&token.kind);
        if is_added && token.text.is_empty() {
            return Err(format!("its token {} has no text", token.id));
        }
        if (is_added || token.kind == TokenKind::Normal as u64) && !texts.insert(token.text) {
            return Err("two of its tokens have the same text".to_owned());
        }
    }
    Ok(())
}

/// A vocabulary that includes the added tokens, unless their ids directly follow it: the tokenizers
/// library numbers added tokens that are not in the vocabulary consecutively from its size,
/// whatever ids a `tokenizer.json` states.
fn with_added(mut vocabulary: Map<String, Value>, added: &[Value]) -> Map<String, Value> {
    let first = vocabulary.len();
    if !added.iter().enumerate().all(|(at, token)| token["id"] == first + at) {
        let named = added.iter().filter_map(|token| Some((token["content"].as_str()?.to_owned(), token["id"].clone())));
        vocabulary.extend(named);
    }
    vocabulary
}

/// The `tokenizer.json` of SentencePiece's pieces.
fn pieces(keys: &Keys) -> Result<Value, String> {
    let tokens = tokens(keys);
    if let Some(long) = tokens.iter().find(|token| token.text.len() > sentencepiece::LONGEST) {
        return Err(format!("its token {} has {} bytes", long.id, long.text.len()));
    }
    let scores = keys.list("tokenizer.ggml.scores").into_iter().flat_map(|scores| scores.values());
    let mut scores = scores.map(|score| match score {
        KeyValue::Real(score) => score as f32,
        _ => 0.0,
    });
    let is_mergeable = |token: &Token| token.kind == TokenKind::Normal as u64;
    let scored = tokens.iter().map(|token| {
        let score = scores.next().unwrap_or(0.0);
        (token.text.to_owned(), if is_mergeable(token) { score } else { sentencepiece::NEVER_MERGED })
    });
    let spaced = keys.flag(SPACE_BEFORE).unwrap_or(true);
    let mut json = sentencepiece::json(&scored.collect::<Vec<_>>(), spaced)?;
    let more = |kind: TokenKind| tokens.iter().skip(3).filter(move |token| token.kind == kind as u64);
    let named = added(more(TokenKind::Control), true).into_iter().chain(added(more(TokenKind::UserDefined), false));
    if let Some(all) = json["added_tokens"].as_array_mut() {
        all.extend(named);
    }
    json["post_processor"] = Value::Null; // the file's keys decide what is added around texts
    with_post_processor(keys, &tokens, json)
}

/// Entries of `added_tokens`, which are matched in the raw text.
fn added<'a>(tokens: impl Iterator<Item = &'a Token<'a>>, special: bool) -> Vec<Value> {
    tokens.map(|token| Tokenizer::added_token(token.id, token.text, special)).collect()
}

/// The pre-tokenizer and normalizer for one of llama.cpp's names. Without merges every byte is a
/// token, however the text is split.
fn splitter(name: &str, has_merges: bool) -> Result<(Value, Value), String> {
    if name == GPT2_SPLIT {
        return Ok((Tokenizer::byte_level_rule(has_merges), Value::Null));
    }
    let Some((_, expression)) = SPLITS.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = SPLITS.iter().map(|(known, _)| *known).collect();
        return Err(format!(
            "its tokenizer splits text as {}; only \"{GPT2_SPLIT}\", \"{}\" can be read",
            shown(name),
            known.join("\" and \"")
        ));
    };
    let split = json!({ "type": "Split", "pattern": { "Regex": expression }, "behavior": "Isolated", "invert": false });
    let both = json!({ "type": "Sequence", "pretokenizers": [split, Tokenizer::byte_level_rule(false)] });
    let normalizer = if name == "qwen2" { json!({ "type": "NFC" }) } else { Value::Null };
    Ok((both, normalizer))
}

/// Adds the post-processor for the tokens that the file adds around every text.
fn with_post_processor(keys: &Keys, tokens: &[Token], mut json: Value) -> Result<Value, String> {
    // Files of Llama 3 and of SentencePiece's pieces may lack the key; llama.cpp adds a begin token
    // for them anyway.
    let begins = has_pieces(keys) || keys.text("tokenizer.ggml.pre") == Some("llama-bpe");
    let wanted = |flag: &str, default: bool, token: &str| {
        let is_on = keys.flag(&format!("tokenizer.ggml.{flag}")).unwrap_or(default);
        tokens.get(id(keys, token).filter(|_| is_on)? as usize)
    };
    let before = wanted("add_bos_token", begins, "bos_token_id");
    let after = wanted("add_eos_token", false, "eos_token_id");
    if before.or(after).is_none() {
        return Ok(json);
    }
    let special = |token: &Token| json!({ "SpecialToken": { "id": token.text, "type_id": 0 } });
    let text = |id: &str, kind: usize| json!({ "Sequence": { "id": id, "type_id": kind } });
    let single: Vec<Value> = before.map(special).into_iter().chain([text("A", 0)]).chain(after.map(special)).collect();
    let pair: Vec<Value> = single.iter().cloned().chain([text("B", 1)]).collect();
    let named: Map<String, Value> = before
        .into_iter()
        .chain(after)
        .map(|token| (token.text.to_owned(), json!({ "id": token.text, "ids": [token.id], "tokens": [token.text] })))
        .collect();
    json["post_processor"] =
        json!({ "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": named });
    Ok(json)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::{header::Header, keys::Cursor};
    use super::*;

    /// The `tokenizer.json` of a file with these tokens, and with the keys that `more` adds.
    fn of(model: &str, tokens: &[(&str, TokenKind)], more: impl FnOnce(&mut Header)) -> Result<Value, String> {
        tokenizer(model, tokens, more).map(|tokenizer| tokenizer.json)
    }

    fn tokenizer(
        model: &str,
        tokens: &[(&str, TokenKind)],
        more: impl FnOnce(&mut Header),
    ) -> Result<Tokenizer, String> {
        let mut header = Header::default();
        header.string("tokenizer.ggml.model", model);
        header.strings("tokenizer.ggml.tokens", tokens.iter().map(|(text, _)| *text));
        header.i32s("tokenizer.ggml.token_type", &tokens.iter().map(|(_, kind)| *kind as i32).collect::<Vec<_>>());
        more(&mut header);
        let keys = Keys::read(&mut Cursor::new(header.bytes()), header.count()).unwrap();
        read(&keys, tokens.len()).map(Option::unwrap)
    }

    /// A byte-level BPE tokenizer.
    fn of_bytes(tokens: &[(&str, TokenKind)]) -> Result<Value, String> {
        of(MERGED, tokens, |header| {
            header.string("tokenizer.ggml.pre", GPT2_SPLIT);
            header.strings("tokenizer.ggml.merges", ["a b"].into_iter());
        })
    }

    /// The ids that the tokenizers library assigns: the vocabulary's, otherwise the next free one
    /// after it.
    fn ids(json: &Value) -> Vec<(String, u64)> {
        let vocabulary = json["model"]["vocab"].as_object().unwrap();
        let mut next = vocabulary.len() as u64;
        let mut id = |content: &str| {
            let known = vocabulary.get(content).and_then(Value::as_u64);
            next += u64::from(known.is_none());
            known.unwrap_or(next - 1)
        };
        let contents = json["added_tokens"].as_array().unwrap().iter().map(|token| token["content"].as_str().unwrap());
        contents.map(|content| (content.to_owned(), id(content))).collect()
    }

    #[test]
    fn special_tokens_keep_their_ids_wherever_they_stand() {
        use TokenKind::{Control, Normal, Unused, UserDefined};
        for tokens in [
            vec![("<s>", Control), ("a", Normal), ("b", Normal), ("ab", Normal)],
            vec![("a", Normal), ("b", Normal), ("<x>", UserDefined), ("ab", Normal), ("<s>", Control)],
            vec![("a", Normal), ("b", Normal), ("ab", Normal), ("[PAD3]", Unused), ("<s>", Control)],
            vec![
                ("a", Normal),
                ("b", Normal),
                ("ab", Normal),
                ("<s>", Control),
                ("[PAD4]", Unused),
                ("<x>", UserDefined),
            ],
            vec![("a", Normal), ("b", Normal), ("ab", Normal), ("<s>", Control), ("<x>", UserDefined)],
            // A character tokenizer.
            vec![("a", UserDefined), ("<s>", Control), ("b", UserDefined)],
        ] {
            let json = of_bytes(&tokens).unwrap();
            let is_special =
                |kind: TokenKind| kind == Control || kind == UserDefined && tokens.contains(&("ab", Normal));
            let places = tokens.iter().enumerate().filter(|(_, (_, kind))| is_special(*kind));
            let expected: Vec<(String, u64)> = places.map(|(id, (text, _))| ((*text).to_owned(), id as u64)).collect();
            assert_eq!(ids(&json), expected);
            assert_eq!(json["model"]["vocab"]["b"], tokens.iter().position(|(text, _)| *text == "b").unwrap());
        }
    }

    #[test]
    fn special_tokens_that_cannot_be_told_from_others_are_refused() {
        use TokenKind::{Control, Normal};
        let line = of_bytes(&[("a", Normal), ("b", Normal), ("a", Control)]).unwrap_err();
        assert_eq!(line, "two of its tokens have the same text");
        assert_eq!(of_bytes(&[("a", Normal), ("", Control)]).unwrap_err(), "its token 1 has no text");
    }

    /// The tokenizer of a file with SentencePiece's special tokens and bytes, and with the keys that
    /// `more` adds.
    fn of_pieces(more: impl FnOnce(&mut Header)) -> Tokenizer {
        let bytes: Vec<String> = (0..=255).map(|byte: u8| format!("<0x{byte:02X}>")).collect();
        let special = [("<unk>", TokenKind::Unknown), ("<s>", TokenKind::Control), ("</s>", TokenKind::Control)];
        let bytes = bytes.iter().map(|text| (text.as_str(), TokenKind::Byte));
        let tokens: Vec<_> = special.into_iter().chain(bytes).collect();
        tokenizer(PIECES, &tokens, more).unwrap()
    }

    #[test]
    fn what_a_file_puts_around_the_texts_of_pieces_is_put_there() {
        let around = |more: &dyn Fn(&mut Header)| of_pieces(more).around();
        assert_eq!(around(&|_| {}), Some([Some(1), None]));
        assert_eq!(around(&|header| header.bool("tokenizer.ggml.add_bos_token", false)), Some([None, None]));
        assert_eq!(around(&|header| header.bool("tokenizer.ggml.add_eos_token", true)), Some([Some(1), Some(2)]));
        assert_eq!(around(&|header| header.u32("tokenizer.ggml.bos_token_id", 2)), Some([Some(2), None]));
    }

    /// As in llama.cpp.
    #[test]
    fn texts_of_pieces_end_with_their_own_token_where_the_file_names_none() {
        let ends = |more: &dyn Fn(&mut Header)| {
            let tokenizer = of_pieces(more);
            (tokenizer.begin_token, tokenizer.end_tokens)
        };
        assert_eq!(ends(&|_| {}), (Some(1), vec![2]));
        assert_eq!(ends(&|header| header.u32("tokenizer.ggml.eot_token_id", 7)), (Some(1), vec![2, 7]));
        assert_eq!(ends(&|header| header.u32("tokenizer.ggml.eos_token_id", 5)), (Some(1), vec![5]));
        let of_bytes = tokenizer(MERGED, &[("a", TokenKind::Normal), ("b", TokenKind::Normal)], |header| {
            header.string("tokenizer.ggml.pre", GPT2_SPLIT);
        });
        assert_eq!(of_bytes.unwrap().end_tokens, [0_u32; 0]);
    }
}
