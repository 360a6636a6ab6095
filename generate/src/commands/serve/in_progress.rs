//! Counts the requests in progress: each from its head until its answer is sent or its client has
//! left. The server ends after the last of them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

use super::server::Server;

/// Middleware: counts a request.
pub(super) async fn count(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response {
    let in_progress = server.in_progress();
    next.run(request).await.map(|body| Body::new(Counted { body, _in_progress: in_progress }))
}

/// The body of an answer whose request is in progress until the body is sent.
struct Counted {
    body: Body,
    _in_progress: Arc<()>,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
