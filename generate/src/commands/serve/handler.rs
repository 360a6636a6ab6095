//! Handles a request for text: finds its model, parses it where that holds nobody up, and begins it.

use std::sync::Arc;
use std::time::Instant;

use axum::response::Response;
use serde_json::{Map, Value};

use super::answer::{AnswerFormat, respond};
use super::body::Object;
use super::error::ApiError;
use super::models::{MOST_WAIT, Model};
use super::parsed_request::ParsedRequest;
use super::server::{Server, count};
use super::writing::begin;

/// How a dialect parses a request; the other half is the format of its answer.
type Parse<T> = fn(&Server, &Model, &Map<String, Value>) -> Result<(ParsedRequest, T), ApiError>;

/// Writes what is asked for, if there is a place.
pub(super) async fn write<T: AnswerFormat>(
    server: Arc<Server>,
    body: Object,
    parse: Parse<T>,
) -> Result<Response, ApiError> {
    count(&server.counts.requests, 1);
    let place = server.place()?;
    let with_its_model = move |server: &Server, model: &Arc<Model>, body: &Map<String, Value>| {
        let (parsed, format) = parse(server, model, body)?;
        Ok((Arc::clone(model), parsed, format))
    };
    let (model, parsed, format) = with_model(&server, body, with_its_model).await?;
    respond(begin(&server, model, parsed, place), format).await
}

/// Does something with the model that a body names, on a thread that may take its time: a long text
/// may have to be made tokens.
pub(super) async fn with_model<T: Send + 'static>(
    server: &Arc<Server>,
    body: Object,
    act: impl FnOnce(&Server, &Arc<Model>, &Map<String, Value>) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let model = model(server, model_name(&body)?).await?;
    let reader = if body.is_long() { server.long_reader().await } else { None };
    let server = Arc::clone(server);
    let acting = move || {
        let _reader = reader; // until it is read, whether or not somebody still waits for that
        act(&server, &model, &body)
    };
    on_a_thread(acting).await
}

/// The model of this name, or the default; loaded now where it is not in memory. A request that waits
/// for that takes no thread from those whose models are in memory, and one whose client leaves meanwhile
/// gives its turn to the next.
async fn model(server: &Arc<Server>, name: Option<&str>) -> Result<Arc<Model>, ApiError> {
    let named = server.models.find(name)?;
    if let Some(model) = server.models.in_memory(&named) {
        return Ok(model);
    }
    let until = Instant::now() + MOST_WAIT;
    let turn = server.models.turn().await;
    server.models.room(&named, until).await?;
    let server = Arc::clone(server);
    on_a_thread(move || server.models.get(&named, turn)).await
}

async fn on_a_thread<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(act).await.map_err(|_| ApiError::ours("the request could not be read"))?
}

/// The model that a request names.
fn model_name(body: &Map<String, Value>) -> Result<Option<&str>, ApiError> {
    match body.get("model") {
        None => Ok(None),
        Some(Value::String(name)) => Ok(Some(name)),
        Some(_) => Err(ApiError::wrong("model", "a string")),
    }
}
