//! Conversations: the text that one becomes, what answers it, and a template that takes too much.

use super::*;

/// A server with this template: it is read when the model is loaded.
fn with_template(template: &str) -> Server {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    std::fs::write(server._folder.path().join("chat_template.jinja"), template).unwrap();
    server
}

fn said(role: &str, content: &str) -> Value {
    json!({ "role": role, "content": content })
}

#[test]
fn a_conversation_becomes_the_text_that_its_parameters_ask_for() {
    let server = with_template(
        "{% for message in messages %}{{ message.role }}: {{ message.content }};{% endfor %}\
         {% if tools %}{{ tools | tojson }};{% endif %}{% if mood %}{{ mood }};{% endif %}\
         {% if add_generation_prompt %}assistant:{% endif %}",
    );
    let (asked, begun) = (json!([said("user", "hi")]), json!([said("user", "hi"), said("assistant", "he")]));
    for (ask, text) in [
        (json!({ "messages": asked }), "user: hi;assistant:"),
        (json!({ "messages": asked, "add_generation_prompt": false }), "user: hi;"),
        (json!({ "messages": asked, "tools": [] }), "user: hi;assistant:"),
        (json!({ "messages": asked, "tools": [{ "name": "f" }] }), "user: hi;[{\"name\": \"f\"}];assistant:"),
        (json!({ "messages": asked, "chat_template_kwargs": { "mood": "calm" } }), "user: hi;calm;assistant:"),
        (json!({ "messages": begun }), "user: hi;assistant:he"),
        (json!({ "messages": begun, "continue_final_message": true }), "user: hi;assistant:he"),
        (
            json!({ "messages": begun, "continue_final_message": true, "add_generation_prompt": false }),
            "user: hi;assistant:he",
        ),
        (json!({ "messages": begun, "continue_final_message": false }), "user: hi;assistant: he;assistant:"),
        (json!({ "messages": begun, "add_generation_prompt": true }), "user: hi;assistant: he;assistant:"),
        (json!({ "messages": begun, "add_generation_prompt": false }), "user: hi;assistant: he;"),
        (
            json!({ "messages": begun, "continue_final_message": false, "add_generation_prompt": false }),
            "user: hi;assistant: he;",
        ),
    ] {
        let (status, answer) = server.post("/apply-template", &ask);
        assert_eq!((status, &answer["prompt"]), (200, &json!(text)), "{ask}");
    }
}

/// That text is sent with its special tokens parsed, as docs/serving.md says.
#[test]
fn an_answer_continues_the_text_of_its_conversation() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let ask = json!({
        "messages": [said("user", "hi")], "max_tokens": 8, "temperature": 0, "logprobs": true, "verbose": true,
    });
    let text = server.post("/apply-template", &ask).1["prompt"].clone();
    let (_, chat) = server.post("/v1/chat/completions", &ask);
    let continued = server.write(json!({
        "prompt": text, "parse_special": true, "max_tokens": 8, "temperature": 0, "logprobs": 0,
    }));
    assert_eq!(chat["__verbose"]["prompt"], text);
    assert_eq!(chat["usage"]["prompt_tokens"], continued["usage"]["prompt_tokens"]);
    let (answer, continued) = (&chat["choices"][0], &continued["choices"][0]);
    assert_eq!(answer["message"]["content"], continued["text"]);
    let tokens = answer["logprobs"]["content"].as_array().unwrap();
    let logprobs: Value = tokens.iter().map(|token| token["logprob"].clone()).collect();
    assert_eq!(logprobs, continued["logprobs"]["token_logprobs"]);
}

#[test]
fn a_stream_has_the_seed_and_the_text_of_a_whole_answer() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    for most in [0, 3] {
        let mut ask = json!({
            "messages": [said("user", "hi")], "max_tokens": most, "n": 2, "seed": 5, "verbose": true,
        });
        let (_, whole) = server.post("/v1/chat/completions", &ask);
        assert!(whole["seed"] == 5 && whole["__verbose"]["prompt"].is_string(), "{whole}");
        ask["stream"] = json!(true);
        let (_, _, body) = server.send("POST", "/v1/chat/completions", "", &ask.to_string());
        let chunks = body.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|chunk| *chunk != "[DONE]");
        let chunks: Vec<Value> = chunks.map(|chunk| serde_json::from_str(chunk).unwrap()).collect();
        assert!(chunks.iter().all(|chunk| chunk["seed"] == 5), "{body}");
        let texts: Vec<&Value> = chunks.iter().filter_map(|chunk| chunk.get("__verbose")).collect();
        assert_eq!(texts, [&whole["__verbose"]], "{body}");
    }
}

/// The template has to write the rest of it.
#[test]
fn an_answer_that_is_not_just_a_text_is_not_continued() {
    let server = with_template(
        "{% for message in messages %}{{ message.content }}\
         {% if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif %};{% endfor %}",
    );
    let status_and_message = |ask: &Value| {
        let (status, answer) = server.post("/apply-template", ask);
        (status, answer["error"]["message"].as_str().unwrap_or_default().to_owned())
    };
    for (answer, why) in [
        (json!({ "role": "assistant", "content": null, "tool_calls": [{ "name": "f" }] }), "has tool_calls"),
        (json!({ "role": "assistant", "content": "he", "reasoning_content": "so" }), "has reasoning_content"),
        (json!({ "role": "assistant", "content": null }), "has no content"),
        (json!({ "role": "assistant" }), "has no content"),
    ] {
        let mut ask = json!({ "messages": [said("user", "hi"), answer] });
        let message = format!("the last message {why}, so it cannot be continued; send continue_final_message: false");
        assert_eq!(status_and_message(&ask), (400, message));
        ask["continue_final_message"] = json!(false);
        assert_eq!(status_and_message(&ask).0, 200, "{ask}");
    }
    // Clients send back what an answer held, empty parts included.
    let answer = json!({ "role": "assistant", "content": "he", "refusal": null, "tool_calls": [] });
    assert_eq!(status_and_message(&json!({ "messages": [said("user", "hi"), answer] })).0, 200);
}

#[test]
fn an_answer_follows_the_schema_of_its_format() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let schema = json!({
        "type": "object", "properties": { "a": { "enum": ["b", "c"] } }, "required": ["a"], "additionalProperties": false,
    });
    for format in [
        json!({ "type": "json_schema", "json_schema": { "name": "letter", "schema": schema } }),
        json!({ "type": "json_object", "schema": schema }),
    ] {
        let ask = json!({ "messages": [said("user", "hi")], "seed": 5, "response_format": format });
        let (_, answer) = server.post("/v1/chat/completions", &ask);
        let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
        let letter = serde_json::from_str::<Value>(text).unwrap_or_default();
        assert!([json!({ "a": "b" }), json!({ "a": "c" })].contains(&letter), "{answer}");
    }
}

/// What it took stays taken until the process ends: here, for the rest of the tests.
#[test]
fn a_template_that_takes_too_much_holds_up_conversations_and_nothing_else() {
    let server =
        with_template("{% set n = namespace(s='ab') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}");
    for expected in [400, 503] {
        let (status, answer) = server.post("/v1/chat/completions", &json!({ "messages": [said("user", "hi")] }));
        assert_eq!(status, expected, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("256 MiB of memory"), "{answer}");
        server.write(json!({ "prompt": "a", "max_tokens": 1 }));
    }
    assert_eq!(server.send("GET", "/health", "", "").0, 200);
}
