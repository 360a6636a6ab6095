#![allow(clippy::unwrap_used)]
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use burn::tensor::Device;
use ember_data::tokenizer::Tokenizer;
use ember_decoding::config::{GenerationConfig, Overflow, Strategy};
use ember_decoding::{Generator, generator::Prompts};
use ember_model::{Gpt, GptConfig, WeightType, folder::Settings, init::Random};
use serde_json::{Value, json};

use super::*;

const CONTEXT: usize = 64;

pub(super) fn tokenizer() -> Tokenizer {
    Tokenizer::chars(&('a'..='k').chain([' ']).collect(), false).unwrap()
}

fn shape(tokenizer: &Tokenizer) -> GptConfig {
    GptConfig::new(tokenizer.vocab_size(), CONTEXT, 2, 2, 8)
}

fn model() -> Gpt {
    Gpt::for_inference(&shape(&tokenizer()), &Random { seed: 3 }, WeightType::F32, &Device::flex()).unwrap()
}

/// The same as a folder.
pub(super) fn checkpoint(folder: &Path, tokenizer: &Tokenizer) {
    let model = Gpt::new(&shape(tokenizer), 3, &Device::flex()).unwrap();
    ember_model::checkpoint::save(&model, None, &Settings::default(), folder).unwrap();
    tokenizer.save(folder).unwrap();
    let template =
        "{{ '<|endoftext|>' }}{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}";
    std::fs::write(folder.join("chat_template.jinja"), template).unwrap();
}

/// A server at work, which ends with the test.
struct Server {
    address: SocketAddr,
    _running: Running,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start(keys: Option<Vec<String>>, origins: Vec<String>, at_once: usize, queue: usize) -> Self {
        Self::start_with(tokenizer(), keys, origins, at_once, queue)
    }

    fn start_with(
        tokenizer: Tokenizer,
        keys: Option<Vec<String>>,
        origins: Vec<String>,
        at_once: usize,
        queue: usize,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        checkpoint(folder.path(), &tokenizer);
        let running = Running::with(folder.path(), keys, origins, at_once, queue).unwrap();
        Self { address: running.address, _running: running, _folder: folder }
    }

    fn open() -> Self {
        Self::open_with(tokenizer())
    }

    /// One whose texts are made of these tokens, and which answers conversations.
    fn open_with(tokenizer: Tokenizer) -> Self {
        Self::start_with(tokenizer, None, Vec::new(), 4, 8)
    }

    /// Status, headers and body of an answer.
    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let host = if headers.to_lowercase().contains("host:") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.address)
        };
        let length = body.len();
        let asked = format!(
            "{method} {path} HTTP/1.1\r\n{host}Connection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        let mut answer = String::new();
        let (asked, heard) = (stream.write_all(asked.as_bytes()), stream.read_to_string(&mut answer));
        for error in asked.err().into_iter().chain(heard.err()) {
            // Who refuses need not hear all of it, and may have hung up.
            assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
        }
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase(), unchunked(head, body))
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, _, body) = self.send("POST", path, "Content-Type: application/json\r\n", &body.to_string());
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    /// The stream of an answer, of which only the beginning is read.
    fn begin(&self, ask: &Value) -> TcpStream {
        let mut stream = self.ask(ask);
        stream.read_exact(&mut [0; 400]).unwrap(); // it is being written
        stream
    }

    /// The connection of an answer that nobody has read yet.
    fn ask(&self, ask: &Value) -> TcpStream {
        let body = ask.to_string();
        let (address, length) = (self.address, body.len());
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "POST /v1/completions HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n\r\n{body}")
            .unwrap();
        stream
    }

    fn write(&self, body: Value) -> Value {
        let (status, answer) = self.post("/v1/completions", &body);
        assert_eq!(status, 200, "{answer}");
        answer
    }
}

fn unchunked(head: &str, body: &str) -> String {
    if !head.to_lowercase().contains("transfer-encoding: chunked") {
        return body.to_owned();
    }
    let (mut rest, mut whole) = (body, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        whole += &after[..size];
        rest = after[size..].trim_start_matches("\r\n");
        if size == 0 {
            break;
        }
    }
    whole
}

/// What the library writes by itself.
fn alone(prompt: &str, config: GenerationConfig) -> (String, Vec<f32>) {
    let (model, tokenizer) = (model(), tokenizer());
    let ids = tokenizer.encode(prompt).unwrap();
    let generator = Generator::new(&model, Some(&tokenizer), config).unwrap();
    let written = generator.write(&Prompts { ids: &[&ids], ..Prompts::default() }, &mut ()).unwrap().remove(0);
    (written.text, written.completion.tokens.iter().map(|token| token.logprob).collect())
}

#[test]
fn what_is_served_is_what_the_library_writes() {
    let server = Server::open();
    let config = GenerationConfig { max_new_tokens: 12, overflow: Overflow::Stop, logprobs: 2, ..Default::default() };
    let (text, logprobs) = alone("abc", config.clone());
    let answer = server.write(json!({ "prompt": "abc", "temperature": 0, "max_tokens": 12, "logprobs": 2 }));
    assert_eq!(answer["choices"][0]["text"], json!(text));
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    let told: Vec<f32> = serde_json::from_value(answer["choices"][0]["logprobs"]["token_logprobs"].clone()).unwrap();
    assert_eq!(told, logprobs);
    assert_eq!(answer["choices"][0]["logprobs"]["text_offset"][3], 3);
    assert_eq!((&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]), (&json!(3), &json!(12)));

    let drawn = GenerationConfig { strategy: Strategy::Sample, seed: 5, top_k: 4, ..config.clone() };
    let ask = json!({ "model": "tiny", "prompt": "abc", "seed": 5, "top_k": 4, "max_tokens": 12, "n": 3 });
    let answer = server.write(ask.clone());
    assert_eq!(answer["choices"][0]["text"], json!(alone("abc", drawn).0));
    assert_eq!(answer["choices"].as_array().unwrap().len(), 3);
    // In a stream the same, and nothing twice.
    let mut streamed = ask;
    (streamed["stream"], streamed["stream_options"]) = (json!(true), json!({ "include_usage": true }));
    let (status, head, body) = server.send("POST", "/v1/completions", "", &streamed.to_string());
    assert!(status == 200 && head.contains("text/event-stream"), "{head}");
    let pieces: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(pieces.last(), Some(&"[DONE]"));
    let pieces: Vec<Value> =
        pieces[..pieces.len() - 1].iter().map(|piece| serde_json::from_str(piece).unwrap()).collect();
    for (index, choice) in answer["choices"].as_array().unwrap().iter().enumerate() {
        let own =
            pieces.iter().filter_map(|piece| piece["choices"].get(0)).filter(|choice| choice["index"] == json!(index));
        assert_eq!(choice["text"], json!(own.map(|choice| choice["text"].as_str().unwrap()).collect::<String>()));
    }
    assert_eq!(pieces.last().unwrap()["usage"]["completion_tokens"], 36);

    let beams = GenerationConfig { strategy: Strategy::Beam, num_beams: 3, ..config };
    let answer = server.write(json!({ "prompt": "abc", "num_beams": 3, "max_tokens": 12 }));
    assert_eq!(answer["choices"][0]["text"], json!(alone("abc", beams).0));
}

/// As on the command line: the request's word comes first, then the folder's.
#[test]
fn a_folder_that_says_beams_is_followed() {
    let server = Server::open();
    std::fs::write(server._folder.path().join("generation_config.json"), "{\"num_beams\": 3}").unwrap();
    let config = GenerationConfig { max_new_tokens: 12, overflow: Overflow::Stop, ..Default::default() };
    let beams = GenerationConfig { strategy: Strategy::Beam, num_beams: 3, ..config.clone() };
    let answer = server.write(json!({ "prompt": "abc", "max_tokens": 12 }));
    assert_eq!(answer["choices"][0]["text"], json!(alone("abc", beams).0));
    let answer = server.write(json!({ "prompt": "abc", "max_tokens": 12, "strategy": "greedy" }));
    assert_eq!(answer["choices"][0]["text"], json!(alone("abc", config).0));
}

/// A first token takes the prompt's time: by itself it says nothing of how fast texts are written.
#[test]
fn a_token_by_itself_is_not_written_at_a_speed() {
    let server = Server::open();
    let speed = || {
        let metrics = server.send("GET", "/metrics", "", "").2;
        let line = metrics.lines().find_map(|line| line.strip_prefix("llamacpp:predicted_tokens_seconds "));
        line.unwrap().parse::<f64>().unwrap()
    };
    server.write(json!({ "prompt": "abc", "max_tokens": 1 }));
    assert_eq!(speed(), 0.0);
    server.write(json!({ "prompt": "abc", "max_tokens": 9 }));
    assert!(speed() > 0.0);
}

#[test]
fn an_answer_tells_when_it_was_made() {
    let server = Server::open();
    thread::sleep(Duration::from_millis(1100));
    let before = models::now();
    assert!(server.write(json!({ "prompt": "a", "max_tokens": 1 }))["created"].as_u64().unwrap() >= before);
}

#[test]
fn a_prompt_is_measured_with_echo() {
    let server = Server::open();
    let ids = tokenizer().encode("abcabd").unwrap();
    for ask in [json!({ "max_tokens": 0 }), json!({ "max_tokens": 1, "temperature": 0 })] {
        let mut ask = ask;
        (ask["prompt"], ask["echo"], ask["logprobs"]) = (json!(ids), json!(true), json!(1));
        let answer = server.write(ask.clone());
        let choice = &answer["choices"][0];
        assert!(choice["text"].as_str().unwrap().starts_with("abcabd"), "{choice}");
        let logprobs = choice["logprobs"]["token_logprobs"].as_array().unwrap();
        assert_eq!(logprobs.len(), 6 + usize::from(ask["max_tokens"] == 1));
        assert!(logprobs[0].is_null());
        assert_eq!(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
        let want = ember_decoding::score::token_log_probabilities(&model(), &ids[..5], &ids[1..], 5).unwrap();
        for (told, want) in logprobs[1..6].iter().zip(want) {
            assert!((told.as_f64().unwrap() - f64::from(want)).abs() < 1e-5);
        }
    }
}

/// Of a character that several tokens make each begins where it does.
#[test]
fn tokens_begin_at_characters_of_the_text() {
    let bytes = Tokenizer::bytes().unwrap();
    let opening = bytes.opening_prompts().unwrap();
    for (tokenizer, offsets) in [(bytes, json!([0, 0, 1, 2, 2])), (opening, json!([0, 0, 0, 1, 2, 2]))] {
        let server = Server::open_with(tokenizer);
        let mut ask = json!({ "prompt": "é é", "echo": true, "logprobs": 1, "max_tokens": 0 });
        assert_eq!(server.write(ask.clone())["choices"][0]["logprobs"]["text_offset"], offsets);
        ask["stream"] = json!(true);
        let told = server.send("POST", "/v1/completions", "", &ask.to_string()).2;
        assert!(told.contains(&format!("\"text_offset\":{offsets}")), "{told}");
    }
}

#[test]
fn what_cannot_be_followed_is_refused_by_name() {
    let server = Server::open();
    let refused = |body: Value, param: &str, words: &str| {
        let (status, answer) = server.post("/v1/completions", &body);
        assert_eq!((status, &answer["error"]["param"]), (400, &json!(param)), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(words), "{answer}");
    };
    refused(json!({ "prompt": "a", "temperatur": 1 }), "temperatur", "the nearest is temperature");
    refused(json!({ "prompt": "a", "top_p": "much" }), "top_p", "top_p must be a number");
    refused(json!({ "prompt": "a", "suffix": "b" }), "suffix", "not supported");
    refused(json!({ "prompt": "a", "guided_json": {} }), "guided_json", "the nearest is json_schema");
    refused(json!({ "prompt": "a", "stream_options": { "include_usage": "yes" } }), "stream_options", "include_usage");
    refused(json!({ "prompt": "a", "stream_options": { "usage": true } }), "stream_options", "usage in stream_options");
    refused(json!({ "prompt": "a", "bad_words": ["x"] }), "bad_words", "x");
    refused(json!({ "prompt": "a", "bad_words": [""] }), "bad_words", "makes no token");
    refused(json!({ "max_tokens": 3 }), "prompt", "no prompt");
    refused(json!({ "prompt": [] }), "prompt", "at least one token");
    refused(json!({ "prompt": [99] }), "prompt", "outside the vocabulary");
    refused(json!({ "prompt": "x" }), "prompt", "x");
    refused(json!({ "prompt": "a".repeat(65) }), "prompt", "context size of 64");
    refused(json!({ "prompt": "a", "regex": "(" }), "regex", "cannot be used");
    refused(json!({ "prompt": "a", "json_schema": [1] }), "json_schema", "a schema: an object");
    refused(json!({ "prompt": "a", "regex": ".*".repeat(8000) }), "regex", "takes too much");
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
    refused(json!({ "prompt": "a", "n": 0 }), "n", "n is 0");
    refused(json!({ "prompt": "a", "n": 2, "temperature": 0 }), "n", "greedy ignores n; leave it out");
    refused(json!({ "prompt": "a", "top_k": 2, "temperature": 0 }), "top_k", "means greedy, which ignores top_k;");
    refused(json!({ "prompt": "a", "max_nodes": 2 }), "max_nodes", "sampling ignores max_nodes;");
    refused(json!({ "prompt": "a", "top_p": 0.5, "semantics": "mlx" }), "top_p", "greedy and ignores top_p;");
    refused(json!({ "prompt": "a", "draft_tokens": 2, "num_beams": 2 }), "draft_tokens", "leave draft_tokens out");
    refused(
        json!({ "prompt": "a", "stop": (0..1025).map(|i| i.to_string()).collect::<Vec<_>>() }),
        "stop",
        "1024 strings",
    );
    let (status, answer) = server.post("/v1/completions", &json!({ "prompt": "a", "top_p": 3 }));
    assert_eq!((status, answer["error"]["type"].as_str()), (400, Some("invalid_request_error")), "{answer}");
    let said = json!([{ "role": "user", "content": "a" }]);
    let chat = Server::open_with(Tokenizer::bytes().unwrap());
    for (path, ask, words) in [
        ("/completion", json!({ "prompt": "a", "trace": 3 }), "no parameter \"trace\""),
        ("/completion", json!({ "prompt": "a", "samplers": ["top_k"] }), "samplers must be penalties, top_k"),
        ("/completion", json!({ "prompt": "a", "samplers": [] }), "samplers must be"),
        ("/completion", json!({ "prompt": "a", "repeat_last_n": 4, "repeat_penalty": 2 }), "repeat_last_n must be 64"),
        ("/completion", json!({ "prompt": "a", "n_keep": 4, "overflow": "slide" }), "n_keep must be 0"),
        ("/completion", json!({ "prompt": "a", "t_max_predict_ms": "soon" }), "t_max_predict_ms must be a number"),
        ("/completion", json!({ "prompt": "a", "n_cmpl": 2, "n": 3 }), "are the same"),
        ("/v1/chat/completions", json!({ "messages": said, "tool_choice": "required" }), "tool_choice must be auto"),
        ("/v1/chat/completions", json!({ "messages": said, "modalities": ["audio"] }), "modalities must be"),
        (
            "/completion",
            json!({ "prompt": "a", "num_beams": 2, "n_probs": 1, "post_sampling_probs": true }),
            "beams have none",
        ),
        (
            "/completion",
            json!({ "prompt": "a", "strategy": "exact", "n_probs": 1, "post_sampling_probs": true }),
            "an exact search and beams have none",
        ),
        (
            "/completion",
            json!({ "prompt": "a", "draft_tokens": 2, "n_probs": 1, "post_sampling_probs": true }),
            "post_sampling_probs tells how each token was chosen",
        ),
        (
            "/v1/completions",
            json!({ "prompt": "a", "draft_tokens": 2, "trace": 3 }),
            "trace tells how each token was chosen",
        ),
        (
            "/v1/completions",
            json!({ "prompt": "a", "draft_tokens": 2, "replay": true }),
            "replay tells how each token was chosen",
        ),
        ("/v1/chat/completions", json!({ "messages": said, "trace": 3 }), "no parameter \"trace\""),
        (
            "/v1/chat/completions",
            json!({ "messages": said, "regex": "a", "response_format": { "type": "json_object" } }),
            "only one of response_format and regex",
        ),
        (
            "/v1/chat/completions",
            json!({ "messages": said, "chat_template_kwargs": { "messages": [] } }),
            "cannot set messages",
        ),
        ("/v1/chat/completions", json!({ "messages": said, "continue_final_message": true }), "goes on with an answer"),
        ("/tokenize", json!({ "content": "a", "with_piece": true }), "unknown field `with_piece`"),
        ("/tokenize", json!({ "content": "a", "prompt": "b" }), "duplicate field `content`"),
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
    assert_eq!(server.send("POST", "/v1/completions", "", &"x".repeat(body::MOST_BODY + 1)).0, 413);
    assert_eq!(server.send("GET", "/nowhere", "", "").0, 404);
    assert_eq!(server.send("GET", "/v1/completions", "", "").0, 405);
    // What can change nothing is let pass.
    server.write(json!({ "prompt": "a", "user": "me", "temperature": null }));
    server.write(json!({ "prompt": "a", "max_tokens": 2, "n_predict": 2 }));
    server.write(json!({ "prompt": "a", "max_tokens": 2, "logit_bias": [["aa", 1], ["b", 2]] }));
}

#[test]
fn what_is_said_to_be_there_is() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let (_, _, told) = server.send("GET", "/openapi.json", "", "");
    let told: Value = serde_json::from_str(&told).unwrap();
    let paths = told["paths"].as_object().unwrap();
    for (path, operations) in paths {
        let (method, operation) = operations.as_object().unwrap().iter().next().unwrap();
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        // Null is as if nothing were sent: no name is refused.
        let mut ask: Value = schema["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| (name.clone(), Value::Null))
            .collect();
        for name in schema["required"].as_array().into_iter().flatten() {
            ask[name.as_str().unwrap()] = match name.as_str().unwrap() {
                "messages" => json!([{ "role": "user", "content": "a" }]),
                "tokens" => json!([97]),
                _ => json!("a"),
            };
        }
        if path.starts_with("/tokenize") {
            ask = json!({ "content": "a" });
        }
        let (status, _, body) =
            server.send(&method.to_uppercase(), &path.replace("{model}", "tiny"), "", &ask.to_string());
        assert_eq!(status, 200, "{path}: {body}");
    }
    for (path, names) in [
        ("/v1/completions", "suffix best_of n"),
        ("/chat/completions", "tools grammar n max_tokens chat_template_kwargs verbose"),
        ("/completions", "repeat_penalty max_tokens n_predict"),
        ("/models/{model}", ""),
        ("/models", ""),
        ("/docs", ""),
        ("/", ""),
    ] {
        let operations = &paths[path];
        let properties = &operations["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"];
        assert!(
            names.split_whitespace().all(|name| properties[name]["description"].is_string()),
            "{path}: {operations}"
        );
    }
}

#[test]
fn strangers_are_turned_away() {
    let server = Server::open();
    assert_eq!(server.send("GET", "/v1/models", "Host: evil.example\r\n", "").0, 403);
    assert_eq!(server.send("GET", "/v1/models", "Origin: http://evil.example\r\n", "").0, 403);
    assert_eq!(server.send("GET", "/v1/models", &format!("Origin: http://{}\r\n", server.address), "").0, 200);
    for twice in
        ["Host: localhost\r\nHost: evil.example\r\n", "Origin: http://localhost\r\nOrigin: http://evil.example\r\n"]
    {
        let (status, _, body) = server.send("GET", "/v1/models", twice, "");
        assert!(status == 400 && body.contains("more than one"), "{body}");
    }
    // By way of a tunnel the port is another.
    for host in ["localhost", "LocalHost", "localhost:1", "127.0.0.1:9000", "[::1]", "[::1]:9000"] {
        assert_eq!(server.send("GET", "/v1/models", &format!("Host: {host}\r\n"), "").0, 200, "{host}");
    }
    for host in ["evil.example:9000", "localhost.evil.example:1", "evil.example@x", "localhost:1:2", ":80"] {
        let (status, _, body) = server.send("GET", "/v1/models", &format!("Host: {host}\r\n"), "");
        assert!(status == 403 && body.contains(&format!("not to the name \\\"{host}\\\"")), "{body}");
    }

    let origin = "https://page.example".to_owned();
    let keyed = Server::start(Some(vec!["right".into(), "other".into()]), vec![origin.clone()], 4, 8);
    for path in ["/v1/models", "/metrics", "/tokenizer_info", "/nowhere"] {
        assert_eq!(keyed.send("GET", path, "", "").0, 401, "{path}");
        assert_eq!(keyed.send("GET", path, "Authorization: Bearer wrong\r\n", "").0, 401, "{path}");
    }
    assert_eq!(keyed.send("GET", "/health", "", "").0, 200);
    for sent in ["Bearer other", "bearer right", "BASIC OnJpZ2h0"] {
        assert_eq!(keyed.send("GET", "/v1/models", &format!("Authorization: {sent}\r\n"), "").0, 200, "{sent}");
    }
    let (status, head, _) = keyed.send("OPTIONS", "/v1/completions", &format!("Origin: {origin}\r\n"), "");
    assert!(status == 200 && head.contains("access-control-allow-origin: https://page.example"), "{head}");
    assert!(head.contains("access-control-allow-headers: authorization, content-type, x-api-key"), "{head}");
}

#[test]
fn keys_stand_on_lines_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, "# of the class\n\n one \ntwo#\n").unwrap();
    assert_eq!(guard::keys(&file).unwrap(), ["one", "two#"]);
    std::fs::write(&file, "\u{feff}one\r\ntwo\r\n").unwrap();
    assert_eq!(guard::keys(&file).unwrap(), ["one", "two"]);
    std::fs::write(&file, "# none yet\n").unwrap();
    assert!(guard::keys(&file).unwrap_err().to_string().contains("holds no key"));
}

#[test]
fn an_origin_is_what_a_browser_sends() {
    for (typed, sent) in [("https://a.example", "https://a.example"), ("HTTP://A.Example:90/", "http://a.example:90")] {
        assert_eq!(guard::origin(typed).unwrap(), sent);
    }
    assert_eq!(guard::origin("null").unwrap(), "null");
    for typed in ["", "*", "a.example", "https://", "https://*.example", "https://a.example/page", "://a.example"] {
        assert!(guard::origin(typed).unwrap_err().contains("such as https://example.org"), "{typed}");
    }
}

/// Where llama.cpp's names are spoken what was asked is told again, prompt by prompt.
#[test]
fn a_completion_tells_what_was_asked() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let ask = |body: Value| server.post("/completion", &body).1;
    let none = ask(json!({ "prompt": ["a", "b"], "n_predict": 0 }));
    assert_eq!((&none[0]["prompt"], &none[1]["prompt"], &none[1]["index"]), (&json!("a"), &json!("b"), &json!(1)));
    assert_eq!(ask(json!({ "prompt": "a", "n_predict": 0 }))["tokens_predicted"], 0);
    let told = ask(json!({ "prompt": "a", "n_predict": 1, "logit_bias": [[5, 1.5], [6, false]] }));
    let biases = json!([{ "token": 5, "bias": 1.5 }, { "token": 6, "bias": null }]);
    assert_eq!(told["generation_settings"]["logit_bias"], biases);
    let ended = |what: &str, by: &str| {
        let told = ask(json!({ "prompt": "a", "n_predict": 9, "grammar": "root ::= \"bcd\"", what: by }));
        (told["content"].clone(), told["stop_type"].clone(), told["stopping_word"].clone())
    };
    assert_eq!(ended("stop", ""), (json!("bcd"), json!("eos"), json!("")));
    assert_eq!(ended("stop", "cd"), (json!("b"), json!("word"), json!("cd")));
    // What is never to come is joined by what else is never to.
    let told = ask(json!({ "prompt": "a", "n_predict": 1, "logit_bias": { "6": false }, "suppress_tokens": [7] }));
    let biases = json!([{ "token": 7, "bias": null }, { "token": 6, "bias": null }]);
    assert_eq!(told["generation_settings"]["logit_bias"], biases);
    // No bias makes an end token possible that is to be ignored.
    let end = Tokenizer::bytes().unwrap().end_of_text().unwrap();
    let ends =
        json!({ "prompt": "a", "n_predict": 4, "ignore_eos": true, "logit_bias": [[end, 50]], "return_tokens": true });
    let told = ask(ends);
    let tokens = told["tokens"].as_array().unwrap();
    assert!(tokens.len() == 4 && !tokens.contains(&json!(end)), "{told}");
    let biases = json!([{ "token": end, "bias": 50.0 }, { "token": end, "bias": null }]);
    assert_eq!(told["generation_settings"]["logit_bias"], biases);
    let count = |parses: Value| ask(json!({ "prompt": "a<|endoftext|>", "n_predict": 0, "parse_special": parses }));
    assert_eq!(count(Value::Null)["timings"]["prompt_n"], "a<|endoftext|>".len());
    assert_eq!(count(json!(true))["timings"]["prompt_n"], 2);
}

/// What llama.cpp's clients send and what asks for nothing else than is done.
#[test]
fn a_completion_takes_what_asks_for_what_is_done_anyway() {
    let server = Server::open();
    let ask = json!({
        "prompt": "abc", "seed": 1, "n_predict": 3, "n_cmpl": 2, "repeat_last_n": 4, "n_keep": 2, "n_discard": 1, "min_keep": 0,
        "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"],
        "bad_words": ["a", "bc"], "t_max_predict_ms": 60000,
    });
    let (status, answer) = server.post("/completion", &ask);
    assert_eq!((status, answer.as_array().map(Vec::len)), (200, Some(2)), "{answer}");
    let settings = &answer[0]["generation_settings"];
    assert_eq!((&settings["bad_words"], &settings["max_time_s"]), (&json!([[1], [2, 3]]), &json!(60.0)), "{answer}");
    assert!(!answer[0]["content"].as_str().unwrap().contains('a'), "{answer}");
    let (status, answer) =
        server.post("/completion", &json!({ "prompt": "a", "n_predict": 1, "samplers": "edskypmxt" }));
    assert_eq!(status, 200, "{answer}");
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

/// Whatever the folder says, but for how long a text is at most.
#[test]
fn a_completion_has_the_defaults_of_llama_cpp() {
    let server = Server::open();
    let folder = "{\"num_beams\": 4, \"repetition_penalty\": 1.8, \"typical_p\": 0.5, \"suppress_tokens\": [3]}";
    std::fs::write(server._folder.path().join("generation_config.json"), folder).unwrap();
    let settings =
        server.post("/completion", &json!({ "prompt": "a", "n_predict": 1 })).1["generation_settings"].clone();
    let told = ["repetition_penalty", "typical_p", "suppress_tokens"].map(|name| settings[name].clone());
    assert_eq!(told, [json!(1.0), json!(1.0), json!([])], "{settings}");
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

/// As in llama.cpp; a key of an object is an id, as OpenAI's clients write it.
#[test]
fn a_text_in_a_list_of_biases_is_all_of_its_tokens() {
    // What its tokenizer puts before a prompt is none of them.
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
}

#[test]
fn every_choice_is_judged() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let said = json!([{ "role": "user", "content": "a" }]);
    let ask = json!({ "messages": said, "prompt": "a", "regex": "[a-c]{9}", "max_tokens": 2 });
    let of = |path: &str, without: &str, streams: bool| {
        let mut ask = ask.clone();
        ask.as_object_mut().unwrap().remove(without);
        ask["stream"] = json!(streams);
        server.send("POST", path, "", &ask.to_string()).2
    };
    for streams in [false, true] {
        for (path, without) in [("/v1/completions", "messages"), ("/v1/chat/completions", "prompt")] {
            let told = of(path, without, streams);
            assert!(told.contains("\"score\":") && told.contains("\"valid\":false"), "{path}: {told}");
        }
    }
}

/// It is found whole: its account, which follows, must not wait for tokens.
#[test]
fn every_token_of_an_exact_search_is_accounted_for() {
    let server = Server::open();
    let mut ask = json!({ "prompt": ["a", "b"], "strategy": "exact", "max_tokens": 3, "n": 2, "replay": true });
    let answer = server.write(ask.clone());
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    for choice in choices {
        let steps: Vec<_> = choice["trace"].as_array().unwrap().iter().map(|step| step["step"].clone()).collect();
        assert_eq!(steps, [0, 1, 2], "{choice}");
    }
    let lines = answer["replay"].as_array().unwrap();
    let count = |event: &str| lines.iter().filter(|line| line["event"] == event).count();
    assert_eq!((count("run"), count("choice"), count("end")), (1, 12, 4));
    (ask["replay"], ask["trace"], ask["stream"]) = (json!(false), json!(1), json!(true));
    let told = server.send("POST", "/v1/completions", "", &ask.to_string()).2;
    assert_eq!(told.matches("\"step\":").count(), 12, "{told}");
}

#[test]
fn a_chat_in_which_nothing_is_to_be_said_has_an_empty_answer() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let mut ask = json!({ "messages": [{ "role": "user", "content": "a" }], "max_tokens": 0 });
    let (_, answer) = server.post("/v1/chat/completions", &ask);
    let choice = &answer["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(""), &json!("length")), "{answer}");
    assert_eq!(answer["usage"]["completion_tokens"], 0);
    // As many texts whole as in a stream.
    for (path, ends) in [("/v1/completions", 4), ("/v1/chat/completions", 2), ("/completion", 4)] {
        let mut ask = json!({ "max_tokens": 0, "n": 2, "stream": true });
        match path {
            "/v1/chat/completions" => ask["messages"] = json!([{ "role": "user", "content": "a" }]),
            _ => ask["prompt"] = json!(["a", "b"]),
        }
        let told = server.send("POST", path, "", &ask.to_string()).2;
        let ends_told = told.matches("\"finish_reason\":\"length\"").count() + told.matches("\"stop\":true").count();
        assert_eq!(ends_told, ends, "{told}");
        ask["stream"] = json!(false);
        let (_, answer) = server.post(path, &ask);
        let choices = answer.get("choices").unwrap_or(&answer).as_array().unwrap();
        let indices: Vec<_> = choices.iter().map(|choice| choice["index"].as_u64().unwrap()).collect();
        assert_eq!(indices, (0..ends as u64).collect::<Vec<_>>(), "{answer}");
    }
    ask["stream"] = json!(true);
    let told = server.send("POST", "/v1/chat/completions", "", &ask.to_string()).2;
    assert!(told.contains("\"finish_reason\":\"length\"") && told.contains("[DONE]"), "{told}");
}

#[test]
fn tokens_come_and_go() {
    let server = Server::open();
    let (_, answer) = server.post("/tokenize", &json!({ "content": "cab", "with_pieces": true }));
    assert_eq!(answer["tokens"][0]["piece"], "c");
    let (_, answer) = server.post("/tokenize", &json!({ "prompt": "cab" }));
    assert_eq!(answer["count"], 3);
    let (_, back) = server.post("/detokenize", &json!({ "tokens": answer["tokens"] }));
    assert_eq!(back["content"], "cab");
    assert_eq!(server.post("/detokenize", &json!({ "tokens": [99] })).0, 400);
    let long = "a".repeat(70_000);
    let (status, answer) = server.post("/tokenize", &json!({ "content": long, "with_pieces": true }));
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("with_pieces")), "{answer}");
    assert_eq!(server.post("/tokenize", &json!({ "content": long })).1["count"], 70_000);
}

#[test]
fn what_is_too_much_is_told_to_come_again_and_who_left_is_forgotten() {
    let server = Server::start(None, Vec::new(), 1, 0);
    let long = json!({ "prompt": "abc", "max_tokens": 100_000, "overflow": "slide", "stream": true });
    let stream = server.begin(&long);
    let (status, head, _) = server.send("POST", "/v1/completions", "", &json!({ "prompt": "a" }).to_string());
    assert!(status == 429 && head.contains("retry-after: 1"), "{head}");
    drop(stream);
    // Its place is free again soon.
    let is_free = || server.post("/v1/completions", &json!({ "prompt": "a", "max_tokens": 1 })).0 == 200;
    assert!((0..400).any(|_| is_free() || {
        thread::sleep(Duration::from_millis(10));
        false
    }));
    let (_, _, metrics) = server.send("GET", "/metrics", "", "");
    assert!(metrics.contains("ember:requests_cancelled_total 1"), "{metrics}");
}

#[test]
fn who_takes_nothing_has_left_and_is_not_told_that_it_is_done() {
    let server = Server::start(None, Vec::new(), 1, 0);
    let ask = json!({ "prompt": "abc", "max_tokens": 5000, "overflow": "slide", "n": 4, "trace": 12, "stream": true });
    let mut unread = server.begin(&ask);
    let is_free = || server.post("/v1/completions", &json!({ "prompt": "a", "max_tokens": 1 })).0 == 200;
    assert!(!is_free());
    assert!((0..600).any(|_| is_free() || {
        thread::sleep(Duration::from_millis(100));
        false
    }));
    let mut rest = Vec::new();
    let _ = unread.read_to_end(&mut rest); // the connection may be gone altogether
    assert!(!String::from_utf8_lossy(&rest).contains("[DONE]"));
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
        // A log-probability that is told of a token alone is one, too, in a stream as well.
        (
            json!({ "max_tokens": 262_145, "overflow": "slide", "logprobs": 0, "stream": true }),
            "262145 tokens with 1 candidates",
        ),
        (json!({ "max_tokens": 262_145, "overflow": "slide" }), "262145 tokens in a window that slides"),
        (json!({ "max_tokens": u64::MAX, "overflow": "slide", "prompt": ["a", "b"] }), "can have 262144"),
        (json!({ "max_tokens": 70_000, "n": 4, "overflow": "slide" }), "280000 tokens in a window"),
        (
            json!({ "max_tokens": 90_000, "num_beams": 3, "overflow": "slide", "stream": true }),
            "270000 tokens in a window",
        ),
        (json!({ "num_beams": 64, "max_tokens": 63, "trace": 1 }), "4032 tokens with 128"),
        (
            json!({ "num_beams": 300, "max_tokens": 1, "stop_token_ids": (0..256).collect::<Vec<u32>>() }),
            "300 beams of",
        ),
        (json!({ "num_beams": 2000, "max_tokens": 1 }), "2000 beams of"),
        (json!({ "replay": true, "logprobs": 1000 }), "replay can tell of 200"),
        (
            json!({ "prompt": "a".repeat(100_000), "n": 64, "max_tokens": 0, "echo": true, "overflow": "slide" }),
            "100000 bytes 64 times",
        ),
        (json!({ "strategy": "exact", "max_nodes": 1_000_000_000 }), "max_nodes can be 1000000"),
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
    // The same token many times ends no more texts than once.
    server.write(json!({ "prompt": "a", "num_beams": 64, "max_tokens": 4, "stop_token_ids": vec![0; 250_000] }));
    // What is told token by token may go on.
    drop(server.begin(&json!({ "prompt": "a", "max_tokens": 1_u64 << 40, "overflow": "slide", "stream": true })));
    // All that there is beside one token, and what measures texts.
    server.write(json!({ "prompt": "a".repeat(50), "max_tokens": 1, "logprobs": 1000 }));
    server.write(json!({ "prompt": vec!["a".repeat(50); 100], "max_tokens": 1, "echo": true, "logprobs": 5 }));
}

/// What all answers hold together is bounded, too: who does not fit waits, and holds nobody up whose
/// answer holds less, or is a stream.
#[test]
fn what_all_requests_may_take_is_bounded() {
    let server = Server::open();
    let ask = json!({ "prompt": "abc", "max_tokens": 100_000, "overflow": "slide", "logprobs": 2 });
    let first = server.ask(&ask);
    let metrics = || server.send("GET", "/metrics", "", "").2;
    let is_soon = |words: &str| {
        (0..400).any(|_| {
            metrics().contains(words) || {
                thread::sleep(Duration::from_millis(10));
                false
            }
        })
    };
    assert!(is_soon("llamacpp:requests_processing 1"), "{}", metrics());
    let [mut short, mut stream] = [ask.clone(), ask];
    (short["max_time"], stream["stream"]) = (json!(0.01), json!(true));
    thread::scope(|scope| {
        let second = scope.spawn(|| server.post("/v1/completions", &short).0);
        assert!(is_soon("llamacpp:requests_deferred 1"), "{}", metrics());
        server.write(json!({ "prompt": "abc", "max_tokens": 2 }));
        drop(server.begin(&stream));
        assert!(is_soon("llamacpp:requests_processing 1"), "{}", metrics());
        assert!(metrics().contains("llamacpp:requests_deferred 1"), "{}", metrics());
        drop(first);
        assert_eq!(second.join().unwrap(), 200);
    });
}

#[test]
fn while_one_is_loaded_others_are_there() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path(), &tokenizer());
    let named = |name: &str| Named { name: name.to_owned(), folder: folder.path().to_owned() };
    let (device, weights) = (Device::flex(), WeightType::F32);
    let loading = Loading { device, weights, tokens_per_step: 16, cache_bytes: 1 << 20, most_bytes: 1 };
    let models = Models::new(Served { named: vec![named("one"), named("other")], run: None }, loading).unwrap();
    models.first().unwrap();
    let server = Arc::new(server::Server::new(models, 1, 0));
    let ask = |name: &str| {
        let body = json!({ "model": name }).as_object().unwrap().clone();
        asking::with_model(&server, body.into(), |_, model, _| Ok(model.name.clone()))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let turn = server.models.turn().await; // somebody loads one
        assert_eq!(ask("one").await.unwrap(), "one");
        assert!(tokio::time::timeout(Duration::from_millis(50), ask("other")).await.is_err());
        drop(turn);
        assert_eq!(ask("other").await.unwrap(), "other");
    });
    // There is no memory for both.
    let loaded = server.models.loaded();
    assert_eq!(loaded.iter().map(|model| &*model.name).collect::<Vec<_>>(), ["other"]);
}

/// What people try on servers: paths that lead out, bodies that grow, grammars without a bottom,
/// heads without an end.
#[test]
fn what_is_meant_to_break_it_is_refused() {
    let server = Server::open();
    for path in ["/../../etc/passwd", "/v1/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd"] {
        assert_eq!(server.send("GET", path, "", "").0, 404, "{path}");
    }
    // Nothing is unpacked: a bomb is bytes that are no JSON.
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
    // It is well all the same.
    server.write(json!({ "prompt": "abc", "max_tokens": 2 }));
}

/// What somebody sends is text: a special token's name in it is its characters.
#[test]
fn a_text_holds_no_special_token_unless_asked() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let count = |ask: Value| server.write(ask)["usage"]["prompt_tokens"].clone();
    let text = "a<|endoftext|>";
    assert_eq!(count(json!({ "prompt": text, "max_tokens": 1 })), text.len());
    assert_eq!(count(json!({ "prompt": text, "max_tokens": 1, "parse_special": true })), 2);
    let said = json!({ "messages": [{ "role": "user", "content": "<|endoftext|>" }] });
    let (_, answer) = server.post("/apply-template", &said);
    assert_eq!(answer["prompt"], "<|endoftext|>user: <|endoftext|>\n");
    let (_, answer) = server.post("/v1/chat/completions/input_tokens", &said);
    // The template's own is a token; what was said is 13 characters.
    assert_eq!(answer["input_tokens"], 1 + "user: \n".len() + 13);
    // What marks them within the server may be said, too.
    let said = json!({ "messages": [{ "role": "user", "content": "\u{fdd0}<|endoftext|>\u{fdd0}" }] });
    let (_, answer) = server.post("/apply-template", &said);
    assert_eq!(answer["prompt"], "<|endoftext|>user: \u{fdd0}<|endoftext|>\u{fdd0}\n");
    let (_, answer) = server.post("/v1/chat/completions/input_tokens", &said);
    assert_eq!(answer["input_tokens"], 1 + "user: \n".len() + 13 + 2 * '\u{fdd0}'.len_utf8());
}
