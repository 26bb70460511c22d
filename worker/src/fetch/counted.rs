//! The counts of requests, beside the statistics of their stage.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use spdl_accounting::{StageCounters, nanoseconds};
use spdl_insight::StoreStats;

use super::{
    request::{AskStore, RequestError, Response, StoreRequest},
    slowest::ObjectTimes,
};

/// Counts what the statistics of the stage do not contain.
#[derive(Debug, Default)]
pub(super) struct RequestCounts {
    pub(super) requests: AtomicU64,
    answers: AtomicU64,
    first_byte_ns: AtomicU64,
    pub(super) retries: AtomicU64,
    /// Answers that the store is busy.
    pub(super) busy: AtomicU64,
    pub(super) timeouts: AtomicU64,
    pub(super) drips: AtomicU64,
    pub(super) refusals: AtomicU64,
    pub(super) hedges: AtomicU64,
    pub(super) hedge_wins: AtomicU64,
    pub(super) wrong_bytes: AtomicU64,
    pub(super) objects: ObjectTimes,
}

impl RequestCounts {
    /// Returns the counts, without those that are not counted here.
    pub(super) fn stats(&self) -> StoreStats {
        let of = |count: &AtomicU64| count.load(Relaxed);
        StoreStats {
            requests: of(&self.requests),
            answers: of(&self.answers),
            first_byte_ns: of(&self.first_byte_ns),
            retries: of(&self.retries),
            timeouts: of(&self.timeouts),
            drips: of(&self.drips),
            refusals: of(&self.refusals),
            hedges: of(&self.hedges),
            hedge_wins: of(&self.hedge_wins),
            wrong_bytes: of(&self.wrong_bytes),
            ..StoreStats::default()
        }
    }
}

/// Counts requests, each once with its hedge.
#[derive(Debug)]
pub(super) struct Counted<I> {
    pub(super) inner: I,
    pub(super) stage: Arc<StageCounters>,
    pub(super) counts: Arc<RequestCounts>,
}

impl<I: AskStore> AskStore for Counted<I> {
    async fn ask(&self, request: StoreRequest<'_>) -> Result<Response, RequestError> {
        let started = Instant::now();
        let result = self.inner.ask(request).await;
        match &result {
            Ok(got) => {
                let took = started.elapsed();
                self.stage.item(took, got.len());
                self.counts.objects.note(request.dataset, request.path, took, started + took);
                self.counts.answers.fetch_add(1, Relaxed);
                self.counts.first_byte_ns.fetch_add(nanoseconds(got.first_byte), Relaxed);
            }
            Err(_) => self.stage.failure(),
        }
        result
    }
}
