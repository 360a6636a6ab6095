//! Counts the requests in progress: each from its head until its answer is sent or its client has
//! left. The server ends after the last of them.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt;

use super::server::Server;

/// Middleware: counts a request.
pub(super) async fn count(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let in_progress = server.in_progress();
    let held = |body: Body| {
        // It changes no error: the body owns this closure, and with it the count, until it is dropped.
        Body::new(body.map_err(move |error| {
            let _held = &in_progress;
            error
        }))
    };
    next.run(request).await.map(held)
}
