//! Counts of cached and drafted tokens.

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
