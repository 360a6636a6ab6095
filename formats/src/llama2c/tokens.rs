//! `tokenizer.bin`: the length of the longest token, then for every token its score, its length and
//! its bytes. The tokens are those of SentencePiece's BPE for Llama: the first three are `<unk>`,
//! `<s>` and `</s>`, then come the 256 bytes.

use crate::Tokenizer;
use crate::sentencepiece::{self, Before};

/// How a file spells the tokens that begin and end a text.
const BEGIN: &str = "\n<s>\n";
const END: &str = "\n</s>\n";

/// Reads the tokenizer of a model with vocabulary size `rows`.
pub fn read(file: &[u8], rows: usize) -> Result<Tokenizer, String> {
    let (_, mut rest) = file.split_at_checked(4).ok_or("it is shorter than any tokenizer.bin")?;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let cut = || format!("it is truncated in token {}; copy or download it again", pieces.len());
        let (score, after) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let (length, after) = after.split_first_chunk::<4>().ok_or_else(cut)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (bytes, after) =
            after.split_at_checked(length).filter(|_| length <= sentencepiece::LONGEST).ok_or_else(cut)?;
        let text = std::str::from_utf8(bytes).map_err(|_| format!("its token {} is not UTF-8", pieces.len()))?;
        let text = match (pieces.len(), text) {
            (1, BEGIN) => "<s>".to_owned(),
            (2, END) => "</s>".to_owned(),
            _ => text.replace(' ', sentencepiece::SPACE),
        };
        pieces.push((text, f32::from_le_bytes(*score)));
        rest = after;
    }
    if pieces.len() != rows {
        return Err(format!(
            "it has {} tokens, but the model beside it {rows}; take both from one model",
            pieces.len()
        ));
    }
    let json = sentencepiece::json(&pieces, true)?;
    let (end_tokens, begin_token) = (vec![sentencepiece::END], Some(sentencepiece::BEGIN));
    Ok(Tokenizer { json, end_tokens, begin_token, ..Tokenizer::default() })
}

/// Serializes a tokenizer.
pub fn bytes(tokenizer: &Tokenizer, rows: usize) -> Result<Vec<u8>, String> {
    let pieces = sentencepiece::pieces(&tokenizer.json, rows)?;
    if sentencepiece::before(&tokenizer.json) == Some(Before::Nothing) {
        return Err("a tokenizer that puts no space before a text; it puts one before each".to_owned());
    }
    if tokenizer.around() != Some([Some(sentencepiece::BEGIN), None]) {
        return Err(
            "what this tokenizer adds to texts; llama2.c always adds <s> before a text and nothing after".to_owned()
        );
    }
    if !matches!(tokenizer.end_tokens.as_slice(), [] | [sentencepiece::END]) {
        return Err(format!("the end tokens {:?}; its own is {}", tokenizer.end_tokens, sentencepiece::END));
    }
    let text = |id: usize, piece: &str| match id {
        1 => BEGIN.to_owned(),
        2 => END.to_owned(),
        _ => piece.replace(sentencepiece::SPACE, " "),
    };
    let tokens: Vec<(String, f32)> =
        pieces.iter().enumerate().map(|(id, (piece, score))| (text(id, piece), *score)).collect();
    let longest = tokens.iter().map(|(token, _)| token.len()).max().unwrap_or(0);
    let mut out = (longest as u32).to_le_bytes().to_vec();
    for (token, score) in tokens {
        out.extend(score.to_le_bytes());
        out.extend((token.len() as u32).to_le_bytes());
        out.extend(token.as_bytes());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_another_token_begins_or_ends_is_refused() {
        let file = include_bytes!("../../tests/fixtures/llama2c/v0/tokenizer.bin");
        let good = read(file, 340).unwrap();
        bytes(&good, 340).unwrap();
        bytes(&Tokenizer { end_tokens: Vec::new(), ..good.clone() }, 340).unwrap();
        for end_tokens in [vec![3], vec![2, 3]] {
            let line = bytes(&Tokenizer { end_tokens, ..good.clone() }, 340).unwrap_err();
            assert!(line.starts_with("the end tokens [") && line.ends_with("; its own is 2"), "{line}");
        }
        let mut without_begin = good.clone();
        without_begin.json["post_processor"] = serde_json::Value::Null;
        assert!(bytes(&without_begin, 340).unwrap_err().starts_with("what this tokenizer adds to texts"));
    }

    #[test]
    fn the_space_that_it_puts_before_every_text_may_be_one_that_is_put_where_none_is() {
        let file = include_bytes!("../../tests/fixtures/llama2c/v0/tokenizer.bin");
        let mut other = read(file, 340).unwrap();
        let expected = bytes(&other, 340).unwrap();
        other.json["normalizer"] = serde_json::Value::Null;
        let mut with = |scheme: &str| {
            other.json["pre_tokenizer"] = serde_json::json!({
                "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false,
            });
            bytes(&other, 340)
        };
        assert!(with("first").unwrap() == expected);
        assert!(with("always").unwrap() == expected);
        assert!(with("never").unwrap_err().contains("puts no space before a text"));
    }

    #[test]
    fn another_way_to_split_text_is_refused() {
        let file = include_bytes!("../../tests/fixtures/llama2c/v0/tokenizer.bin");
        let good = read(file, 340).unwrap();
        let refused = |key: &str, value: serde_json::Value| {
            let mut other = good.clone();
            *other.json.pointer_mut(key).unwrap() = value;
            bytes(&other, 340).unwrap_err()
        };
        refused("/pre_tokenizer", serde_json::json!({ "type": "Digits", "individual_digits": true }));
        assert!(refused("/model/ignore_merges", true.into()).contains("ignore_merges true"));
        assert!(refused("/model/end_of_word_suffix", "</w>".into()).contains("end_of_word_suffix"));
        assert!(refused("/added_tokens/2/rstrip", true.into()).contains("the token \"</s>\" with rstrip"));
    }
}
