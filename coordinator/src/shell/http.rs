//! HTTP beside the QUIC port, for probes, Prometheus and people. Shows figures, never data; takes no orders.

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

use super::{driver::Driver, metrics};

#[derive(Clone)]
struct Shared {
    driver: Arc<Driver>,
    stopping: Arc<AtomicBool>,
}

/// `/healthz`, `/readyz`, `/metrics`, `/status`.
pub(crate) fn router(driver: Arc<Driver>, stopping: Arc<AtomicBool>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics_text))
        .route("/status", get(status))
        .with_state(Shared { driver, stopping })
}

async fn ready(State(shared): State<Shared>) -> Response {
    let problem = match shared.driver.state_problem() {
        _ if shared.stopping.load(Ordering::Relaxed) => Some("stopping".to_owned()),
        problem => problem,
    };
    match problem {
        None => "ready\n".into_response(),
        Some(problem) => (StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")).into_response(),
    }
}

async fn metrics_text(State(shared): State<Shared>) -> impl IntoResponse {
    let problem = shared.driver.state_problem();
    let text = metrics::text(&shared.driver.status(), shared.driver.requests(), problem.as_deref());
    ([(CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
}

async fn status(State(shared): State<Shared>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], shared.driver.status().to_json())
}
