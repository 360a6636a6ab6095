//! The body of a request.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use serde_json::{Map, Value};

use super::error::ApiError;

/// The body of a request, or why it cannot be read.
pub(super) type Body = Result<Bytes, BytesRejection>;

/// Deepest that lists and objects of a request may lie in one another: a JSON schema needs some.
const DEEPEST: usize = 64;

/// A body as a JSON object.
pub(super) fn object(body: Body) -> Result<Map<String, Value>, ApiError> {
    let body = body.map_err(|rejection| ApiError::too_large(rejection.body_text()))?;
    match serde_json::from_slice(&body) {
        Ok(Value::Object(object)) if depth(&body) > DEEPEST => {
            drop(object);
            Err(ApiError::invalid(format!("the body has lists and objects in one another deeper than {DEEPEST}")))
        }
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(ApiError::invalid("the body is JSON, but not an object")),
        Err(error) => Err(ApiError::invalid(format!("the body is not JSON: {error}"))),
    }
}

/// How deep the brackets of a JSON text lie in one another.
fn depth(json: &[u8]) -> usize {
    let (mut deepest, mut now, mut in_string, mut is_escaped) = (0usize, 0usize, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => now += 1,
            b']' | b'}' if !in_string => now = now.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(now);
    }
    deepest
}
