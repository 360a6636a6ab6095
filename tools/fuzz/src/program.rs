//! The readers of `ember-generate` itself: files named by flags, and HTTP requests.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::LazyLock;

use anyhow::Result;
use ember_generate::commands::{choices, prompts, serve::Running, trace_file::Trace};
use ember_host::file_error::with_causes;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{Harness, names_file};
use crate::{limits, scratch};

pub const HARNESSES: &[Harness] = &[
    Harness { name: "http", longest: 1 << 12, read: http },
    Harness { name: "requests", longest: 1 << 11, read: requests },
    Harness { name: "gbnf", longest: 1 << 10, read: gbnf },
    Harness { name: "prompts", longest: 1 << 10, read: prompts },
    Harness { name: "questions", longest: 1 << 10, read: questions },
    Harness { name: "trace", longest: 1 << 12, read: trace },
];

/// Returns the value, or checks that the program's error is one line and names the file.
fn check_error<T>(result: Result<T>) -> Option<T> {
    result.map_err(|error| names_file(&with_causes(error.as_ref()))).ok()
}

fn prompts(bytes: &[u8]) {
    for name in ["prompts.txt", "prompts.jsonl"] {
        check_error(prompts::read("--prompts", &scratch::file(name, bytes)));
    }
}

fn questions(bytes: &[u8]) {
    check_error(choices::read(&scratch::file("questions.jsonl", bytes)));
}

fn trace(bytes: &[u8]) {
    let Some(trace) = check_error(Trace::read(&scratch::file("trace.jsonl", bytes))) else { return };
    check_error(trace.check(5, "the file was changed"));
    trace.lines::<Value>().map_while(check_error).for_each(drop);
}

/// A server with the smallest model, which runs as long as this process.
static SERVER: LazyLock<(Running, TempDir)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let files: [(&str, &[u8]); 4] = [
        ("config.json", include_bytes!("../seeds/config/smallest.json")),
        ("model.safetensors", include_bytes!("../seeds/safetensors/smallest.safetensors")),
        ("tokenizer.json", include_bytes!("../served/tokenizer.json")),
        ("chat_template.jinja", include_bytes!("../served/chat_template.jinja")),
    ];
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).expect("a temporary file can be written");
    }
    (Running::start(folder.path()).expect("the smallest model can be served"), folder)
});

/// Sends raw bytes over a connection, and checks that an HTTP response comes in time.
fn http(bytes: &[u8]) {
    match answer(bytes) {
        Ok(answer) => assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "an answer that is not HTTP's"),
        // The server closes a connection after a request that it cannot parse.
        Err(error) => assert!(error.kind() != ErrorKind::WouldBlock, "no answer in time"),
    }
}

fn answer(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(SERVER.0.address)?;
    stream.set_read_timeout(Some(limits::MAX_TIME))?;
    stream.write_all(bytes)?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// Paths of the requests; the first byte of an input selects one.
const ROUTES: [&str; 6] =
    ["/v1/completions", "/v1/chat/completions", "/completion", "/apply-template", "/tokenize", "/detokenize"];

/// The body of a request with a valid head.
fn requests(bytes: &[u8]) {
    let Some((route, body)) = bytes.split_first() else { return };
    ask(ROUTES[usize::from(*route) % ROUTES.len()], body);
}

/// A request for a text under a grammar in llama.cpp's GBNF.
fn gbnf(bytes: &[u8]) {
    let Ok(grammar) = str::from_utf8(bytes) else { return };
    ask("/completion", json!({ "prompt": "a", "n_predict": 4, "grammar": grammar }).to_string().as_bytes());
}

fn ask(path: &str, body: &[u8]) {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    http(&[head.as_bytes(), body].concat());
}
