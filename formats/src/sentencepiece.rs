//! Llama's SentencePiece BPE: a `tokenizer.json` has merges, a file of llama2.c has a score for
//! every piece, and the adjacent pair whose merged piece has the best score is merged first. Each
//! is converted to the other as transformers does it.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::{Tokenizer, error::shown};

/// The character that represents a space in pieces.
pub const SPACE: &str = "▁";

/// The id of the token that ends a text.
pub const END: u32 = 2;

/// The id of the token that begins a text.
pub const BEGIN: u32 = 1;

/// The special tokens, in the order of their ids.
pub const SPECIAL: [&str; 3] = ["<unk>", "<s>", "</s>"];

/// The id of the first piece after the special tokens and the bytes.
pub const FIRST: usize = SPECIAL.len() + 256;

/// Longest piece that is read, in bytes; SentencePiece's own have at most 16 characters.
pub const LONGEST: usize = 1 << 10;

/// The score of pieces that no merge makes, below every other score.
pub const NEVER_MERGED: f32 = -1e10;

/// The piece of a byte; the bytes follow the [`SPECIAL`] tokens.
fn byte_piece(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

/// What is added before a text (all its spaces become [`SPACE`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Before {
    /// A space, as in SentencePiece.
    Space,
    /// A space, unless the text begins with one: what transformers saves since version 5.
    SpaceIfNone,
    /// Nothing.
    Nothing,
}

/// The `tokenizer.json` for pieces with scores, in the order of their ids; `spaced` is whether a
/// space is added before every text.
pub fn json(pieces: &[(String, f32)], spaced: bool) -> Result<Value, String> {
    let (vocabulary, merges) = (vocabulary_of(pieces)?, merges(pieces)?);
    let added = |(id, name): (usize, &&str)| Tokenizer::added_token(id, name, true);
    let text = |id: &str, kind: usize| json!({ "Sequence": { "id": id, "type_id": kind } });
    let begin = json!({ "SpecialToken": { "id": "<s>", "type_id": 0 } });
    Ok(json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": SPECIAL.iter().enumerate().map(added).collect::<Vec<_>>(),
        "normalizer": normalizer(spaced),
        "pre_tokenizer": null,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [begin, text("A", 0)],
            "pair": [begin, text("A", 0), text("B", 1)],
            "special_tokens": { "<s>": { "id": "<s>", "ids": [1], "tokens": ["<s>"] } },
        },
        "decoder": decoder(spaced),
        "model": {
            "type": "BPE",
            "dropout": null,
            "unk_token": "<unk>",
            "continuing_subword_prefix": null,
            "end_of_word_suffix": null,
            "fuse_unk": true,
            "byte_fallback": true,
            "ignore_merges": false,
            "merges": merges,
            "vocab": vocabulary,
        },
    }))
}

/// The ids of pieces, which must be distinct and begin with the special tokens and the bytes.
fn vocabulary_of(pieces: &[(String, f32)]) -> Result<Map<String, Value>, String> {
    let own = SPECIAL.iter().map(|name| (*name).to_owned()).chain((0..=255).map(byte_piece));
    for (id, expected) in own.enumerate() {
        match pieces.get(id) {
            Some((piece, _)) if *piece == expected => {}
            other => {
                let found = other.map_or("missing".to_owned(), |(piece, _)| shown(piece));
                return Err(format!("its token {id} is {found} where Llama's tokenizers have {expected:?}"));
            }
        }
    }
    let mut vocabulary = Map::new();
    for (id, (piece, _)) in pieces.iter().enumerate() {
        if vocabulary.insert(piece.clone(), id.into()).is_some() {
            return Err(format!("two of its tokens are {}", shown(piece)));
        }
    }
    Ok(vocabulary)
}

/// Replaces each space by [`SPACE`] and, if `spaced`, adds one before every text.
pub fn normalizer(spaced: bool) -> Value {
    let marks = json!({ "type": "Replace", "pattern": { "String": " " }, "content": SPACE });
    let before = json!({ "type": "Prepend", "prepend": SPACE });
    if spaced { json!({ "type": "Sequence", "normalizers": [before, marks] }) } else { marks }
}

/// The decoder from pieces to text.
fn decoder(spaced: bool) -> Value {
    let mut steps = vec![
        json!({ "type": "Replace", "pattern": { "String": SPACE }, "content": " " }),
        json!({ "type": "ByteFallback" }),
        json!({ "type": "Fuse" }),
    ];
    if spaced {
        steps.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
    }
    json!({ "type": "Sequence", "decoders": steps })
}

/// Limit on the total length of all splits of pieces into two pieces, relative to the length of all
/// pieces: for GPT-2's fifty thousand tokens the ratio is 2, while a run of one letter has as many
/// splits as it has letters.
const MAX_SPLITS: usize = 16;

/// Limit on the total length of all splits that are looked up, likewise: enough for any pieces of up
/// to 64 characters.
const MAX_LOOKUPS: usize = 64;

/// Every split of a piece into two others, as merges, the best score first.
fn merges(pieces: &[(String, f32)]) -> Result<Vec<Value>, String> {
    let ids: HashMap<&str, usize> =
        pieces.iter().enumerate().skip(FIRST).map(|(id, (piece, _))| (piece.as_str(), id)).collect();
    let total = pieces.iter().map(|(piece, _)| piece.len()).sum::<usize>();
    let (mut room, mut lookups) = (MAX_SPLITS * total, MAX_LOOKUPS * total);
    let charge = |room: usize, piece: &str| {
        room.checked_sub(piece.len()).ok_or("its tokens can be split in more ways than those of any real tokenizer")
    };
    let mut found = Vec::new();
    for (piece, score) in pieces.iter().skip(FIRST).filter(|(_, score)| *score > NEVER_MERGED) {
        for (left, right) in piece.char_indices().skip(1).map(|(at, _)| piece.split_at(at)) {
            lookups = charge(lookups, piece)?;
            let (Some(left_id), Some(right_id)) = (ids.get(left), ids.get(right)) else { continue };
            room = charge(room, piece)?;
            found.push((*score, left_id, right_id, left, right));
        }
    }
    found.sort_by(|one, other| other.0.total_cmp(&one.0).then((one.1, one.2).cmp(&(other.1, other.2))));
    Ok(found.into_iter().map(|(.., left, right)| json!([left, right])).collect())
}

/// What a `tokenizer.json` adds before a text; `None` if it is not of this kind.
pub fn before(tokenizer: &Value) -> Option<Before> {
    let (model, normalizes, splits) = (&tokenizer["model"], &tokenizer["normalizer"], &tokenizer["pre_tokenizer"]);
    if model["type"] != "BPE" || model["byte_fallback"] != true {
        return None;
    }
    if splits.is_null() {
        let befores = [(Before::Space, normalizer(true)), (Before::Nothing, normalizer(false))];
        return befores.into_iter().find(|(_, expected)| expected == normalizes).map(|(before, _)| before);
    }
    if !normalizes.is_null()
        || splits["type"] != "Metaspace"
        || splits["replacement"] != SPACE
        || splits["split"] != false
    {
        return None;
    }
    match splits["prepend_scheme"].as_str()? {
        "never" => Some(Before::Nothing),
        "first" | "always" => Some(Before::SpaceIfNone),
        _ => None,
    }
}

/// The pieces of a `tokenizer.json` with scores, for a model with vocabulary size `rows`: the first
/// merge has the highest score, and pieces that no merge makes have the score [`NEVER_MERGED`].
pub fn pieces(tokenizer: &Value, rows: usize) -> Result<Vec<(String, f32)>, String> {
    let model = &tokenizer["model"];
    let vocabulary = model["vocab"].as_object().into_iter().flatten().map(|(piece, id)| (piece.as_str(), id));
    let added = tokenizer["added_tokens"].as_array().into_iter().flatten();
    let added = added.filter_map(|token| Some((token["content"].as_str()?, &token["id"])));
    if before(tokenizer).is_none() {
        let kind = model["type"].as_str().unwrap_or("none");
        return Err(format!("this tokenizer (model {kind}): it can describe only SentencePiece's BPE, as in Llama 2"));
    }
    Tokenizer::check_expressible(tokenizer, false)?;
    let mut pieces: Vec<Option<String>> = vec![None; rows];
    for (piece, id) in vocabulary.chain(added) {
        *Tokenizer::slot(&mut pieces, piece, id)? = Some(piece.to_owned());
    }
    let mut scores: HashMap<String, f32> = HashMap::new();
    for (rank, merge) in model["merges"].as_array().into_iter().flatten().enumerate() {
        let joined = match merge {
            Value::Array(pair) => pair.iter().filter_map(Value::as_str).collect(),
            other => other.as_str().unwrap_or_default().replacen(' ', "", 1),
        };
        scores.entry(joined).or_insert(-(rank as f32));
    }
    let with_score = |(id, piece): (usize, Option<String>)| {
        let piece = piece.ok_or_else(|| format!("a model whose row {id} has no token"))?;
        let score = scores.get(&piece).copied().unwrap_or(NEVER_MERGED);
        Ok::<_, String>((piece, score))
    };
    let pieces: Vec<_> = pieces.into_iter().enumerate().map(with_score).collect::<Result<_, _>>()?;
    vocabulary_of(&pieces)?; // checks that special tokens and bytes have their ids
    Ok(pieces)
}
