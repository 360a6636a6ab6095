//! A folder's settings: reading, writing and refusals.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::files::{read_json, write_json};
use super::tests::{change_config, error, exact_tensors, read_all, tiny, write_folder};
use super::*;

#[test]
fn settings_that_cannot_be_computed_are_refused_by_name() {
    let dir = write_folder(&tiny(), &exact_tensors(&tiny()));
    let usual = read_json(&dir.path().join("config.json")).unwrap();
    for (key, value, words) in [
        (
            "model_type",
            json!("mistral"),
            "config.json: model_type is \"mistral\"; only \"gpt2\", \"llama\" and \"qwen3\"",
        ),
        ("model_type", json!(null), "model_type is missing"),
        ("activation_function", json!("relu"), "activation_function is \"relu\""),
        ("n_inner", json!(17), "tensor h.0.mlp.c_fc.weight is [4, 16], but config.json needs [4, 17]"),
        ("n_inner", json!(0), "n_inner is 0"),
        ("scale_attn_weights", json!(false), "scale_attn_weights is false"),
        ("scale_attn_by_inverse_layer_idx", json!(true), "scale_attn_by_inverse_layer_idx is true"),
        ("add_cross_attention", json!(true), "add_cross_attention is true"),
        ("quantization_config", json!({}), "quantization_config is set"),
        ("n_layer", json!(-1), "n_layer is -1; it must be a whole number"),
        ("n_layer", json!(0), "n_layer is 0"),
        ("n_head", json!(3), "n_head 3"),
        ("n_embd", json!("4"), "n_embd is \"4\"; it must be a whole number"),
        ("layer_norm_epsilon", json!([]), "layer_norm_epsilon is []; it must be a number"),
        ("tie_word_embeddings", json!(1), "tie_word_embeddings is 1; it must be true or false"),
    ] {
        change_config(dir.path(), key, value);
        assert!(error(dir.path()).contains(words), "{key}: {}", error(dir.path()));
        write_json(&dir.path().join("config.json"), &usual).unwrap();
    }
    for (key, value) in [("n_inner", json!(16)), ("activation_function", json!("gelu_pytorch_tanh"))] {
        change_config(dir.path(), key, value);
        read_all(dir.path()).unwrap();
    }
    fs::write(dir.path().join("config.json"), "{").unwrap();
    assert!(error(dir.path()).contains("config.json is not a JSON object"));
    fs::remove_file(dir.path().join("config.json")).unwrap();
    assert!(error(dir.path()).contains("has no config.json, which describes the model; copy it from"));
    let neither = tempfile::tempdir().unwrap();
    assert!(error(neither.path()).contains("holds no config.json; give a checkpoint folder"));
}

#[test]
fn absent_keys_have_gpt2s_defaults() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.json"), r#"{"model_type": "gpt2"}"#).unwrap();
    let gpt2 = GptConfig { dropout: 0.1, ..GptConfig::new(50257, 1024, 12, 12, 768) };
    assert_eq!(read_config(dir.path()).unwrap(), gpt2);
}

#[test]
fn end_tokens_come_from_the_first_file_that_speaks_of_them() {
    let config = tiny();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let end = || read_end_tokens(path).map_err(|e| e.to_string());
    assert_eq!(end(), Ok(vec![]));
    write(path, &config, Some(2), &Settings::new(), &exact_tensors(&config)).unwrap();
    assert_eq!(end(), Ok(vec![2]));
    fs::write(path.join("generation_config.json"), r#"{"eos_token_id": [3, 4]}"#).unwrap();
    assert_eq!(end(), Ok(vec![3, 4]));
    fs::write(path.join("generation_config.json"), r#"{"eos_token_id": null}"#).unwrap();
    assert_eq!(end(), Ok(vec![]));
    fs::write(path.join("generation_config.json"), "{}").unwrap();
    assert_eq!(end(), Ok(vec![2]), "config.json is asked next");
    fs::write(path.join("generation_config.json"), r#"{"eos_token_id": -1}"#).unwrap();
    assert!(end().unwrap_err().contains("eos_token_id is -1"));
}

#[test]
fn the_folder_says_how_tokens_are_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let written = |settings: Value| {
        config::write_generation(dir.path(), Some(2), settings.as_object().unwrap()).unwrap();
        Value::Object(read_json(&dir.path().join("generation_config.json")).unwrap())
    };
    assert_eq!(written(json!({})), json!({"bos_token_id": 2, "eos_token_id": 2, "top_k": 0}));
    assert_eq!(
        written(json!({"do_sample": true, "top_p": 0.5})),
        json!({"bos_token_id": 2, "eos_token_id": 2, "top_k": 0, "do_sample": true, "top_p": 0.5})
    );
    assert_eq!(read_opening(dir.path()).unwrap(), Some(2));
    assert_eq!(written(json!({"bos_token_id": 1})), json!({"bos_token_id": 1, "eos_token_id": 2, "top_k": 0}));
    assert_eq!(read_opening(dir.path()).unwrap(), Some(1));
    fs::remove_file(dir.path().join("generation_config.json")).unwrap();
    assert_eq!(read_opening(dir.path()).unwrap(), None);
}
