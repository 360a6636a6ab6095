//! Who may ask: by key, by the name that the server was called by, and from which web pages.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use subtle::{Choice, ConstantTimeEq};

use super::error::ApiError;

/// What is asked of everybody.
pub(super) struct Guard {
    keys: Option<Vec<String>>,
    origins: Vec<String>,
}

/// The keys of a file, one on a line; empty lines and those that begin with `#` are none.
pub(super) fn keys(path: &Path) -> Result<Vec<String>> {
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read --api-key-file {name}"))?;
    let is_key = |line: &&str| !line.is_empty() && !line.starts_with('#');
    // Some editors put a mark before a text, which nobody sends.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let keys: Vec<String> = text.lines().map(str::trim).filter(is_key).map(str::to_owned).collect();
    ensure!(!keys.is_empty(), "--api-key-file {name} holds no key; write one on a line");
    Ok(keys)
}

/// A page's origin as it is typed, in the form in which browsers send it; `null` is that of a page
/// that has none, such as a file.
pub(super) fn origin(typed: &str) -> Result<String, String> {
    let origin = typed.strip_suffix('/').unwrap_or(typed).to_ascii_lowercase();
    let is_host = |host: &str| !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || "/?#@*".contains(c));
    let is_one = origin.split_once("://").is_some_and(|(scheme, host)| !scheme.is_empty() && is_host(host));
    if is_one || origin == "null" {
        Ok(origin)
    } else {
        Err("write a scheme and a host, such as https://example.org, without a path".to_owned())
    }
}

impl Guard {
    pub(super) fn new(keys: Option<Vec<String>>, origins: Vec<String>) -> Self {
        Self { keys, origins }
    }

    /// Whether a request may go on.
    fn check(&self, path: &str, headers: &HeaderMap) -> Result<(), ApiError> {
        // Of two of these, who stands before this server may go by the other.
        let is_twice = |name: &header::HeaderName| headers.get_all(name).iter().nth(1).is_some();
        if let Some(name) = [header::HOST, header::ORIGIN, header::AUTHORIZATION].into_iter().find(is_twice) {
            return Err(ApiError::invalid(format!("the request's head has more than one {name}")));
        }
        let text =
            |name: header::HeaderName| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or_default());
        if let Some(origin) = text(header::ORIGIN)
            && !self.allows(origin)
            && text(header::HOST).is_none_or(|host| origin != format!("http://{host}"))
        {
            return Err(ApiError::forbidden(format!(
                "pages of {origin} may not ask here; allow them with --cors {origin}"
            )));
        }
        match &self.keys {
            Some(_) if path == "/health" => Ok(()),
            Some(keys) => {
                let bearer = text(header::AUTHORIZATION).and_then(key_of).map(Cow::into_owned);
                let named = text(header::HeaderName::from_static("x-api-key")).map(str::to_owned);
                let sent = bearer.or(named).unwrap_or_default();
                // All keys are compared, whichever is right: the time must tell nothing.
                let is_one =
                    keys.iter().fold(Choice::from(0), |found, key| found | key.as_bytes().ct_eq(sent.as_bytes()));
                if bool::from(is_one) { Ok(()) } else { Err(ApiError::key()) }
            }
            // A page of a stranger may have its own name lead here; then that name is what was asked for.
            None => match text(header::HOST) {
                Some(host) if is_own(host) => Ok(()),
                host => Err(ApiError::forbidden(format!(
                    "without keys this server answers to this machine's addresses and to localhost, not to the name {:?}: ask \
                     by its address, or start it with --api-key-file",
                    host.unwrap_or_default()
                ))),
            },
        }
    }

    fn allows(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed == origin)
    }
}

/// Whether a `Host` names this machine by its address or as localhost. Its port counts for nothing: a
/// tunnel has one of its own, and a stranger's page brings its name whatever the port.
fn is_own(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<std::net::IpAddr>().is_ok()
}

/// The key in `Authorization`: a bearer's, or the password that a browser asks its user for.
fn key_of(value: &str) -> Option<Cow<'_, str>> {
    let (scheme, sent) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Cow::Borrowed(sent));
    }
    let decoded = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(sent).ok())??;
    Some(Cow::Owned(String::from_utf8(decoded).ok()?.split_once(':')?.1.to_owned()))
}

/// Answers those who may not ask, and tells browsers which pages may.
pub(super) async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN).cloned();
    let origin = origin.filter(|origin| origin.to_str().is_ok_and(|origin| guard.allows(origin)));
    let mut response = match request.method() {
        // A browser asks beforehand, without a key; it goes by the headers.
        &Method::OPTIONS => StatusCode::OK.into_response(),
        _ => match guard.check(request.uri().path(), request.headers()) {
            Ok(()) => next.run(request).await,
            Err(error) => error.into_response(),
        },
    };
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        let sent = HeaderValue::from_static("authorization, content-type, x-api-key");
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, sent);
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
    }
    response
}
