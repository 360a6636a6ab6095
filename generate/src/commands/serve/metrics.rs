//! `GET /metrics`, in Prometheus' text format, with the names of llama.cpp's server; metrics that
//! it lacks begin with `ember:`.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

use super::models::Passes;
use super::server::Server;

pub(super) async fn metrics(State(server): State<Arc<Server>>) -> Response {
    let mut text = String::new();
    for (kind, rows) in [("counter", counters(&server)), ("gauge", gauges(&server))] {
        for (name, help, value) in rows {
            let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}\n{name} {value}");
        }
    }
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let began = since.saturating_sub(server.began.elapsed()).as_secs();
    ([(CONTENT_TYPE.as_str(), "text/plain; version=0.0.4"), ("process-start-time-unix", &began.to_string())], text)
        .into_response()
}

type Row = (&'static str, &'static str, f64);

fn of(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

fn counters(server: &Server) -> Vec<Row> {
    let counts = &server.counts;
    let Passes { steps, tokens } = server.models.passes();
    vec![
        ("llamacpp:prompt_tokens_total", "Prompt tokens read", of(&counts.prompt_tokens)),
        ("llamacpp:prompt_tokens_cached_total", "Prompt tokens found in the cache", of(&counts.cached_tokens)),
        ("llamacpp:prompt_seconds_total", "Seconds until first tokens", of(&counts.prompt_micros) / 1e6),
        ("llamacpp:tokens_predicted_total", "Tokens written", of(&counts.written_tokens)),
        ("llamacpp:tokens_predicted_seconds_total", "Seconds after first tokens", of(&counts.writing_micros) / 1e6),
        ("llamacpp:n_decode_total", "Forward passes through models", steps as f64),
        ("llamacpp:spec_decode_num_draft_tokens_total", "Draft tokens proposed", of(&counts.drafted)),
        ("llamacpp:spec_decode_num_accepted_tokens_total", "Draft tokens accepted", of(&counts.accepted)),
        ("llamacpp:spec_decode_num_drafts_total", "Forward passes that checked draft tokens", of(&counts.drafts)),
        ("llamacpp:n_tokens_max", "Most tokens of a request", of(&counts.longest)),
        ("ember:tokens_total", "Tokens that went through models", tokens as f64),
        ("ember:requests_total", "Requests for text", of(&counts.requests)),
        ("ember:requests_refused_total", "Requests refused because the queue was full", of(&counts.refused)),
        ("ember:requests_cancelled_total", "Requests whose client left before the end", of(&counts.cancelled)),
    ]
}

fn gauges(server: &Server) -> Vec<Row> {
    let counts = &server.counts;
    let rate = |tokens: &AtomicU64, micros: &AtomicU64| 1e6 * of(tokens) / of(micros).max(1.0);
    let running = server.slots().iter().flatten().count();
    let loaded = server.models.loaded();
    let bytes = loaded.iter().map(|model| model.engine.metrics().positions * model.memory.position_bytes);
    let Passes { steps, tokens } = server.models.passes();
    vec![
        (
            "llamacpp:prompt_tokens_seconds",
            "Prompt tokens read per second",
            rate(&counts.prompt_tokens, &counts.prompt_micros),
        ),
        (
            "llamacpp:predicted_tokens_seconds",
            "Tokens written per second and request",
            rate(&counts.later_tokens, &counts.writing_micros),
        ),
        ("llamacpp:requests_processing", "Requests running", running as f64),
        ("llamacpp:requests_deferred", "Requests waiting for a slot", of(&counts.waiting)),
        ("llamacpp:n_busy_slots_per_decode", "Tokens per forward pass", tokens as f64 / (steps as f64).max(1.0)),
        ("ember:models_loaded", "Models in memory", server.models.engine_count() as f64),
        ("ember:cache_bytes", "Bytes of the caches in use", bytes.sum::<usize>() as f64),
    ]
}
