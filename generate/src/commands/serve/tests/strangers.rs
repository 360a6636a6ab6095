//! Access control, and special tokens in clients' texts.

use super::*;

#[test]
fn strangers_are_turned_away() {
    let server = Server::open();
    assert_eq!(server.send("GET", "/v1/models", "Host: evil.example\r\n", "").0, 403);
    assert_eq!(server.send("GET", "/v1/models", "Origin: http://evil.example\r\n", "").0, 403);
    // A proxy in front may add the encryption.
    for scheme in ["http", "https"] {
        let own = format!("Origin: {scheme}://{}\r\n", server.address);
        assert_eq!(server.send("GET", "/v1/models", &own, "").0, 200, "{own}");
    }
    for other in ["https://127.0.0.1:1", "ftp://ADDRESS", "https://ADDRESS.evil.example", "https://", "null"] {
        let other = format!("Origin: {}\r\n", other.replace("ADDRESS", &server.address.to_string()));
        assert_eq!(server.send("GET", "/v1/models", &other, "").0, 403, "{other}");
    }
    // Such a page must still be under a name of this machine.
    let rebound = "Host: evil.example\r\nOrigin: https://evil.example\r\n";
    assert_eq!(server.send("GET", "/v1/models", rebound, "").0, 403);
    for twice in
        ["Host: localhost\r\nHost: evil.example\r\n", "Origin: http://localhost\r\nOrigin: http://evil.example\r\n"]
    {
        let (status, _, body) = server.send("GET", "/v1/models", twice, "");
        assert!(status == 400 && body.contains("more than one"), "{body}");
    }
    // A tunnel uses another port.
    for host in ["localhost", "LocalHost", "localhost:1", "127.0.0.1:9000", "[::1]", "[::1]:9000"] {
        assert_eq!(server.send("GET", "/v1/models", &format!("Host: {host}\r\n"), "").0, 200, "{host}");
    }
    for host in ["evil.example:9000", "localhost.evil.example:1", "evil.example@x", "localhost:1:2", ":80"] {
        let (status, _, body) = server.send("GET", "/v1/models", &format!("Host: {host}\r\n"), "");
        assert!(status == 403 && body.contains(&format!("not as \\\"{host}\\\"")), "{body}");
    }

    let origin = "https://page.example".to_owned();
    let keys = ["right", "other", "schlüssel"].map(str::to_owned).to_vec();
    let keyed = Server::start(Some(keys), vec![origin.clone()], 4, 8);
    for path in ["/v1/models", "/metrics", "/tokenizer_info", "/nowhere"] {
        assert_eq!(keyed.send("GET", path, "", "").0, 401, "{path}");
        assert_eq!(keyed.send("GET", path, "Authorization: Bearer wrong\r\n", "").0, 401, "{path}");
    }
    assert_eq!(keyed.send("GET", "/health", "", "").0, 200);
    for sent in ["Bearer other", "bearer right", "BASIC OnJpZ2h0"] {
        assert_eq!(keyed.send("GET", "/v1/models", &format!("Authorization: {sent}\r\n"), "").0, 200, "{sent}");
    }
    for sent in ["Authorization: Bearer schlüssel", "X-Api-Key: schlüssel", "Authorization: Basic OnNjaGzDvHNzZWw="] {
        assert_eq!(keyed.send("GET", "/v1/models", &format!("{sent}\r\n"), "").0, 200, "{sent}");
    }
    let (status, head, _) = keyed.send("OPTIONS", "/v1/completions", &format!("Origin: {origin}\r\n"), "");
    assert!(status == 200 && head.contains("access-control-allow-origin: https://page.example"), "{head}");
    assert!(head.contains("access-control-allow-headers: authorization, content-type, x-api-key"), "{head}");
    // OpenAI's client sends more headers.
    let asked_for = "authorization,content-type,x-stainless-os";
    let asking = format!("Origin: {origin}\r\nAccess-Control-Request-Headers: {asked_for}\r\n");
    let (_, head, _) = keyed.send("OPTIONS", "/v1/completions", &asking, "");
    assert!(head.contains(&format!("access-control-allow-headers: {asked_for}")), "{head}");
    assert!(head.contains("access-control-expose-headers: retry-after"), "{head}");
    let (_, head, _) = keyed.send("OPTIONS", "/v1/completions", &asking.replace("page", "other"), "");
    assert!(!head.contains("x-stainless-os"), "{head}");
}

#[test]
fn only_a_whole_key_in_its_place_opens_anything() {
    let keyed = Server::start(Some(vec!["right".to_owned()]), vec!["https://page.example".to_owned()], 4, 8);
    let statuses = |headers: &str| {
        let send = |method: &str, path: &str| keyed.send(method, path, &format!("{headers}\r\n"), "").0;
        (send("GET", "/v1/models"), send("POST", "/v1/completions"))
    };
    for wrong in [
        "Accept: */*",
        "Authorization: Bearer wrong",
        "Authorization: Bearer righ",
        "Authorization: Bearer rights",
        "Authorization: right",
        "Authorization: Digest right",
        "Authorization: Basic Ondyb25n", // ":wrong"
        "Authorization: Basic cmlnaHQ6", // "right:", the key as the user's name
        "Authorization: Basic cmlnaHQ=", // "right"
        "Authorization: Basic :right",
        "X-Api-Key: wrong",
        "X-Api-Key: Bearer right",
        "X-Api-Key: wrong\r\nAuthorization: Bearer wrong",
    ] {
        assert_eq!(statuses(wrong), (401, 401), "{wrong}");
    }
    // Such a request is refused for its missing body alone.
    for right in [
        "Authorization: Bearer right",
        "Authorization: Basic OnJpZ2h0",
        "X-Api-Key: right",
        "Authorization: Bearer wrong\r\nX-Api-Key: right",
        "X-Api-Key: wrong\r\nAuthorization: Bearer right",
    ] {
        assert_eq!(statuses(right), (200, 400), "{right}");
        assert_eq!(statuses(&format!("{right}\r\nOrigin: https://page.example")), (200, 400), "{right}");
        assert_eq!(statuses(&format!("{right}\r\nOrigin: https://evil.example")), (403, 403), "{right}");
    }
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
    // An endless file is not read to its end.
    std::fs::write(&file, "a\n".repeat(1 << 20)).unwrap();
    assert!(format!("{:#}", guard::keys(&file).unwrap_err()).contains("longer than 1 MiB"));
}

#[test]
fn an_origin_is_what_a_browser_sends() {
    for (typed, sent) in [
        ("https://a.example", "https://a.example"),
        ("HTTP://A.Example:90/", "http://a.example:90"),
        ("https://a.example:443/", "https://a.example"),
        ("http://[::1]:80", "http://[::1]"),
        ("http://a.example:443", "http://a.example:443"),
    ] {
        assert_eq!(guard::origin(typed).unwrap(), sent);
    }
    assert_eq!(guard::origin("null").unwrap(), "null");
    for typed in ["", "*", "a.example", "https://", "https://*.example", "https://a.example/page", "://a.example"] {
        assert!(guard::origin(typed).unwrap_err().contains("such as https://example.org"), "{typed}");
    }
}

/// Clients' text is plain text: a special token's name in it is just characters.
#[test]
fn a_text_holds_no_special_token_unless_asked() {
    let server = Server::open_with(Tokenizer::bytes().unwrap());
    let count = |ask: Value| server.write(ask)["usage"]["prompt_tokens"].clone();
    let text = "a<|endoftext|>";
    assert_eq!(count(json!({ "prompt": text, "max_tokens": 1 })), text.len());
    assert_eq!(count(json!({ "prompt": text, "max_tokens": 1, "parse_special": true })), 2);
    let chat = json!({ "messages": [{ "role": "user", "content": "<|endoftext|>" }] });
    let (_, answer) = server.post("/apply-template", &chat);
    assert_eq!(answer["prompt"], "<|endoftext|>user: <|endoftext|>\n");
    let (_, answer) = server.post("/v1/chat/completions/input_tokens", &chat);
    // The template's own is a token; the user's is 13 characters.
    assert_eq!(answer["input_tokens"], 1 + "user: \n".len() + 13);
    // A user's text may contain the server's internal marks, too.
    let chat = json!({ "messages": [{ "role": "user", "content": "\u{fdd0}<|endoftext|>\u{fdd0}" }] });
    let (_, answer) = server.post("/apply-template", &chat);
    assert_eq!(answer["prompt"], "<|endoftext|>user: \u{fdd0}<|endoftext|>\u{fdd0}\n");
    let (_, answer) = server.post("/v1/chat/completions/input_tokens", &chat);
    assert_eq!(answer["input_tokens"], 1 + "user: \n".len() + 13 + 2 * '\u{fdd0}'.len_utf8());
}
