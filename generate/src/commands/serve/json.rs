//! JSON answers.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use serde_json::Value;

/// Bytes of an answer per chunk of the body.
const PIECE: usize = 64 << 10;

/// A JSON answer.
pub(super) struct Json(pub(super) Value);

impl Json {
    /// The answer as a body that keeps `guard` alive until the client has read all of it.
    pub(super) fn holding(self, guard: impl Send + 'static) -> Response {
        let text = self.0.to_string();
        let headers = [(CONTENT_TYPE, "application/json".to_owned()), (CONTENT_LENGTH, text.len().to_string())];
        let pieces = unfold((Bytes::from(text), guard), |(mut rest, guard)| async move {
            let piece = rest.split_to(rest.len().min(PIECE));
            // A copy, so that a chunk waiting to be sent does not keep the whole answer in memory.
            let piece = (!piece.is_empty()).then(|| Ok::<_, Infallible>(Bytes::copy_from_slice(&piece)))?;
            Some((piece, (rest, guard)))
        });
        (headers, Body::from_stream(pieces)).into_response()
    }
}

impl IntoResponse for Json {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, "application/json")], self.0.to_string()).into_response()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use futures_util::StreamExt;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_room_of_an_answer_is_kept_until_it_is_read() {
        let (room, value) = (Arc::new(()), json!("a".repeat(3 * PIECE)));
        let response = Json(value.clone()).holding(Arc::clone(&room));
        assert_eq!(response.headers()[CONTENT_LENGTH], value.to_string().len().to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bytes = runtime.block_on(async {
            let (mut pieces, mut bytes) = (response.into_body().into_data_stream(), Vec::new());
            while let Some(piece) = pieces.next().await {
                assert_eq!(Arc::strong_count(&room), 2);
                bytes.extend_from_slice(&piece.unwrap());
            }
            bytes
        });
        assert_eq!(Arc::strong_count(&room), 1);
        assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), value);
    }
}
