//! Access control: by API key, by `Host` header, and by origin.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::{Engine, engine::general_purpose::STANDARD};
use ember_host::files::read_whole;
use subtle::{Choice, ConstantTimeEq};

use super::error::ApiError;

/// The checks for every request.
pub(super) struct Guard {
    keys: Option<Vec<String>>,
    origins: Vec<String>,
}

/// Largest key file in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Reads the keys of a file, one per line; empty lines and lines that begin with `#` are skipped.
pub(super) fn keys(path: &Path) -> Result<Vec<String>> {
    let name = path.display();
    let text = read_whole(path, MAX_BYTES).and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
    let text = text.with_context(|| format!("cannot read --api-key-file {name}"))?;
    let is_key = |line: &&str| !line.is_empty() && !line.starts_with('#');
    // Some editors write a byte order mark, which no client sends.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let keys: Vec<String> = text.lines().map(str::trim).filter(is_key).map(str::to_owned).collect();
    ensure!(!keys.is_empty(), "--api-key-file {name} holds no key; write one on a line");
    Ok(keys)
}

/// Converts a typed origin to the form that browsers send, without a scheme's default port; `null`
/// is the origin of pages without one, such as a local file.
pub(super) fn origin(typed: &str) -> Result<String, String> {
    let origin = typed.strip_suffix('/').unwrap_or(typed).to_ascii_lowercase();
    let without = |scheme: &str, port: &str| origin.strip_prefix(scheme).and(origin.strip_suffix(port));
    let origin = without("https://", ":443").or(without("http://", ":80")).unwrap_or(&origin);
    let is_host = |host: &str| !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || "/?#@*".contains(c));
    let is_one = origin.split_once("://").is_some_and(|(scheme, host)| !scheme.is_empty() && is_host(host));
    if is_one || origin == "null" {
        Ok(origin.to_owned())
    } else {
        Err("write a scheme and a host, such as https://example.org, without a path".to_owned())
    }
}

impl Guard {
    pub(super) fn new(keys: Option<Vec<String>>, origins: Vec<String>) -> Self {
        Self { keys, origins }
    }

    /// Checks whether a request is allowed.
    fn check(&self, path: &str, headers: &HeaderMap) -> Result<(), ApiError> {
        check_no_header_twice(headers)?;
        self.check_origin(headers)?;
        match &self.keys {
            Some(_) if path == "/health" => Ok(()),
            Some(keys) => check_key(keys, headers),
            None => check_host(headers),
        }
    }

    /// Refuses requests of pages from other origins that are not allowed; browsers send the page's
    /// origin. A page of `https://HOST` is the server's own, too: a proxy in front may add the
    /// encryption.
    fn check_origin(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        if let Some(origin) = text(headers, header::ORIGIN)
            && !self.allows(origin)
            && text(headers, header::HOST).is_none_or(|host| host_of(origin) != Some(host))
        {
            return Err(ApiError::forbidden(format!(
                "pages of {origin} are not allowed; allow them with --cors {origin}"
            )));
        }
        Ok(())
    }

    fn allows(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed == origin)
    }
}

/// The host and port of a web page's origin.
fn host_of(origin: &str) -> Option<&str> {
    origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))
}

/// A header as text; empty if it is not text.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

/// Refuses a request that has one of these headers twice: a proxy in front may check the other one.
fn check_no_header_twice(headers: &HeaderMap) -> Result<(), ApiError> {
    let is_twice = |name: &HeaderName| headers.get_all(name).iter().nth(1).is_some();
    match [header::HOST, header::ORIGIN, header::AUTHORIZATION].into_iter().find(is_twice) {
        Some(name) => Err(ApiError::invalid(format!("the request has more than one {name} header; send one"))),
        None => Ok(()),
    }
}

/// Refuses a request without a valid key. Either header may hold it: some clients always send an
/// `Authorization` of their own.
fn check_key(keys: &[String], headers: &HeaderMap) -> Result<(), ApiError> {
    // As bytes: a key need not be ASCII.
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| key_of(value.as_bytes()));
    let named = headers.get("x-api-key").map(|value| Cow::Borrowed(value.as_bytes()));
    // All keys are compared in constant time, so that timing reveals nothing.
    let is_key = |sent: &[u8]| keys.iter().fold(Choice::from(0), |found, key| found | key.as_bytes().ct_eq(sent));
    let is_one = [bearer, named].iter().flatten().fold(Choice::from(0), |found, sent| found | is_key(sent));
    if bool::from(is_one) { Ok(()) } else { Err(ApiError::unauthorized()) }
}

/// Without keys, refuses a `Host` that is not this machine's. This stops DNS rebinding: a hostile
/// page may point its own name at this server, and its requests then carry that name.
fn check_host(headers: &HeaderMap) -> Result<(), ApiError> {
    match text(headers, header::HOST) {
        Some(host) if is_own(host) => Ok(()),
        host => Err(ApiError::forbidden(format!(
            "without API keys this server must be addressed by IP address or as localhost, not as {:?}; use one of \
             these, or start it with --api-key-file",
            host.unwrap_or_default()
        ))),
    }
}

/// Whether a `Host` is an IP address or localhost. The port is ignored: a tunnel has a different
/// one, and a hostile page's name is refused on any port.
fn is_own(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || address.parse::<std::net::IpAddr>().is_ok()
}

/// The key in `Authorization`: a bearer token, or the password of basic authentication, which
/// browsers ask for.
fn key_of(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    let (scheme, sent) = split_once(value, b' ')?;
    if scheme.eq_ignore_ascii_case(b"bearer") {
        return Some(Cow::Borrowed(sent));
    }
    let decoded = scheme.eq_ignore_ascii_case(b"basic").then(|| STANDARD.decode(sent).ok())??;
    Some(Cow::Owned(split_once(&decoded, b':')?.1.to_vec()))
}

/// Splits bytes at the first occurrence of `at`.
fn split_once(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = bytes.iter().position(|byte| *byte == at)?;
    Some((&bytes[..place], &bytes[place + 1..]))
}

/// Middleware: refuses requests that are not allowed, and adds CORS headers for allowed origins.
pub(super) async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN).cloned();
    let origin = origin.filter(|origin| origin.to_str().is_ok_and(|origin| guard.allows(origin)));
    let asked_for = request.headers().get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let mut response = match request.method() {
        // A browser's preflight request has no key; the browser obeys the CORS headers.
        &Method::OPTIONS => StatusCode::OK.into_response(),
        _ => match guard.check(request.uri().path(), request.headers()) {
            Ok(()) => next.run(request).await,
            Err(error) => error.into_response(),
        },
    };
    if let Some(origin) = origin {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        // An allowed page may send any header: clients have their own.
        let sent = asked_for.unwrap_or(HeaderValue::from_static("authorization, content-type, x-api-key"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, sent);
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("retry-after"));
        headers.insert(header::VARY, HeaderValue::from_static("origin, access-control-request-headers"));
    }
    response
}
