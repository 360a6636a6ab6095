//! SentencePiece's BPE as Llama has it: a `tokenizer.json` has its merges, a file of llama2.c the
//! score of every piece, by which the best two neighbours are joined first. Each is made of the
//! other, as transformers does it.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::{Tokenizer, error::shown};

/// What pieces have for a space.
pub const SPACE: &str = "▁";

/// The token that ends a text, behind `<unk>` and `<s>`.
pub const END: u32 = 2;

/// The id of the token that begins it.
pub const BEGIN: u32 = 1;

/// The special tokens, by their ids.
const SPECIAL: [&str; 3] = ["<unk>", "<s>", "</s>"];

/// The first piece behind the special tokens and the bytes.
pub const FIRST: usize = SPECIAL.len() + 256;

/// Longest piece that is read, in bytes; SentencePiece's own are 16 characters at most.
pub const LONGEST: usize = 1 << 10;

/// Below every score: what is never joined.
pub const NEVER: f32 = -1e10;

/// The piece of a byte, whose id is the byte's value and three.
fn byte_piece(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

/// What is put before a text, whose every space becomes a mark.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Before {
    /// A space, as SentencePiece does it.
    Space,
    /// A space where the text does not begin with one: what transformers saves since its version 5.
    SpaceIfNone,
    /// Nothing.
    Nothing,
}

/// The `tokenizer.json` of pieces with their scores, in the order of their ids; `spaced` is whether a
/// space is put before every text.
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

/// The ids of pieces, where these are different, and the special tokens and the bytes stand first.
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

/// A mark for each space, and one before every text.
fn normalizer(spaced: bool) -> Value {
    let marks = json!({ "type": "Replace", "pattern": { "String": " " }, "content": SPACE });
    let before = json!({ "type": "Prepend", "prepend": SPACE });
    if spaced { json!({ "type": "Sequence", "normalizers": [before, marks] }) } else { marks }
}

/// The way back from pieces to text.
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

/// How many times as long as all pieces the ways to make them may be, written out: of GPT-2's fifty
/// thousand tokens they are twice as long, while a run of one letter is made of shorter ones in as
/// many ways as it is long.
const MOST_WAYS: usize = 16;

/// Every way to make a piece of two others, the best score first.
fn merges(pieces: &[(String, f32)]) -> Result<Vec<Value>, String> {
    let ids: HashMap<&str, usize> =
        pieces.iter().enumerate().skip(FIRST).map(|(id, (piece, _))| (piece.as_str(), id)).collect();
    let mut room = MOST_WAYS * pieces.iter().map(|(piece, _)| piece.len()).sum::<usize>();
    let mut found = Vec::new();
    for (piece, score) in pieces.iter().skip(FIRST).filter(|(_, score)| *score > NEVER) {
        for (left, right) in piece.char_indices().skip(1).map(|(at, _)| piece.split_at(at)) {
            let (Some(left_id), Some(right_id)) = (ids.get(left), ids.get(right)) else { continue };
            room = room
                .checked_sub(piece.len())
                .ok_or("its tokens can be made of one another in more ways than those of any tokenizer")?;
            found.push((*score, left_id, right_id, left, right));
        }
    }
    found.sort_by(|one, other| other.0.total_cmp(&one.0).then((one.1, one.2).cmp(&(other.1, other.2))));
    Ok(found.into_iter().map(|(.., left, right)| json!([left, right])).collect())
}

/// What a `tokenizer.json` puts before a text; `None` where it is not of this kind.
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

/// The pieces of a `tokenizer.json` with scores, of a model with `rows` rows: the first merge has
/// the highest, what no merge makes is never joined.
pub fn pieces(tokenizer: &Value, rows: usize) -> Result<Vec<(String, f32)>, String> {
    let model = &tokenizer["model"];
    let vocabulary = model["vocab"].as_object().into_iter().flatten().map(|(piece, id)| (piece.as_str(), id));
    let added = tokenizer["added_tokens"].as_array().into_iter().flatten();
    let added = added.filter_map(|token| Some((token["content"].as_str()?, &token["id"])));
    if before(tokenizer).is_none() {
        let kind = model["type"].as_str().unwrap_or("none");
        return Err(format!(
            "this tokenizer (model {kind}): it has words for SentencePiece's BPE, as Llama 2 has it, alone"
        ));
    }
    Tokenizer::check_words(tokenizer, false)?;
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
        let score = scores.get(&piece).copied().unwrap_or(NEVER);
        Ok::<_, String>((piece, score))
    };
    let pieces: Vec<_> = pieces.into_iter().enumerate().map(with_score).collect::<Result<_, _>>()?;
    vocabulary_of(&pieces)?; // that the special tokens and the bytes stand where they must
    Ok(pieces)
}
