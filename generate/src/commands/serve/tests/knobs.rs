//! The knobs of a request beside those of the model's folder, and its strategy.

use super::*;

/// Some clients send every parameter they know.
#[test]
fn a_temperature_of_0_is_greedy_beside_knobs_that_are_off() {
    let server = Server::open();
    let off = json!({ "prompt": "abc", "max_tokens": 9, "temperature": 0, "top_p": 1, "top_k": -1, "min_p": 0 });
    let greedy = server.write(json!({ "prompt": "abc", "max_tokens": 9, "temperature": 0 }));
    assert_eq!(server.write(off.clone())["choices"][0]["text"], greedy["choices"][0]["text"]);
    let (status, answer) = server.post("/completion", &off);
    assert_eq!((status, &answer["generation_settings"]["strategy"]), (200, &json!("greedy")), "{answer}");
}

/// Nothing is drawn, so they have no effect.
#[test]
fn a_temperature_of_0_is_greedy_beside_sampling_knobs() {
    let server = Server::open();
    let greedy = json!({ "prompt": "abc", "max_tokens": 9, "temperature": 0 });
    let mut on = json!({
        "top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical_p": 0.9, "epsilon_cutoff": 0.1, "eta_cutoff": 0.1,
    });
    on.as_object_mut().unwrap().extend(greedy.as_object().unwrap().clone());
    assert_eq!(server.write(on.clone())["choices"][0]["text"], server.write(greedy.clone())["choices"][0]["text"]);
    let [with, without] = [on, greedy].map(|ask| server.post("/completion", &ask).1);
    assert_eq!(with["generation_settings"]["strategy"], "greedy", "{with}");
    assert_eq!(with["content"], without["content"]);
}

/// Which the request does not know.
#[test]
fn the_least_length_of_a_folder_yields_to_the_length_that_is_asked_for() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    std::fs::write(server._folder.path().join("generation_config.json"), "{\"min_new_tokens\": 5}").unwrap();
    let end = Tokenizer::bytes().unwrap().end_of_text().unwrap();
    for (most, written) in [(0, 0), (1, 1), (3, 3), (9, 6)] {
        let mut ask = json!({ "prompt": "a", "max_tokens": most, "echo": true, "logprobs": 1, "temperature": 0 });
        ask["logit_bias"] = json!([[end, 100]]);
        assert_eq!(server.write(ask)["usage"]["completion_tokens"], written, "{most}");
    }
    server.write(json!({ "prompt": "a", "max_tokens": 0, "min_tokens": 5 }));
    let (status, answer) = server.post("/v1/completions", &json!({ "prompt": "a", "max_tokens": 3, "min_tokens": 5 }));
    assert_eq!(status, 400, "{answer}");
}

/// As on the command line: the request's values take precedence over the folder's.
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

/// If a stack decodes greedily unless given a temperature, so does the server.
#[test]
fn a_stack_that_is_named_says_how_tokens_are_chosen() {
    let server = Server::open();
    let config = GenerationConfig { max_new_tokens: 12, overflow: Overflow::Stop, ..Default::default() };
    let mut ask = json!({ "prompt": "abc", "max_tokens": 12, "semantics": "mlx", "replay": true });
    let answer = server.write(ask.clone());
    assert_eq!(answer["choices"][0]["text"], json!(alone("abc", config).0));
    let strategy = |answer: &Value| answer["replay"][0]["config"]["strategy"].clone();
    assert_eq!(strategy(&answer), "greedy");
    ask["temperature"] = json!(1);
    assert_eq!(strategy(&server.write(ask.clone())), "sample");
    (ask["temperature"], ask["semantics"]) = (Value::Null, json!("llamacpp"));
    assert_eq!(strategy(&server.write(ask)), "sample");
}
