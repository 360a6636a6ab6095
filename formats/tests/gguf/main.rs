//! Compares reading and writing with transformers' files and those of the package `gguf` for the
//! same models (made by `tools/check-formats`, which also runs llama.cpp).

#![allow(clippy::unwrap_used)]

mod values;

use std::path::{Path, PathBuf};

use ember_formats::{Architecture, Model, NumberType, Shape, Tensor, gguf, hf};
use serde_json::{Value, json};

const KINDS: [&str; 3] = ["gpt2", "llama", "qwen3"];
const TYPES: [NumberType; 3] = [NumberType::F32, NumberType::Q8_0, NumberType::Q4_0];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The shapes in the fixtures' `config.json`.
fn shape(kind: &str) -> Shape {
    let llama = Shape {
        architecture: Architecture::Llama,
        vocab_size: 11,
        context_length: 16,
        n_layer: 1,
        n_head: 4,
        n_kv_head: 2,
        head_size: 8,
        n_embd: 32,
        n_inner: 64,
        norm_epsilon: 1e-6,
        rope_theta: 5000.0,
        bias: false,
        tied_head: false,
        exact_gelu: false,
    };
    let gpt2 = || Shape {
        architecture: Architecture::Gpt2,
        n_head: 2,
        head_size: 16,
        norm_epsilon: 1e-5,
        rope_theta: 10_000.0,
        bias: true,
        tied_head: true,
        ..llama.clone()
    };
    match kind {
        "gpt2" => gpt2(),
        "qwen3" => Shape { architecture: Architecture::Qwen3, ..llama },
        _ => llama,
    }
}

fn folder(kind: &str) -> hf::Folder {
    let tokenizer = std::fs::read(fixture(kind).join("tokenizer.json")).unwrap();
    let tokenizer = serde_json::from_slice(&tokenizer).unwrap();
    hf::Folder::open(&fixture(kind), shape(kind), Some(tokenizer), vec![10]).unwrap()
}

/// Asserts that two models are identical to the last bit.
fn assert_same(one: &Model, other: &Model) {
    assert_eq!(one.shape, other.shape);
    assert_eq!(one.tensors.len(), other.tensors.len());
    for (one, other) in one.tensors.iter().zip(&other.tensors) {
        assert_eq!((&one.name, &one.shape), (&other.name, &other.shape));
        assert_eq!(one.values().unwrap(), other.values().unwrap(), "{}", one.name);
    }
}

#[test]
fn a_file_of_gguf_s_is_the_folder_that_it_was_made_of() {
    for kind in KINDS {
        let file = gguf::File::open(&fixture(kind).join("f32.gguf")).unwrap();
        let (read, folder) = (file.model().unwrap(), folder(kind));
        assert_same(&read, &folder.model().unwrap());
        let tokenizer = read.tokenizer.unwrap();
        assert_eq!(tokenizer.end_tokens, [10]);
        let expected = folder.model().unwrap().tokenizer.unwrap().json;
        assert_eq!(tokenizer.json["model"]["vocab"], expected["model"]["vocab"]);
    }
}

#[test]
fn what_is_written_holds_what_gguf_writes() {
    let out = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let folder = folder(kind);
        for number in TYPES {
            let name = format!("{}.gguf", number.name());
            let path = out.path().join(&name);
            gguf::write(&folder.model().unwrap(), number, "test", &path).unwrap();
            let (ours, theirs) =
                (gguf::File::open(&path).unwrap(), gguf::File::open(&fixture(kind).join(&name)).unwrap());
            assert_same(&ours.model().unwrap(), &theirs.model().unwrap());
            let size = |path: &Path| path.metadata().unwrap().len();
            assert!(size(&path).abs_diff(size(&fixture(kind).join(&name))) < 1000, "{kind} {name}");
        }
    }
}

#[test]
fn a_folder_goes_through_a_file_and_back_as_it_was() {
    let out = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let before = folder(kind);
        for number in [NumberType::F32, NumberType::Bf16, NumberType::F16] {
            let (file, again) = (out.path().join("model.gguf"), out.path().join(format!("{kind}-{}", number.name())));
            gguf::write(&before.model().unwrap(), number, "test", &file).unwrap();
            let read = gguf::File::open(&file).unwrap();
            hf::write(&read.model().unwrap(), None, &again).unwrap();
            let tokenizer: Value =
                serde_json::from_slice(&std::fs::read(again.join("tokenizer.json")).unwrap()).unwrap();
            let after = hf::Folder::open(&again, shape(kind), Some(tokenizer), vec![10]).unwrap();
            assert_same(&after.model().unwrap(), &read.model().unwrap());
            if number == NumberType::F32 {
                assert_same(&after.model().unwrap(), &before.model().unwrap());
            }
            assert!(again.join("model.safetensors").metadata().unwrap().len() <= 45_000);
        }
    }
}

#[test]
fn how_texts_are_drawn_goes_through_a_file() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("model.gguf");
    let through = |generation: Value| {
        let folder = folder("llama");
        let mut model = folder.model().unwrap();
        model.generation = generation.as_object().unwrap().clone();
        gguf::write(&model, NumberType::F32, "test", &path).unwrap();
        Value::Object(gguf::File::open(&path).unwrap().model().unwrap().generation)
    };
    for settings in [
        json!({ "do_sample": true, "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.02, "repetition_penalty": 1.1 }),
        json!({ "do_sample": false }),
        json!({}),
    ] {
        assert_eq!(through(settings.clone()), settings);
    }
    // Knobs that are off are left out, and so are those without a key in llama.cpp.
    let settings =
        json!({ "do_sample": true, "top_k": 0, "top_p": 1.0, "temperature": null, "num_beams": 2, "eos_token_id": 3 });
    assert_eq!(through(settings), json!({ "do_sample": true, "temperature": 1.0 }));
    // Without `do_sample` the model's own programs are greedy, and the file says nothing.
    assert_eq!(through(json!({ "temperature": 0.6, "top_p": 0.9 })), json!({}));
}

#[test]
fn the_token_that_a_text_begins_with_is_kept() {
    let out = tempfile::tempdir().unwrap();
    let (file, again) = (out.path().join("model.gguf"), out.path().join("folder"));
    let folder = folder("qwen3");
    let mut model = folder.model().unwrap();
    // Different from the end token, which is 10.
    model.tokenizer.as_mut().unwrap().begin_token = Some(3);
    gguf::write(&model, NumberType::F32, "test", &file).unwrap();
    let read = gguf::File::open(&file).unwrap();
    assert_eq!(read.model().unwrap().tokenizer.unwrap().begin_token, Some(3));
    hf::write(&read.model().unwrap(), None, &again).unwrap();
    let json: Value = serde_json::from_slice(&std::fs::read(again.join("tokenizer.json")).unwrap()).unwrap();
    for name in ["config.json", "generation_config.json"] {
        let keys: Value = serde_json::from_slice(&std::fs::read(again.join(name)).unwrap()).unwrap();
        assert_eq!([&keys["bos_token_id"], &keys["eos_token_id"]], [3, 10], "{name}");
    }
    let opened = hf::Folder::open(&again, shape("qwen3"), Some(json), vec![10]).unwrap();
    assert_eq!(opened.model().unwrap().tokenizer.unwrap().begin_token, Some(3));
}

#[test]
fn what_was_interrupted_is_written_again_in_the_same_place() {
    let out = tempfile::tempdir().unwrap();
    std::fs::create_dir(out.path().join(".unfinished-x")).unwrap();
    std::fs::write(out.path().join(".unfinished-x/model.safetensors"), "half").unwrap();
    let folder = folder("gpt2");
    hf::write(&folder.model().unwrap(), None, out.path()).unwrap();
    let mut names: Vec<_> = std::fs::read_dir(out.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(
        names,
        ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
    );
    let refused = hf::write(&folder.model().unwrap(), None, out.path()).unwrap_err();
    assert!(refused.to_string().ends_with("the folder already has files in it; name another"));
}

/// The tokenizers that ember-train saves, and two from other programs.
fn tokenizers() -> Vec<Value> {
    let byte_level = |words: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": words });
    let bpe = |splitter: Value, normalizer: Value, ignore: bool, merges: Value| {
        json!({
            "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": [
                { "id": 3, "content": "<x>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": false },
                { "id": 4, "content": "<|endoftext|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true },
            ],
            "normalizer": normalizer, "pre_tokenizer": splitter, "post_processor": null, "decoder": byte_level(true),
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "fuse_unk": false, "byte_fallback": false, "ignore_merges": ignore,
                "vocab": { "a": 0, "b": 1, "ab": 2 }, "merges": merges,
            },
        })
    };
    let split = |expression: &str| {
        let split =
            json!({ "type": "Split", "pattern": { "Regex": expression }, "behavior": "Isolated", "invert": false });
        json!({ "type": "Sequence", "pretokenizers": [split, byte_level(false)] })
    };
    let qwen = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    vec![
        bpe(byte_level(true), Value::Null, false, json!([["a", "b"]])),
        bpe(byte_level(false), Value::Null, false, json!([])),
        bpe(split(qwen), json!({ "type": "NFC" }), false, json!([["a", "b"]])),
        bpe(split(&qwen.replace(r"|\p{N}|", r"|\p{N}{1,3}|")), Value::Null, true, json!([["a", "b"]])),
    ]
}

#[test]
fn tokenizers_go_through_a_file_and_back_as_they_were() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("model.gguf");
    for json in tokenizers() {
        let folder = hf::Folder::open(&fixture("llama"), shape("llama"), Some(json.clone()), vec![4]).unwrap();
        let mut model = folder.model().unwrap();
        let tokenizer = model.tokenizer.as_mut().unwrap();
        tokenizer.chat_template = Some("{{ messages }}".to_owned());
        tokenizer.begin_token = Some(3);
        gguf::write(&model, NumberType::F32, "test", &path).unwrap();
        let file = gguf::File::open(&path).unwrap();
        assert_eq!(file.model().unwrap().tokenizer, model.tokenizer);
    }
}

/// As in the server and in transformers.
#[test]
fn of_several_chat_templates_the_default_one_goes_along() {
    let place = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::copy(fixture("llama").join(name), place.path().join(name)).unwrap();
    }
    let template = |name: &str| json!({ "name": name, "template": format!("{{{{ {name} }}}}") });
    let settings = json!({ "chat_template": [template("tool_use"), template("default")] });
    std::fs::write(place.path().join("tokenizer_config.json"), settings.to_string()).unwrap();
    let folder = hf::Folder::open(place.path(), shape("llama"), Some(tokenizers().swap_remove(0)), vec![4]).unwrap();
    let found = folder.model().unwrap().tokenizer.unwrap().chat_template;
    assert_eq!(found.as_deref(), Some("{{ default }}"));
}

/// As in llama.cpp.
#[test]
fn texts_of_llama_3_begin_with_its_token_where_the_file_does_not_say_so() {
    const KEY: &[u8] = b"tokenizer.ggml.add_bos_token";
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("model.gguf");
    let all = tokenizers();
    for (json, begins) in [(&all[0], false), (&all[3], true)] {
        let folder = hf::Folder::open(&fixture("llama"), shape("llama"), Some(json.clone()), vec![4]).unwrap();
        gguf::write(&folder.model().unwrap(), NumberType::F32, "test", &path).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let place = bytes.windows(KEY.len()).position(|window| window == KEY).unwrap();
        bytes[place] = b'T'; // an unknown key
        std::fs::write(&path, bytes).unwrap();
        let file = gguf::File::open(&path).unwrap();
        let read = file.model().unwrap().tokenizer.unwrap().json;
        let before = &read["post_processor"]["special_tokens"]["<|endoftext|>"]["ids"];
        assert_eq!(*before, if begins { json!([4]) } else { Value::Null });
    }
}

#[test]
fn what_gguf_has_no_words_for_is_refused() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("model.gguf");
    let good = tokenizers().swap_remove(0);
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut json = good.clone();
        change(&mut json);
        let folder = hf::Folder::open(&fixture("llama"), shape("llama"), Some(json), vec![4]).unwrap();
        let error = gguf::write(&folder.model().unwrap(), NumberType::F32, "test", &path).unwrap_err().to_string();
        assert!(error.starts_with("GGUF cannot store ") && !error.contains('\n'), "{error}");
        assert!(!path.exists());
        error
    };
    assert!(
        refused(&|json| json["pre_tokenizer"] = json!({ "type": "Whitespace" })).contains("pre-tokenizer Whitespace")
    );
    assert!(
        refused(&|json| json["pre_tokenizer"]["add_prefix_space"] = true.into()).contains("pre-tokenizer ByteLevel")
    );
    assert!(refused(&|json| json["normalizer"] = json!({ "type": "Lowercase" })).contains("normalizer Lowercase"));
    assert!(refused(&|json| json["model"]["type"] = "Unigram".into()).contains("model Unigram"));
    assert!(refused(&|json| json["added_tokens"][0]["id"] = 11.into()).contains("outside the model's 11 rows"));
    assert!(refused(&|json| json["added_tokens"][0]["id"] = u64::MAX.into()).contains("outside the model's 11 rows"));
    assert!(refused(&|json| json["added_tokens"][0]["content"] = "ab".into()).contains("two tokens \"ab\""));
    assert!(refused(&|json| json["added_tokens"][0]["content"] = "[PAD7]".into()).contains("[PAD7]"));
    assert!(refused(&|json| json["model"]["merges"] = json!([["a", " b"]])).contains("the merge"));
    assert!(refused(&|json| json["model"]["ignore_merges"] = true.into()).contains("ignore_merges true"));
    assert!(refused(&|json| json["model"]["end_of_word_suffix"] = "</w>".into()).contains("end_of_word_suffix"));
    for way in ["lstrip", "rstrip", "single_word"] {
        assert!(refused(&|json| json["added_tokens"][0][way] = true.into()).contains(way));
    }
    let roberta = json!({
        "type": "RobertaProcessing", "sep": ["<x>", 3], "cls": ["<x>", 3], "trim_offsets": true, "add_prefix_space": false,
    });
    assert!(refused(&|json| json["post_processor"] = roberta.clone()).contains("adds to texts"));
}

#[test]
fn a_number_that_the_type_cannot_hold_is_not_written() {
    let out = tempfile::tempdir().unwrap();
    let (file, again) = (out.path().join("model.gguf"), out.path().join("folder"));
    let folder = folder("llama");
    let mut model = folder.model().unwrap();
    let matrix = model.tensors.iter_mut().find(|tensor| tensor.name.ends_with("gate_proj.weight")).unwrap();
    let mut values = matrix.values().unwrap().into_owned();
    let mut with = |value: f32| {
        values[7] = value;
        let values = values.clone();
        Tensor::new(matrix.name.clone(), matrix.shape.clone(), NumberType::F32, move || Ok(values.clone().into()))
    };
    let [large, none] = [1e5, f32::NAN].map(&mut with);
    *matrix = large;
    let line = |error: ember_formats::FormatError| format!("{error:?}");
    let refused = line(gguf::write(&model, NumberType::F16, "test", &file).unwrap_err());
    assert!(refused.contains("1e5, which tensor") && !file.exists(), "{refused}");
    let refused = line(hf::write(&model, Some(NumberType::F16), &again).unwrap_err());
    assert!(refused.contains("1e5, which tensor") && !again.join("config.json").exists(), "{refused}");
    gguf::write(&model, NumberType::Q8_0, "test", &file).unwrap();
    hf::write(&model, Some(NumberType::Bf16), &again).unwrap();
    std::fs::remove_file(&file).unwrap();
    let matrix = model.tensors.iter_mut().find(|tensor| tensor.name == none.name).unwrap();
    *matrix = none;
    let refused = line(gguf::write(&model, NumberType::Q8_0, "test", &file).unwrap_err());
    assert!(refused.contains("one of its values is NaN") && !file.exists(), "{refused}");
}
