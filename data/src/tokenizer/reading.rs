//! The text of a single token, for each kind of decoder.

use serde_json::Value;
use tokenizers::{Decoder, DecoderWrapper, Tokenizer as Library};

use super::byte_level;

/// The bytes of a token within a text, possibly part of a character.
///
/// `None` for an unknown id, or a kind of decoder that cannot decode a single token.
pub fn bytes_of(library: &Library, id: u32) -> Option<Vec<u8>> {
    let token = library.id_to_token(id)?;
    if library.get_added_vocabulary().get_added_tokens_decoder().contains_key(&id) {
        return Some(token.into_bytes());
    }
    let Some(decoder) = library.get_decoder() else { return Some(format!(" {token}").into_bytes()) };
    match decoder {
        DecoderWrapper::ByteLevel(_) => byte_level::bytes_of(&token).or(Some(token.into_bytes())),
        DecoderWrapper::Fuse(_) => Some(token.into_bytes()),
        DecoderWrapper::Metaspace(metaspace) => Some(token.replace(metaspace.get_replacement(), " ").into_bytes()),
        DecoderWrapper::Sequence(_) => sentencepiece_bytes(&token, &serde_json::to_value(decoder).ok()?),
        // Such decoders put spaces before all words but the first, or after all but the last.
        DecoderWrapper::WordPiece(_) | DecoderWrapper::BPE(_) => {
            let between = decoder.decode_chain(vec![token; 3]).ok()?;
            between.into_iter().nth(1).map(String::into_bytes)
        }
        _ => None,
    }
}

/// Whether concatenating the tokens' bytes gives the encoded text back, except for changes by a
/// normalizer. Other decoders put spaces between words even where the text had none.
pub fn is_exact(library: &Library) -> bool {
    !matches!(library.get_decoder(), None | Some(DecoderWrapper::WordPiece(_) | DecoderWrapper::BPE(_)))
}

/// The bytes of a SentencePiece token, in which `▁` is a space and `<0x0A>` a byte, if the decoder
/// maps them so.
fn sentencepiece_bytes(token: &str, decoder: &Value) -> Option<Vec<u8>> {
    let steps = decoder["decoders"].as_array()?;
    let has = |kind: &str| steps.iter().any(|step| step["type"] == kind);
    if has("ByteFallback")
        && let Some(hex) = token.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>'))
        && let Ok(byte) = u8::from_str_radix(hex, 16)
    {
        return Some(vec![byte]);
    }
    has("Replace").then(|| token.replace('▁', " ").into_bytes())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    /// The text a decoder gives for the tokens `a`, `##b`, `c</w>`, `,` and `<0x0A>`, each in
    /// single quotes.
    fn read(decoder: &Value) -> (Option<String>, bool) {
        let vocab = json!({ "a": 0, "##b": 1, "c</w>": 2, ",": 3, "<0x0A>": 4, "▁d": 5 });
        let model = json!({ "type": "WordLevel", "vocab": vocab, "unk_token": "a" });
        let file = json!({ "version": "1.0", "added_tokens": [], "decoder": decoder, "model": model });
        let library = Library::from_bytes(file.to_string()).unwrap();
        let each = |id| String::from_utf8(bytes_of(&library, id)?).ok().map(|text| format!("'{text}'"));
        ((0..6).map(each).collect(), is_exact(&library))
    }

    #[test]
    fn tokens_read_as_the_decoder_says() {
        let sentencepiece = json!({ "type": "Sequence", "decoders": [
            { "type": "Replace", "pattern": { "String": "▁" }, "content": " " }, { "type": "ByteFallback" }, { "type": "Fuse" },
        ] });
        for (decoder, expected, exact) in [
            (json!({ "type": "Fuse" }), Some("'a''##b''c</w>'',''<0x0A>''▁d'"), true),
            (sentencepiece, Some("'a''##b''c</w>'',''\n'' d'"), true),
            (
                json!({ "type": "WordPiece", "prefix": "##", "cleanup": true }),
                Some("' a''b'' c</w>'','' <0x0A>'' ▁d'"),
                false,
            ),
            (json!({ "type": "BPEDecoder", "suffix": "</w>" }), Some("'a''##b''c '',''<0x0A>''▁d'"), false),
            (Value::Null, Some("' a'' ##b'' c</w>'' ,'' <0x0A>'' ▁d'"), false),
            (json!({ "type": "CTC", "pad_token": "a", "word_delimiter_token": "|", "cleanup": true }), None, true),
        ] {
            assert_eq!(read(&decoder), (expected.map(str::to_owned), exact), "{decoder}");
        }
    }
}
