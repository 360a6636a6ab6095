#![allow(clippy::unwrap_used)]

use super::{split::tests::tricky, *};
use proptest::prelude::*;
use std::{collections::BTreeSet, sync::LazyLock};

const TEXT: &str = "In the beginning the ball was in the kitchen. Then the children took the ball to the garden; 'twas there they'd play.";

static BPE_TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::train_bpe(300, [TEXT]).unwrap());
static BYTES_TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| Tokenizer::bytes().unwrap());

fn chars(text: &str, end_of_text: bool) -> Tokenizer {
    Tokenizer::chars(&text.chars().collect::<BTreeSet<_>>(), end_of_text).unwrap()
}

/// The library's ids, whatever encoder of ours was chosen.
fn library_ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let mut library = tokenizer.shared.library.clone();
    library.set_encode_special_tokens(true);
    library.encode(text, false).unwrap().get_ids().to_vec()
}

fn joined_bytes(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|&id| tokenizer.token_bytes(id).unwrap()).collect()
}

#[test]
fn characters_are_numbered_by_code_point() {
    let tokenizer = chars("hello\né", true);
    assert_eq!(tokenizer.encode("\nehloé").unwrap(), [0, 1, 2, 3, 4, 5]);
    assert_eq!((tokenizer.vocab_size(), tokenizer.end_of_text()), (7, Some(6)));
    assert_eq!(tokenizer.decode_text(&[2, 5, 0, 6]).unwrap(), "hé\n<|endoftext|>");
    assert_eq!(chars("abc", false).end_of_text(), None);
    assert_eq!(chars("abc", false).vocab_size(), 3);
}

#[test]
fn an_unknown_character_is_named_and_placed() {
    let error = chars("abc\n", false).encode("ab\nc\ncé").unwrap_err();
    let Error::UnknownCharacter(unknown) = &error else { panic!("{error}") };
    assert_eq!((unknown.character, unknown.line, unknown.position, unknown.alphabet), ('é', 3, 7, 4));
    assert!(error.to_string().starts_with("character 'é' (U+00E9) in line 3, character 7"), "{error}");
}

#[test]
fn bytes_are_numbered_by_value() {
    let tokenizer = &BYTES_TOKENIZER;
    assert_eq!(tokenizer.encode("Aé\0").unwrap(), [65, 0xc3, 0xa9, 0]);
    assert_eq!((tokenizer.vocab_size(), tokenizer.end_of_text()), (257, Some(256)));
    assert_eq!(tokenizer.token_bytes(0xc3).unwrap(), [0xc3]);
}

#[test]
fn merges_are_learnt_by_frequency() {
    // "ab" four times, then "abc" three times; no other pair occurs twice.
    let tokenizer = Tokenizer::train_bpe(259, ["abc abc", "abc", "ab"]).unwrap();
    assert_eq!(tokenizer.vocab_size(), 259);
    let ids = tokenizer.encode("abcab").unwrap();
    assert_eq!(ids.iter().map(|&id| tokenizer.token_bytes(id).unwrap()).collect::<Vec<_>>(), [&b"abc"[..], b"ab"]);
    assert_eq!(tokenizer.end_of_text(), Some(258));
}

#[test]
fn a_small_text_gives_a_small_vocabulary() {
    let tokenizer = Tokenizer::train_bpe(8192, ["aa"]).unwrap();
    assert_eq!((tokenizer.vocab_size(), tokenizer.end_of_text()), (258, Some(257)));
}

#[test]
fn the_same_texts_give_the_same_tokenizer() {
    let words: Vec<String> = (0..2000).map(|i| format!("{:x} {:o}", crate::random::mix(i), i)).collect();
    let learn = || Tokenizer::train_bpe(600, &words).unwrap().to_json().unwrap();
    assert_eq!(learn(), learn());
}

#[test]
fn end_of_text_in_a_document_is_text_and_in_a_prompt_the_token() {
    for tokenizer in [BPE_TOKENIZER.clone(), BYTES_TOKENIZER.clone(), chars("a<|endoftext|>", true)] {
        let end = tokenizer.end_of_text().unwrap();
        let plain = tokenizer.encode("a<|endoftext|>a").unwrap();
        assert!(!plain.contains(&end));
        assert_eq!(tokenizer.decode_text(&plain).unwrap(), "a<|endoftext|>a");
        let a = tokenizer.encode("a").unwrap()[0];
        assert_eq!(tokenizer.encode_prompt("a<|endoftext|>a", SpecialTokens::Parse).unwrap(), [a, end, a]);
        assert_eq!(tokenizer.encode_prompt("a<|endoftext|>a", SpecialTokens::Text).unwrap(), plain);
    }
    let without = chars("a<|endoftext|>", false);
    assert_eq!(without.encode_prompt("<|", SpecialTokens::Parse).unwrap(), without.encode("<|").unwrap());
}

/// A model trained on documents from their beginning expects prompts to begin like that, in our
/// program and in others that read the file.
#[test]
fn prompts_open_with_the_end_of_text_where_the_model_needs_it() {
    let plain = Tokenizer::chars(&"ab".chars().collect(), true).unwrap();
    let end = plain.end_of_text().unwrap();
    let folder = tempfile::tempdir().unwrap();
    plain.opening_prompts().unwrap().save(folder.path()).unwrap();
    let opening = Tokenizer::from_folder(folder.path()).unwrap();
    let ids = |text: &str| opening.encode_prompt(text, SpecialTokens::Parse).unwrap();
    assert_eq!(ids("ab"), [&[end], plain.encode("ab").unwrap().as_slice()].concat());
    assert_eq!(ids("<|endoftext|>a"), [&[end], plain.encode("a").unwrap().as_slice()].concat());
    assert_eq!(ids(""), [end]);
    assert_eq!(opening.encode_whole("ab", SpecialTokens::Parse).unwrap(), ids("ab"));
    assert_eq!(opening.encode("ab").unwrap(), plain.encode("ab").unwrap());
    let library = tokenizers::Tokenizer::from_file(folder.path().join("tokenizer.json")).unwrap();
    assert_eq!(library.encode("ab", true).unwrap().get_ids(), ids("ab"));
    assert_eq!(plain.encode_prompt("a", SpecialTokens::Parse).unwrap(), plain.encode("a").unwrap());
}

/// Transformers' encoding of prompts (tools/make_prompt_fixtures.py).
#[test]
fn prompts_are_read_as_transformers_reads_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/prompts");
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(folder.join("prompts.json")).unwrap()).unwrap();
    assert!(cases.len() > 80);
    for case in cases {
        let (name, text) = (case["tokenizer"].as_str().unwrap(), case["text"].as_str().unwrap());
        let tokenizer = Tokenizer::from_folder(&folder.join(name)).unwrap();
        assert_eq!(matches!(tokenizer.shared.encoder, Encoder::Library(_)), name != "words");
        for (special, ids) in [(SpecialTokens::Parse, &case["parsed"]), (SpecialTokens::Text, &case["plain"])] {
            let ids: Vec<u32> = serde_json::from_value(ids.clone()).unwrap();
            assert_eq!(tokenizer.encode_whole(text, special).unwrap(), ids, "{name}, {special:?}: {text:?}");
            // A prompt will be continued, so it gets no end.
            let open = ids.strip_suffix(tokenizer.behind()).unwrap();
            assert_eq!(tokenizer.encode_prompt(text, special).unwrap(), open, "{name}, {special:?}: {text:?}");
        }
        let before = tokenizer.before(text, SpecialTokens::Text);
        let plain = tokenizer.encode_prompt(text, SpecialTokens::Text).unwrap();
        assert_eq!(tokenizer.encode(text).unwrap(), plain[before.len()..], "text to learn from: {text:?}");
    }
    let around = |name: &str| {
        let tokenizer = Tokenizer::from_folder(&folder.join(name)).unwrap();
        (tokenizer.before("a", SpecialTokens::Parse).len(), tokenizer.behind().len())
    };
    let names = ["llama", "closing", "said", "bytes", "words"];
    assert_eq!(names.map(around), [(1, 0), (1, 1), (0, 0), (1, 0), (1, 0)]);
}

/// An end token of another name, even one with a template's own syntax.
#[test]
fn a_model_of_documents_keeps_an_end_of_another_name() {
    for name in ["</s>", "end: of $A text"] {
        let folder = tempfile::tempdir().unwrap();
        let json = chars("ab", true).to_json().unwrap().replace(END_OF_TEXT, name);
        std::fs::write(folder.path().join("tokenizer.json"), json).unwrap();
        let config = json!({ "eos_token": name }).to_string();
        std::fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
        let opening = Tokenizer::from_folder(folder.path()).unwrap().opening_prompts().unwrap();
        assert_eq!(opening.end_of_text(), Some(2), "{name}");
        assert_eq!(opening.encode_prompt("ab", SpecialTokens::Parse).unwrap(), [2, 0, 1], "{name}");
        let saved = tempfile::tempdir().unwrap();
        opening.save(saved.path()).unwrap();
        let read = Tokenizer::from_folder(saved.path()).unwrap();
        assert_eq!(read.end_of_text(), Some(2), "{name}");
        assert_eq!(read.encode_prompt("ab", SpecialTokens::Parse).unwrap(), [2, 0, 1], "{name}");
    }
}

#[test]
fn two_tokenizers_differ_at_the_first_id_that_is_another_token() {
    let (short, long) = (chars("abc", false), chars("abcd", false));
    assert_eq!(short.first_difference(&short.clone()), None);
    assert_eq!(short.first_difference(&chars("abd", false)), Some(2));
    assert_eq!((short.first_difference(&long), long.first_difference(&short)), (Some(3), Some(3)));
}

#[test]
fn a_saved_tokenizer_is_the_same_tokenizer() {
    for tokenizer in [BPE_TOKENIZER.clone(), BYTES_TOKENIZER.clone(), chars(TEXT, true), chars(TEXT, false)] {
        let folder = tempfile::tempdir().unwrap();
        tokenizer.save(folder.path()).unwrap();
        let read = Tokenizer::from_folder(folder.path()).unwrap();
        assert_eq!(read.encode(TEXT).unwrap(), tokenizer.encode(TEXT).unwrap());
        assert_eq!((read.vocab_size(), read.end_of_text()), (tokenizer.vocab_size(), tokenizer.end_of_text()));
        assert_eq!(read.to_json().unwrap(), tokenizer.to_json().unwrap());
        assert!(!matches!(read.shared.encoder, Encoder::Library(_)), "the fast encoder is recognised again");
        assert!(read.encode("é").is_err() || read.decode_text(&read.encode("é").unwrap()).unwrap() == "é");
    }
}

/// A tokenizer in GPT-2's two files.
fn vocabulary_and_merges() -> (String, String) {
    let json: Value = serde_json::from_str(&BPE_TOKENIZER.to_json().unwrap()).unwrap();
    let mut vocabulary = json["model"]["vocab"].clone();
    vocabulary[END_OF_TEXT] = BPE_TOKENIZER.end_of_text().into();
    let pair = |pair: &Value| format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
    let merges: Vec<String> = json["model"]["merges"].as_array().unwrap().iter().map(pair).collect();
    (vocabulary.to_string(), format!("#version: 0.2\n{}\n", merges.join("\n")))
}

#[test]
fn a_folder_of_vocabulary_and_merges_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let (vocabulary, merges) = vocabulary_and_merges();
    std::fs::write(folder.path().join("vocab.json"), vocabulary).unwrap();
    // One of the two files is not a tokenizer; a model used with ids needs none.
    assert!(!Tokenizer::is_in(folder.path()));
    std::fs::write(folder.path().join("merges.txt"), merges).unwrap();
    assert!(Tokenizer::is_in(folder.path()));
    let read = Tokenizer::from_folder(folder.path()).unwrap();
    assert_eq!(read.encode(TEXT).unwrap(), BPE_TOKENIZER.encode(TEXT).unwrap());
    assert_eq!((read.vocab_size(), read.end_of_text()), (300, Some(299)));
}

/// A folder's tokenizer with these keys in `tokenizer_config.json`.
fn with_keys(folder: &Path, keys: &Value) -> Result<Tokenizer, String> {
    std::fs::write(folder.join("tokenizer_config.json"), keys.to_string()).unwrap();
    Tokenizer::from_folder(folder).map_err(|error| format!("{:#}", anyhow::Error::from(error)))
}

/// As transformers' GPT2Tokenizer does.
#[test]
fn vocabulary_and_merges_are_read_by_the_keys_beside_them() {
    let folder = tempfile::tempdir().unwrap();
    let (vocabulary, merges) = vocabulary_and_merges();
    std::fs::write(folder.path().join("vocab.json"), vocabulary).unwrap();
    std::fs::write(folder.path().join("merges.txt"), merges).unwrap();
    let read = |keys: Value| with_keys(folder.path(), &keys);
    let ids = |keys: Value| read(keys).unwrap().encode_prompt("the ball", SpecialTokens::Parse).unwrap();
    let [plain, spaced] = ["the ball", " the ball"].map(|text| BPE_TOKENIZER.encode(text).unwrap());
    assert_ne!(plain, spaced);
    assert_eq!(ids(json!({ "add_bos_token": false, "add_prefix_space": false })), plain);
    assert_eq!(ids(json!({ "add_prefix_space": true })), spaced);
    let opened = [vec![299], plain.clone()].concat();
    assert_eq!(ids(json!({ "add_bos_token": true })), opened);
    assert_eq!(ids(json!({ "add_bos_token": true, "bos_token": { "content": END_OF_TEXT } })), opened);
    assert_eq!(ids(json!({ "add_bos_token": true, "bos_token": null })), plain);
    let error = read(json!({ "add_bos_token": true, "bos_token": "<s>" })).err().unwrap();
    assert!(error.ends_with("puts \"<s>\" before every text, but vocab.json has no such token"), "{error}");
    // Added tokens' ids must follow the vocabulary, or another added token that does.
    let added = |id: &str| json!({ "added_tokens_decoder": { id: { "content": "<|im_start|>", "special": true } } });
    let error = read(added("301")).err().unwrap();
    assert!(error.contains("vocab.json lacks the token \"<|im_start|>\""), "{error}");
    let parsed = |keys: Value| read(keys).unwrap().encode_with("<|im_start|>the ball", SpecialTokens::Parse).unwrap();
    assert_eq!(parsed(added("300")), [vec![300], plain.clone()].concat());
    let mut padded = added("301");
    padded["pad_token"] = "<pad>".into();
    padded["added_tokens_decoder"]["300"] = json!({ "content": "<pad>", "special": true });
    padded["added_tokens_decoder"]["302"] = json!({ "content": " ball", "lstrip": true });
    assert_eq!(parsed(padded.clone()), [&[301], &BPE_TOKENIZER.encode("the").unwrap()[..], &[302]].concat());
    padded["added_tokens_decoder"] = json!({ "300": { "content": "<pad>" } });
    assert_eq!(read(padded).unwrap().vocab_size(), 300);
}

#[test]
fn a_tokenizer_of_gpt2_s_class_puts_a_space_first_where_the_key_beside_it_says_so() {
    let folder = tempfile::tempdir().unwrap();
    BPE_TOKENIZER.save(folder.path()).unwrap();
    let ids = |class: &str| {
        let keys = json!({ "tokenizer_class": class, "add_prefix_space": true });
        with_keys(folder.path(), &keys).unwrap().encode("the ball").unwrap()
    };
    let [plain, spaced] = ["the ball", " the ball"].map(|text| BPE_TOKENIZER.encode(text).unwrap());
    assert_eq!([ids("GPT2Tokenizer"), ids("GPT2TokenizerFast"), ids("Other")], [spaced.clone(), spaced, plain]);
}

#[test]
fn a_llama_s_space_that_the_key_beside_it_takes_away_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let json = json!({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": { "type": "Prepend", "prepend": "▁" },
        "model": { "type": "BPE", "vocab": { "▁": 0, "a": 1, "▁a": 2 }, "merges": ["▁ a"] },
    });
    std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    let keys = |space: bool| json!({ "tokenizer_class": "LlamaTokenizer", "add_prefix_space": space });
    assert_eq!(with_keys(folder.path(), &keys(true)).unwrap().encode("a").unwrap(), [2]);
    let error = with_keys(folder.path(), &keys(false)).err().unwrap();
    assert!(error.contains("tokenizer.json puts a space before every text, but tokenizer_config.json"), "{error}");
}

#[test]
fn a_token_that_was_added_and_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    BPE_TOKENIZER.save(folder.path()).unwrap();
    let added = |name: &str| json!({ "added_tokens_decoder": { "299": { "content": name, "special": true } } });
    with_keys(folder.path(), &added(END_OF_TEXT)).unwrap();
    let mut pads = added("[PAD]");
    pads["pad_token"] = "[PAD]".into();
    with_keys(folder.path(), &pads).unwrap();
    let error = with_keys(folder.path(), &added("<|im_start|>")).err().unwrap();
    assert!(error.contains("tokenizer.json lacks the token \"<|im_start|>\", which a file beside it adds"), "{error}");
}

#[test]
fn what_is_missing_or_damaged_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = Tokenizer::from_folder(folder.path()).err().unwrap().to_string();
    assert!(error.contains(&folder.path().display().to_string()) && error.contains("has no tokenizer.json"), "{error}");
    std::fs::write(folder.path().join("tokenizer.json"), "{").unwrap();
    let error = Tokenizer::from_folder(folder.path()).err().unwrap().to_string();
    assert!(error.contains("tokenizer.json is not a tokenizer.json"), "{error}");
    assert!(BYTES_TOKENIZER.decode_text(&[257]).unwrap_err().to_string().contains("257"));
    assert_eq!(BYTES_TOKENIZER.token_bytes(257), None);
}

/// The error's line of reading and using a `tokenizer.json` with this content.
fn error_of(json: &Value) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    let error = Tokenizer::from_folder(folder.path()).and_then(|tokenizer| tokenizer.encode("ba ab")).unwrap_err();
    let error = anyhow::Error::from(error);
    let error = format!("{error:#}").replace(&format!("{}/", folder.path().display()), "");
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn a_panic_of_the_library_over_a_damaged_file_is_a_line_that_names_it() {
    let mut json: Value = serde_json::from_str(&BPE_TOKENIZER.to_json().unwrap()).unwrap();
    json["model"]["continuing_subword_prefix"] = "longer than a token".into();
    let error = error_of(&json);
    assert!(
        error.starts_with("tokenizer.json is not a tokenizer.json that the tokenizers library reads; give another: ")
    );
    let mut json: Value = serde_json::from_str(&chars("ab ", false).to_json().unwrap()).unwrap();
    json["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": "ALQCAACEAAA="});
    assert!(error_of(&json).starts_with("tokenizer.json is not a tokenizer.json that"), "{}", error_of(&json));
}

#[test]
fn ids_that_no_model_has_rows_for_are_refused() {
    let mut json: Value = serde_json::from_str(&chars("ab ", false).to_json().unwrap()).unwrap();
    json["model"]["vocab"]["b"] = 4_294_967_295u32.into();
    let error = error_of(&json);
    assert!(error.ends_with("its token ids go up to 4294967295, but it has only 3 tokens: a model needs an embedding row for every id up to \
         the largest; number them from 0"), "{error}");
    json["model"]["vocab"]["b"] = 100_000.into();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    assert_eq!(Tokenizer::from_folder(folder.path()).unwrap().vocab_size(), 100_001, "holes are no fault");
}

#[test]
fn ids_around_a_text_that_the_vocabulary_has_not_are_refused() {
    let mut json: Value = serde_json::from_str(&chars("ab ", false).to_json().unwrap()).unwrap();
    let begin = json!({ "SpecialToken": { "id": "<s>", "type_id": 0 } });
    json["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [begin, { "Sequence": { "id": "A", "type_id": 0 } }],
        "pair": [],
        "special_tokens": { "<s>": { "id": "<s>", "ids": [2], "tokens": ["<s>"] } },
    });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
    assert_eq!(tokenizer.before("a", SpecialTokens::Text), [2]);
    json["post_processor"]["special_tokens"]["<s>"]["ids"] = json!([3]);
    let error = error_of(&json);
    assert!(
        error.ends_with("the token id 3 to every text, but its vocabulary goes up to 2: correct its post_processor"),
        "{error}"
    );
}

#[test]
fn a_word_that_a_tokenizer_lacks_is_an_error_that_names_its_file() {
    let mut json: Value = serde_json::from_str(&chars("ab ", false).to_json().unwrap()).unwrap();
    json["model"]["vocab"] = json!({"word": 0});
    json["pre_tokenizer"] = json!({"type": "Whitespace"});
    let error = error_of(&json);
    assert!(
        error.starts_with("the tokenizer tokenizer.json fails on this text; give another: WordLevel error"),
        "{error}"
    );
}

#[test]
fn a_character_may_stand_for_those_that_a_tokenizer_lacks() {
    let mut json: Value = serde_json::from_str(&chars("ab?", false).to_json().unwrap()).unwrap();
    json["model"]["unk_token"] = "?".into();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    let tokenizer = Tokenizer::from_folder(folder.path()).unwrap();
    assert_eq!(tokenizer.encode("acb").unwrap(), tokenizer.encode("a?b").unwrap());
}

#[test]
fn an_end_of_text_of_another_name_is_found_beside_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let json = chars("ab", true).to_json().unwrap().replace(END_OF_TEXT, "</s>");
    std::fs::write(folder.path().join("tokenizer.json"), json).unwrap();
    assert_eq!(Tokenizer::from_folder(folder.path()).unwrap().end_of_text(), None);
    std::fs::write(folder.path().join("tokenizer_config.json"), r#"{"eos_token": {"content": "</s>"}}"#).unwrap();
    assert_eq!(Tokenizer::from_folder(folder.path()).unwrap().end_of_text(), Some(2));
}

#[test]
fn a_decoder_that_reads_no_single_token_is_known_as_such() {
    let mut json: Value = serde_json::from_str(&BPE_TOKENIZER.to_json().unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut knows = |decoder: Value| {
        json["decoder"] = decoder;
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, json.to_string()).unwrap();
        Tokenizer::from_file(&path).unwrap().knows_token_bytes()
    };
    assert!(knows(json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true})));
    assert!(knows(json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
    ]})));
    assert!(!knows(json!({"type": "CTC", "pad_token": "a", "word_delimiter_token": "|", "cleanup": true})));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn any_text_comes_back_byte_for_byte(text in prop_oneof![tricky(), any::<String>()]) {
        for tokenizer in [&*BPE_TOKENIZER, &*BYTES_TOKENIZER] {
            let ids = tokenizer.encode(&text).unwrap();
            prop_assert_eq!(tokenizer.decode_text(&ids).unwrap(), text.clone());
            prop_assert_eq!(joined_bytes(tokenizer, &ids), text.as_bytes());
        }
        if !text.is_empty() {
            let tokenizer = chars(&text, true);
            let ids = tokenizer.encode(&text).unwrap();
            prop_assert_eq!(tokenizer.decode_text(&ids).unwrap(), text.clone());
            prop_assert_eq!(joined_bytes(&tokenizer, &ids), text.as_bytes());
        }
    }

    #[test]
    fn our_encoders_give_the_librarys_ids(text in prop_oneof![tricky(), any::<String>()]) {
        for tokenizer in [&*BPE_TOKENIZER, &*BYTES_TOKENIZER, &chars(&(text.clone() + "."), true)] {
            prop_assert!(!matches!(tokenizer.shared.encoder, Encoder::Library(_)));
            prop_assert_eq!(tokenizer.encode(&text).unwrap(), library_ids(tokenizer, &text));
        }
    }

    #[test]
    fn a_text_in_two_pieces_has_the_tokens_of_the_whole(text in tricky(), more in tricky()) {
        for tokenizer in [&*BPE_TOKENIZER, &*BYTES_TOKENIZER] {
            if let Some(cut) = tokenizer.safe_cut(&text) {
                let whole = text.clone() + &more;
                let mut ids = tokenizer.encode(&whole[..cut]).unwrap();
                tokenizer.encode_onto(&whole[cut..], &mut ids).unwrap();
                prop_assert_eq!(ids, tokenizer.encode(&whole).unwrap());
            }
        }
    }
}
