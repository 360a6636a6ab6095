//! `GET /openapi.json`: every route and what it takes, for tools and for readers; and `GET /docs`, a
//! page of it.

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use ember_decoding::config::{GenerationConfig, KNOBS};
use serde_json::{Map, Value, json};

use super::json::Json;

/// A route: how it is asked, what it is for, and the parameters that it must and may have, with the
/// knobs of generation where it writes.
struct Route {
    path: &'static str,
    is_post: bool,
    about: &'static str,
    must: &'static [(&'static str, &'static str)],
    may: &'static [(&'static str, &'static str)],
    writes: bool,
}

const fn get(path: &'static str, about: &'static str) -> Route {
    Route { path, is_post: false, about, must: &[], may: &[], writes: false }
}

const PROMPT: (&str, &str) = ("prompt", "A text, token ids, or a list of either");
const STREAM: (&str, &str) = ("stream", "boolean: pieces as server-sent events, as they are written");

const ROUTES: &[Route] = &[
    get("/health", "Whether the server is there; needs no key"),
    get("/v1/models", "The models that can be asked for"),
    Route {
        path: "/v1/completions",
        is_post: true,
        about: "Goes on with texts, as OpenAI's API does",
        must: &[PROMPT],
        may: &[
            ("max_tokens", "integer: most tokens to write; 0 writes none, -1 is as long as the context allows"),
            ("n", "integer: how many texts of each prompt"),
            ("logprobs", "integer: tell each token's log-probability, and so many others'"),
            ("echo", "boolean: tell the prompt again, with logprobs measured"),
            ("stop", "A string that ends the text, or a list of them"),
            ("return_token_ids", "boolean: tell ids beside texts"),
            ("trace", "integer: tell of each step what the knobs did to so many tokens, 200 at most"),
            ("replay", "boolean: tell a trace, whose lines in a file ember-generate replay reads"),
            ("stream_options", "object: include_usage"),
            STREAM,
        ],
        writes: true,
    },
    Route {
        path: "/v1/chat/completions",
        is_post: true,
        about: "Answers a conversation, where the checkpoint has a chat template",
        must: &[("messages", "array: objects with role and content")],
        may: &[
            ("max_completion_tokens", "integer: most tokens to write"),
            ("logprobs", "boolean: tell each token's log-probability"),
            ("top_logprobs", "integer: and so many others'"),
            ("response_format", "object: text, json_object or json_schema"),
            ("stop", "A string that ends the text, or a list of them"),
            ("stream_options", "object: include_usage"),
            STREAM,
        ],
        writes: true,
    },
    Route {
        path: "/v1/chat/completions/input_tokens",
        is_post: true,
        about: "How many tokens a conversation is",
        must: &[("messages", "array: objects with role and content")],
        may: &[],
        writes: false,
    },
    Route {
        path: "/completion",
        is_post: true,
        about: "Goes on with texts, as llama.cpp's server does, by its defaults",
        must: &[PROMPT],
        may: &[
            ("n_predict", "integer: most tokens to write; -1 is as long as the context allows"),
            ("n_probs", "integer: tell so many probable tokens beside each"),
            ("post_sampling_probs", "boolean: by their probabilities behind all knobs"),
            ("return_tokens", "boolean: tell ids, too"),
            ("response_fields", "array: which parts of the answer to tell"),
            ("grammar", "string: a grammar in GBNF"),
            ("stop", "A string that ends the text, or a list of them"),
            STREAM,
        ],
        writes: true,
    },
    Route {
        path: "/apply-template",
        is_post: true,
        about: "The text that a conversation becomes",
        must: &[("messages", "array: objects with role and content")],
        may: &[("tools", "array"), ("add_generation_prompt", "boolean")],
        writes: false,
    },
    Route {
        path: "/tokenize",
        is_post: true,
        about: "A text as tokens",
        must: &[("content", "string: the text; prompt is the same")],
        may: &[
            ("add_special", "boolean: with what stands before a prompt"),
            ("parse_special", "boolean: names of special tokens are these tokens"),
            ("with_pieces", "boolean: with the text of each"),
        ],
        writes: false,
    },
    Route {
        path: "/detokenize",
        is_post: true,
        about: "Tokens as text",
        must: &[("tokens", "array: token ids")],
        may: &[],
        writes: false,
    },
    get("/tokenizer_info", "The tokenizer's special tokens"),
    get("/props", "What the model is, and every knob"),
    get("/slots", "Who is at work"),
    get("/metrics", "Counts of what was done, as Prometheus reads them"),
    get("/openapi.json", "This"),
];

/// What every route that writes takes beside the knobs.
const WRITING: &[(&str, &str)] = &[
    ("model", "string: one of /v1/models; without it the first"),
    ("seed", "integer: names the draws; the same seed writes the same text"),
    ("logit_bias", "Added to tokens' logits: an object of ids with numbers, or a list of pairs"),
    ("stop_token_ids", "array: tokens that end the text, too"),
    ("ignore_eos", "boolean: no token ends the text"),
    ("parse_special", "boolean: names of special tokens in texts are these tokens"),
    ("strategy", "string: greedy, sample, beam, beam-sample, diverse-beam or exact"),
    ("regex", "string: an expression that the text must fulfil"),
    ("json_schema", "object: a JSON schema that the text must fulfil"),
    ("lark_grammar", "string: a grammar that the text must fulfil"),
    ("return_progress", "boolean: a stream tells how far the prompts are read"),
    (
        "draft_tokens",
        "integer: guess so many tokens at a time from what followed the last words before; the same text, faster",
    ),
];

pub(super) async fn openapi() -> Json {
    let mut paths = Map::new();
    for route in ROUTES {
        let mut operation = json!({
            "summary": route.about,
            "operationId": route.path.trim_start_matches('/').replace(['/', '.', '-'], "_"),
            "responses": responses(route),
        });
        if route.is_post {
            operation["requestBody"] = json!({
                "required": true, "content": { "application/json": { "schema": schema(route) } },
            });
        }
        let method = if route.is_post { "post" } else { "get" };
        paths.insert(route.path.to_owned(), json!({ method: operation }));
    }
    Json(json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ember-generate serve",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A checkpoint behind HTTP: OpenAI's API and llama.cpp's, and every knob of the command line.",
        },
        "paths": paths,
        "components": { "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } } },
    }))
}

fn responses(route: &Route) -> Value {
    let kind = if route.path == "/metrics" { "text/plain" } else { "application/json" };
    let mut responses = json!({ "200": { "description": "The answer", "content": { kind: {} } } });
    let error = |description: &str| json!({ "description": description, "content": { "application/json": {} } });
    responses["401"] = error("No right key, where the server has keys");
    responses["403"] = error("Asked by a name or from a page that is not let in");
    if route.is_post {
        responses["400"] = error("Something that cannot be followed; the message says what");
        responses["404"] = error("There is no such model");
        responses["413"] = error("The body is too long");
    }
    if route.writes {
        responses["429"] = error("As many requests as the server takes are at work or wait");
        responses["200"]["content"]["text/event-stream"] = json!({});
    }
    responses
}

fn schema(route: &Route) -> Value {
    let mut properties = Map::new();
    for (name, about) in route.must.iter().chain(route.may).chain(if route.writes { WRITING } else { &[] }) {
        properties.insert((*name).to_owned(), property(about));
    }
    if route.writes {
        for knob in KNOBS {
            let default = knob.of(&GenerationConfig::default()).to_json();
            let about = knob.meaning.trim();
            let property = match &default {
                Value::Number(number) if number.is_f64() => json!({ "type": "number", "description": about }),
                Value::Number(_) => json!({ "type": "integer", "description": about }),
                _ => json!({ "description": about }),
            };
            properties.entry(knob.name).or_insert(property);
        }
    }
    let required: Vec<&str> = route.must.iter().map(|(name, _)| *name).collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

/// A parameter from a line that may begin with its type.
fn property(about: &str) -> Value {
    match about.split_once(": ") {
        Some((kind, about)) if ["boolean", "integer", "string", "object", "array"].contains(&kind) => {
            json!({ "type": kind, "description": about })
        }
        _ if ["boolean", "integer", "string", "object", "array"].contains(&about) => json!({ "type": about }),
        _ => json!({ "description": about }),
    }
}

/// The same as a page.
pub(super) async fn docs() -> Response {
    let mut page = String::from(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>ember-generate serve</title>\
         <style>body{font:16px/1.5 system-ui;max-width:46em;margin:2em auto;padding:0 1em;color-scheme:light dark}\
         code{font-size:.95em}dt{margin-top:.4em}</style><h1>What this server can be asked</h1>",
    );
    for route in ROUTES {
        let method = if route.is_post { "POST" } else { "GET" };
        page += &format!("<h2><code>{method} {}</code></h2><p>{}.</p>", route.path, escaped(route.about));
        let parameters = route.must.iter().chain(route.may).chain(if route.writes { WRITING } else { &[] });
        let knobs = KNOBS.iter().filter(|_| route.writes).map(|knob| (knob.name, knob.meaning.trim()));
        let rows = parameters.copied().chain(knobs);
        let rows: String =
            rows.map(|(name, about)| format!("<dt><code>{}</code><dd>{}", escaped(name), escaped(about))).collect();
        if !rows.is_empty() {
            page += &format!("<dl>{rows}</dl>");
        }
    }
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
