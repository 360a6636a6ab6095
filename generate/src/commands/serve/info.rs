//! What needs no model at work: which models there are, what they are, and text as tokens and back.

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

/// A model as OpenAI's API lists it; what it is, once it is in memory.
fn entry(server: &Server, NamedFolder { name, .. }: &NamedFolder) -> Value {
    let created = server.models.created;
    let mut told = json!({
        "id": name, "object": "model", "created": created, "owned_by": "ember", "aliases": [name], "tags": [],
    });
    if let Some(model) = server.models.loaded().iter().find(|model| model.name == *name) {
        let shape = model.engine.config();
        told["max_model_len"] = json!(shape.context_length);
        told["meta"] = json!({
            "n_vocab": shape.vocab_size, "n_ctx_train": shape.context_length, "n_embd": shape.n_embd,
            "n_params": shape.parameters(),
        });
    }
    told
}

/// Which model is meant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    model: Option<String>,
}

/// The same as a body that names it.
fn which(query: Result<Query<Which>, QueryRejection>) -> Result<Object, ApiError> {
    let Query(Which { model }) = query.map_err(|error| ApiError::invalid(error.body_text()))?;
    Ok(Map::from_iter(model.map(|name| ("model".to_owned(), name.into()))).into())
}

/// `GET /props`: as llama.cpp's server tells of itself, with what a page needs to offer every knob.
pub(super) async fn props(
    State(server): State<Arc<Server>>,
    query: Result<Query<Which>, QueryRejection>,
) -> Result<Json, ApiError> {
    let body = which(query)?;
    let told = |server: &Server, model: &Arc<Model>, _: &Map<String, Value>| {
        let shape = model.engine.config();
        let all = server.models.all();
        let names: Vec<&String> = all.iter().map(|one| &one.name).collect();
        let folders: Vec<_> = all.iter().map(|one| one.folder.display().to_string()).collect();
        // Without these the command line computes otherwise.
        let weights = server.models.weights();
        let weights = (weights != WeightType::F32).then(|| format!("--weights {}", weights.name()));
        let device = (server.device != DeviceChoice::Auto).then(|| format!("--device {}", server.device));
        let flags: Vec<String> = weights.into_iter().chain(device).collect();
        // How `/completion` writes where a request says nothing.
        let mut params = llama::defaults(server, model)?;
        params["seed"] = server.seed.map_or(json!(-1), |seed| json!(seed));
        Ok(json!({
            "default_generation_settings": { "n_ctx": shape.context_length, "params": params },
            "total_slots": server.slots().len(),
            "model_path": model.folder.display().to_string(),
            "model_alias": model.name,
            "models": names,
            "folders": folders,
            "folder": server.from,
            "n_ctx": shape.context_length,
            "n_params": shape.parameters(),
            "n_vocab": shape.vocab_size,
            "chat_template": model.template.as_ref().map(|template| template.source.clone()).unwrap_or_default(),
            "eos_token": end_token(model),
            "bos_token": model.before,
            "tokenizer_hash": model.tokenizer_hash,
            "build_info": concat!("ember ", env!("CARGO_PKG_VERSION")),
            "knobs": KNOBS.iter().map(|one| knob(one, &model.settings.knobs)).collect::<Vec<_>>(),
            "flags": flags,
        }))
    };
    Ok(Json(with_model(&server, body, told).await?))
}

/// What a page has to know of a knob: what it is where a request says nothing is the folder's word,
/// or off.
fn knob(knob: &Knob, folder: &Knobs) -> Value {
    let off = knob.of(&GenerationConfig::default()).to_json();
    let set = knob.set_in(folder).map(|value| value.to_json());
    let (kind, words): (_, Vec<Value>) = match knob.typed.map(|typed| typed.form) {
        Some(Form::Word(words)) => ("word", words().into_iter().map(|(word, _)| in_json(word)).collect()),
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

/// A word as a request may say it: true and false are no strings there.
fn in_json(word: &str) -> Value {
    word.parse().map_or_else(|_| json!(word), Value::Bool)
}

/// `GET /slots`: places for requests, and who is at work there.
pub(super) async fn slots(
    State(server): State<Arc<Server>>,
    query: Result<Query<Slots>, QueryRejection>,
) -> Result<Json, ApiError> {
    let Query(Slots { fail_on_no_slot }) = query.map_err(|error| ApiError::invalid(error.body_text()))?;
    let slots = server.slots();
    if fail_on_no_slot.is_some() && slots.iter().all(Option::is_some) {
        return Err(ApiError::unavailable("no place is free"));
    }
    let loaded = server.models.loaded();
    let contexts = |name: Option<&str>| {
        let model = loaded.iter().find(|model| name.is_none_or(|name| model.name == name));
        model.map_or(0, |model| model.engine.config().context_length)
    };
    let one = |(id, busy): (usize, &Option<super::server::Busy>)| match busy {
        None => json!({ "id": id, "n_ctx": contexts(None), "is_processing": false }),
        Some(busy) => json!({
            "id": id, "n_ctx": contexts(Some(&busy.model)), "is_processing": true, "id_task": busy.id,
            "model": busy.model, "n_prompt_tokens": busy.prompt_tokens,
            "n_decoded": busy.written.load(std::sync::atomic::Ordering::Relaxed),
        }),
    };
    Ok(Json(slots.iter().enumerate().map(one).collect()))
}

/// What `/slots` may be asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Slots {
    fail_on_no_slot: Option<String>,
}

/// Most tokens to tell the pieces of: each takes about a kilobyte on the way to an answer.
const MOST_PIECES: usize = 1 << 16;

/// What `/tokenize` may be asked: llama.cpp's `{content, add_special, parse_special, with_pieces}`,
/// or vLLM's `{prompt, add_special_tokens}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tokenize {
    #[serde(rename = "model")]
    _model: Option<String>,
    #[serde(alias = "prompt")]
    content: Option<String>,
    #[serde(default, alias = "add_special_tokens")]
    add_special: bool,
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
        let Tokenize { content, add_special, parse_special, with_pieces, .. } = parsed(body)?;
        let text = content.ok_or_else(|| ApiError::param("content", "there is no text; send it as content"))?;
        // Who asks as vLLM is asked has names of special tokens read as these.
        let parses = parse_special.unwrap_or(body.contains_key("prompt"));
        let special = if parses { SpecialTokens::Parse } else { SpecialTokens::Text };
        let tokenizer = model.tokenizer.as_ref();
        let ids = match tokenizer {
            Some(tokenizer) if !add_special => {
                let ids = tokenizer.encode_with(&text, special);
                ids.map_err(|error| ApiError::param("content", error.to_string()))?
            }
            _ => text_ids(model, "content", &text, special)?,
        };
        let piece = |id: u32| match String::from_utf8(token_bytes(tokenizer, id)) {
            Ok(text) => json!({ "id": id, "piece": text }),
            Err(error) => json!({ "id": id, "piece": error.into_bytes() }),
        };
        if with_pieces && ids.len() > MOST_PIECES {
            let message = format!("with_pieces can tell of {MOST_PIECES} tokens; the text has {}", ids.len());
            return Err(ApiError::param("with_pieces", message));
        }
        let tokens = if with_pieces { ids.iter().map(|&id| piece(id)).collect() } else { json!(ids) };
        Ok(json!({ "tokens": tokens, "count": ids.len(), "max_model_len": model.engine.config().context_length }))
    };
    Ok(Json(with_model(&server, body, tokens).await?))
}

/// What `/detokenize` may be asked.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Detokenize {
    #[serde(rename = "model")]
    _model: Option<String>,
    tokens: Option<Value>,
}

/// The body of a request that has no dialects, any part of which may be left out.
fn parsed<T: DeserializeOwned>(body: &Map<String, Value>) -> Result<T, ApiError> {
    T::deserialize(body).map_err(|error| {
        // What is wrong does not say where it stands: each part is tried by itself.
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
        let Detokenize { tokens, .. } = parsed(body)?;
        let ids = tokens.as_ref().and_then(ids_of);
        let ids = ids.ok_or_else(|| ApiError::wrong("tokens", "a list of token ids"))?;
        if let Some(id) = ids.iter().find(|id| **id as usize >= model.engine.config().vocab_size) {
            return Err(ApiError::param("tokens", format!("there is no token {id}")));
        }
        let Some(tokenizer) = &model.tokenizer else {
            return Err(ApiError::invalid("this checkpoint holds no tokenizer"));
        };
        // A vocabulary may have rows that stand for nothing: beyond the tokenizer's last id, or in between.
        let is_missing = |&id: &u32| tokenizer.decode_text(&[id]).is_err();
        let text = tokenizer.decode_text(&ids).map_err(|error| match ids.iter().copied().find(is_missing) {
            Some(id) => ApiError::param("tokens", format!("the tokenizer has no token {id}; leave it out")),
            None => ApiError::param("tokens", error.to_string()),
        })?;
        Ok(json!({ "content": text, "prompt": text }))
    };
    Ok(Json(with_model(&server, body, text).await?))
}

/// What lm-evaluation-harness asks.
pub(super) async fn tokenizer_info(
    State(server): State<Arc<Server>>,
    query: Result<Query<Which>, QueryRejection>,
) -> Result<Json, ApiError> {
    let told = |_: &Server, model: &Arc<Model>, _: &Map<String, Value>| {
        Ok(json!({
            "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end_token(model), "bos_token": model.before,
            "pad_token": null, "chat_template": model.template.as_ref().map(|template| template.source.clone()),
        }))
    };
    Ok(Json(with_model(&server, which(query)?, told).await?))
}

/// The name of the token that ends a text.
fn end_token(model: &Model) -> Option<String> {
    let tokenizer = model.tokenizer.as_ref();
    let end = tokenizer.and_then(|tokenizer| tokenizer.end_of_text()).or(model.end_tokens.first().copied())?;
    Some(token_text(tokenizer, end))
}
