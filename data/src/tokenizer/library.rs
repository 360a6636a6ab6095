//! Calls into the `tokenizers` library.

use super::error::Error;
use ember_host::panics::quietly;
use serde_json::Value;
use tokenizers::{Encoding, Model, ModelWrapper, PreTokenizerWrapper, Token, Tokenizer as Library};

/// The maximum factor by which all replacements together may lengthen a text.
const MAX_GROWTH: usize = 4096;

/// Calls the library on untrusted input: its errors, and its panics over damaged files, become our
/// errors.
pub fn call_library<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, Error> {
    quietly(call).map_err(|panic| Error::Unusable(panic.to_string()))?.map_err(library_error)
}

/// Wraps an error of the library, in its own words. There is no `From`: the library's error type is
/// any boxed error, and not every boxed error is the library's.
pub fn library_error(error: tokenizers::Error) -> Error {
    Error::Unusable(error.to_string())
}

/// Sets whether GPT-2's rule treats the first word of a text as if a space preceded it; `None`
/// keeps the file's setting.
pub fn set_prefix_space(library: &mut Library, space: Option<bool>) {
    if let (Some(PreTokenizerWrapper::ByteLevel(rule)), Some(space)) = (library.get_pre_tokenizer(), space) {
        let rule = rule.add_prefix_space(space);
        library.with_pre_tokenizer(Some(rule));
    }
}

/// The tokens that the post-processor adds before and after any text, found by processing a text of
/// one token.
pub fn added_around(library: &Library) -> Result<[Vec<u32>; 2], Error> {
    let text = Encoding::from_tokens(vec![Token::new(0, String::new(), (0, 0))], 0);
    let whole = call_library(|| library.post_process(text, None, true))?;
    let (ids, is_added) = (whole.get_ids(), whole.get_special_tokens_mask());
    let own = |&added: &u32| added != 1;
    match (is_added.iter().position(own), is_added.iter().rposition(own)) {
        (Some(first), Some(last)) => Ok([ids[..first].to_vec(), ids[last + 1..].to_vec()]),
        _ => Ok([Vec::new(), Vec::new()]),
    }
}

/// The unknown token.
pub fn unknown(library: &Library) -> Option<u32> {
    let model = library.get_model();
    let name = match model {
        ModelWrapper::BPE(model) => model.unk_token.as_deref(),
        ModelWrapper::WordLevel(model) => Some(&*model.unk_token),
        ModelWrapper::WordPiece(model) => Some(&*model.unk_token),
        ModelWrapper::Unigram(model) => {
            let id = serde_json::to_value(model).ok()?["unk_id"].as_u64()?; // not accessible in any other way
            return u32::try_from(id).ok();
        }
    };
    model.token_to_id(name?)
}

/// Rejects a tokenizer whose replacements could lengthen a text beyond any memory: each one can
/// lengthen it by a factor of up to the file's length.
pub fn check_replacements(library: &Library) -> Result<(), Error> {
    let parts = [serde_json::to_value(library.get_normalizer()), serde_json::to_value(library.get_decoder())];
    for part in parts {
        let grows = growth(&part.map_err(|error| Error::Unusable(error.to_string()))?);
        if grows > MAX_GROWTH {
            let far =
                if grows == usize::MAX { "without limit".to_owned() } else { format!("to {grows} times its length") };
            return Err(Error::Unusable(format!(
                "its replacements may lengthen a text {far} (at most {MAX_GROWTH} times is allowed): correct its normalizer or \
                 decoder"
            )));
        }
    }
    Ok(())
}

/// The maximum factor by which a part of a tokenizer, with all its subparts, can lengthen a text.
fn growth(part: &Value) -> usize {
    let product = |parts: &mut dyn Iterator<Item = &Value>| parts.map(growth).fold(1, usize::saturating_mul);
    match part {
        Value::Array(parts) => product(&mut parts.iter()),
        Value::Object(keys) if keys.get("type").is_some_and(|kind| kind == "Replace") => {
            let content = keys.get("content").and_then(Value::as_str).map_or(0, str::len);
            // A regular expression may match a single byte, or the empty string between two.
            let found = part.pointer("/pattern/String").and_then(Value::as_str).map_or(1, |text| text.len().max(1));
            content.div_ceil(found).max(1)
        }
        Value::Object(keys) => product(&mut keys.values()),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn replacements_may_not_make_an_endless_text() {
        let check = |normalizer: Value| {
            let model = json!({ "type": "WordLevel", "vocab": { "a": 0 }, "unk_token": "a" });
            let file = json!({ "version": "1.0", "added_tokens": [], "normalizer": normalizer, "model": model });
            check_replacements(&Library::from_bytes(file.to_string()).unwrap())
        };
        let replace =
            |pattern: Value, content: &str| json!({ "type": "Replace", "pattern": pattern, "content": content });
        let all = |parts: Vec<Value>| json!({ "type": "Sequence", "normalizers": parts });
        check(Value::Null).unwrap();
        check(replace(json!({ "String": " " }), "▁")).unwrap();
        check(all(vec![replace(json!({ "String": "猫" }), "犬"); 100])).unwrap();
        check(all(vec![replace(json!({ "Regex": " {2,}" }), "▁"); 7])).unwrap();
        for endless in [
            replace(json!({ "String": "a" }), &"a".repeat(5000)),
            all(vec![replace(json!({ "String": "a" }), "aa"); 13]),
            all(vec![replace(json!({ "Regex": "" }), "aa"); 100]),
        ] {
            let line = check(endless).unwrap_err().to_string();
            assert!(line.contains("its replacements may lengthen a text "), "{line}");
        }
    }
}
