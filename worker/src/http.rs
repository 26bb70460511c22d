//! Serves HTTP for probes and Prometheus: statistics only, neither data nor commands.

use std::sync::Arc;

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};

use crate::{metrics, serve::Worker};

/// Returns the router of `/healthz`, `/readyz` and `/metrics`.
pub(crate) fn router(worker: Arc<Worker>) -> Router {
    Router::new()
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics_text))
        .with_state(worker)
}

/// Answers `/healthz` with an error if only a restart of the worker can help.
async fn healthy(State(worker): State<Arc<Worker>>) -> Response {
    match worker.health().problem() {
        None => "ok\n".into_response(),
        Some(problem) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{problem}\n")).into_response(),
    }
}

async fn ready(State(worker): State<Arc<Worker>>) -> Response {
    if let Some(problem) = worker.health().problem() {
        (StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")).into_response()
    } else if *worker.is_accepted().borrow() {
        "ready\n".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the coordinator does not answer\n").into_response()
    }
}

async fn metrics_text(State(worker): State<Arc<Worker>>) -> impl IntoResponse {
    let is_accepted = *worker.is_accepted().borrow();
    let text = metrics::text(worker.resources(), &worker.ranks().stats(), worker.rejections(), is_accepted);
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}
