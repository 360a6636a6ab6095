//! Tokenizer hashes, and ids without a token.

use super::*;

/// A vocabulary that skips two ids.
fn with_a_hole() -> Tokenizer {
    let mut json = tokenizer().to_value().unwrap();
    let last = json["model"]["vocab"]["k"].as_u64().unwrap();
    json["model"]["vocab"]["k"] = json!(last + 2);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    Tokenizer::from_folder(folder.path()).unwrap()
}

#[test]
fn a_token_that_stands_for_nothing_is_named() {
    let whole = tokenizer().vocab_size() as u32;
    let server = Server::open_with(with_a_hole());
    let (status, answer) = server.post("/detokenize", &json!({ "tokens": [0, whole - 1] }));
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("tokens")), "{answer}");
    let named = format!("the tokenizer has no token {}; leave it out", whole - 1);
    assert!(answer["error"]["message"].as_str().unwrap().contains(&named), "{answer}");
    assert_eq!(server.post("/detokenize", &json!({ "tokens": [whole + 1] })).1["content"], "k");
}

#[test]
fn a_tokenizer_is_told_from_another_and_known_again() {
    let hash = |tokenizer: Tokenizer| {
        let server = Server::open_with(tokenizer);
        let (_, _, body) = server.send("GET", "/props", "", "");
        let returned: Value = serde_json::from_str(&body).unwrap();
        returned["tokenizer_hash"].as_str().unwrap().to_owned()
    };
    let first = hash(tokenizer());
    assert_eq!(hash(tokenizer()), first);
    // Another format may add this; it does not change the meaning of ids.
    let mut json = tokenizer().to_value().unwrap();
    json["truncation"] = json!({ "max_length": 7, "stride": 0, "strategy": "LongestFirst", "direction": "Right" });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), json.to_string()).unwrap();
    assert_eq!(hash(Tokenizer::from_folder(folder.path()).unwrap()), first);
    let others = [hash(with_a_hole()), hash(Tokenizer::bytes().unwrap())];
    assert!(others[0] != first && others[1] != first && others[0] != others[1], "{first} {others:?}");
}
