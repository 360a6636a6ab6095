//! `GET /`: the playground page, in one file.

use axum::http::HeaderValue;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use ember_page::{Page, fill, script};

const BODY: &str = include_str!("playground/page.html");
const STYLE: &str = include_str!("playground/style.css");

/// Content security policy: the page may connect to this server only.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(super) async fn page() -> Response {
    let body = fill(BODY, &[("script", &script(SCRIPTS))]);
    let page = Page { title: "Ember playground", style: STYLE, body: &body, ..Page::default() }.html();
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, page).into_response()
}

/// The parts of the script, in order of dependency.
const SCRIPTS: &[&str] = &[
    include_str!("playground/parts.js"),
    include_str!("playground/storage.js"),
    include_str!("playground/api.js"),
    include_str!("playground/tokens.js"),
    include_str!("playground/tree.js"),
    include_str!("playground/request.js"),
    include_str!("playground/models.js"),
    include_str!("playground/command.js"),
    include_str!("playground/kept.js"),
    include_str!("playground/store.js"),
    include_str!("playground/editor.js"),
    include_str!("playground/alternatives.js"),
    include_str!("playground/writing.js"),
    include_str!("playground/treeview.js"),
    include_str!("playground/grammar.js"),
    include_str!("playground/knobs.js"),
    include_str!("playground/samples.js"),
    include_str!("playground/compare.js"),
    include_str!("playground/slider.js"),
    include_str!("playground/beams.js"),
    include_str!("playground/chat.js"),
    include_str!("playground/keys.js"),
    include_str!("playground/main.js"),
];
