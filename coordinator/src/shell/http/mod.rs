//! HTTP beside the QUIC port: probes, Prometheus, the status as JSON, and a page that shows it to people. It shows
//! statistics, never data, and is read-only.

mod access;
mod page;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{
    Router,
    extract::{Query, State},
    http::{
        HeaderName, HeaderValue, StatusCode,
        header::{
            CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
        },
    },
    middleware::{from_fn_with_state, map_response},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::{Deserialize, Serialize};
use spdl_control::coordinator::{EventPage, HistoryPage, HistoryQuery};
use spdl_types::{SessionId, WorkerId};

pub use self::access::AccessError;
pub(crate) use self::access::StatusAccess;
use super::{driver::Driver, leadership::Leadership, metrics};

/// The page loads its own files and asks this server for JSON. It runs no script from a string, whatever it shows.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

#[derive(Clone)]
struct HttpState {
    leadership: Arc<Leadership>,
    stopping: Arc<AtomicBool>,
}

/// Makes the routes. Everyone may read the probes, `/metrics` and the page, which has no data of its own; `access`
/// decides who may read `/status`, `/history` and `/events`.
pub(crate) fn router(leadership: Arc<Leadership>, stopping: Arc<AtomicBool>, access: StatusAccess) -> Router {
    let check = from_fn_with_state((access, Arc::clone(leadership.rejections())), access::check);
    let data = Router::new()
        .route("/status", get(status))
        .route("/history", get(history))
        .route("/events", get(events))
        .route_layer(check);
    Router::new()
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics_text))
        .merge(data)
        .merge(page::routes())
        .with_state(HttpState { leadership, stopping })
        .layer(map_response(with_headers))
}

async fn with_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let all: [(HeaderName, &'static str); 5] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        // The listener cuts old connections. A connection that is not reused is not cut in the middle of an answer.
        (CONNECTION, "close"),
    ];
    for (name, value) in all {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Answers the liveness probe, which fails if only a restart helps.
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

async fn status(State(shared): State<HttpState>) -> Response {
    json(shared.leadership.status().to_json())
}

/// The query of `/history?step_ms=1000&first=0&session=1&ranks=0,1&workers=00000000000000ff`.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HistoryParameters {
    step_ms: u64,
    first: u64,
    session: u64,
    ranks: String,
    workers: String,
}

impl Default for HistoryParameters {
    fn default() -> Self {
        Self { step_ms: 1_000, first: 0, session: 0, ranks: String::new(), workers: String::new() }
    }
}

impl HistoryParameters {
    fn query(&self) -> Result<HistoryQuery, String> {
        let query = HistoryQuery {
            step_ms: self.step_ms,
            first: self.first,
            session: SessionId(self.session),
            ranks: list("ranks", "number", &self.ranks, |rank| rank.parse().ok())?,
            workers: list("workers", "worker's id", &self.workers, |id| {
                u64::from_str_radix(id, 16).ok().map(WorkerId)
            })?,
        };
        query.problem().map_or(Ok(query), Err)
    }
}

fn list<T>(name: &str, kind: &str, text: &str, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    parts.map(|part| read(part).ok_or_else(|| format!("`{part}` in `{name}` is no {kind}"))).collect()
}

/// An answer with the time to which its milliseconds refer. It also lets the page recognise another leader.
#[derive(Serialize)]
struct Dated<T> {
    /// When this coordinator began to lead, in milliseconds since 1970.
    leads_since_unix_ms: u64,
    #[serde(flatten)]
    page: T,
}

async fn history(State(shared): State<HttpState>, Query(parameters): Query<HistoryParameters>) -> Response {
    match parameters.query() {
        Ok(query) => of_leader(&shared, |driver| -> HistoryPage { driver.history(&query) }),
        Err(problem) => (StatusCode::BAD_REQUEST, format!("{problem}\n")).into_response(),
    }
}

/// The query of `/events?after=17`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EventParameters {
    after: u64,
}

async fn events(State(shared): State<HttpState>, Query(parameters): Query<EventParameters>) -> Response {
    of_leader(&shared, |driver| -> EventPage { driver.events(parameters.after) })
}

/// Answers with a page from the leader's driver. A standby has no driver and answers 503.
fn of_leader<T: Serialize>(shared: &HttpState, page: impl FnOnce(&Driver) -> T) -> Response {
    let Some(driver) = shared.leadership.driver() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "this coordinator does not lead; `/status` names the leader\n")
            .into_response();
    };
    let dated = Dated { leads_since_unix_ms: driver.leads_since_unix_ms(), page: page(&driver) };
    json(serde_json::to_string(&dated).expect("plain data serialises"))
}

fn json(text: String) -> Response {
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}
