//! Refusals: of requests that cannot be fulfilled, would take too much, or are meant to break the
//! server.

use super::*;

#[test]
fn what_cannot_be_followed_is_refused_by_name() {
    let server = Server::open();
    let refused = |body: Value, param: &str, words: &str| {
        let (status, answer) = server.post("/v1/completions", &body);
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(param)), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(words), "{answer}");
    };
    refused(json!({ "prompt": "a", "temperatur": 1 }), "temperatur", "did you mean temperature?");
    refused(json!({ "prompt": "a", "top_p": "much" }), "top_p", "top_p must be a number");
    refused(json!({ "prompt": "a", "suffix": "b" }), "suffix", "not supported");
    refused(json!({ "prompt": "a", "guided_json": {} }), "guided_json", "did you mean json_schema?");
    refused(json!({ "prompt": "a", "stream_options": { "include_usage": "yes" } }), "stream_options", "include_usage");
    refused(json!({ "prompt": "a", "stream_options": { "usage": true } }), "stream_options", "usage in stream_options");
    refused(json!({ "prompt": "a", "bad_words": ["x"] }), "bad_words", "x");
    refused(json!({ "prompt": "a", "bad_words": [""] }), "bad_words", "has no tokens");
    refused(json!({ "max_tokens": 3 }), "prompt", "no prompt");
    refused(json!({ "prompt": [] }), "prompt", "at least one token");
    refused(json!({ "prompt": [99] }), "prompt", "the token 99, which is outside the model's vocabulary");
    refused(json!({ "prompt": "x" }), "prompt", "x");
    refused(json!({ "prompt": "a".repeat(65) }), "prompt", "context size of 64");
    refused(json!({ "prompt": "a", "regex": "(" }), "regex", "cannot be used");
    refused(json!({ "prompt": "a", "json_schema": [1] }), "json_schema", "a schema: an object");
    refused(json!({ "prompt": "a", "regex": ".*".repeat(8000) }), "regex", "too complex");
    refused(
        json!({ "prompt": "a", "max_tokens": 2, "n_predict": 3 }),
        "n_predict",
        "max_tokens and n_predict are the same",
    );
    refused(json!({ "prompt": "a", "n": 1, "num_return_sequences": 2 }), "num_return_sequences", "are the same");
    refused(json!({ "prompt": "a", "stop_token_ids": [99] }), "stop_token_ids", "the token 99");
    refused(json!({ "prompt": "a", "logit_bias": { "5": 1, "05": 2 } }), "logit_bias", "two numbers for the token 5");
    refused(json!({ "prompt": "a", "logit_bias": [["aa", 1], ["a", 2]] }), "logit_bias", "two numbers");
    refused(json!({ "prompt": "a", "logit_bias": { "5": 1e300 } }), "logit_bias", "logit_bias has 1e300");
    for biases in [json!({ "999": 1 }), json!([[999, false]])] {
        refused(json!({ "prompt": "a", "logit_bias": biases }), "logit_bias", "logit_bias has the token 999");
    }
    for key in ["-1", "1.0"] {
        refused(json!({ "prompt": "a", "logit_bias": { key: 1 } }), "logit_bias", "logit_bias must be an object");
    }
    refused(json!({ "prompt": "a", "suppress_tokens": [999] }), "suppress_tokens", "suppress_tokens has the token 999");
    refused(json!({ "prompt": "a", "n": 0 }), "n", "n is 0; it must be from 1 to 128");
    refused(json!({ "prompt": "a", "max_tokens": "5" }), "max_tokens", "below 0 means as many as the context allows");
    refused(json!({ "prompt": "a", "n": 2, "temperature": 0 }), "n", "greedy ignores n; leave it out");
    refused(json!({ "prompt": "a", "top_p": 3, "temperature": 0 }), "top_p", "top_p is 3; it must be");
    refused(json!({ "prompt": "a", "max_nodes": 2 }), "max_nodes", "sampling ignores max_nodes;");
    refused(json!({ "prompt": "a", "top_p": 0.5, "semantics": "mlx" }), "top_p", "greedy and ignores top_p;");
    refused(json!({ "prompt": "a", "draft_tokens": 2, "num_beams": 2 }), "draft_tokens", "leave draft_tokens out");
    refused(
        json!({ "prompt": "a", "stop": (0..1025).map(|i| i.to_string()).collect::<Vec<_>>() }),
        "stop",
        "1024 strings",
    );
    refused(json!({ "prompt": "a", "bad_words": vec!["ab"; 16_385] }), "bad_words", "it can have at most 16384");
    let sequence = |i: usize| json!([[i % 12, i / 12 % 12, i / 144 % 12, i / 1728], -1]);
    let biases: Vec<Value> = (0..16_385).map(sequence).collect();
    refused(json!({ "prompt": "a", "sequence_bias": biases }), "sequence_bias", "it can have at most 16384");
    server.write(json!({
        "prompt": "a", "max_tokens": 1, "bad_words": vec!["ab"; 16_384], "sequence_bias": biases[1..],
    }));
    let (status, answer) = server.post("/v1/completions", &json!({ "prompt": "a", "top_p": 3 }));
    assert_eq!((status, answer["error"]["type"].as_str()), (400, Some("invalid_request_error")), "{answer}");
    let messages = json!([{ "role": "user", "content": "a" }]);
    let chat = Server::open_with(Tokenizer::bytes().unwrap());
    for (path, ask, words) in [
        ("/completion", json!({ "prompt": "a", "trace": 3 }), "no parameter \"trace\""),
        ("/completion", json!({ "prompt": "a", "samplers": ["top_k"] }), "samplers must be penalties, top_k"),
        ("/completion", json!({ "prompt": "a", "samplers": [] }), "samplers must be"),
        (
            "/completion",
            json!({ "prompt": "a", "samplers": "edskypmxt", "semantics": "hf", "strategy": "sample" }),
            "samplers must be",
        ),
        ("/completion", json!({ "prompt": "a", "repeat_last_n": 4, "repeat_penalty": 2 }), "repeat_last_n must be 64"),
        ("/completion", json!({ "prompt": "a", "n_keep": 4, "overflow": "slide" }), "n_keep must be 0"),
        ("/completion", json!({ "prompt": "a", "t_max_predict_ms": "soon" }), "t_max_predict_ms must be a number"),
        ("/completion", json!({ "prompt": "a", "n_cmpl": 2, "n": 3 }), "are the same"),
        ("/completion", json!({ "prompt": "a", "mirostat": 2, "mirostat_tau": 5 }), "mirostat must be 0"),
        ("/completion", json!({ "prompt": "a", "top_n_sigma": 1 }), "top_n_sigma must be 0 or less"),
        ("/completion", json!({ "prompt": "a", "lora": [{ "id": 0, "scale": 1 }] }), "lora must be []"),
        ("/v1/completions", json!({ "prompt": "a", "mirostat": 0 }), "\"mirostat\"; /openapi.json lists them"),
        (
            "/v1/chat/completions",
            json!({ "messages": messages, "tool_choice": "required" }),
            "tool_choice must be auto",
        ),
        ("/v1/chat/completions", json!({ "messages": messages, "tools": 5 }), "tools must be a list"),
        ("/v1/chat/completions", json!({ "messages": messages, "modalities": ["audio"] }), "modalities must be"),
        (
            "/completion",
            json!({ "prompt": "a", "num_beams": 2, "n_probs": 1, "post_sampling_probs": true }),
            "does not work with beams",
        ),
        (
            "/completion",
            json!({ "prompt": "a", "strategy": "exact", "n_probs": 1, "post_sampling_probs": true }),
            "beams or an exact search",
        ),
        (
            "/completion",
            json!({ "prompt": "a", "draft_tokens": 2, "n_probs": 1, "post_sampling_probs": true }),
            "post_sampling_probs does not work with drafts",
        ),
        ("/v1/completions", json!({ "prompt": "a", "draft_tokens": 2, "trace": 3 }), "trace does not work with drafts"),
        (
            "/v1/completions",
            json!({ "prompt": "a", "draft_tokens": 2, "replay": true }),
            "replay does not work with drafts",
        ),
        (
            "/v1/completions",
            json!({ "prompt": "a", "trace": 50, "replay": true }),
            "a trace of 10 tokens per step; leave trace out",
        ),
        ("/v1/chat/completions", json!({ "messages": messages, "trace": 3 }), "no parameter \"trace\""),
        (
            "/v1/chat/completions",
            json!({ "messages": messages, "regex": "a", "response_format": { "type": "json_object" } }),
            "only one of response_format and regex",
        ),
        (
            "/v1/chat/completions",
            json!({ "messages": messages, "chat_template_kwargs": { "messages": [] } }),
            "cannot set messages",
        ),
        (
            "/v1/chat/completions",
            json!({ "messages": messages, "continue_final_message": true }),
            "needs an answer as the last message",
        ),
        ("/tokenize", json!({ "content": "a", "with_piece": true }), "unknown field `with_piece`"),
        ("/tokenize", json!({ "content": "a", "prompt": "b" }), "content and prompt are the same; send one of them"),
        ("/tokenize", json!({ "content": "a", "with_pieces": 1 }), "with_pieces: invalid type: integer `1`"),
        ("/tokenize", json!({ "model": null }), "no text"),
        ("/detokenize", json!({ "tokens": [97], "content": "a" }), "unknown field `content`"),
    ] {
        let (status, answer) = chat.post(path, &ask);
        assert!(status == 400 && answer["error"]["message"].as_str().unwrap().contains(words), "{answer}");
    }
    for path in ["/v1/models/%ff", "/props?model=a&model=b", "/slots?fail_on_no_slot=1&fail_on_no_slot=2"] {
        let (status, head, body) = server.send("GET", path, "", "");
        assert!(status == 400 && head.contains("application/json") && body.contains("message"), "{head} {body}");
    }
    assert_eq!(server.post("/v1/completions", &json!({ "prompt": "a", "model": "other" })).0, 404);
    assert_eq!(server.send("POST", "/v1/completions", "", "{").0, 400);
    assert_eq!(server.send("POST", "/v1/completions", "", &"x".repeat(body::MAX_BODY_BYTES + 1)).0, 413);
    assert_eq!(server.send("GET", "/nowhere", "", "").0, 404);
    assert_eq!(server.send("GET", "/v1/completions", "", "").0, 405);
    // Parameters without an effect are accepted.
    server.write(json!({ "prompt": "a", "user": "me", "temperature": null, "prediction": null }));
    server.write(json!({ "prompt": "a", "max_tokens": 2, "n_predict": 2 }));
    server.write(json!({ "prompt": "a", "max_tokens": 2, "trace": 10, "replay": true }));
    server.write(json!({ "prompt": "a", "max_tokens": 2, "logit_bias": [["aa", 1], ["b", 2]] }));
}

#[test]
fn a_stop_string_without_a_tokenizer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path(), &tokenizer());
    std::fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
    // The folder's own is not applied: without a tokenizer every token would match it.
    std::fs::write(folder.path().join("generation_config.json"), "{\"stop_strings\": [\"\u{fffd}\"]}").unwrap();
    let running = Running::with(folder.path(), None, Vec::new(), 4, 8).unwrap();
    let server = Server { address: running.address, _running: running, _folder: folder };
    for path in ["/v1/completions", "/completion"] {
        let ask =
            |name: &str, stop: Value| server.post(path, &json!({ "prompt": [1, 2], "max_tokens": 2, name: stop }));
        for (name, stop) in [("stop", json!("a")), ("stop", json!(["", "a"])), ("stop_strings", json!(["a"]))] {
            let (status, answer) = ask(name, stop);
            assert_eq!((status, &answer["error"]["param"]), (400, &json!(name)), "{answer}");
            let message = answer["error"]["message"].as_str().unwrap();
            assert!(message.starts_with(&format!("{name} needs a tokenizer")), "{answer}");
        }
        for stop in [json!(""), json!([]), Value::Null] {
            let (status, answer) = ask("stop", stop);
            assert_eq!(status, 200, "{answer}");
        }
    }
    let (_, answer) = server.post("/v1/completions", &json!({ "prompt": [1, 2], "max_tokens": 2 }));
    assert_eq!(answer["choices"][0]["finish_reason"], "length", "{answer}");
}

#[test]
fn a_query_is_understood_or_refused() {
    let server = Server::open();
    for (path, status) in [
        ("/props?model=tiny", 200),
        ("/props?model=other", 404),
        ("/props?modle=tiny", 400),
        ("/tokenizer_info?model=tiny", 200),
        ("/tokenizer_info?model=other", 404),
        ("/slots?fail_on_no_slot=1", 200),
        ("/slots?fail=1", 400),
    ] {
        assert_eq!(server.send("GET", path, "", "").0, status, "{path}");
    }
}

#[test]
fn what_a_small_request_may_take_is_bounded() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    for (ask, words) in [
        (json!({ "n": 64, "max_tokens": 63, "logprobs": 1000 }), "fewer candidates"),
        (
            json!({ "prompt": vec!["a".repeat(60); 20], "max_tokens": 0, "echo": true, "logprobs": 1000 }),
            "1220 tokens with",
        ),
        (json!({ "max_tokens": 2000, "overflow": "slide", "trace": 200 }), "2000 tokens with 200"),
        // A token's own log-probability counts as a candidate, in a stream as well.
        (
            json!({ "max_tokens": 262_145, "overflow": "slide", "logprobs": 0, "stream": true }),
            "262145 tokens with 1 candidates",
        ),
        (json!({ "max_tokens": 262_145, "overflow": "slide" }), "262145 tokens with a sliding window"),
        (
            json!({ "max_tokens": u64::MAX, "overflow": "slide", "prompt": ["a", "b"] }),
            "can have at most 262144 tokens",
        ),
        (json!({ "max_tokens": 70_000, "n": 4, "overflow": "slide" }), "280000 tokens with a sliding window"),
        (
            json!({ "max_tokens": 90_000, "num_beams": 3, "overflow": "slide", "stream": true }),
            "270000 tokens with a sliding window",
        ),
        (json!({ "num_beams": 64, "max_tokens": 63, "trace": 1 }), "4032 tokens with 128"),
        (
            json!({ "num_beams": 300, "max_tokens": 1, "stop_token_ids": (0..256).collect::<Vec<u32>>() }),
            "300 beams per",
        ),
        (json!({ "num_beams": 2000, "max_tokens": 1 }), "2000 beams per"),
        (json!({ "replay": true, "logprobs": 1000 }), "replay can return at most 200"),
        (
            json!({ "prompt": "a".repeat(100_000), "n": 64, "max_tokens": 0, "echo": true, "overflow": "slide" }),
            "100000 bytes of the request 64 times",
        ),
        (json!({ "strategy": "exact", "max_nodes": 1_000_000_000 }), "max_nodes must be at most 1000000"),
    ] {
        let mut ask = ask;
        ask.as_object_mut().unwrap().entry("prompt").or_insert(json!("a"));
        let (status, answer) = server.post("/v1/completions", &ask);
        assert!(status == 400 && answer["error"]["message"].as_str().unwrap().contains(words), "{answer}");
    }
    for ask in [
        json!({ "prompt": "a".repeat(100_000), "overflow": "slide" }),
        json!({ "prompt": "a", "stop": ["a".repeat(100_000)] }),
    ] {
        let mut ask = ask;
        (ask["n"], ask["n_predict"]) = (json!(64), json!(0));
        let (status, answer) = server.post("/completion", &ask);
        assert!(status == 400 && answer["error"]["message"].as_str().unwrap().contains("64 times"), "{answer}");
        ask["n"] = json!(2);
        assert_eq!(server.post("/completion", &ask).0, 200);
    }
    // A repeated token counts once.
    server.write(json!({ "prompt": "a", "num_beams": 64, "max_tokens": 4, "stop_token_ids": vec![0; 250_000] }));
    // A stream may continue for long.
    drop(server.begin(&json!({ "prompt": "a", "max_tokens": 1_u64 << 40, "overflow": "slide", "stream": true })));
    // Every candidate for one token, and scoring of prompts.
    server.write(json!({ "prompt": "a".repeat(50), "max_tokens": 1, "logprobs": 1000 }));
    server.write(json!({ "prompt": vec!["a".repeat(50); 100], "max_tokens": 1, "echo": true, "logprobs": 5 }));
}

/// Common attacks on servers: paths out of the folder, huge bodies, deeply nested grammars, endless
/// headers.
#[test]
fn what_is_meant_to_break_it_is_refused() {
    let server = Server::open();
    for path in ["/../../etc/passwd", "/v1/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd"] {
        assert_eq!(server.send("GET", path, "", "").0, 404, "{path}");
    }
    // Nothing is decompressed: a bomb is just bytes that are not JSON.
    let (status, _, _) = server.send("POST", "/v1/completions", "Content-Encoding: gzip\r\n", "\u{1f}\u{8b}...");
    assert_eq!(status, 400);
    let deep = |begin: &str, inner: &str, end: &str| begin.repeat(60_000) + inner + &end.repeat(60_000);
    let write = |name: &str, value: Value| server.post("/v1/completions", &json!({ "prompt": "a", name: value }));
    let llama = |value: String| server.post("/completion", &json!({ "prompt": "a", "grammar": value }));
    for (name, value) in [
        ("regex", json!(deep("(", "a", ")"))),
        ("lark_grammar", json!(format!("start: {}", deep("(", "\"a\"", ")")))),
        ("json_schema", json!(deep("{\"not\":", "true", "}"))),
    ] {
        let (status, answer) = write(name, value);
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(name)), "{answer}");
    }
    assert_eq!(llama(format!("root ::= {}", deep("(", "\"a\"", ")"))).0, 400);
    let (status, _, body) = server.send("POST", "/v1/completions", "", &deep("[", "", "]"));
    assert!(status == 400 && body.contains("not JSON"), "{body}");
    let nested = (0..100).fold(json!(1), |inner, _| json!([inner]));
    assert_eq!(write("logit_bias", nested).0, 400);
    assert_eq!(write("trace", json!(1_000_000)).0, 400);
    assert_eq!(write("num_beams", json!(10_000)).0, 400);
    let began = Instant::now();
    assert_eq!(write(&"a".repeat(1_000_000), json!(1)).0, 400);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let (status, _, _) = server.send("GET", "/health", &"X-Header: 1\r\n".repeat(1000), "");
    assert_eq!(status, 431);
    // The server still works.
    server.write(json!({ "prompt": "abc", "max_tokens": 2 }));
}

/// Even under a name that has no effect.
#[test]
fn what_is_nested_too_deep_is_refused() {
    let server = Server::open();
    let write = |depth: usize| {
        let nested = (1..depth).fold(json!(1), |inner, _| json!([inner]));
        server.post("/v1/completions", &json!({ "prompt": "a", "max_tokens": 1, "user": nested }))
    };
    assert_eq!(write(64).0, 200);
    let (status, answer) = write(65);
    assert!(status == 400 && answer["error"]["message"].as_str().unwrap().contains("nested more than 64"), "{answer}");
}
