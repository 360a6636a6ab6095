//! Errors in the form that clients read.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header::RETRY_AFTER, header::WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use ember_cli::failure;
use ember_decoding::Error;
use ember_decoding::config::KnobError;
use ember_decoding::constraint::GrammarError;
use serde_json::{Value, json};

use super::json::Json;

/// The type of a device error.
const DEVICE: &str = "device_error";

/// An error in OpenAI's form.
#[derive(Clone, Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
    /// The parameter at fault.
    param: Option<String>,
    /// For a prompt that is too long, as in llama.cpp: its tokens, and the context length.
    sizes: Option<[usize; 2]>,
    /// Seconds after which to retry, if that may succeed soon.
    retry_after: Option<u16>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into(), param: None, sizes: None, retry_after: None }
    }

    /// An invalid request.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// An invalid parameter.
    pub(super) fn param(param: &str, message: impl Into<String>) -> Self {
        Self { param: Some(param.to_owned()), ..Self::invalid(message) }
    }

    /// A grammar that cannot be used; the fault is not the request's if earlier grammars still hold
    /// the memory for it.
    pub(super) fn grammar(param: &str, error: &GrammarError) -> Self {
        let param = Some(param.to_owned());
        match error {
            GrammarError::EarlierWork { .. } => Self { param, ..Self::unavailable(error.to_string()) },
            error => Self { param, ..Self::invalid(error.to_string()) },
        }
    }

    /// A parameter of the wrong type.
    pub(super) fn wrong_type(param: &str, kind: &str) -> Self {
        Self::param(param, format!("{param} must be {kind}"))
    }

    /// A token outside the model's vocabulary.
    pub(super) fn unknown_token(param: &str, id: u32) -> Self {
        Self::param(param, format!("{param} has the token {id}, which is outside the model's vocabulary"))
    }

    /// A prompt longer than the context.
    pub(super) fn too_long(param: &str, tokens: usize, context: usize) -> Self {
        let message = format!("a prompt has {tokens} tokens, which exceeds the available context size of {context}");
        let kind = "exceed_context_size_error";
        Self { kind, sizes: Some([tokens, context]), ..Self::param(param, message) }
    }

    pub(super) fn too_large(most: usize) -> Self {
        let message = format!("the body is longer than {} KiB", most >> 10);
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message)
    }

    pub(super) fn timeout(most: Duration) -> Self {
        let message = format!("the body did not arrive within {} s", most.as_secs());
        Self::new(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", message)
    }

    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found_error", "there is no such route; /openapi.json lists them")
    }

    pub(super) fn unknown_model<'a>(name: &str, served: impl Iterator<Item = &'a str>) -> Self {
        let name: String = name.chars().take(100).collect();
        let served = served.collect::<Vec<_>>().join(", ");
        let message = format!("there is no model {name:?} here; this server has {served}");
        Self { param: Some("model".to_owned()), ..Self::new(StatusCode::NOT_FOUND, "not_found_error", message) }
    }

    /// A model that was removed since the server started.
    pub(super) fn gone(name: &str) -> Self {
        let message = format!(
            "the model {name:?} is gone: its folder no longer holds one, perhaps since training saved a newer one; \
             choose another of /v1/models, or restart the server"
        );
        Self { param: Some("model".to_owned()), ..Self::new(StatusCode::NOT_FOUND, "not_found_error", message) }
    }

    pub(super) fn method() -> Self {
        let message = "this route does not accept this method; see /openapi.json";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
    }

    pub(super) fn unauthorized() -> Self {
        let message = "no valid API key; send one as Authorization: Bearer KEY";
        Self::new(StatusCode::UNAUTHORIZED, "authentication_error", message)
    }

    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "permission_error", message)
    }

    pub(super) fn busy() -> Self {
        let message = "as many requests as this server takes are running or waiting; try again later";
        Self { retry_after: Some(1), ..Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message) }
    }

    /// A model that does not fit in memory while others are in use.
    pub(super) fn no_room(name: &str) -> Self {
        let message = format!(
            "there is no memory for the model {name:?} while others are in use; try again later, or start the server \
             with a larger --models-mib"
        );
        Self { param: Some("model".to_owned()), retry_after: Some(5), ..Self::unavailable(message) }
    }

    /// A disabled route.
    pub(super) fn disabled() -> Self {
        let message = "this route was turned off with --without";
        Self::new(StatusCode::NOT_IMPLEMENTED, "not_supported_error", message)
    }

    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message)
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// A device failure, with the runtime's message.
    fn device(problem: &str) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, DEVICE, failure::of_device(problem))
    }

    /// A model's engine that a panic has ended: of the device's runtime, which fails for good, or of
    /// the program.
    fn engine_ended() -> Self {
        match failure::of_device_panic(&"the engine has ended") {
            Some(problem) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, DEVICE, problem),
            None => Self::internal(
                "the model's engine has ended by a fault of the program; the next request loads the model again",
            ),
        }
    }

    /// The message, if the device failed.
    pub(super) fn of_device(&self) -> Option<&str> {
        (self.kind == DEVICE).then_some(&*self.message)
    }

    pub(super) fn body(&self) -> Value {
        let Self { status, kind, message, param, sizes, .. } = self;
        let mut error = json!({ "message": message, "type": kind, "param": param, "code": status.as_u16() });
        if let Some([tokens, context]) = sizes {
            (error["n_prompt_tokens"], error["n_ctx"]) = (json!(tokens), json!(context));
        }
        json!({ "error": error })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = Json(self.body()).into_response();
        *response.status_mut() = self.status;
        if self.status == StatusCode::UNAUTHORIZED {
            // A browser asks its user for the key and sends it as the password.
            let ways = HeaderValue::from_static("Bearer, Basic realm=\"ember: the key as password\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, ways);
        }
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<KnobError> for ApiError {
    fn from(error: KnobError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error {
            Error::Device(problem) => Self::device(&problem),
            Error::EngineEnded => Self::engine_ended(),
            Error::Memory(_) | Error::NotFinite => Self::internal(error.to_string()),
            Error::Cancelled => Self::internal("the request was cancelled"),
            error => Self::invalid(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_device_is_told_from_other_faults() {
        let device = ApiError::from(Error::Device("lost".to_owned()));
        assert!(device.of_device().is_some_and(|problem| problem.contains("lost")), "{device:?}");
        for other in [Error::NotFinite, Error::Cancelled, Error::NoPrompt] {
            assert_eq!(ApiError::from(other).of_device(), None);
        }
    }

    #[test]
    fn a_grammar_that_others_keep_from_being_read_is_no_fault_of_the_request() {
        let grammar = "regex".to_owned();
        let earlier = ApiError::grammar("regex", &GrammarError::EarlierWork { grammar: grammar.clone() });
        let empty = ApiError::grammar("regex", &GrammarError::OnlyEmpty { grammar });
        for (error, status) in [(earlier, 503), (empty, 400)] {
            let error = &error.body()["error"];
            assert_eq!((&error["code"], &error["param"]), (&json!(status), &json!("regex")), "{error}");
        }
    }
}
