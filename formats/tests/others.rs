//! Files from nanoGPT and llama2.c themselves, compared with transformers' files of the same
//! weights (made by `tools/check-formats`, which compares logits and tokens too).

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use ember_formats::{Architecture, Model, NumberType, Shape, Source, Tensor, gguf, hf, llama2c};
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn source(path: &Path) -> Source {
    Source::open(path).unwrap().unwrap()
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

/// The shape in the `config.json` of `nanogpt`.
fn nanogpt() -> Shape {
    Shape {
        architecture: Architecture::Gpt2,
        vocab_size: 10,
        context_length: 8,
        n_layer: 1,
        n_head: 2,
        n_kv_head: 2,
        head_size: 8,
        n_embd: 16,
        n_inner: 64,
        norm_epsilon: 1e-5,
        rope_theta: 10_000.0,
        bias: true,
        tied_head: true,
        exact_gelu: true,
    }
}

/// The shape in the `config.json` files of `llama2c`.
fn llama2c(tied_head: bool) -> Shape {
    Shape {
        architecture: Architecture::Llama,
        vocab_size: 340,
        context_length: 16,
        n_head: 4,
        head_size: 4,
        n_inner: 48,
        bias: false,
        tied_head,
        exact_gelu: false,
        ..nanogpt()
    }
}

#[test]
fn a_checkpoint_of_nanogpt_is_transformers_s_gpt2() {
    let opened = source(&fixture("nanogpt/ckpt.pt"));
    let model = opened.model().unwrap();
    let folder = hf::Folder::open(&fixture("nanogpt"), nanogpt(), None, Vec::new()).unwrap();
    assert_same(&model, &folder.model().unwrap());
    let tokenizer = model.tokenizer.unwrap();
    assert_eq!(tokenizer.end_tokens, [0; 0]);
    let vocabulary = tokenizer.json["model"]["vocab"].as_object().unwrap();
    let mut letters: Vec<char> = "\n 'abcdeé媽".chars().collect();
    letters.sort_unstable();
    for (id, letter) in letters.iter().enumerate() {
        assert_eq!(vocabulary[&letter.to_string()], id);
    }
    assert_eq!(vocabulary.len(), letters.len());
}

#[test]
fn files_of_llama2c_are_transformers_s_llama() {
    for (version, tied_head) in [("v0", false), ("v1", true)] {
        let opened = source(&fixture(&format!("llama2c/{version}/model.bin")));
        let dir = fixture(&format!("llama2c/{version}"));
        let folder = hf::Folder::open(&dir, llama2c(tied_head), None, Vec::new()).unwrap();
        assert_same(&opened.model().unwrap(), &folder.model().unwrap());
    }
}

/// The `bos_token` of chat templates.
#[test]
fn a_folder_names_the_token_that_its_tokenizer_puts_before_texts() {
    let out = tempfile::tempdir().unwrap();
    let opened = source(&fixture("llama2c/v0/model.bin"));
    hf::write(&opened.model().unwrap(), None, &out.path().join("folder")).unwrap();
    let read = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(out.path().join("folder").join(name)).unwrap()).unwrap()
    };
    let names = read("tokenizer_config.json");
    assert_eq!([&names["bos_token"], &names["eos_token"]], ["<s>", "</s>"]);
    for name in ["config.json", "generation_config.json"] {
        let keys = read(name);
        assert_eq!([&keys["bos_token_id"], &keys["eos_token_id"]], [1, 2], "{name}");
    }
}

#[test]
fn llama2c_s_file_is_written_as_it_was_read() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("model.bin");
    let opened = source(&fixture("llama2c/v0/model.bin"));
    let model = opened.model().unwrap();
    llama2c::write(&model, &path).unwrap();
    let (ours, theirs) = (std::fs::read(&path).unwrap(), std::fs::read(fixture("llama2c/v0/model.bin")).unwrap());
    assert_eq!(ours.len(), theirs.len());
    // The tables of rotary angles, before the head, differ in the last digits of their cosines.
    let head = ours.len() - 4 * 340 * 16;
    let tables = head - 4 * 16 * 4;
    assert_eq!((&ours[..tables], &ours[head..]), (&theirs[..tables], &theirs[head..]));
    for (ours, theirs) in ours[tables..head].as_chunks::<4>().0.iter().zip(theirs[tables..head].as_chunks::<4>().0) {
        assert!((f32::from_le_bytes(*ours) - f32::from_le_bytes(*theirs)).abs() < 1e-5);
    }
    // The tokenizer's scores are merge ranks, in the order of SentencePiece's own.
    let again = source(&path);
    let tokenizer = |model: &Model| model.tokenizer.clone().unwrap();
    assert_eq!(tokenizer(&again.model().unwrap()), tokenizer(&model));
}

#[test]
fn another_model_s_tokenizer_is_not_written_over() {
    let out = tempfile::tempdir().unwrap();
    let (path, beside) = (out.path().join("model.bin"), out.path().join("tokenizer.bin"));
    let opened = source(&fixture("llama2c/v0/model.bin"));
    let model = opened.model().unwrap();
    std::fs::write(&beside, "another's").unwrap();
    let error = llama2c::write(&model, &path).unwrap_err().to_string();
    assert!(error.contains("tokenizer.bin: the existing file is not this model's tokenizer"), "{error}");
    assert!(!path.exists() && std::fs::read(&beside).unwrap() == b"another's");
    std::fs::remove_file(&beside).unwrap();
    llama2c::write(&model, &path).unwrap();
    llama2c::write(&model, &out.path().join("again.bin")).unwrap(); // the same tokenizer serves both
    let ours = std::fs::read(&beside).unwrap();
    let mut older = ours.clone();
    older[0] ^= 1; // the length of its longest token, which readers ignore
    std::fs::write(&beside, older).unwrap();
    llama2c::write(&model, &path).unwrap(); // rewriting the model replaces it
    assert!(std::fs::read(&beside).unwrap() == ours);
    std::fs::write(&beside, "another's").unwrap();
    let error = llama2c::write(&model, &path).unwrap_err().to_string();
    assert!(error.contains("tokenizer.bin: the existing file is not this model's tokenizer"), "{error}");
    assert!(std::fs::read(&beside).unwrap() == b"another's");
}

#[test]
fn a_model_is_not_written_where_its_tokenizer_goes() {
    let out = tempfile::tempdir().unwrap();
    let opened = source(&fixture("llama2c/v0/model.bin"));
    for name in ["tokenizer.bin", "Tokenizer.bin"] {
        let error = llama2c::write(&opened.model().unwrap(), &out.path().join(name)).unwrap_err().to_string();
        assert!(error.ends_with(&format!("{name}: the model's tokenizer has that name; name another")), "{error}");
        assert_eq!(out.path().read_dir().unwrap().count(), 0);
    }
}

#[test]
fn what_is_no_model_of_llama2c_is_not_written_over() {
    let out = tempfile::tempdir().unwrap();
    let opened = source(&fixture("llama2c/v0/model.bin"));
    let model = opened.model().unwrap();
    let thesis = "A whole thesis, of which there is no other copy.";
    for name in ["thesis.txt", "thesis.bin"] {
        let path = out.path().join(name);
        std::fs::write(&path, thesis).unwrap();
        let error = llama2c::write(&model, &path).unwrap_err().to_string();
        assert!(error.ends_with("the existing file is not a model of llama2.c; name another"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), thesis);
        assert!(!out.path().join("tokenizer.bin").exists());
    }
    for version in ["v0", "v1"] {
        let path = out.path().join(version);
        std::fs::copy(fixture(&format!("llama2c/{version}/model.bin")), &path).unwrap();
        llama2c::write(&model, &path).unwrap();
    }
}

#[test]
fn sentencepiece_s_tokenizer_goes_through_a_gguf_and_back_as_it_was() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("model.gguf");
    let opened = source(&fixture("llama2c/v0/model.bin"));
    let mut model = opened.model().unwrap();
    gguf::write(&model, NumberType::F32, "test", &path).unwrap();
    assert_eq!(source(&path).model().unwrap().tokenizer, model.tokenizer);
    // A tokenizer without a token before every text, and with an order that differs from the
    // vocabulary's.
    let json = &mut model.tokenizer.as_mut().unwrap().json;
    json["post_processor"] = Value::Null;
    json["model"]["merges"].as_array_mut().unwrap().retain(|merge| merge[1] != "e");
    let order = serde_json::json!({
        "id": 339, "content": "<|im_end|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": true,
    });
    json["added_tokens"].as_array_mut().unwrap().push(order);
    json["model"]["vocab"].as_object_mut().unwrap().retain(|_, id| *id != 339);
    gguf::write(&model, NumberType::F32, "test", &path).unwrap();
    let again = source(&path).model().unwrap().tokenizer.unwrap().json;
    let json = &model.tokenizer.unwrap().json;
    assert_eq!((&again["added_tokens"], &again["post_processor"]), (&json["added_tokens"], &json["post_processor"]));
    assert_eq!(again["model"]["vocab"]["<|im_end|>"], 339);
    assert!(!again["model"]["merges"].as_array().unwrap().iter().any(|merge| merge[1] == "e"));
}

/// The format of Llama's tokenizers in transformers since version 5.
#[test]
fn pieces_whose_spaces_are_marked_as_they_are_split_go_into_a_gguf() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("model.gguf");
    let opened = source(&fixture("llama2c/v0/model.bin"));
    let mut model = opened.model().unwrap();
    let own = model.tokenizer.clone();
    let mut through = |scheme: &str, split: bool| {
        let json = &mut model.tokenizer.as_mut().unwrap().json;
        json["normalizer"] = Value::Null;
        json["pre_tokenizer"] = serde_json::json!({
            "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split,
        });
        gguf::write(&model, NumberType::F32, "test", &path).map_err(|error| error.to_string())?;
        Ok::<_, String>(source(&path).model().unwrap().tokenizer)
    };
    assert_eq!(through("first", false).unwrap(), own);
    assert_eq!(through("always", false).unwrap(), own);
    // Without a space before a text, and so without removing one.
    let plain = through("never", false).unwrap();
    let json = &plain.as_ref().unwrap().json;
    assert_eq!(
        (json["normalizer"]["type"].as_str(), json["decoder"]["decoders"].as_array().unwrap().len()),
        (Some("Replace"), 3)
    );
    assert!(through("first", true).unwrap_err().contains("pre-tokenizer Metaspace"));
    model.tokenizer.clone_from(&plain);
    gguf::write(&model, NumberType::F32, "test", &path).unwrap();
    assert_eq!(source(&path).model().unwrap().tokenizer, plain);
}

#[test]
fn what_llama2c_cannot_say_is_refused() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("model.bin");
    let refused = |change: &dyn Fn(&mut Model)| {
        let opened = source(&fixture("llama2c/v0/model.bin"));
        let mut model = opened.model().unwrap();
        change(&mut model);
        let error = llama2c::write(&model, &path).unwrap_err().to_string();
        assert!(error.starts_with("llama2.c cannot store ") && !error.contains('\n'), "{error}");
        assert!(!path.exists());
        error
    };
    assert!(refused(&|model| model.shape.bias = true).contains("biases"));
    assert!(refused(&|model| model.shape.rope_theta = 5e5).contains("rope_theta = 500000"));
    assert!(refused(&|model| model.shape.norm_epsilon = 1e-6).contains("1e-6"));
    assert!(refused(&|model| model.shape.head_size = 8).contains("4 heads of 8"));
    assert!(refused(&|model| model.shape.architecture = Architecture::Qwen3).contains("qwen3"));
    let json = |model: &mut Model, change: &dyn Fn(&mut Value)| change(&mut model.tokenizer.as_mut().unwrap().json);
    assert!(
        refused(&|model| json(model, &|json| json["model"]["type"] = "WordLevel".into())).contains("model WordLevel")
    );
    assert!(refused(&|model| json(model, &|json| json["normalizer"] = Value::Null)).contains("this tokenizer"));
    assert!(refused(&|model| json(model, &|json| json["model"]["vocab"]["xx"] = 340.into())).contains("340 rows"));
}

#[test]
fn a_value_that_is_no_number_is_refused() {
    let out = tempfile::tempdir().unwrap();
    let path = out.path().join("model.bin");
    let opened = source(&fixture("llama2c/v0/model.bin"));
    let mut model = opened.model().unwrap();
    let Tensor { name, shape, .. } = model.tensors.pop().unwrap();
    let values = vec![f32::NAN; shape.iter().product()];
    model.tensors.push(Tensor::new(name, shape, NumberType::F32, move || Ok(values.clone().into())));
    llama2c::write(&model, &path).unwrap_err();
    assert!(!path.exists());
}
