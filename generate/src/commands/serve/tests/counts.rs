//! Counts: of cached and drafted tokens, and of how much of a prompt has been read.

use super::*;

/// A counter of `/metrics`.
fn counter(server: &Server, name: &str) -> u64 {
    let metrics = server.send("GET", "/metrics", "", "").2;
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap().parse().unwrap()
}

#[test]
fn what_the_cache_holds_of_a_prompt_is_counted() {
    let server = Server::open();
    let prompt = "abcdefghijk abcdefgh"; // 20 tokens
    let ask = json!({ "prompt": prompt, "max_tokens": 3 });
    let cached = || server.write(ask.clone())["usage"]["prompt_tokens_details"]["cached_tokens"].clone();
    // The last two tokens are always read again.
    assert_eq!([cached(), cached()], [0, 18]);
    assert_eq!(counter(&server, "llamacpp:prompt_tokens_cached_total"), 18);
    assert_eq!(counter(&server, "llamacpp:prompt_tokens_total"), 20 + 2);
    let (_, answer) = server.post("/completion", &json!({ "prompt": prompt, "n_predict": 3 }));
    assert_eq!((&answer["tokens_cached"], &answer["timings"]["cache_n"]), (&json!(18), &json!(18)), "{answer}");
}

/// As in llama.cpp, which counts from the moment that a slot is taken.
#[test]
fn the_wait_for_a_slot_is_not_part_of_a_prompt_s_time() {
    let server = Server::start(None, Vec::new(), 1, 8);
    let endless = json!({ "prompt": "a", "max_tokens": 1_u64 << 40, "overflow": "slide", "stream": true });
    let running = server.begin(&endless);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let (_, answer) = server.post("/completion", &json!({ "prompt": "abc", "n_predict": 3 }));
            (answer, Instant::now())
        });
        thread::sleep(Duration::from_millis(500));
        let free = Instant::now(); // until here the only slot is taken
        drop(running);
        let (answer, answered) = waiting.join().unwrap();
        let ms = |name: &str| answer["timings"][name].as_f64().unwrap();
        let took = Duration::from_secs_f64((ms("prompt_ms") + ms("predicted_ms")) / 1e3);
        assert!(took <= answered - free, "{answer}");
    });
}

#[test]
fn drafted_and_accepted_tokens_are_counted() {
    let server = Server::open();
    // A text of one letter: what followed its last letters earlier is what follows them.
    let ask = json!({
        "prompt": "aaaa", "max_tokens": 9, "temperature": 0, "logit_bias": [["a", 50]], "draft_tokens": 3,
    });
    assert_eq!(server.write(ask)["choices"][0]["text"], "a".repeat(9));
    // Passes that write 2, 4 and 3 tokens: the proposed ones, and one more.
    for (name, count) in [("draft_tokens", 6), ("accepted_tokens", 6), ("drafts", 3)] {
        assert_eq!(counter(&server, &format!("llamacpp:spec_decode_num_{name}_total")), count, "{name}");
    }
}

#[test]
fn a_stream_tells_how_much_of_its_prompt_is_read_before_its_text_begins() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let message = json!([{ "role": "user", "content": "c".repeat(32) }]); // 40 tokens with the template's own
    for (path, mut ask) in [
        ("/v1/completions", json!({ "prompt": "a".repeat(40) })),
        ("/completion", json!({ "prompt": "b".repeat(40) })),
        ("/v1/chat/completions", json!({ "messages": message })),
    ] {
        let more = json!({ "regex": "[a-c]{9}", "max_tokens": 2, "stream": true, "return_progress": true });
        ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (_, _, body) = server.send("POST", path, "", &ask.to_string());
        let chunks = body.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|chunk| *chunk != "[DONE]");
        let chunks: Vec<Value> = chunks.map(|chunk| serde_json::from_str(chunk).unwrap()).collect();
        let has_text = |chunk: &&Value| {
            let choice = &chunk["choices"][0];
            let texts = [&chunk["content"], &choice["text"], &choice["delta"]["content"]];
            texts.iter().any(|text| text.as_str().is_some_and(|text| !text.is_empty()))
        };
        assert_eq!(chunks.iter().filter(has_text).count(), 2, "{body}");
        let before = chunks.iter().take_while(|chunk| !has_text(chunk)).map(|chunk| &chunk["prompt_progress"]);
        let told = before.filter(|progress| progress.is_object());
        let read: Vec<_> = told.map(|progress| (progress["processed"].as_u64(), progress["total"].as_u64())).collect();
        assert_eq!(read, [0, 16, 32, 40].map(|read| (Some(read), Some(40))), "{body}");
    }
}
