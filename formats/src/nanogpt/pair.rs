//! GPT-2's two tokenizer files: `vocab.json` with the tokens, `merges.txt` with the merges.

use std::str;

use serde_json::{Map, Value};

use crate::error::{FormatError, Result, shown};
use crate::{Tokenizer, mapped::Mapped};

/// The token that ends a text, if the vocabulary has it.
pub const END_OF_TEXT: &str = "<|endoftext|>";

/// The `tokenizer.json` equivalent of the two files, for a model with vocabulary size `rows`.
///
/// # Errors
/// When a file is malformed, or has a token outside the model's vocabulary.
pub fn tokenizer(vocabulary: &Mapped, merges: &Mapped, rows: usize) -> Result<Value> {
    let unsupported = |file: &Mapped, what: String| FormatError::unsupported(file.path(), what);
    let tokens = tokens(vocabulary, rows).map_err(|what| unsupported(vocabulary, what))?;
    let pairs = pairs(merges, &tokens).map_err(|what| unsupported(merges, what))?;
    let end = tokens.get(END_OF_TEXT).and_then(Value::as_u64);
    let end = end.map(|id| Tokenizer::added_token(id as usize, END_OF_TEXT, true));
    let splitter = Tokenizer::byte_level_rule(true);
    Ok(Tokenizer::of_byte_pairs(tokens, pairs, Vec::from_iter(end), [Value::Null, splitter]))
}

fn tokens(file: &[u8], rows: usize) -> Result<Map<String, Value>, String> {
    let tokens: Map<String, Value> =
        serde_json::from_slice(file).map_err(|error| format!("it is not a vocab.json ({error})"))?;
    let has_row = |id: &Value| id.as_u64().is_some_and(|id| id < rows as u64);
    match tokens.iter().find(|(_, id)| !has_row(id)) {
        Some((token, id)) => Err(format!(
            "its token {} has the id {id}, but the model has only 0 to {}; put the model's own file there",
            shown(token),
            rows - 1
        )),
        None => Ok(tokens),
    }
}

/// The merges, one per line, in order; the first line states the version of the format.
fn pairs(file: &[u8], tokens: &Map<String, Value>) -> Result<Vec<Value>, String> {
    let text = str::from_utf8(file).map_err(|_| "it is not a merges.txt (it is not UTF-8)".to_owned())?;
    let pair = |line: &str| {
        Tokenizer::merge(tokens, line).ok_or_else(|| {
            let line = shown(line);
            format!("{line} does not merge two tokens of vocab.json into a third; the two files do not belong together")
        })
    };
    text.lines().filter(|line| !line.is_empty() && !line.starts_with("#version")).map(pair).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use serde_json::json;

    use super::*;

    fn read(vocabulary: &str, merges: &str) -> Result<Value, String> {
        let place = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &str| {
            fs::write(place.path().join(name), content).unwrap();
            Mapped::open(&place.path().join(name)).unwrap()
        };
        tokenizer(&file("vocab.json", vocabulary), &file("merges.txt", merges), 5).map_err(|error| error.to_string())
    }

    #[test]
    fn two_files_are_one_tokenizer() {
        let vocabulary = r#"{"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 4}"#;
        let json = read(vocabulary, "#version: 0.2\na b\n").unwrap();
        assert_eq!(json["model"]["vocab"]["ab"], 2);
        assert_eq!(json["model"]["merges"], json!([["a", "b"]]));
        assert_eq!((&json["added_tokens"][0]["id"], &json["added_tokens"][0]["special"]), (&json!(4), &json!(true)));
        assert_eq!(read(r#"{"a": 0}"#, "").unwrap()["added_tokens"], json!([]));
    }

    #[test]
    fn what_does_not_belong_together_is_refused_by_the_file_s_name() {
        let refused = |vocabulary: &str, merges: &str| read(vocabulary, merges).unwrap_err();
        assert!(refused("[]", "").contains("vocab.json: it is not a vocab.json"));
        let row = refused(r#"{"a": 5}"#, "");
        assert!(
            row.ends_with(
                "its token \"a\" has the id 5, but the model has only 0 to 4; put the model's own file there"
            )
        );
        for merges in ["a b", "ab", "a  a", "#version: 0.2\na c\n"] {
            let line = refused(r#"{"a": 0, "b": 1}"#, merges);
            assert!(line.contains("merges.txt: \"") && line.contains("does not merge two tokens"), "{line}");
        }
    }
}
