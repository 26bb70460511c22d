//! The client that makes every read of a store, of any object: wrappers that each do one thing with a request. The stores' own
//! clients never retry.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use object_store::path::Path;
use parking_lot::Mutex;
use spdl_accounting::StageCounters;
use spdl_feed::requests::HedgePolicy;
use spdl_insight::{SlowObject, StoreStats, tuning::Tunable};
use spdl_types::backoff::Backoff;

use super::{
    counted::{Counted, RequestCounts},
    hedged::Hedged,
    limited::{Limited, RequestLimits},
    outage::Outage,
    request::{AskStore, ObjectName, RequestError, Response, StoreRequest},
    retried::Retried,
    reused::ReusedMemory,
    settings::RetrySettings,
    timed::Timed,
};

/// Makes all requests of a process to its stores.
#[derive(Debug)]
pub(crate) struct StoreClient {
    asked: Retried<Limited<Counted<Hedged<Timed>>>>,
    pub(crate) limits: Arc<RequestLimits>,
    /// Memory for the long ranges that are read.
    pub(super) memory: Arc<ReusedMemory>,
    /// Objects whose etag in the manifest differs from that in the store, with both etags.
    other_etags: Mutex<HashMap<ObjectName, Etags>>,
}

/// The etags in the manifest and in the store.
type Etags = [String; 2];

/// Maximum number of objects whose etags are kept.
const MAX_OTHER_ETAGS: usize = 10_000;

impl StoreClient {
    pub(super) fn new(settings: RetrySettings, stage: Arc<StageCounters>) -> Self {
        let limits = Arc::new(RequestLimits::new(Tunable::Requests.initial() as usize, &stage));
        let counts = Arc::<RequestCounts>::default();
        let inner = Timed::new(&settings, counts.clone());
        let policy = Mutex::new(HedgePolicy::new(settings.hedge_percent));
        let inner = Hedged { inner, policy, limits: limits.clone(), counts: counts.clone() };
        let inner = Counted { inner, stage, counts: counts.clone() };
        let inner = Limited { inner, limits: limits.clone() };
        let asked = Retried { inner, settings, outages: Arc::default(), limits: limits.clone(), counts };
        Self { asked, limits, memory: Arc::default(), other_etags: Mutex::default() }
    }

    /// Requests until a complete answer or a final refusal comes.
    pub(super) async fn get(&self, request: StoreRequest<'_>) -> Result<Response, RequestError> {
        let got = self.asked.ask(request).await?;
        if let Some(etags) = request.other_etag(&got.meta) {
            let mut others = self.other_etags.lock();
            if others.len() < MAX_OTHER_ETAGS {
                others.insert(request.object(), etags);
            }
        }
        Ok(got)
    }

    /// Counts a fetch whose bytes were wrong.
    pub(crate) fn note_wrong_bytes(&self) {
        self.asked.counts.stats.lock().wrong_bytes += 1;
    }

    /// Returns the etags of an object in the manifest and in the store if they differ.
    pub(super) fn other_etag(&self, dataset: &Arc<str>, path: &Path) -> Option<Etags> {
        self.other_etags.lock().get(&(dataset.clone(), path.clone())).cloned()
    }

    /// Returns the object whose requests took much longer than all others lately, if there is one.
    pub(crate) fn slow_object(&self) -> Option<SlowObject> {
        self.asked.counts.objects.slowest(Instant::now())
    }

    /// Returns the outage of an object of `dataset`, preferably of one that is `wanted`.
    pub(super) fn outage(&self, dataset: &str, wanted: impl Fn(&Path) -> bool) -> Option<Outage> {
        self.asked.outages.oldest(dataset, wanted)
    }

    /// Returns the number of requests that stores refused because they were busy.
    pub(crate) fn busy(&self) -> u64 {
        self.asked.counts.busy.load(Relaxed)
    }

    /// Returns the back-off between requests.
    pub(crate) const fn backoff(&self) -> Backoff {
        self.asked.settings.backoff()
    }

    /// Returns the counts. The disk cache adds its own faults.
    pub(super) fn stats(&self) -> StoreStats {
        let outage_ms = self.asked.outages.since().map_or(0, |since| since.elapsed().as_millis());
        StoreStats { outage_ms: u64::try_from(outage_ms).unwrap_or(u64::MAX), ..*self.asked.counts.stats.lock() }
    }
}
