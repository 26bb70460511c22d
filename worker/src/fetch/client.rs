//! Every read of a store, of whatever object, goes through here: how many at once, how long one may take, when it is
//! tried again and when it is not. The stores' own clients ask once.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures::future::{Either, select};
use object_store::{GetOptions, path::Path};
use parking_lot::Mutex;
use spdl_wire::messages::StoreStats;
use tokio::sync::Semaphore;

use super::{
    Backoff,
    attempt::{RequestError, RequestTarget, Response, wanted_bytes},
    hedge::HedgePolicy,
    outage::{Outage, OutageTracker},
};
use crate::stats::Stage;

/// How patient reads are. A store that stays away, fails or is slow is asked for ever: only what it refuses ends a job.
#[derive(Clone, Debug)]
pub struct RetrySettings {
    /// Requests until a refusal is believed: nothing there, no access, another object. Default: 4. Raised, a mistake in
    /// a URL or in credentials is told later; lowered, a gateway's slip ends a job.
    pub refusals: u32,
    /// The longest delay before the second request; it doubles from there. Default: 50 ms. Raised, a single failure
    /// costs more time.
    pub first_delay: Duration,
    /// The longest delay. Default: 5 s. Raised, a store that is back is noticed later.
    pub max_delay: Duration,
    /// How long one request may take. Default: 60 s. Raised, a connection that crawls is given up later.
    pub request_timeout: Duration,
    /// How long a store may say nothing, before it answers or within an answer. Default: 10 s. Raised, a connection that
    /// hangs is given up later; lowered, a busy store's slow answers are thrown away.
    pub silence_timeout: Duration,
    /// Requests of a hundred that may be made a second time because the first is slow; 0 for none. Default: 3. Raised,
    /// the store has more to do, and that when it is slow.
    pub hedge_percent: f64,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            refusals: 4,
            first_delay: Duration::from_millis(50),
            max_delay: Duration::from_secs(5),
            request_timeout: Duration::from_secs(60),
            silence_timeout: Duration::from_secs(10),
            hedge_percent: 3.0,
        }
    }
}

/// What all requests of a process share.
#[derive(Debug)]
pub(crate) struct StoreClient {
    /// One for each request on its way.
    permits: Semaphore,
    retry: RetrySettings,
    stage: Arc<Stage>,
    policy: Mutex<HedgePolicy>,
    outages: Arc<OutageTracker>,
    counts: Counts,
    /// By dataset and object: etags in the manifest and in the store that differ.
    other_etags: Mutex<HashMap<ObjectName, Etags>>,
}

/// A dataset's URL, and where in its store the object is.
type ObjectName = (Arc<str>, Path);

/// The etags in the manifest and in the store.
type Etags = [String; 2];

/// Objects whose etags are remembered at most.
const MAX_OTHER_ETAGS: usize = 10_000;

/// What is counted beside the stage's own figures.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    retries: AtomicU64,
    timeouts: AtomicU64,
    refusals: AtomicU64,
    hedges: AtomicU64,
    hedge_wins: AtomicU64,
    wrong_bytes: AtomicU64,
}

impl StoreClient {
    pub(crate) fn new(at_once: usize, retry: RetrySettings, stage: Arc<Stage>) -> Self {
        let policy = Mutex::new(HedgePolicy::new(retry.hedge_percent));
        let permits = Semaphore::new(at_once.max(1));
        Self {
            permits,
            retry,
            stage,
            policy,
            outages: Arc::default(),
            counts: Counts::default(),
            other_etags: Mutex::default(),
        }
    }

    /// Asks until an answer comes that is whole, or a refusal that is to be believed.
    pub(crate) async fn get(&self, target: &RequestTarget<'_>, options: &GetOptions) -> Result<Response, RequestError> {
        let mut backoff = Backoff::new(self.retry.first_delay, self.retry.max_delay);
        let mut refusals = 0;
        let mut outage = None;
        loop {
            let failed = match self.attempt(target, options).await {
                Ok(got) => return Ok(got),
                Err(failed) => failed,
            };
            let (cause, retry_after) = match &failed {
                RequestError::Later { cause, retry_after, is_timeout } => {
                    self.counts.timeouts.fetch_add((*is_timeout).into(), Relaxed);
                    (cause.clone(), retry_after.unwrap_or_default())
                }
                RequestError::Refused(error) => (error.to_string(), Duration::ZERO),
                RequestError::Changed { expected, actual } => {
                    (format!("{actual} instead of {expected}"), Duration::ZERO)
                }
            };
            if !matches!(failed, RequestError::Later { .. }) {
                refusals += 1;
                self.counts.refusals.fetch_add(1, Relaxed);
                if refusals >= self.retry.refusals {
                    return Err(failed);
                }
            }
            tracing::debug!(dataset = &**target.dataset, path = %target.path, cause, "request failed; trying again");
            outage.get_or_insert_with(|| self.outages.enter(target.dataset, target.path)).note(&cause);
            tokio::time::sleep(backoff.delay(rand::random()).max(retry_after)).await;
            self.counts.retries.fetch_add(1, Relaxed);
        }
    }

    /// One request, and perhaps a hedge.
    async fn attempt(&self, target: &RequestTarget<'_>, options: &GetOptions) -> Result<Response, RequestError> {
        let _permit = self.permits.acquire().await.expect("the semaphore is never closed");
        let wanted = wanted_bytes(options);
        let started = Instant::now();
        let result = self.race(target, options, wanted).await;
        match &result {
            Ok(got) => {
                let bytes = got.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
                self.stage.item(started.elapsed(), bytes);
                if wanted.is_some() {
                    self.policy.lock().note_done(bytes, started.elapsed());
                }
            }
            Err(_) => {
                self.stage.failure(started.elapsed());
                self.policy.lock().note_failed();
            }
        }
        result
    }

    /// The first good answer of a request and, where it is slow, of a second one; the other is dropped, which ends it.
    async fn race(
        &self,
        target: &RequestTarget<'_>,
        options: &GetOptions,
        wanted: Option<u64>,
    ) -> Result<Response, RequestError> {
        let first = pin!(self.ask(target, options));
        let Some(slow_after) = wanted.and_then(|bytes| self.policy.lock().slow_after(bytes)) else {
            return first.await;
        };
        let first = match select(first, pin!(tokio::time::sleep(slow_after))).await {
            Either::Left((result, _)) => return result,
            Either::Right(((), first)) => first,
        };
        let Ok(_permit) = self.permits.try_acquire() else { return first.await };
        if !self.policy.lock().take_hedge() {
            return first.await;
        }
        self.counts.hedges.fetch_add(1, Relaxed);
        let (result, hedge_won) = match select(first, pin!(self.ask(target, options))).await {
            Either::Left((Err(_), hedge)) => (hedge.await, true),
            Either::Right((Err(_), first)) => (first.await, false),
            Either::Left((result, _)) => (result, false),
            Either::Right((result, _)) => (result, true),
        };
        self.counts.hedge_wins.fetch_add((hedge_won && result.is_ok()).into(), Relaxed);
        result
    }

    async fn ask(&self, target: &RequestTarget<'_>, options: &GetOptions) -> Result<Response, RequestError> {
        self.counts.requests.fetch_add(1, Relaxed);
        let RetrySettings { request_timeout, silence_timeout, .. } = self.retry;
        let asked = tokio::time::timeout(request_timeout, target.ask(options.clone(), silence_timeout)).await;
        asked.unwrap_or_else(|_| Err(RequestError::timeout("no whole answer", request_timeout)))
    }

    /// Bytes came that are not what they should be.
    pub(crate) fn note_wrong_bytes(&self) {
        self.counts.wrong_bytes.fetch_add(1, Relaxed);
    }

    /// Notes that an object has another etag than the manifest says.
    pub(crate) fn note_other_etag(&self, target: &RequestTarget<'_>, etags: Etags) {
        let mut others = self.other_etags.lock();
        if others.len() < MAX_OTHER_ETAGS {
            others.insert((target.dataset.clone(), target.path.clone()), etags);
        }
    }

    /// The etags of an object in the manifest and in the store, where they differ.
    pub(crate) fn other_etag(&self, dataset: &Arc<str>, path: &Path) -> Option<Etags> {
        self.other_etags.lock().get(&(dataset.clone(), path.clone())).cloned()
    }

    /// What keeps an object of `dataset` from coming, preferably one that is `wanted`.
    pub(crate) fn outage(&self, dataset: &str, wanted: impl Fn(&object_store::path::Path) -> bool) -> Option<Outage> {
        self.outages.oldest(dataset, wanted)
    }

    pub(crate) const fn retry(&self) -> &RetrySettings {
        &self.retry
    }

    /// What was counted; faults of the disk cache are the cache's to add.
    pub(crate) fn stats(&self) -> StoreStats {
        let Counts { requests, retries, timeouts, refusals, hedges, hedge_wins, wrong_bytes } = &self.counts;
        let trouble_ms = self.outages.since().map_or(0, |since| since.elapsed().as_millis());
        StoreStats {
            requests: requests.load(Relaxed),
            retries: retries.load(Relaxed),
            timeouts: timeouts.load(Relaxed),
            refusals: refusals.load(Relaxed),
            hedges: hedges.load(Relaxed),
            hedge_wins: hedge_wins.load(Relaxed),
            wrong_bytes: wrong_bytes.load(Relaxed),
            cache_faults: 0,
            trouble_ms: u64::try_from(trouble_ms).unwrap_or(u64::MAX),
        }
    }
}
