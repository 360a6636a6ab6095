//! `GET /openapi.json`: every route and its parameters, for tools; and `GET /docs`, the same as a
//! page. The parameters of requests for text come from [`request`](super::request).

use std::iter::once;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use ember_decoding::config::{GenerationConfig, KNOBS, Knob};
use ember_page::{Page, escape};
use serde_json::{Map, Value, json};

use super::ids::MAX_SEQUENCES;
use super::json::Json;
use super::parameter::Parameter;
use super::request::{COMMON, Dialect, find};
use super::{chat, completions, llama};

/// A route: its paths, method, purpose and parameters.
struct Route {
    path: &'static str,
    /// Aliases of the path.
    also: &'static [&'static str],
    is_post: bool,
    about: &'static str,
    /// Required parameters.
    required: &'static [&'static str],
    /// All parameters of a route that generates no text.
    parameters: &'static [Parameter],
    /// The dialect of a route that generates text.
    dialect: Option<&'static Dialect>,
}

const fn get(path: &'static str, also: &'static [&'static str], about: &'static str) -> Route {
    Route { path, also, is_post: false, about, required: &[], parameters: &[], dialect: None }
}

const MODEL: Parameter = COMMON[0];

const ROUTES: &[Route] = &[
    get("/health", &[], "Whether the server is running; needs no key"),
    get("/v1/models", &["/models"], "The available models"),
    get("/v1/models/{model}", &["/models/{model}"], "One model"),
    Route {
        path: "/v1/completions",
        also: &[],
        is_post: true,
        about: "Continues texts, as OpenAI's API does",
        required: &["prompt"],
        parameters: &[],
        dialect: Some(&completions::DIALECT),
    },
    Route {
        path: "/v1/chat/completions",
        also: &["/chat/completions"],
        is_post: true,
        about: "Answers a conversation, if the checkpoint has a chat template",
        required: &["messages"],
        parameters: &[],
        dialect: Some(&chat::DIALECT),
    },
    Route {
        path: "/v1/chat/completions/input_tokens",
        also: &["/chat/completions/input_tokens"],
        is_post: true,
        about: "Counts a conversation's tokens; accepts and ignores a conversation's other parameters",
        required: &["messages"],
        parameters: CONVERSATION_PARAMETERS,
        dialect: None,
    },
    Route {
        path: "/completion",
        also: &["/completions"],
        is_post: true,
        about: "Continues texts, as llama.cpp's server does, with its defaults",
        required: &["prompt"],
        parameters: &[],
        dialect: Some(&llama::DIALECT),
    },
    Route {
        path: "/apply-template",
        also: &[],
        is_post: true,
        about: "The text that a conversation becomes; accepts and ignores a conversation's other parameters",
        required: &["messages"],
        parameters: CONVERSATION_PARAMETERS,
        dialect: None,
    },
    Route {
        path: "/tokenize",
        also: &[],
        is_post: true,
        about: "A text as tokens",
        required: &["content"],
        parameters: &[
            Parameter::string("content", "the text; prompt is another name for it"),
            Parameter::boolean(
                "add_special",
                "add the tokens put before a prompt, as is done by default for a prompt; add_special_tokens is another \
                 name for it",
            ),
            Parameter::boolean(
                "parse_special",
                "read names of special tokens as these tokens, as is done by default for a prompt",
            ),
            Parameter::boolean("with_pieces", "return the text of each token"),
            MODEL,
        ],
        dialect: None,
    },
    Route {
        path: "/detokenize",
        also: &[],
        is_post: true,
        about: "Tokens as text",
        required: &["tokens"],
        parameters: &[Parameter::array("tokens", "token ids"), MODEL],
        dialect: None,
    },
    get("/tokenizer_info", &[], "The tokenizer's special tokens"),
    get("/props", &[], "The model's properties, and every knob"),
    get("/slots", &[], "The running requests"),
    get("/metrics", &[], "Counters for Prometheus"),
    get("/openapi.json", &[], "This description, for tools"),
    get("/docs", &[], "This description, as a page"),
    get("/", &[], "The page to write with"),
];

/// Parameters from which a conversation becomes text.
const CONVERSATION_PARAMETERS: &[Parameter] = {
    // With another number of parameters this does not compile, so that none is forgotten here.
    let [tools, kwargs, adds, continues] = chat::TEMPLATE_PARAMETERS;
    &[chat::MESSAGES, tools, kwargs, adds, continues, MODEL]
};

impl Route {
    fn paths(&self) -> impl Iterator<Item = &'static str> {
        once(self.path).chain(self.also.iter().copied())
    }
}

/// The routes that are there: all but those with these paths, which are turned off.
fn routes(absent: &[&str]) -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().filter(move |route| !absent.contains(&route.path))
}

/// `GET /openapi.json`, without the routes with the paths `absent`.
pub(super) async fn openapi(absent: Vec<&'static str>) -> Json {
    let mut paths = Map::new();
    for (route, path) in routes(&absent).flat_map(|route| route.paths().map(move |path| (route, path))) {
        let name = if path == "/" { "page" } else { path.trim_start_matches('/') };
        let mut operation = json!({
            "summary": route.about,
            "operationId": name.replace(['/', '.', '-', '{', '}'], "_"),
            "responses": responses(route),
        });
        if path.contains("{model}") {
            operation["parameters"] =
                json!([{ "name": "model", "in": "path", "required": true, "schema": { "type": "string" } }]);
        }
        if route.is_post {
            let schema = json!({ "type": "object", "properties": properties(route), "required": route.required });
            operation["requestBody"] =
                json!({ "required": true, "content": { "application/json": { "schema": schema } } });
        }
        let method = if route.is_post { "post" } else { "get" };
        paths.insert(path.to_owned(), json!({ method: operation }));
    }
    Json(json!({
        "openapi": "3.1.0",
        "info": {
            "title": "ember-generate serve",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Checkpoints over HTTP: OpenAI's API and llama.cpp's, and every knob of the command line.",
        },
        "paths": paths,
        "components": { "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } } },
    }))
}

fn responses(route: &Route) -> Value {
    let kind = match route.path {
        "/metrics" => "text/plain",
        "/docs" | "/" => "text/html",
        _ => "application/json",
    };
    let mut responses = json!({ "200": { "description": "The answer", "content": { kind: {} } } });
    let error = |description: &str| json!({ "description": description, "content": { "application/json": {} } });
    responses["401"] = error("No valid key, if the server has keys");
    responses["403"] = error("A host name or a page that is not allowed");
    if route.is_post {
        responses["400"] = error("The request cannot be honoured; the message says why");
        responses["413"] = error("The body is too long");
    }
    if route.is_post || route.path.contains("{model}") {
        responses["404"] = error("There is no such model");
    }
    if route.dialect.is_some() {
        responses["429"] = error("As many requests as the server takes are running or waiting");
        responses["200"]["content"]["text/event-stream"] = json!({});
    }
    responses
}

/// The schemas of a route's parameters, by name.
fn properties(route: &Route) -> Map<String, Value> {
    let mut properties = Map::new();
    let (own, common) = route.dialect.map_or((route.parameters, &[] as &[Parameter]), |dialect| (dialect.own, COMMON));
    for parameter in own.iter().chain(common) {
        properties.insert(parameter.name.to_owned(), schema(parameter.kind, parameter.about));
    }
    if let Some(dialect) = route.dialect {
        let called = dialect.knobs.iter().map(|(name, _)| *name);
        for name in called.chain(KNOBS.iter().map(|knob| knob.name)) {
            if let Some(knob) = find(dialect, name) {
                properties.entry(name).or_insert_with(|| knob_schema(knob));
            }
        }
    }
    properties
}

fn knob_schema(knob: &Knob) -> Value {
    let mut about = knob.meaning.trim().to_owned();
    match knob.name {
        "max_new_tokens" => about += "; 0 writes none, -1 as many as the context allows",
        "bad_words_ids" | "sequence_bias" => about += &format!("; at most {MAX_SEQUENCES} sequences of tokens"),
        _ => {}
    }
    match &knob.of(&GenerationConfig::default()).to_json() {
        Value::Number(number) if number.is_f64() => schema(Some("number"), &about),
        Value::Number(_) => schema(Some("integer"), &about),
        _ => schema(None, &about),
    }
}

/// The schema of a parameter with this type, if it has one.
fn schema(kind: Option<&str>, about: &str) -> Value {
    match kind {
        Some(kind) => json!({ "type": kind, "description": about }),
        None => json!({ "description": about }),
    }
}

/// `GET /docs`: the routes as a page, without those with the paths `absent`.
pub(super) async fn docs(absent: Vec<&'static str>) -> Response {
    let mut body = String::from("<h1>The server's API</h1>\n");
    for route in routes(&absent) {
        let method = if route.is_post { "POST" } else { "GET" };
        let paths = route.paths().collect::<Vec<_>>().join(", ");
        body += &format!("<h2><code>{method} {paths}</code></h2><p>{}.</p>", escape(route.about));
        let about = |property: &Value| escape(property["description"].as_str().unwrap_or_default());
        let rows = properties(route);
        let rows: String =
            rows.iter().map(|(name, one)| format!("<dt><code>{}</code><dd>{}", escape(name), about(one))).collect();
        if !rows.is_empty() {
            body += &format!("<dl>{rows}</dl>");
        }
    }
    let style = "body { max-width: 46rem; }\ndt { margin-top: .4em; }\n";
    let page = Page { title: "ember-generate serve", style, body: &body, ..Page::default() };
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], page.html()).into_response()
}
