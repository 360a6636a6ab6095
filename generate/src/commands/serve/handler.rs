//! Handles a request for text: finds its model, parses it on a blocking thread, and starts it.

use std::sync::Arc;
use std::time::Instant;

use axum::response::Response;
use serde_json::{Map, Value};

use super::answer::{AnswerFormat, respond};
use super::body::Object;
use super::error::ApiError;
use super::models::{MAX_WAIT, Model};
use super::parsed_request::ParsedRequest;
use super::server::{Server, count};
use super::writing::begin;

/// A dialect's parser: returns the request and the format of its answer.
type Parse<T> = fn(&Server, &Model, &Map<String, Value>) -> Result<(ParsedRequest, T), ApiError>;

/// Answers a request for text, unless the queue is full.
pub(super) async fn write<T: AnswerFormat>(
    server: Arc<Server>,
    body: Object,
    parse: Parse<T>,
) -> Result<Response, ApiError> {
    count(&server.counts.requests, 1);
    let place = server.enter_queue()?;
    let parse_with_model = move |server: &Server, model: &Arc<Model>, body: &Map<String, Value>| {
        let (parsed, format) = parse(server, model, body)?;
        Ok((Arc::clone(model), parsed, format))
    };
    let (model, parsed, format) = with_model(&server, body, parse_with_model).await?;
    respond(begin(&server, model, parsed, place), format).await
}

/// Runs `act` with the model that the body names, on a blocking thread: encoding a long text takes
/// time.
pub(super) async fn with_model<T: Send + 'static>(
    server: &Arc<Server>,
    body: Object,
    act: impl FnOnce(&Server, &Arc<Model>, &Map<String, Value>) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let model = model(server, model_name(&body)?).await?;
    let reader = server.reader_for(&body).await;
    let server = Arc::clone(server);
    let acting = move || {
        let _reader = reader; // held until parsing ends, even if the client leaves
        act(&server, &model, &body)
    };
    run_blocking(acting).await
}

/// The model of this name, or the default; loads it if it is not in memory. While it waits to load,
/// a request takes no thread from requests whose models are loaded. If its client leaves, the next
/// request may load.
async fn model(server: &Arc<Server>, name: Option<&str>) -> Result<Arc<Model>, ApiError> {
    let named = server.models.find(name)?;
    if let Some(model) = server.models.in_memory(&named) {
        return Ok(model);
    }
    let deadline = Instant::now() + MAX_WAIT;
    let lock = server.models.load_lock().await;
    server.models.wait_for_memory(&named, deadline).await?;
    let server = Arc::clone(server);
    run_blocking(move || server.models.get(&named, lock)).await
}

async fn run_blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(act).await.map_err(|_| ApiError::internal("the request could not be read"))?
}

/// The model that a request names.
fn model_name(body: &Map<String, Value>) -> Result<Option<&str>, ApiError> {
    match body.get("model") {
        None => Ok(None),
        Some(Value::String(name)) => Ok(Some(name)),
        Some(_) => Err(ApiError::wrong_type("model", "a string")),
    }
}
