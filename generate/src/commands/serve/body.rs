//! The body of a request: a JSON object of bounded size and depth, received within a time limit.

use std::ops::Deref;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use futures_util::StreamExt;
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::error::ApiError;

/// Largest body in bytes: far more than any context holds.
pub(super) const MAX_BODY_BYTES: usize = 1 << 20;

/// Timeout for receiving a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Deepest nesting of lists and objects: JSON schemas need some, but what reads a value may recurse
/// into it.
const MAX_DEPTH: usize = 64;

/// KiB of bodies that all requests may hold at once, while received and while parsed; the parsed
/// form takes some thirty times as much memory.
static BODY_MEMORY: Semaphore = Semaphore::const_new(64 << 10);

/// Size of a body in KiB above which encoding its texts takes long.
const LONG_KIB: usize = 64;

/// Parameters that take long whatever their size: a grammar is compiled, one at a time, and for a
/// replay all weights are read.
const LONG_PARAMETERS: [&str; 6] = ["grammar", "json_schema", "lark_grammar", "regex", "replay", "response_format"];

/// A parsed body, and the permits for its memory.
pub(super) struct Object {
    object: Map<String, Value>,
    room: Vec<SemaphorePermit<'static>>,
}

impl Object {
    /// Whether reading the request takes long.
    pub(super) fn takes_long(&self) -> bool {
        let takes_long =
            |name: &&str| self.get(*name).is_some_and(|value| value != "" && !matches!(value, Value::Bool(false)));
        self.kib() > LONG_KIB || LONG_PARAMETERS.iter().any(takes_long)
    }

    /// Whether a chat template is to render it.
    pub(super) fn is_conversation(&self) -> bool {
        self.contains_key("messages")
    }

    fn kib(&self) -> usize {
        self.room.iter().map(SemaphorePermit::num_permits).sum()
    }
}

impl Deref for Object {
    type Target = Map<String, Value>;

    fn deref(&self) -> &Self::Target {
        &self.object
    }
}

impl From<Map<String, Value>> for Object {
    /// A body made by the server itself.
    fn from(object: Map<String, Value>) -> Self {
        Self { object, room: Vec::new() }
    }
}

impl<S: Sync> FromRequest<S> for Object {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let (bytes, room) = read_within(BODY_TIMEOUT, request.into_body()).await?;
        match serde_json::from_slice(&bytes) {
            Ok(ref value @ Value::Object(_)) if depth(value) > MAX_DEPTH => {
                Err(ApiError::invalid(format!("the body's lists and objects are nested more than {MAX_DEPTH} deep")))
            }
            Ok(Value::Object(mut object)) => {
                object.retain(|_, value| !value.is_null()); // clients send unset parameters as null
                Ok(Self { object, room })
            }
            Ok(_) => Err(ApiError::invalid("the body is JSON, but not an object")),
            Err(error) => Err(ApiError::invalid(format!("the body is not JSON: {error}"))),
        }
    }
}

/// Receives a body, unless that takes longer than `most`.
async fn read_within(most: Duration, body: Body) -> Result<(Vec<u8>, Vec<SemaphorePermit<'static>>), ApiError> {
    timeout(most, read(body)).await.map_err(|_| ApiError::timeout(most))?
}

/// Receives the bytes of a body, and takes permits for their memory.
async fn read(body: Body) -> Result<(Vec<u8>, Vec<SemaphorePermit<'static>>), ApiError> {
    let (mut bytes, mut room) = (Vec::new(), Vec::new());
    let mut stream = body.into_data_stream();
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|error| ApiError::invalid(format!("the body is incomplete: {error}")))?;
        if bytes.len() + piece.len() > MAX_BODY_BYTES {
            return Err(ApiError::too_large(MAX_BODY_BYTES));
        }
        let before = bytes.len().div_ceil(1 << 10);
        bytes.extend_from_slice(&piece);
        // By total size: a body sent byte by byte takes no more permits than others.
        let more = bytes.len().div_ceil(1 << 10) - before;
        if more > 0 {
            room.push(BODY_MEMORY.try_acquire_many(more as u32).map_err(|_| ApiError::busy())?);
        }
    }
    Ok((bytes, room))
}

/// How deep lists and objects are nested in a value. serde_json reads no value deeper than 128,
/// which bounds the recursion.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;

    use futures_util::stream::{iter, pending};

    use super::*;

    #[test]
    fn what_is_understood_keeps_the_room_of_what_was_sent() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let body = format!("{{\"tokens\": [{}0]}}", "0,".repeat(5 << 10));
        let kib = body.len().div_ceil(1 << 10);
        let bytes = body.clone().into_bytes().into_iter().map(|byte| Ok::<_, Infallible>(vec![byte]));
        for body in [Body::from(body), Body::from_stream(iter(bytes))] {
            let object = runtime.block_on(Object::from_request(Request::new(body), &())).unwrap();
            assert_eq!(object.kib(), kib);
            assert!(object.contains_key("tokens"));
        }
    }

    #[test]
    fn a_body_that_stalls_is_not_waited_for() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let body = Body::from_stream(iter([Ok::<_, Infallible>("{")]).chain(pending()));
        let error = runtime.block_on(read_within(Duration::from_millis(50), body)).err().unwrap();
        assert_eq!(error.body()["error"]["code"], 408);
    }
}
