//! Concurrent requests: waiting, refusals, closed connections, and common limits.

use axum::body::Body;
use axum::extract::{FromRequest, Request};

use super::*;

#[test]
fn what_is_too_much_is_told_to_come_again_and_who_left_is_forgotten() {
    let server = Server::start(None, Vec::new(), 1, 0);
    let long = json!({ "prompt": "abc", "max_tokens": 100_000, "overflow": "slide", "stream": true });
    let stream = server.begin(&long);
    let (status, head, _) = server.send("POST", "/v1/completions", "", &json!({ "prompt": "a" }).to_string());
    assert!(status == 429 && head.contains("retry-after: 1"), "{head}");
    drop(stream);
    // Its slot is soon free again.
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
    let _ = unread.read_to_end(&mut rest); // the connection may be closed
    assert!(!String::from_utf8_lossy(&rest).contains("[DONE]"));
}

/// Otherwise any number of answers could wait in memory, and a server that ends would cut them off.
#[test]
fn an_answer_that_is_not_read_keeps_its_place_in_the_queue() {
    let server = Server::start(None, Vec::new(), 1, 0);
    // An answer of some megabytes, more than the system takes from a server whose client is slow.
    let ask = json!({ "prompt": "abc", "max_tokens": 60, "n": 48, "temperature": 0.9, "trace": 12 });
    let unread = server.begin(&ask);
    let is_free = || server.post("/v1/completions", &json!({ "prompt": "a", "max_tokens": 1 })).0 == 200;
    assert!(!is_free());
    drop(unread);
    assert!((0..400).any(|_| is_free() || {
        thread::sleep(Duration::from_millis(10));
        false
    }));
}

/// The memory of all answers is bounded: a request that does not fit waits, without holding up
/// smaller ones and streams.
#[test]
fn what_all_requests_may_take_is_bounded() {
    let server = Server::open();
    let ask = json!({ "prompt": "abc", "max_tokens": 100_000, "overflow": "slide", "logprobs": 2 });
    let first = server.ask(&ask);
    let metrics = || server.send("GET", "/metrics", "", "").2;
    let appears = |words: &str| {
        (0..400).any(|_| {
            metrics().contains(words) || {
                thread::sleep(Duration::from_millis(10));
                false
            }
        })
    };
    assert!(appears("llamacpp:requests_processing 1"), "{}", metrics());
    let [mut short, mut stream] = [ask.clone(), ask];
    (short["max_time"], stream["stream"]) = (json!(0.01), json!(true));
    thread::scope(|scope| {
        let second = scope.spawn(|| server.post("/v1/completions", &short).0);
        assert!(appears("llamacpp:requests_deferred 1"), "{}", metrics());
        server.write(json!({ "prompt": "abc", "max_tokens": 2 }));
        drop(server.begin(&stream));
        assert!(appears("llamacpp:requests_processing 1"), "{}", metrics());
        assert!(metrics().contains("llamacpp:requests_deferred 1"), "{}", metrics());
        drop(first);
        assert_eq!(second.join().unwrap(), 200);
    });
}

#[test]
fn while_one_is_loaded_others_are_there() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path(), &tokenizer());
    let named = |name: &str| NamedFolder { name: name.to_owned(), folder: folder.path().to_owned() };
    let (device, weights) = (Device::flex(), WeightType::F32);
    let options = LoadOptions { device, weights, tokens_per_step: 16, cache_bytes: 1 << 20, max_bytes: 1 };
    let models = Models::new(Served { folders: vec![named("one"), named("other")], run: None }, options).unwrap();
    models.load_default().unwrap();
    let server = Arc::new(server::Server::new(models, Setup::default(), 1, 0));
    let ask = |name: &str| {
        let body = json!({ "model": name }).as_object().unwrap().clone();
        handler::with_model(&server, body.into(), |_, model, _| Ok(model.name.clone()))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let turn = server.models.load_lock().await; // another request is loading a model
        assert_eq!(ask("one").await.unwrap(), "one");
        assert!(tokio::time::timeout(Duration::from_millis(50), ask("other")).await.is_err());
        drop(turn);
        assert_eq!(ask("other").await.unwrap(), "other");
    });
    // There is no memory for both.
    let loaded = server.models.loaded();
    assert_eq!(loaded.iter().map(|model| &*model.name).collect::<Vec<_>>(), ["other"]);
}

/// Long texts, grammars and chat templates may use only some of the readers, so that others find
/// one free.
#[test]
fn what_takes_long_to_read_waits_for_its_like_and_holds_up_nothing_short() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path(), &tokenizer());
    let tiny = NamedFolder { name: "tiny".to_owned(), folder: folder.path().to_owned() };
    let (device, weights) = (Device::flex(), WeightType::F32);
    let options = LoadOptions { device, weights, tokens_per_step: 16, cache_bytes: 1 << 20, max_bytes: 1 << 30 };
    let models = Models::new(Served { folders: vec![tiny], run: None }, options).unwrap();
    models.load_default().unwrap();
    let server = Arc::new(server::Server::new(models, Setup::default(), 1, 0));
    let object = async |body: &Value| {
        let request = Request::new(Body::from(body.to_string()));
        body::Object::from_request(request, &()).await.unwrap()
    };
    let read = async |body: &Value| {
        handler::with_model(&server, object(body).await, |_, _, _| Ok(())).await.unwrap();
    };
    let waits = async |body: &Value| tokio::time::timeout(Duration::from_millis(50), read(body)).await.is_err();
    let is_read = async |body: &Value| tokio::time::timeout(Duration::from_secs(60), read(body)).await.is_ok();
    let long_text = json!({ "prompt": "a".repeat(100_000), "regex": "" });
    let grammar = json!({ "prompt": "a", "regex": "a+" });
    let conversation = json!({ "messages": [] });
    let long_conversation = json!({ "messages": [], "regex": "a+" });
    let short = json!({ "prompt": "a", "regex": "" });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut busy = Vec::new();
        for _ in 0..listen::LONG_READERS {
            busy.push(server.reader_for(&object(&grammar).await).await);
        }
        for long in [&long_text, &grammar, &long_conversation] {
            assert!(waits(long).await, "{long}");
        }
        for other in [&short, &conversation] {
            assert!(is_read(other).await, "{other}");
        }
        busy.clear();
        for _ in 0..listen::CONVERSATION_READERS {
            busy.push(server.reader_for(&object(&conversation).await).await);
        }
        assert!(waits(&conversation).await);
        for other in [&short, &long_text, &grammar, &long_conversation] {
            assert!(is_read(other).await, "{other}");
        }
        busy.pop();
        assert!(is_read(&conversation).await);
    });
}
