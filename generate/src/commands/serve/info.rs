//! Routes that generate no text: lists of models, their properties, and tokenization.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use ember_data::tokenizer::SpecialTokens;
use ember_decoding::config::{Form, GenerationConfig, KNOBS, Knob, Knobs, Range};
use ember_decoding::stream::{token_bytes, token_text};
use ember_model::{WeightType, device::DeviceChoice};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

use super::body::Object;
use super::error::ApiError;
use super::handler::with_model;
use super::ids::{ids_of, text_ids};
use super::json::Json;
use super::llama;
use super::models::Model;
use super::names::NamedFolder;
use super::server::Server;

pub(super) async fn health(State(server): State<Arc<Server>>) -> Result<Json, ApiError> {
    match server.device_problem.get() {
        None => Ok(Json(json!({ "status": "ok" }))),
        Some(problem) => Err(ApiError::unavailable(problem)),
    }
}

pub(super) async fn models(State(server): State<Arc<Server>>) -> Json {
    let all: Vec<Value> = server.models.all().iter().map(|one| entry(&server, one)).collect();
    Json(json!({ "object": "list", "data": all }))
}

pub(super) async fn model(
    State(server): State<Arc<Server>>,
    name: Result<Path<String>, PathRejection>,
) -> Result<Json, ApiError> {
    let Path(name) = name.map_err(|error| ApiError::invalid(error.body_text()))?;
    Ok(Json(entry(&server, &server.models.find(Some(&name))?)))
}

/// A model as OpenAI's API lists it, with its shape if it is in memory.
fn entry(server: &Server, NamedFolder { name, .. }: &NamedFolder) -> Value {
    let created = server.models.created;
    let mut answer = json!({
        "id": name, "object": "model", "created": created, "owned_by": "ember", "aliases": [name], "tags": [],
    });
    if let Some(model) = server.models.loaded().iter().find(|model| model.name == *name) {
        let shape = model.engine.config();
        answer["max_model_len"] = json!(shape.context_length);
        answer["meta"] = json!({
            "n_vocab": shape.vocab_size, "n_ctx_train": shape.context_length, "n_embd": shape.n_embd,
            "n_params": shape.parameters(),
        });
    }
    answer
}

/// Query parameters that name a model.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModelQuery {
    model: Option<String>,
}

/// Converts the query to a body that names the model.
fn model_body(query: Result<Query<ModelQuery>, QueryRejection>) -> Result<Object, ApiError> {
    let Query(ModelQuery { model }) = query.map_err(|error| ApiError::invalid(error.body_text()))?;
    Ok(Map::from_iter(model.map(|name| ("model".to_owned(), name.into()))).into())
}

/// `GET /props`: properties as in llama.cpp's server, and what the page needs to offer every knob.
pub(super) async fn props(
    State(server): State<Arc<Server>>,
    query: Result<Query<ModelQuery>, QueryRejection>,
) -> Result<Json, ApiError> {
    let body = model_body(query)?;
    let answer = |server: &Server, model: &Arc<Model>, _: &Map<String, Value>| {
        let shape = model.engine.config();
        let all = server.models.all();
        let names: Vec<&String> = all.iter().map(|one| &one.name).collect();
        let folders: Vec<_> = all.iter().map(|one| one.folder.display().to_string()).collect();
        // Flags without which a command line would compute differently.
        let weights = server.models.weights();
        let weights = (weights != WeightType::F32).then(|| format!("--weights {}", weights.name()));
        let device = (server.setup.device != DeviceChoice::Auto).then(|| format!("--device {}", server.setup.device));
        let flags: Vec<String> = weights.into_iter().chain(device).collect();
        // The defaults of `/completion`.
        let mut params = llama::defaults(server, model)?;
        params["seed"] = server.setup.seed.map_or(json!(-1), |seed| json!(seed));
        Ok(json!({
            "default_generation_settings": { "n_ctx": shape.context_length, "params": params },
            "total_slots": server.slots().len(),
            "model_path": model.folder.display().to_string(),
            "model_alias": model.name,
            "models": names,
            "folders": folders,
            "folder": server.setup.from,
            "n_ctx": shape.context_length,
            "n_params": shape.parameters(),
            "n_vocab": shape.vocab_size,
            "chat_template": model.template.as_ref().map(|template| template.source.clone()).unwrap_or_default(),
            "eos_token": end_token(model),
            "bos_token": model.bos_token,
            "tokenizer_hash": model.tokenizer_hash,
            "build_info": concat!("ember ", env!("CARGO_PKG_VERSION")),
            "knobs": KNOBS.iter().map(|one| knob(one, &model.settings.knobs)).collect::<Vec<_>>(),
            "flags": flags,
        }))
    };
    Ok(Json(with_model(&server, body, answer).await?))
}

/// Description of a knob for the page; its default is the folder's setting, else off.
fn knob(knob: &Knob, folder: &Knobs) -> Value {
    let off = knob.of(&GenerationConfig::default()).to_json();
    let set = knob.set_in(folder).map(|value| value.to_json());
    let (kind, words): (_, Vec<Value>) = match knob.typed.map(|typed| typed.form) {
        Some(Form::Word(words)) => ("word", words().into_iter().map(|(word, _)| json_value(word)).collect()),
        Some(Form::Number) => ("number", Vec::new()),
        Some(Form::Count) => ("whole number", Vec::new()),
        Some(Form::Texts | Form::Special) | None => ("list", Vec::new()),
    };
    let flag = if knob.name == "bad_words_ids" { "bad-words-ids" } else { knob.label };
    json!({
        "name": knob.name,
        "flag": format!("--{flag}"),
        "meaning": knob.meaning.trim(),
        "heading": knob.typed.map(|typed| typed.heading),
        "kind": kind,
        "words": words,
        "default": set.unwrap_or(off),
        "range": (knob.range != Range::Any).then(|| knob.range.words()),
    })
}

/// A value as it appears in a request: true and false are booleans there.
fn json_value(word: &str) -> Value {
    word.parse().map_or_else(|_| json!(word), Value::Bool)
}

/// `GET /slots`: the slots and their active requests.
pub(super) async fn slots(
    State(server): State<Arc<Server>>,
    query: Result<Query<Slots>, QueryRejection>,
) -> Result<Json, ApiError> {
    let Query(Slots { fail_on_no_slot }) = query.map_err(|error| ApiError::invalid(error.body_text()))?;
    let slots = server.slots();
    if fail_on_no_slot.is_some() && slots.iter().all(Option::is_some) {
        return Err(ApiError::unavailable("no slot is free"));
    }
    let loaded = server.models.loaded();
    let contexts = |name: Option<&str>| {
        let model = loaded.iter().find(|model| name.is_none_or(|name| model.name == name));
        model.map_or(0, |model| model.engine.config().context_length)
    };
    let one = |(id, busy): (usize, &Option<super::server::ActiveRequest>)| match busy {
        None => json!({ "id": id, "n_ctx": contexts(None), "is_processing": false }),
        Some(busy) => json!({
            "id": id, "n_ctx": contexts(Some(&busy.model)), "is_processing": true, "id_task": busy.id,
            "model": busy.model, "n_prompt_tokens": busy.prompt_tokens,
            "n_decoded": busy.written.load(std::sync::atomic::Ordering::Relaxed),
        }),
    };
    Ok(Json(slots.iter().enumerate().map(one).collect()))
}

/// Query parameters of `/slots`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Slots {
    fail_on_no_slot: Option<String>,
}

/// Most tokens for which pieces are returned: each takes about a kilobyte in memory.
const MAX_PIECES: usize = 1 << 16;

/// The body of `/tokenize`: llama.cpp's `{content, add_special, parse_special, with_pieces}`, or
/// vLLM's `{prompt, add_special_tokens}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tokenize {
    #[serde(rename = "model")]
    _model: Option<String>,
    #[serde(alias = "prompt")]
    content: Option<String>,
    #[serde(alias = "add_special_tokens")]
    add_special: Option<bool>,
    parse_special: Option<bool>,
    #[serde(default)]
    with_pieces: bool,
}

pub(super) async fn tokenize(State(server): State<Arc<Server>>, body: Object) -> Result<Json, ApiError> {
    let tokens = |_: &Server, model: &Arc<Model>, body: &Map<String, Value>| {
        for (name, other) in [("content", "prompt"), ("add_special", "add_special_tokens")] {
            if body.contains_key(name) && body.contains_key(other) {
                return Err(ApiError::param(other, format!("{name} and {other} are the same; send one of them")));
            }
        }
        let Tokenize { content, add_special, parse_special, with_pieces, .. } = parse_body(body)?;
        let text = content.ok_or_else(|| ApiError::param("content", "there is no text; send it as content"))?;
        // vLLM's form of the request adds special tokens and parses their names by default.
        let by_default = body.contains_key("prompt");
        let (adds, parses) = (add_special.unwrap_or(by_default), parse_special.unwrap_or(by_default));
        let special = if parses { SpecialTokens::Parse } else { SpecialTokens::Text };
        let tokenizer = model.tokenizer.as_ref();
        let ids = match tokenizer {
            Some(tokenizer) if !adds => {
                let ids = tokenizer.encode_with(&text, special);
                ids.map_err(|error| ApiError::param("content", error.to_string()))?
            }
            _ => text_ids(model, "content", &text, special)?,
        };
        let piece = |id: u32| match String::from_utf8(token_bytes(tokenizer, id)) {
            Ok(text) => json!({ "id": id, "piece": text }),
            Err(error) => json!({ "id": id, "piece": error.into_bytes() }),
        };
        if with_pieces && ids.len() > MAX_PIECES {
            let message = format!("with_pieces can return at most {MAX_PIECES} tokens; the text has {}", ids.len());
            return Err(ApiError::param("with_pieces", message));
        }
        let tokens = if with_pieces { ids.iter().map(|&id| piece(id)).collect() } else { json!(ids) };
        Ok(json!({ "tokens": tokens, "count": ids.len(), "max_model_len": model.engine.config().context_length }))
    };
    Ok(Json(with_model(&server, body, tokens).await?))
}

/// The body of `/detokenize`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Detokenize {
    #[serde(rename = "model")]
    _model: Option<String>,
    tokens: Option<Value>,
}

/// Parses the body of a route without dialects; every field is optional.
fn parse_body<T: DeserializeOwned>(body: &Map<String, Value>) -> Result<T, ApiError> {
    T::deserialize(body).map_err(|error| {
        // The error does not name the field, so each field is parsed alone to find it.
        let alone = |name: &String, value: &Value| Map::from_iter([(name.clone(), value.clone())]);
        let at_fault = body.iter().find(|(name, value)| T::deserialize(&alone(name, value)).is_err());
        match at_fault {
            Some((name, _)) => ApiError::param(name, format!("{name}: {error}")),
            None => ApiError::invalid(error.to_string()),
        }
    })
}

pub(super) async fn detokenize(State(server): State<Arc<Server>>, body: Object) -> Result<Json, ApiError> {
    let text = |_: &Server, model: &Arc<Model>, body: &Map<String, Value>| {
        let Detokenize { tokens, .. } = parse_body(body)?;
        let ids = tokens.as_ref().and_then(ids_of);
        let ids = ids.ok_or_else(|| ApiError::wrong_type("tokens", "a list of token ids"))?;
        if let Some(id) = ids.iter().find(|id| **id as usize >= model.engine.config().vocab_size) {
            return Err(ApiError::unknown_token("tokens", *id));
        }
        let Some(tokenizer) = &model.tokenizer else {
            return Err(ApiError::invalid("this checkpoint holds no tokenizer"));
        };
        // A vocabulary may have unused ids: beyond the tokenizer's last id, or in between.
        let is_missing = |&id: &u32| tokenizer.decode_text(&[id]).is_err();
        let text = tokenizer.decode_text(&ids).map_err(|error| match ids.iter().copied().find(is_missing) {
            Some(id) => ApiError::param("tokens", format!("the tokenizer has no token {id}; leave it out")),
            None => ApiError::param("tokens", error.to_string()),
        })?;
        Ok(json!({ "content": text, "prompt": text }))
    };
    Ok(Json(with_model(&server, body, text).await?))
}

/// `GET /tokenizer_info`, for lm-evaluation-harness.
pub(super) async fn tokenizer_info(
    State(server): State<Arc<Server>>,
    query: Result<Query<ModelQuery>, QueryRejection>,
) -> Result<Json, ApiError> {
    let answer = |_: &Server, model: &Arc<Model>, _: &Map<String, Value>| {
        Ok(json!({
            "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end_token(model), "bos_token": model.bos_token,
            "pad_token": null, "chat_template": model.template.as_ref().map(|template| template.source.clone()),
        }))
    };
    Ok(Json(with_model(&server, model_body(query)?, answer).await?))
}

/// The name of the token that ends a text.
fn end_token(model: &Model) -> Option<String> {
    let tokenizer = model.tokenizer.as_ref();
    let end = tokenizer.and_then(|tokenizer| tokenizer.end_of_text()).or(model.end_tokens.first().copied())?;
    Some(token_text(tokenizer, end))
}
