//! The retries of requests, with the outages that they wait for.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use super::{
    counted::RequestCounts,
    limited::RequestLimits,
    outage::OutageTracker,
    request::{AskStore, LaterKind, RequestError, Response, StoreRequest},
    settings::RetrySettings,
    units::ReadState,
};

/// Makes each request until a complete answer or a final refusal comes.
#[derive(Debug)]
pub(super) struct Retried<I> {
    pub(super) inner: I,
    pub(super) settings: RetrySettings,
    pub(super) outages: Arc<OutageTracker>,
    pub(super) limits: Arc<RequestLimits>,
    pub(super) counts: Arc<RequestCounts>,
}

impl<I: AskStore> AskStore for Retried<I> {
    async fn ask(&self, mut request: StoreRequest<'_>) -> Result<Response, RequestError> {
        let Self { inner, settings, outages, limits, counts } = self;
        let (mut failures, mut refusals) = (0, 0);
        let mut outage = None;
        loop {
            let failed = match inner.ask(request).await {
                Ok(got) => return Ok(got),
                Err(failed) => failed,
            };
            let (cause, retry_after) = match &failed {
                RequestError::Later { cause, retry_after, kind } => {
                    request.given_up += u32::from(matches!(kind, LaterKind::Drip | LaterKind::Timeout));
                    match kind {
                        LaterKind::Failed => {}
                        LaterKind::Timeout => counts.stats.lock().timeouts += 1,
                        LaterKind::Drip => counts.stats.lock().drips += 1,
                        LaterKind::Busy => drop(counts.busy.fetch_add(1, Relaxed)),
                    }
                    (cause.clone(), retry_after.unwrap_or_default())
                }
                RequestError::Refused(error) => (error.to_string(), Duration::ZERO),
                RequestError::Changed { expected, actual } => {
                    (format!("{actual} instead of {expected}"), Duration::ZERO)
                }
            };
            if !matches!(failed, RequestError::Later { .. }) {
                refusals += 1;
                counts.stats.lock().refusals += 1;
                if refusals >= settings.refusals {
                    return Err(failed);
                }
            }
            tracing::debug!(dataset = &**request.dataset, path = %request.path, cause, "request failed; trying again");
            outage.get_or_insert_with(|| outages.enter(request.object())).note(&cause);
            failures += 1;
            let _delayed = limits.units.enter(ReadState::Delayed);
            tokio::time::sleep(settings.backoff().full_jitter(failures, rand::random()).max(retry_after)).await;
            counts.stats.lock().retries += 1;
        }
    }
}
