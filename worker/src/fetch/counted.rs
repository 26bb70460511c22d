//! The counts of requests, beside the statistics of their stage.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Instant,
};

use parking_lot::Mutex;
use spdl_accounting::{StageCounters, nanoseconds};
use spdl_insight::StoreStats;

use super::{
    request::{AskStore, RequestError, Response, StoreRequest},
    slowest::ObjectTimes,
};

/// Counts what the statistics of the stage do not contain.
#[derive(Debug, Default)]
pub(super) struct RequestCounts {
    pub(super) stats: Mutex<StoreStats>,
    /// Answers that the store is busy.
    pub(super) busy: AtomicU64,
    pub(super) objects: ObjectTimes,
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
                self.counts.objects.note(request.object(), took, started + took);
                let mut stats = self.counts.stats.lock();
                stats.answers += 1;
                stats.first_byte_ns += nanoseconds(got.first_byte);
            }
            Err(_) => self.stage.failure(),
        }
        result
    }
}
