//! Streams: what their chunks hold, and that every text in them has an end.

use super::*;

/// Clients look for the usage in every chunk, and decode the text by its header.
#[test]
fn pieces_of_a_stream_are_as_clients_read_them() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let pieces = |path: &str, ask: Value| -> Vec<Value> {
        let (_, head, body) = server.send("POST", path, "", &ask.to_string());
        assert!(head.contains("content-type: text/event-stream; charset=utf-8"), "{head}");
        let returned =
            body.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|returned| *returned != "[DONE]");
        returned.map(|returned| serde_json::from_str(returned).unwrap()).collect()
    };
    let (messages, options) = (json!([{ "role": "user", "content": "a" }]), json!({ "include_usage": true }));
    let ask = json!({ "messages": messages, "max_tokens": 2, "stream": true, "stream_options": options });
    let returned = pieces("/v1/chat/completions", ask);
    let (last, others) = returned.split_last().unwrap();
    assert!(last["usage"].is_object() && !others.is_empty(), "{last}");
    assert!(others.iter().all(|piece| piece.get("usage") == Some(&Value::Null)), "{others:?}");
    let ask = json!({ "prompt": "a", "n_predict": 2, "stream": true, "response_fields": ["content"] });
    let returned = pieces("/completion", ask);
    let has_only_content = |piece: &Value| piece["content"].is_string() && piece.as_object().unwrap().len() == 1;
    assert!(!returned.is_empty() && returned.iter().all(has_only_content), "{returned:?}");
}

/// Two texts are possible, and three are asked for.
#[test]
fn every_text_that_begins_in_a_stream_also_ends() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let message = json!([{ "role": "user", "content": "a" }]);
    for (path, mut ask) in [
        ("/v1/chat/completions", json!({ "messages": message })),
        ("/v1/completions", json!({ "prompt": "a", "echo": true })),
        ("/v1/completions", json!({ "prompt": "a", "echo": true, "logprobs": 1 })),
    ] {
        let more = json!({ "strategy": "exact", "regex": "[bc]", "max_tokens": 1, "n": 3, "stream": true });
        ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (_, _, body) = server.send("POST", path, "", &ask.to_string());
        let chunks = body.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|chunk| *chunk != "[DONE]");
        let chunks: Vec<Value> = chunks.map(|chunk| serde_json::from_str(chunk).unwrap()).collect();
        let choices: Vec<&Value> = chunks.iter().filter_map(|chunk| chunk["choices"].get(0)).collect();
        let of = |index: usize| choices.iter().filter(move |choice| choice["index"] == index);
        for index in 0..2 {
            let text = |choice: &&Value| {
                let text = choice["text"].as_str().or(choice["delta"]["content"].as_str());
                text.unwrap_or_default().to_owned()
            };
            let text: String = of(index).map(text).collect();
            let begins = if path == "/v1/completions" { "a" } else { "" };
            assert!(["b", "c"].map(|end| format!("{begins}{end}")).contains(&text), "{path}: {text:?}");
            assert!(of(index).next_back().unwrap()["finish_reason"].is_string(), "{path}: {body}");
            if ask["logprobs"] == 1 {
                let tokens: usize =
                    of(index).map(|choice| choice["logprobs"]["tokens"].as_array().unwrap().len()).sum();
                assert_eq!(tokens, 2, "{body}");
            }
        }
        assert_eq!(of(2).count(), 0, "{path}: {body}");
    }
}
