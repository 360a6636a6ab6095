//! Requests of llama.cpp's clients.

use ember_decoding::config::Semantics;
use itertools::Itertools;

use super::*;

/// Under llama.cpp's names, an answer repeats the request's settings, prompt by prompt.
#[test]
fn a_completion_tells_what_was_asked() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let ask = |body: Value| server.post("/completion", &body).1;
    let none = ask(json!({ "prompt": ["a", "b"], "n_predict": 0 }));
    assert_eq!((&none[0]["prompt"], &none[1]["prompt"], &none[1]["index"]), (&json!("a"), &json!("b"), &json!(1)));
    let none = ask(json!({ "prompt": "a", "n_predict": 0 }));
    let settings = &none["generation_settings"];
    assert_eq!((&none["tokens_predicted"], &settings["n_predict"]), (&json!(0), &json!(0)));
    assert_eq!((&settings["max_new_tokens"], &settings["early_stopping"]), (&json!(0), &json!(false)));
    let returned = ask(json!({ "prompt": "a", "n_predict": 1, "logit_bias": [[5, 1.5], [6, false]] }));
    let biases = json!([{ "token": 5, "bias": 1.5 }, { "token": 6, "bias": null }]);
    assert_eq!(returned["generation_settings"]["logit_bias"], biases);
    let ended = |what: &str, by: &str| {
        let returned = ask(json!({ "prompt": "a", "n_predict": 9, "grammar": "root ::= \"bcd\"", what: by }));
        (returned["content"].clone(), returned["stop_type"].clone(), returned["stopping_word"].clone())
    };
    assert_eq!(ended("stop", ""), (json!("bcd"), json!("eos"), json!("")));
    assert_eq!(ended("stop", "cd"), (json!("b"), json!("word"), json!("cd")));
    // Banned tokens are joined with other banned tokens.
    let returned = ask(json!({ "prompt": "a", "n_predict": 1, "logit_bias": { "6": false }, "suppress_tokens": [7] }));
    let biases = json!([{ "token": 7, "bias": null }, { "token": 6, "bias": null }]);
    assert_eq!(returned["generation_settings"]["logit_bias"], biases);
    // No bias makes an ignored end token possible.
    let end = Tokenizer::bytes().unwrap().end_of_text().unwrap();
    let ends =
        json!({ "prompt": "a", "n_predict": 4, "ignore_eos": true, "logit_bias": [[end, 50]], "return_tokens": true });
    let returned = ask(ends);
    let tokens = returned["tokens"].as_array().unwrap();
    assert!(tokens.len() == 4 && !tokens.contains(&json!(end)), "{returned}");
    let biases = json!([{ "token": end, "bias": 50.0 }, { "token": end, "bias": null }]);
    assert_eq!(returned["generation_settings"]["logit_bias"], biases);
    let count = |parses: Value| ask(json!({ "prompt": "a<|endoftext|>", "n_predict": 0, "parse_special": parses }));
    assert_eq!(count(Value::Null)["timings"]["prompt_n"], "a<|endoftext|>".len());
    assert_eq!(count(json!(true))["timings"]["prompt_n"], 2);
}

/// Parameters of llama.cpp's clients that ask for the default behaviour are accepted.
#[test]
fn a_completion_takes_what_asks_for_what_is_done_anyway() {
    let server = Server::open();
    let ask = json!({
        "prompt": "abc", "seed": 1, "n_predict": 3, "n_cmpl": 2, "repeat_last_n": 4, "n_keep": 2, "n_discard": 1, "min_keep": 0,
        "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"],
        "bad_words": ["a", "bc"], "t_max_predict_ms": 60000, "mirostat": 0, "dry_multiplier": 0.0, "xtc_probability": 0,
        "dynatemp_range": 0, "lora": [],
    });
    let (status, answer) = server.post("/completion", &ask);
    assert_eq!((status, answer.as_array().map(Vec::len)), (200, Some(2)), "{answer}");
    let settings = &answer[0]["generation_settings"];
    assert_eq!((&settings["bad_words"], &settings["max_time_s"]), (&json!([[1], [2, 3]]), &json!(60.0)), "{answer}");
    assert!(!answer[0]["content"].as_str().unwrap().contains('a'), "{answer}");
    let (status, answer) =
        server.post("/completion", &json!({ "prompt": "a", "n_predict": 1, "samplers": "edskypmxt" }));
    assert_eq!(status, 200, "{answer}");
    // What belongs to a feature that is off.
    let ask = json!({
        "prompt": "a", "n_predict": 1, "top_n_sigma": -1, "mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1,
        "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1, "dry_sequence_breakers": ["\n"],
        "xtc_threshold": 0.1, "dynatemp_exponent": 1,
    });
    let (status, answer) = server.post("/completion", &ask);
    assert_eq!(status, 200, "{answer}");
}

/// Its clients read until the connection ends; `[DONE]` belongs to OpenAI's API.
#[test]
fn a_stream_ends_with_the_object_that_says_so() {
    let server = Server::open();
    for most in [0, 3] {
        let ask = json!({ "prompt": "abc", "n_predict": most, "stream": true });
        let (_, _, body) = server.send("POST", "/completion", "", &ask.to_string());
        let last = body.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap();
        let last: Value = serde_json::from_str(last).unwrap();
        assert_eq!((&last["stop"], &last["tokens_evaluated"]), (&json!(true), &json!(3)), "{last}");
        assert!(last["tokens_cached"].is_u64(), "{last}");
    }
}

/// One token may complete several stop strings.
#[test]
fn the_stopping_word_is_the_first_in_the_request_of_those_that_begin_together() {
    let server = Server::open_with(Tokenizer::train_bpe(258, ["cd"; 20]).unwrap());
    for (stops, word) in [(["cd", "c"], "cd"), (["c", "cd"], "c"), (["d", "c"], "c")] {
        let ask = json!({
            "prompt": "a", "n_predict": 9, "grammar": "root ::= \"bcd\"", "logit_bias": [["cd", 90]], "stop": stops,
            "return_tokens": true,
        });
        let (_, returned) = server.post("/completion", &ask);
        assert_eq!(returned["tokens"].as_array().map(Vec::len), Some(2), "{returned}");
        assert_eq!((&returned["content"], &returned["stopping_word"]), (&json!("b"), &json!(word)), "{returned}");
    }
}

/// The bytes after it may be the beginning of a character.
#[test]
fn the_stopping_word_holds_no_character_that_may_still_be_completed() {
    let tokenizer = Tokenizer::train_bpe(258, ["bé", "bè", "bê", "bë"].repeat(5)).unwrap();
    // One token is `b` and the first byte of each of these letters.
    let ids = tokenizer.encode("bé").unwrap();
    assert_eq!((ids.len(), tokenizer.token_bytes(ids[0])), (2, Some(b"b\xc3".to_vec())));
    let server = Server::open_with(tokenizer);
    for stops in [["b\u{fffd}", "b"], ["b", "b\u{fffd}"]] {
        let ask = json!({ "prompt": "a", "n_predict": 9, "logit_bias": [[ids[0], 90]], "stop": stops });
        let (_, returned) = server.post("/completion", &ask);
        assert_eq!((&returned["content"], &returned["stopping_word"]), (&json!(""), &json!("b")), "{returned}");
    }
}

/// Whatever the folder sets, except the maximum length.
#[test]
fn a_completion_has_the_defaults_of_llama_cpp() {
    let server = Server::open();
    let folder = "{\"num_beams\": 4, \"repetition_penalty\": 1.8, \"typical_p\": 0.5, \"suppress_tokens\": [3]}";
    std::fs::write(server._folder.path().join("generation_config.json"), folder).unwrap();
    let settings =
        server.post("/completion", &json!({ "prompt": "a", "n_predict": 1 })).1["generation_settings"].clone();
    let returned = ["repetition_penalty", "typical_p", "suppress_tokens"].map(|name| settings[name].clone());
    assert_eq!(returned, [json!(1.0), json!(1.0), json!([])], "{settings}");
    for (name, default) in [
        ("semantics", json!("llamacpp")),
        ("temperature", json!(0.8_f32)),
        ("top_k", json!(40)),
        ("top_p", json!(0.95)),
        ("min_p", json!(0.05)),
        ("presence_penalty", json!(0.0)),
        ("frequency_penalty", json!(0.0)),
        ("num_beams", json!(1)),
    ] {
        assert_eq!(settings[name], default, "{name}");
    }
    for (asked, strategy, top_k) in [
        (json!({}), "sample", 40),
        (json!({ "strategy": "sample" }), "sample", 40),
        (json!({ "num_beams": 1 }), "sample", 40),
        (json!({ "top_k": 3 }), "sample", 3),
        (json!({ "temperature": 0 }), "greedy", 0),
        (json!({ "strategy": "greedy" }), "greedy", 0),
        (json!({ "strategy": "sample", "semantics": "hf" }), "sample", 0),
        (json!({ "num_beams": 2 }), "beam", 0),
    ] {
        let mut ask = asked;
        (ask["prompt"], ask["n_predict"]) = (json!("a"), json!(1));
        let (_, answer) = server.post("/completion", &ask);
        let settings = &answer["generation_settings"];
        assert_eq!((&settings["strategy"], &settings["top_k"]), (&json!(strategy), &json!(top_k)), "{answer}");
    }
}

/// With the tokens and strings that end its texts, and their length.
#[test]
fn a_model_s_properties_tell_what_a_completion_that_says_nothing_is_written_with() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let params = || {
        let (_, _, body) = server.send("GET", "/props", "", "");
        let returned: Value = serde_json::from_str(&body).unwrap();
        returned["default_generation_settings"]["params"].clone()
    };
    let (_, answer) = server.post("/completion", &json!({ "prompt": "a" }));
    let (mut returned, mut written) = (params(), answer["generation_settings"].clone());
    for settings in [&mut returned, &mut written] {
        settings.as_object_mut().unwrap().remove("seed");
    }
    assert_eq!(returned, written);
    assert_eq!(
        (&returned["semantics"], &returned["top_k"], &returned["n_predict"]),
        (&json!("llamacpp"), &json!(40), &json!(CONTEXT))
    );
    assert!(!returned["eos_token_id"].as_array().unwrap().is_empty(), "{returned}");
    assert_eq!(params()["seed"], -1);
    let (_, _, body) = server.send("GET", "/props", "", "");
    let knobs = serde_json::from_str::<Value>(&body).unwrap()["knobs"].clone();
    let named = |name: &str| knobs.as_array().unwrap().iter().find(|knob| knob["name"] == name).unwrap();
    assert!(named("top_p")["range"].is_string() && named("top_k")["range"].is_null(), "any whole number is a top_k");
    let when = named("early_stopping");
    assert_eq!((&when["words"], &when["default"]), (&json!([true, false, "never"]), &json!(false)));
    for word in when["words"].as_array().unwrap() {
        let ask = json!({ "prompt": "a", "n_predict": 1, "num_beams": 2, "early_stopping": word });
        let (status, answer) = server.post("/completion", &ask);
        assert_eq!((status, &answer["generation_settings"]["early_stopping"]), (200, word), "{answer}");
    }
}

/// As in llama.cpp; an object's key is an id, as OpenAI's clients write it.
#[test]
fn a_text_in_a_list_of_biases_is_all_of_its_tokens() {
    // Tokens that the tokenizer adds before a prompt are not included.
    let server = Server::open_with(Tokenizer::bytes().unwrap().opening_prompts().unwrap());
    let biased = |biases: Value| {
        let ask = json!({ "prompt": "a", "n_predict": 1, "logit_bias": biases });
        server.post("/completion", &ask).1["generation_settings"]["logit_bias"].clone()
    };
    let of = |id: u8| json!({ "token": id, "bias": -1.0 });
    assert_eq!(biased(json!([["57", -1]])), json!([of(b'5'), of(b'7')]));
    assert_eq!(biased(json!([[57, -1]])), json!([of(57)]));
    assert_eq!(biased(json!({ "57": -1 })), json!([of(57)]));
    assert_eq!(biased(json!({ "ab": -1 })), json!([of(b'a'), of(b'b')]));
    assert_eq!(biased(json!([["ab", -1], ["cab", -1]])), json!([of(b'a'), of(b'b'), of(b'c')]));
    // A banned token counts once.
    let banned = |id: u8| json!({ "token": id, "bias": null });
    assert_eq!(biased(json!([["abab", false], ["a", false]])), json!([banned(b'a'), banned(b'b')]));
}

/// The model's own, or those from which the token was drawn.
#[test]
fn the_most_probable_tokens_are_returned_with_their_probabilities() {
    let server = Server::open();
    let mut ask = json!({
        "prompt": "abc", "n_predict": 6, "seed": 5, "temperature": 0.7, "top_k": 3, "top_p": 1, "min_p": 0, "n_probs": 3,
    });
    let entries =
        |ask: &Value| server.post("/completion", ask).1["completion_probabilities"].as_array().unwrap().clone();
    let own = entries(&ask);
    ask["post_sampling_probs"] = json!(true);
    let drawn_from = entries(&ask);
    let config = GenerationConfig {
        strategy: Strategy::Sample,
        semantics: Semantics::Llamacpp,
        seed: 5,
        temperature: 0.7,
        top_k: 3,
        max_new_tokens: 6,
        overflow: Overflow::Stop,
        ..Default::default()
    };
    let logprobs: Vec<Value> = own.iter().map(|token| token["logprob"].clone()).collect();
    assert_eq!(json!(logprobs), json!(alone("abc", config).1));
    for (own, drawn_from) in own.iter().zip_eq(&drawn_from) {
        let tops = own["top_logprobs"].as_array().unwrap();
        let weights = tops.iter().map(|top| (top["logprob"].as_f64().unwrap() / 0.7).exp());
        let sum: f64 = weights.clone().sum();
        let left = drawn_from["top_probs"].as_array().unwrap();
        assert_eq!(tops.len(), 3, "{own}");
        for ((top, left), weight) in tops.iter().zip_eq(left).zip_eq(weights) {
            assert_eq!(top["id"], left["id"], "{drawn_from}");
            assert!((left["prob"].as_f64().unwrap() - weight / sum).abs() < 1e-5, "{drawn_from}");
        }
        let chosen = left.iter().find(|left| left["id"] == own["id"]).unwrap();
        assert_eq!((&chosen["id"], &chosen["prob"]), (&drawn_from["id"], &drawn_from["prob"]), "{drawn_from}");
    }
}

/// In a stream, too, where it comes in one piece.
#[test]
fn a_text_that_a_search_finds_has_the_probabilities_of_its_tokens() {
    let server = Server::open();
    for mut ask in [json!({ "num_beams": 2 }), json!({ "strategy": "exact" })] {
        (ask["prompt"], ask["n_predict"], ask["n_probs"]) = (json!("a"), json!(4), json!(3));
        let (_, answer) = server.post("/completion", &ask);
        let entries = answer["completion_probabilities"].as_array().unwrap();
        assert_eq!(entries.len(), 4, "{answer}");
        ask["stream"] = json!(true);
        let (_, _, body) = server.send("POST", "/completion", "", &ask.to_string());
        let first = body.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let first: Value = serde_json::from_str(first).unwrap();
        assert_eq!(first["completion_probabilities"].as_array(), Some(entries), "{body}");
    }
}

/// Though a search may find fewer.
#[test]
fn several_texts_are_a_list() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let ask = json!({ "prompt": "a", "strategy": "exact", "regex": "b", "n": 2, "n_predict": 1 });
    let (_, answer) = server.post("/completion", &ask);
    assert_eq!((answer.as_array().map(Vec::len), &answer[0]["content"]), (Some(1), &json!("b")), "{answer}");
}

/// `/completion` bans it; on `/v1`, as in vLLM, it is a token like any other.
#[test]
fn an_ignored_end_token_ends_no_text_of_openai_s_clients() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let end = Tokenizer::bytes().unwrap().end_of_text().unwrap();
    let mut ask = json!({
        "prompt": "a", "max_tokens": 4, "temperature": 0, "logit_bias": [[end, 50]], "return_token_ids": true,
    });
    for (ignored, ids, reason) in [(false, vec![end], "stop"), (true, vec![end; 4], "length")] {
        ask["ignore_eos"] = json!(ignored);
        let choice = server.write(ask.clone())["choices"][0].clone();
        assert_eq!((&choice["token_ids"], &choice["finish_reason"]), (&json!(ids), &json!(reason)), "{choice}");
    }
}
