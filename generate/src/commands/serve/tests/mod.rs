//! The server as its clients use it, over HTTP; here its answers, and what the tests share.
#![allow(clippy::unwrap_used)]

mod chat;
mod company;
mod counts;
mod knobs;
mod llama;
mod refusals;
mod routes;
mod shutdown;
mod strangers;
mod streams;
mod vocabulary;

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
use serde_json::{Map, Value, json};

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

/// Saves the same model as a folder.
pub(super) fn checkpoint(folder: &Path, tokenizer: &Tokenizer) {
    let model = Gpt::new(&shape(tokenizer), 3, &Device::flex()).unwrap();
    ember_model::checkpoint::save(&model, None, &Settings::default(), folder).unwrap();
    tokenizer.save(folder).unwrap();
    let template =
        "{{ '<|endoftext|>' }}{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}";
    std::fs::write(folder.join("chat_template.jinja"), template).unwrap();
}

/// A running server, which ends with the test.
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

    /// A server with this tokenizer, and with a chat template.
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
        let (sent, received) = (stream.write_all(asked.as_bytes()), stream.read_to_string(&mut answer));
        for error in sent.err().into_iter().chain(received.err()) {
            // A server that refuses need not read all of it, and may have closed the connection.
            assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
        }
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase(), unchunked(head, body))
    }

    fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let (status, _, body) = self.send("POST", path, "Content-Type: application/json\r\n", &body.to_string());
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    /// A stream of which only the beginning is read.
    fn begin(&self, ask: &Value) -> TcpStream {
        let mut stream = self.ask(ask);
        stream.read_exact(&mut [0; 400]).unwrap(); // it has begun
        stream
    }

    /// The connection of an answer that has not been read yet.
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

/// What the library generates by itself.
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
    let returned: Vec<f32> =
        serde_json::from_value(answer["choices"][0]["logprobs"]["token_logprobs"].clone()).unwrap();
    assert_eq!(returned, logprobs);
    assert_eq!(answer["choices"][0]["logprobs"]["text_offset"][3], 3);
    assert_eq!((&answer["usage"]["prompt_tokens"], &answer["usage"]["completion_tokens"]), (&json!(3), &json!(12)));

    let drawn = GenerationConfig { strategy: Strategy::Sample, seed: 5, top_k: 4, ..config.clone() };
    let ask = json!({ "model": "tiny", "prompt": "abc", "seed": 5, "top_k": 4, "max_tokens": 12, "n": 3 });
    let answer = server.write(ask.clone());
    assert_eq!(answer["choices"][0]["text"], json!(alone("abc", drawn).0));
    assert_eq!(answer["choices"].as_array().unwrap().len(), 3);
    // A stream has the same text, without repetitions.
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

/// Tokens per second, by `/metrics`.
fn speed(server: &Server) -> f64 {
    let metrics = server.send("GET", "/metrics", "", "").2;
    let line = metrics.lines().find_map(|line| line.strip_prefix("llamacpp:predicted_tokens_seconds "));
    line.unwrap().parse().unwrap()
}

/// The first token's time includes the prompt's: alone it says nothing about the speed of decoding.
#[test]
fn a_token_by_itself_is_not_written_at_a_speed() {
    let server = Server::open();
    server.write(json!({ "prompt": "abc", "max_tokens": 1 }));
    assert_eq!(speed(&server), 0.0);
    server.write(json!({ "prompt": "abc", "max_tokens": 9 }));
    assert!(speed(&server) > 0.0);
}

/// Its tokens are known only at its end, all at once.
#[test]
fn a_text_that_a_search_finds_takes_the_time_of_the_search() {
    let server = Server::open();
    let ask = json!({ "prompt": "a", "strategy": "exact", "n_predict": 4 });
    let (_, answer) = server.post("/completion", &ask);
    let possible = 1.0..1e6; // no model writes a million tokens in a second
    assert!(possible.contains(&answer["timings"]["predicted_per_second"].as_f64().unwrap()), "{answer}");
    assert!(possible.contains(&speed(&server)), "{}", speed(&server));
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
        for (returned, want) in logprobs[1..6].iter().zip(want) {
            assert!((returned.as_f64().unwrap() - f64::from(want)).abs() < 1e-5);
        }
    }
}

/// If several tokens make up a character, each has that character's offset.
#[test]
fn tokens_begin_at_characters_of_the_text() {
    let bytes = Tokenizer::bytes().unwrap();
    let opening = bytes.opening_prompts().unwrap();
    for (tokenizer, offsets) in [(bytes, json!([0, 0, 1, 2, 2])), (opening, json!([0, 0, 0, 1, 2, 2]))] {
        let server = Server::open_with(tokenizer);
        let mut ask = json!({ "prompt": "é é", "echo": true, "logprobs": 1, "max_tokens": 0 });
        assert_eq!(server.write(ask.clone())["choices"][0]["logprobs"]["text_offset"], offsets);
        ask["stream"] = json!(true);
        let returned = server.send("POST", "/v1/completions", "", &ask.to_string()).2;
        assert!(returned.contains(&format!("\"text_offset\":{offsets}")), "{returned}");
    }
}

/// As SentencePiece does: the space is a part of the first token, but not of the text.
fn with_a_space_before_texts() -> Tokenizer {
    let json = json!({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": { "type": "Sequence", "normalizers": [
            { "type": "Prepend", "prepend": "▁" }, { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
        ] },
        "decoder": { "type": "Sequence", "decoders": [
            { "type": "Replace", "pattern": { "String": "▁" }, "content": " " }, { "type": "ByteFallback" },
            { "type": "Fuse" }, { "type": "Strip", "content": " ", "start": 1, "stop": 0 },
        ] },
        "model": { "type": "BPE", "vocab": { "▁": 0, "a": 1, "▁a": 2, "b": 3 }, "merges": ["▁ a"] },
    });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    Tokenizer::from_folder(folder.path()).unwrap()
}

#[test]
fn what_a_tokenizer_puts_before_a_text_moves_no_offset() {
    let server = Server::open_with(with_a_space_before_texts());
    for (prompt, text, offsets) in [
        (json!("ab a"), "ab a", json!([0, 1, 2])),
        (json!([2, 3, 2]), "ab a", json!([0, 1, 2])),
        (json!(" ab"), " ab", json!([0, 0, 2])),
    ] {
        let answer = server.write(json!({ "prompt": prompt, "echo": true, "logprobs": 1, "max_tokens": 0 }));
        let choice = &answer["choices"][0];
        assert_eq!((&choice["text"], &choice["logprobs"]["text_offset"]), (&json!(text), &offsets), "{choice}");
    }
    // The token that opens an empty text.
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let answer = server.write(json!({ "prompt": "", "echo": true, "logprobs": 1, "max_tokens": 1 }));
    assert_eq!(answer["choices"][0]["logprobs"]["text_offset"], json!([0, 0]), "{answer}");
}

#[test]
fn what_is_said_to_be_there_is() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let (_, _, returned) = server.send("GET", "/openapi.json", "", "");
    let returned: Value = serde_json::from_str(&returned).unwrap();
    let paths = returned["paths"].as_object().unwrap();
    for (path, operations) in paths {
        let (method, operation) = operations.as_object().unwrap().iter().next().unwrap();
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let names: Vec<&String> = schema["properties"].as_object().into_iter().flat_map(Map::keys).collect();
        // Null is the same as leaving a parameter out.
        let mut ask: Value = names.iter().map(|name| (name.to_string(), Value::Null)).collect();
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
        let send = |ask: &Value| {
            let (method, path) = (method.to_uppercase(), path.replace("{model}", "tiny"));
            server.send(&method, &path, "", &ask.to_string())
        };
        let (status, _, body) = send(&ask);
        assert_eq!(status, 200, "{path}: {body}");
        // Whatever type it needs, the name is known.
        for name in names {
            ask[name] = json!({});
            let (_, _, body) = send(&ask);
            assert!(!body.contains("there is no parameter") && !body.contains("unknown field"), "{path}: {body}");
            ask[name] = Value::Null;
        }
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
fn every_choice_is_judged() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let messages = json!([{ "role": "user", "content": "a" }]);
    let ask = json!({ "messages": messages, "prompt": "a", "regex": "[a-c]{9}", "max_tokens": 2 });
    let of = |path: &str, without: &str, streams: bool| {
        let mut ask = ask.clone();
        ask.as_object_mut().unwrap().remove(without);
        ask["stream"] = json!(streams);
        server.send("POST", path, "", &ask.to_string()).2
    };
    for streams in [false, true] {
        for (path, without) in [("/v1/completions", "messages"), ("/v1/chat/completions", "prompt")] {
            let returned = of(path, without, streams);
            assert!(returned.contains("\"score\":") && returned.contains("\"valid\":false"), "{path}: {returned}");
        }
    }
}

/// Its text is found all at once: the trace that follows must not wait for tokens.
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
    let returned = server.send("POST", "/v1/completions", "", &ask.to_string()).2;
    assert_eq!(returned.matches("\"step\":").count(), 12, "{returned}");
}

#[test]
fn a_chat_in_which_nothing_is_to_be_said_has_an_empty_answer() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let mut ask = json!({ "messages": [{ "role": "user", "content": "a" }], "max_tokens": 0 });
    let (_, answer) = server.post("/v1/chat/completions", &ask);
    let choice = &answer["choices"][0];
    assert_eq!((&choice["message"]["content"], &choice["finish_reason"]), (&json!(""), &json!("length")), "{answer}");
    assert_eq!(answer["usage"]["completion_tokens"], 0);
    // As many texts without streaming as in a stream.
    for (path, ends) in [("/v1/completions", 4), ("/v1/chat/completions", 2), ("/completion", 4)] {
        let mut ask = json!({ "max_tokens": 0, "n": 2, "stream": true });
        match path {
            "/v1/chat/completions" => ask["messages"] = json!([{ "role": "user", "content": "a" }]),
            _ => ask["prompt"] = json!(["a", "b"]),
        }
        let returned = server.send("POST", path, "", &ask.to_string()).2;
        let ends_returned =
            returned.matches("\"finish_reason\":\"length\"").count() + returned.matches("\"stop\":true").count();
        assert_eq!(ends_returned, ends, "{returned}");
        ask["stream"] = json!(false);
        let (_, answer) = server.post(path, &ask);
        let choices = answer.get("choices").unwrap_or(&answer).as_array().unwrap();
        let indices: Vec<_> = choices.iter().map(|choice| choice["index"].as_u64().unwrap()).collect();
        assert_eq!(indices, (0..ends as u64).collect::<Vec<_>>(), "{answer}");
    }
    ask["stream"] = json!(true);
    let returned = server.send("POST", "/v1/chat/completions", "", &ask.to_string()).2;
    assert!(returned.contains("\"finish_reason\":\"length\"") && returned.contains("[DONE]"), "{returned}");
}

#[test]
fn tokens_come_and_go() {
    let server = Server::open();
    let (_, answer) = server.post("/tokenize", &json!({ "content": "cab", "with_pieces": true }));
    assert_eq!(answer["tokens"][0]["piece"], "c");
    let (_, answer) = server.post("/tokenize", &json!({ "prompt": "cab" }));
    assert_eq!(answer["count"], 3);
    // Only vLLM's form of the request adds the tokens put before a prompt by default.
    let opening = Server::open_with(Tokenizer::bytes().unwrap().opening_prompts().unwrap());
    for (ask, count) in [
        (json!({ "prompt": "ab" }), 3),
        (json!({ "prompt": "ab", "add_special_tokens": false }), 2),
        (json!({ "content": "ab" }), 2),
        (json!({ "content": "ab", "add_special": true }), 3),
    ] {
        assert_eq!(opening.post("/tokenize", &ask).1["count"], count, "{ask}");
    }
    let (_, back) = server.post("/detokenize", &json!({ "tokens": answer["tokens"] }));
    assert_eq!(back["content"], "cab");
    assert_eq!(server.post("/detokenize", &json!({ "tokens": [99] })).0, 400);
    let long = "a".repeat(70_000);
    let (status, answer) = server.post("/tokenize", &json!({ "content": long, "with_pieces": true }));
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("with_pieces")), "{answer}");
    assert_eq!(server.post("/tokenize", &json!({ "content": long })).1["count"], 70_000);
}
