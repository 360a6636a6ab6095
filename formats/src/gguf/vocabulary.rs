//! A tokenizer, from a file's keys.

use serde_json::{Map, Value, json};

use super::keys::{Keys, Read, Value as KeyValue};
use super::tokens::{END_KEYS, GPT2_SPLIT, MERGED, PIECES, SPLITS, TokenKind};
use crate::{Tokenizer, error::shown, sentencepiece};

/// The tokenizer of a file, if it has one; `rows` is how many tokens the model knows.
pub fn read(keys: &Keys, rows: usize) -> Read<Option<Tokenizer>> {
    let json = match keys.text("tokenizer.ggml.model") {
        None | Some("none" | "no_vocab") => return Ok(None),
        Some(MERGED) => byte_level(keys)?,
        Some(PIECES) => pieces(keys)?,
        Some(other) => {
            return Err(format!(
                "its tokenizer is of the kind {}; only \"gpt2\", \"llama\" and \"none\" can be read",
                shown(other)
            ));
        }
    };
    let count = keys.list("tokenizer.ggml.tokens").map_or(0, |tokens| tokens.len());
    if count > rows {
        return Err(format!("its tokenizer has {count} tokens and its embedding {rows} rows"));
    }
    let mut end_tokens: Vec<u32> = Vec::new();
    for id in END_KEYS.iter().filter_map(|key| id(keys, key)) {
        if !end_tokens.contains(&id) {
            end_tokens.push(id);
        }
    }
    let chat_template = keys.text("tokenizer.chat_template").map(str::to_owned);
    let begin_token = id(keys, "bos_token_id");
    Ok(Some(Tokenizer { json, end_tokens, begin_token, chat_template }))
}

/// The token that a key names.
fn id(keys: &Keys, key: &str) -> Option<u32> {
    keys.whole(&format!("tokenizer.ggml.{key}")).and_then(|id| u32::try_from(id).ok())
}

/// A token of the file: its id, what it is, and its text.
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

/// The `tokenizer.json` of a tokenizer of bytes, of words made of bytes, or of characters.
fn byte_level(keys: &Keys) -> Read<Value> {
    let tokens = tokens(keys);
    let of_kind = |kind: TokenKind| tokens.iter().filter(move |token| token.kind == kind as u64);
    let is_character = |token: &Token| token.text.chars().nth(1).is_none();
    let has_normal = of_kind(TokenKind::Normal).next().is_some();
    if !has_normal && of_kind(TokenKind::Raw).next().is_some() && of_kind(TokenKind::Raw).all(is_character) {
        let vocabulary = of_kind(TokenKind::Raw).map(|token| (token.text.to_owned(), token.id.into())).collect();
        let json = Tokenizer::of_characters(vocabulary, added(of_kind(TokenKind::Control), true));
        return around(keys, &tokens, json);
    }
    let vocabulary: Map<String, Value> =
        of_kind(TokenKind::Normal).map(|token| (token.text.to_owned(), token.id.into())).collect();
    if vocabulary.len() != of_kind(TokenKind::Normal).count() {
        return Err("two of its tokens have the same text".to_owned());
    }
    let knows = |token: &str| vocabulary.contains_key(token);
    // A merge into no token of its own is one that no text leads to: llama.cpp wants one at least.
    let merge = |merge: &str| {
        let (first, second) = merge.split_once(' ')?;
        (knows(first) && knows(second) && knows(&format!("{first}{second}"))).then(|| json!([first, second]))
    };
    let merges: Vec<Value> = keys.texts("tokenizer.ggml.merges").filter_map(merge).collect();
    let (splitter, normalizer) = splitter(keys.text("tokenizer.ggml.pre").unwrap_or_default(), !merges.is_empty())?;
    let mut all = added(of_kind(TokenKind::Control), true);
    all.extend(added(of_kind(TokenKind::Raw), false));
    all.sort_by_key(|token| token["id"].as_u64());
    let mut json = Tokenizer::of_byte_pairs(vocabulary, merges, all, [normalizer, splitter]);
    json["model"]["ignore_merges"] = json!(keys.text("tokenizer.ggml.pre") == Some("llama-bpe"));
    around(keys, &tokens, json)
}

/// The `tokenizer.json` of SentencePiece's pieces.
fn pieces(keys: &Keys) -> Read<Value> {
    let tokens = tokens(keys);
    let flag = |flag: &str| keys.flag(&format!("tokenizer.ggml.{flag}"));
    if flag("add_space_prefix") == Some(false) {
        return Err("its tokenizer puts no space before a text; only those that do can be read".to_owned());
    }
    if let Some(long) = tokens.iter().find(|token| token.text.len() > sentencepiece::LONGEST) {
        return Err(format!("its token {} has {} bytes", long.id, long.text.len()));
    }
    let scores = keys.list("tokenizer.ggml.scores").into_iter().flat_map(|scores| scores.values());
    let mut scores = scores.map(|score| match score {
        KeyValue::Real(score) => score as f32,
        _ => 0.0,
    });
    let joined = |token: &Token| token.kind == TokenKind::Normal as u64;
    let scored = tokens.iter().map(|token| {
        let score = scores.next().unwrap_or(0.0);
        (token.text.to_owned(), if joined(token) { score } else { sentencepiece::NEVER })
    });
    let mut json = sentencepiece::json(&scored.collect::<Vec<_>>())?;
    let more = |kind: TokenKind| tokens.iter().skip(3).filter(move |token| token.kind == kind as u64);
    let named = added(more(TokenKind::Control), true).into_iter().chain(added(more(TokenKind::Raw), false));
    if let Some(all) = json["added_tokens"].as_array_mut() {
        all.extend(named);
    }
    if flag("add_bos_token") == Some(false) {
        json["post_processor"] = Value::Null;
    }
    Ok(json)
}

/// Tokens that are looked for in the raw text.
fn added<'a>(tokens: impl Iterator<Item = &'a Token<'a>>, special: bool) -> Vec<Value> {
    tokens.map(|token| Tokenizer::added_token(token.id, token.text, special)).collect()
}

/// How text is split and normalized under a name of llama.cpp's. Where nothing is merged every byte
/// is a token, however it is split.
fn splitter(name: &str, has_merges: bool) -> Read<(Value, Value)> {
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

/// With the tokens that the file puts around every text.
fn around(keys: &Keys, tokens: &[Token], mut json: Value) -> Read<Value> {
    let wanted = |flag: &str, unsaid: bool, token: &str| {
        let is_on = keys.flag(&format!("tokenizer.ggml.{flag}")).unwrap_or(unsaid);
        is_on.then(|| id(keys, token)).flatten().and_then(|id| tokens.get(id as usize))
    };
    // Files of Llama 3 seldom say it, and llama.cpp begins their texts all the same.
    let is_llama_3 = keys.text("tokenizer.ggml.pre") == Some("llama-bpe");
    let before = wanted("add_bos_token", is_llama_3, "bos_token_id");
    let behind = wanted("add_eos_token", false, "eos_token_id");
    if before.or(behind).is_none() {
        return Ok(json);
    }
    let special = |token: &Token| json!({ "SpecialToken": { "id": token.text, "type_id": 0 } });
    let text = |id: &str, kind: usize| json!({ "Sequence": { "id": id, "type_id": kind } });
    let single: Vec<Value> = before.map(special).into_iter().chain([text("A", 0)]).chain(behind.map(special)).collect();
    let pair: Vec<Value> = single.iter().cloned().chain([text("B", 1)]).collect();
    let named: Map<String, Value> = before
        .into_iter()
        .chain(behind)
        .map(|token| (token.text.to_owned(), json!({ "id": token.text, "ids": [token.id], "tokens": [token.text] })))
        .collect();
    json["post_processor"] =
        json!({ "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": named });
    Ok(json)
}
