//! HTTP beside the QUIC port, for probes, Prometheus and people. It shows statistics, never data, and is read-only.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};

use super::{leadership::Leadership, metrics};

#[derive(Clone)]
struct HttpState {
    leadership: Arc<Leadership>,
    stopping: Arc<AtomicBool>,
}

/// Routes `/healthz`, `/readyz`, `/metrics` and `/status`.
pub(crate) fn router(leadership: Arc<Leadership>, stopping: Arc<AtomicBool>) -> Router {
    Router::new()
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics_text))
        .route("/status", get(status))
        .with_state(HttpState { leadership, stopping })
}

/// Fails if only a restart helps.
async fn healthy(State(shared): State<HttpState>) -> Response {
    match shared.leadership.problem() {
        None => "ok\n".into_response(),
        Some(problem) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{problem}\n")).into_response(),
    }
}

async fn ready(State(shared): State<HttpState>) -> Response {
    let readiness = match shared.leadership.readiness() {
        _ if shared.stopping.load(Ordering::Relaxed) => Err("stopping".to_owned()),
        readiness => readiness,
    };
    match readiness {
        Ok(text) => format!("{text}\n").into_response(),
        Err(problem) => (StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")).into_response(),
    }
}

async fn metrics_text(State(shared): State<HttpState>) -> impl IntoResponse {
    let problem = shared.leadership.state_problem();
    let text = metrics::text(
        &shared.leadership.status(),
        shared.leadership.requests(),
        shared.leadership.rejections(),
        problem.as_deref(),
    );
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

async fn status(State(shared): State<HttpState>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], shared.leadership.status().to_json())
}
