//! Writes a tokenizer into a file's keys.
//!
//! llama.cpp has no `tokenizer.json`: it has the tokens, the type of each, the merges, and a list
//! of named pre-tokenizers. Byte-level tokenizers map to these directly. A character tokenizer
//! becomes user-defined tokens, which are matched before any splitting, so that nothing is left to split.

use std::collections::HashSet;

use serde_json::Value;

use super::header::Header;
use crate::error::{FormatError, Result};
use crate::sentencepiece::{self, Before};
use crate::tokenizer::{EVERY_CHARACTER, Tokenizer};

/// Types of tokens, with llama.cpp's numbers.
#[derive(Clone, Copy, PartialEq)]
pub enum TokenKind {
    /// Found by merging, in GPT-2's representation of bytes.
    Normal = 1,
    /// The unknown token.
    Unknown = 2,
    /// A control token, such as the end of a text.
    Control = 3,
    /// Matched in the raw text before it is split.
    UserDefined = 4,
    /// A row of the embedding that no text encodes to.
    Unused = 5,
    /// A byte fallback token of SentencePiece.
    Byte = 6,
}

impl TokenKind {
    /// The type of a token that a `tokenizer.json` lists as added.
    fn of_added(token: &Value) -> Self {
        if token["special"] == true { Self::Control } else { Self::UserDefined }
    }
}

/// The named pre-tokenizers: the name, and the expression in a `tokenizer.json`, except GPT-2's
/// own.
pub const SPLITS: [(&str, &str); 2] = [
    (
        "qwen2",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (
        "llama-bpe",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
];

/// The name of GPT-2's pre-tokenizer.
pub const GPT2_SPLIT: &str = "gpt-2";

/// A merge that never applies: llama.cpp requires at least one, and text in GPT-2's representation
/// of bytes never has this character.
const DUMMY_MERGE: &str = "\u{e000} \u{e000}";

/// Writes a tokenizer into the keys of a model with `vocab_size` rows.
pub fn write(tokenizer: &Tokenizer, vocab_size: usize, header: &mut Header) -> Result<()> {
    let cannot = |what: String| FormatError::CannotSay { format: "GGUF", what };
    let json = &tokenizer.json;
    match sentencepiece::before(json) {
        Some(before) => write_pieces(json, before, vocab_size, header),
        None => write_merged(json, vocab_size, header),
    }
    .map_err(cannot)?;
    special_tokens(tokenizer, header).map_err(cannot)?;
    if let Some(template) = &tokenizer.chat_template {
        header.string("tokenizer.chat_template", template);
    }
    Ok(())
}

/// Tokens that are found by merging, or matched in the raw text.
fn write_merged(json: &Value, rows: usize, header: &mut Header) -> Result<(), String> {
    let (split, kind) = split(json)?;
    Tokenizer::check_expressible(json, split == "llama-bpe")?;
    let (tokens, kinds) = tokens(json, kind, rows)?;
    header.string("tokenizer.ggml.model", MERGED);
    header.string("tokenizer.ggml.pre", split);
    header.strings("tokenizer.ggml.tokens", tokens.iter().map(String::as_str));
    header.i32s("tokenizer.ggml.token_type", &kinds);
    header.strings("tokenizer.ggml.merges", merges(&json["model"]["merges"])?.iter().map(String::as_str));
    Ok(())
}

/// SentencePiece's pieces, each with its score.
fn write_pieces(json: &Value, before: Before, rows: usize, header: &mut Header) -> Result<(), String> {
    let pieces = sentencepiece::pieces(json, rows)?;
    let (special, first) = (sentencepiece::SPECIAL.len(), sentencepiece::FIRST);
    let mut kinds = vec![TokenKind::Normal; pieces.len()];
    kinds[..special].fill(TokenKind::Control);
    kinds[special..first].fill(TokenKind::Byte);
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        if let Some(slot) = token["id"].as_u64().and_then(|id| kinds.get_mut(id as usize)) {
            *slot = TokenKind::of_added(token);
        }
    }
    kinds[0] = TokenKind::Unknown;
    let kinds: Vec<i32> = kinds.into_iter().map(|kind| kind as i32).collect();
    header.string("tokenizer.ggml.model", PIECES);
    header.strings("tokenizer.ggml.tokens", pieces.iter().map(|(piece, _)| piece.as_str()));
    header.f32s("tokenizer.ggml.scores", &pieces.iter().map(|(_, score)| *score).collect::<Vec<f32>>());
    header.i32s("tokenizer.ggml.token_type", &kinds);
    if before == Before::Nothing {
        header.bool(SPACE_BEFORE, false); // the default is true
    }
    Ok(())
}

/// The key for whether a space is added before a text.
pub const SPACE_BEFORE: &str = "tokenizer.ggml.add_space_prefix";

/// llama.cpp's names for tokenizers that merge, and for SentencePiece.
pub const MERGED: &str = "gpt2";
pub const PIECES: &str = "llama";

/// The name of a tokenizer's pre-tokenizer, and the type of its ordinary tokens.
fn split(json: &Value) -> Result<(&'static str, TokenKind), String> {
    let (model, rule, normalizer) = (&json["model"], &json["pre_tokenizer"], &json["normalizer"]);
    // llama.cpp takes text as it is; Qwen's normalizer (NFC) changes nothing but rare accents.
    if !normalizer.is_null() && normalizer["type"] != "NFC" {
        let kind = normalizer["type"].as_str().unwrap_or("unknown");
        return Err(format!(
            "this tokenizer (normalizer {kind}): it cannot describe changes to text before it is split"
        ));
    }
    let byte_level = |rule: &Value| rule["type"] == "ByteLevel" && rule["add_prefix_space"] == false;
    let splits_words = rule["use_regex"] != false;
    let has_merges = model["merges"].as_array().is_some_and(|merges| !merges.is_empty());
    if model["type"] == "WordLevel" && rule["type"] == "Split" && rule["pattern"]["Regex"] == EVERY_CHARACTER {
        return Ok((GPT2_SPLIT, TokenKind::UserDefined));
    }
    // Without merges every byte is a token, however the text is split.
    if model["type"] == "BPE" && byte_level(rule) && (splits_words || !has_merges) {
        return Ok((GPT2_SPLIT, TokenKind::Normal));
    }
    if let ("BPE", Some([first, last])) =
        (model["type"].as_str().unwrap_or_default(), rule["pretokenizers"].as_array().map(Vec::as_slice))
        && byte_level(last)
        && last["use_regex"] == false
        && let Some((name, _)) = SPLITS.iter().find(|(_, expression)| first["pattern"]["Regex"] == *expression)
    {
        return Ok((name, TokenKind::Normal));
    }
    let name = |value: &Value| value["type"].as_str().unwrap_or("none").to_owned();
    Err(format!(
        "this tokenizer (model {}, pre-tokenizer {}): it can describe characters, bytes, byte-level BPE that splits as \
         GPT-2, Llama 3 or Qwen do, and Llama 2's SentencePiece",
        name(model),
        name(rule)
    ))
}

/// The token of every row, and its type.
fn tokens(json: &Value, kind: TokenKind, rows: usize) -> Result<(Vec<String>, Vec<i32>), String> {
    let mut tokens: Vec<Option<(String, TokenKind)>> = vec![None; rows];
    for (token, id) in json["model"]["vocab"].as_object().into_iter().flatten() {
        *Tokenizer::slot(&mut tokens, token, id)? = Some((token.clone(), kind));
    }
    for token in json["added_tokens"].as_array().into_iter().flatten() {
        let content = token["content"].as_str().unwrap_or_default();
        *Tokenizer::slot(&mut tokens, content, &token["id"])? = Some((content.to_owned(), TokenKind::of_added(token)));
    }
    let mut taken = HashSet::new();
    for (token, _) in tokens.iter().flatten() {
        if !taken.insert(token.clone()) {
            return Err(format!("two tokens {token:?}"));
        }
    }
    let unused = |row: usize| (format!("[PAD{row}]"), TokenKind::Unused);
    let named = tokens.into_iter().enumerate().map(|(row, token)| token.unwrap_or_else(|| unused(row)));
    let (tokens, kinds): (Vec<_>, Vec<_>) = named.map(|(token, kind)| (token, kind as i32)).unzip();
    match tokens.iter().zip(&kinds).find(|(token, kind)| **kind == TokenKind::Unused as i32 && taken.contains(*token)) {
        Some((token, _)) => Err(format!("a token {token:?} beside a row of that name that has no token")),
        None => Ok((tokens, kinds)),
    }
}

/// The merges in order, each as two tokens separated by a space.
fn merges(merges: &Value) -> Result<Vec<String>, String> {
    let merge = |merge: &Value| match merge {
        Value::String(both) => Ok(both.clone()),
        Value::Array(pair) => match pair.as_slice() {
            [Value::String(first), Value::String(second)] if !first.contains(' ') && !second.contains(' ') => {
                Ok(format!("{first} {second}"))
            }
            _ => Err(format!("the merge {}", Value::Array(pair.clone()))),
        },
        other => Err(format!("the merge {other}")),
    };
    let merges: Vec<String> = merges.as_array().into_iter().flatten().map(merge).collect::<Result<_, _>>()?;
    Ok(if merges.is_empty() { vec![DUMMY_MERGE.to_owned()] } else { merges })
}

/// The tokens that end a text, and those added around one.
fn special_tokens(tokenizer: &Tokenizer, header: &mut Header) -> Result<(), String> {
    let ends = &tokenizer.end_tokens;
    if ends.len() > END_KEYS.len() {
        return Err(format!("{} end tokens; it has keys for {}", ends.len(), END_KEYS.len()));
    }
    for (key, id) in END_KEYS.iter().zip(ends) {
        header.u32(&format!("tokenizer.ggml.{key}"), *id);
    }
    let Some([before, behind]) = tokenizer.around() else {
        let words = "what this tokenizer adds to texts; GGUF can describe one token before a text and one after";
        return Err(words.to_owned());
    };
    if let Some(begin) = tokenizer.begin() {
        header.u32("tokenizer.ggml.bos_token_id", begin);
    }
    if behind.is_some() && behind != ends.first().copied() {
        return Err("a token after every text that is not the end token".to_owned());
    }
    header.bool("tokenizer.ggml.add_bos_token", before.is_some());
    header.bool("tokenizer.ggml.add_eos_token", behind.is_some());
    Ok(())
}

/// The keys of llama.cpp's end tokens: of a text, of a turn, of a message.
pub const END_KEYS: [&str; 3] = ["eos_token_id", "eot_token_id", "eom_token_id"];
