//! `ember-generate serve`, used as clients use it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Child;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Place, Ran, small_run, text};

/// A running server.
struct Server {
    child: Child,
    address: SocketAddr,
    /// Its standard error until it listened.
    stderr: String,
}

impl Server {
    fn start(place: &Place, arguments: &str) -> Self {
        let mut child =
            place.command("ember-generate", &format!("serve --port 0 --device cpu {arguments}")).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut stderr = String::new();
        let address = loop {
            let begin = stderr.len();
            assert!(lines.read_line(&mut stderr).unwrap() > 0, "{stderr}");
            if let Some((_, rest)) = stderr[begin..].split_once("http://") {
                break rest.split(';').next().unwrap().trim().parse().unwrap();
            }
        };
        // Keeps reading, so that the pipe does not fill up.
        thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Self { child, address, stderr }
    }

    fn send(&self, head: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let length = body.len();
        let host = self.address;
        write!(
            stream,
            "{head} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        stream
    }

    /// Status and body of an answer.
    fn ask(&self, head: &str, body: &str) -> (u16, String) {
        let mut answer = String::new();
        self.send(head, body).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn write(&self, body: &Value) -> Value {
        let (status, answer) = self.ask("POST /v1/completions", &body.to_string());
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str(&answer).unwrap()
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// The exit code after SIGTERM.
    fn end(mut self) -> Option<i32> {
        self.signal("-TERM");
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

fn trained() -> Place {
    let place = Place::new();
    place.train(&small_run(&place, "runs/count", 21)).succeeds();
    place
}

/// The server writes the same text as the program, whatever other requests run beside it, and an
/// answer's trace replays exactly.
#[test]
fn what_is_served_is_what_the_program_writes_and_replays() {
    let place = trained();
    let server = Server::start(&place, "");
    assert!(server.stderr.contains("model: count ("), "{}", server.stderr);
    let drawn = "text one~and --device cpu --temperature 0.9 --seed 3 --max-new-tokens 20 --num-return-sequences 2 --format json";
    let alone = place.generate(drawn).succeeds().json();
    let ask = json!({ "prompt": "one and", "temperature": 0.9, "seed": 3, "max_tokens": 20, "n": 2, "replay": true });
    let answers: Vec<Value> = thread::scope(|scope| {
        let others = (0..6).map(|seed| json!({ "prompt": "two and then", "seed": seed, "max_tokens": 15 }));
        others.for_each(|other| drop(scope.spawn(|| server.write(&{ other }))));
        let asked: Vec<_> = (0..3).map(|_| scope.spawn(|| server.write(&ask))).collect();
        asked.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for answer in &answers {
        for (choice, row) in answer["choices"].as_array().unwrap().iter().zip(&alone) {
            assert_eq!((&choice["text"], &choice["score"]), (&row["text"], &row["score"]));
        }
    }
    let trace: String = answers[0]["replay"].as_array().unwrap().iter().map(|line| format!("{line}\n")).collect();
    place.write("trace.jsonl", trace);
    let again = place.generate("replay trace.jsonl --device cpu").succeeds();
    assert!(again.err.contains("to the last bit"), "{}", again.err);
    // Beams, too.
    let beams = server.write(&json!({ "prompt": "one", "num_beams": 3, "max_tokens": 8, "replay": true }));
    let trace: String = beams["replay"].as_array().unwrap().iter().map(|line| format!("{line}\n")).collect();
    place.write("beams.jsonl", trace);
    assert!(place.generate("replay beams.jsonl --device cpu").succeeds().err.contains("to the last bit"));
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_measured_prompt_has_the_numbers_of_score() {
    let place = trained();
    let server = Server::start(&place, "--from runs/count");
    let line = text().lines().next().unwrap().to_owned();
    let scored = place.run("ember-generate", &format!("score {} --device cpu --format json", line.replace(' ', "~")));
    let scored = scored.succeeds().json().remove(0);
    let answer = server.write(&json!({ "prompt": scored["ids"], "max_tokens": 0, "echo": true, "logprobs": 1 }));
    let returned = &answer["choices"][0]["logprobs"]["token_logprobs"].as_array().unwrap()[1..];
    let want = scored["logprobs"].as_array().unwrap();
    assert_eq!(returned.len(), want.len());
    for (returned, want) in returned.iter().zip(want) {
        assert!((returned.as_f64().unwrap() - want.as_f64().unwrap()).abs() < 1e-5, "{returned} {want}");
    }
    assert_eq!(answer["choices"][0]["text"], json!(line));
}

#[test]
fn every_checkpoint_of_a_run_can_be_asked_for() {
    let place = Place::new();
    place.train(&(small_run(&place, "runs/count", 21) + " --set keep_checkpoints=5")).succeeds();
    let server = Server::start(&place, "--from runs/count --checkpoints --models-mib 1");
    let (_, models) = server.ask("GET /v1/models", "");
    let models: Value = serde_json::from_str(&models).unwrap();
    let names: Vec<&str> =
        models["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(names[0], "count");
    assert!(names.len() > 2 && names[1..].iter().all(|name| name.starts_with("count@")), "{names:?}");
    let score = |name: &str| {
        server.write(&json!({ "model": name, "prompt": "one", "max_tokens": 1, "temperature": 0 }))["choices"][0]["score"].clone()
    };
    assert_ne!(score(names[1]), score(names[names.len() - 1]));
    // Checkpoints are loaded and dropped on demand: memory is for one, and counters keep their
    // values.
    let metrics = || server.ask("GET /metrics", "").1;
    assert!(metrics().contains("ember:models_loaded 1\n"), "{}", metrics());
    let passes = || -> u64 {
        let metrics = metrics();
        let line = metrics.lines().find_map(|line| line.strip_prefix("llamacpp:n_decode_total "));
        line.unwrap().parse().unwrap()
    };
    let before = passes();
    score(names[1]);
    assert!(passes() > before, "{before}");
    assert_eq!(
        server.ask("POST /v1/completions", &json!({ "model": "count@5000", "prompt": "one" }).to_string()).0,
        404
    );
}

#[test]
fn what_is_being_written_is_finished_before_the_server_ends() {
    let place = trained();
    let server = Server::start(&place, "");
    let long = json!({ "prompt": "one", "max_tokens": 3000, "overflow": "slide", "stream": true, "ignore_eos": true });
    let mut stream = BufReader::new(server.send("POST /v1/completions", &long.to_string()));
    let mut line = String::new();
    while !line.starts_with("data:") {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0);
    }
    server.signal("-TERM");
    thread::sleep(Duration::from_millis(300));
    assert!(TcpStream::connect(server.address).is_err(), "nobody is let in any more");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"), "{rest}");
    let mut server = server;
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    // A second signal ends the server without waiting.
    let server = Server::start(&place, "");
    let _stream = server.send("POST /v1/completions", &long.to_string().replace("3000", "30000000"));
    thread::sleep(Duration::from_millis(300));
    server.signal("-TERM");
    thread::sleep(Duration::from_millis(300));
    server.signal("-TERM");
    let mut server = server;
    assert_ne!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_quiet_server_on_any_free_port_writes_its_address_and_nothing_else() {
    let place = trained();
    let mut child = place.command("ember-generate", "serve --port 0 --device cpu --quiet").spawn().unwrap();
    let mut line = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    let address = line.trim_end().strip_prefix("http://").unwrap().parse().unwrap();
    let server = Server { child, address, stderr: String::new() };
    assert_eq!(server.ask("GET /health", "").0, 200);
    assert_eq!(server.end(), Some(0));
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn a_server_writes_nothing_but_the_log_that_it_is_told_to() {
    let place = trained();
    let before = files(&place);
    let server = Server::start(&place, "--log-requests asked.jsonl");
    server.write(&json!({ "prompt": "one", "max_tokens": 2 }));
    assert_eq!(server.end(), Some(0));
    let mut after = files(&place);
    after.retain(|file| !file.ends_with("asked.jsonl"));
    assert_eq!(after, before);
    let log = std::fs::read_to_string(place.path("asked.jsonl")).unwrap();
    let line: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!((&line["written_tokens"], &line["cancelled"]), (&json!(2), &json!(false)));
}

fn files(place: &Place) -> Vec<String> {
    let found: Ran =
        std::process::Command::new("find").arg(place.0.path()).args(["-type", "f"]).output().unwrap().into();
    let mut files: Vec<String> = found.out.lines().map(str::to_owned).collect();
    files.sort();
    files
}
