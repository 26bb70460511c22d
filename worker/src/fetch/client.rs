//! The client that makes every read of a store, of any object. It limits concurrency and time, and decides about
//! retries. The stores' own clients never retry.

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
use spdl_accounting::{StageCounters, nanoseconds};
use spdl_feed::requests::{DripPolicy, HedgePolicy, patience};
use spdl_insight::{SlowObject, StoreStats};
use spdl_types::backoff::Backoff;

use super::{
    attempt::{AnswerLimits, LaterKind, RequestError, RequestTarget, Response, wanted_bytes},
    outage::{Outage, OutageTracker},
    permits::{ReadUse, RequestLimits},
    slowest::ObjectTimes,
    units::{ReadState, RequestUnits},
};

/// The retry policy of reads. A store that is away, fails or is slow is retried for ever; only what it refuses ends a
/// job.
#[derive(Clone, Debug)]
pub struct RetrySettings {
    /// Number of requests after which a refusal is final: no such object, no access, another object. Default: 4. When
    /// raised, a mistake in a URL or in credentials is reported later; when lowered, a single wrong answer of a gateway
    /// ends a job.
    pub refusals: u32,
    /// Maximum delay before the second request; it doubles with each further one. Default: 50 ms. When raised, a single
    /// failure costs more time.
    pub first_delay: Duration,
    /// Upper bound of the delay. Default: 5 s. When raised, a store that is back is noticed later.
    pub max_delay: Duration,
    /// Limit for one request. Default: 60 s. It doubles with each time that the request is given up after the first. When raised, a very slow
    /// connection is given up later.
    pub request_timeout: Duration,
    /// Limit for which a store may send nothing, before or within an answer. Default: 10 s. It doubles as the limit for one
    /// request does. When raised, a connection that hangs is given up later; when lowered, slow answers of a busy store are
    /// thrown away.
    pub silence_timeout: Duration,
    /// Percentage of requests that may be made a second time because the first is slow; 0 for none. Default: 3. When
    /// raised, the store gets more load exactly when it is slow.
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

impl RetrySettings {
    /// Returns the back-off between the requests.
    pub(crate) const fn backoff(&self) -> Backoff {
        Backoff::new(self.first_delay, self.max_delay)
    }
}

/// Makes all requests of a process to its stores.
#[derive(Debug)]
pub(crate) struct StoreClient {
    limits: RequestLimits,
    retry: RetrySettings,
    stage: Arc<StageCounters>,
    units: RequestUnits,
    policy: Mutex<HedgePolicy>,
    drips: Mutex<DripPolicy>,
    outages: Arc<OutageTracker>,
    objects: ObjectTimes,
    counts: Counts,
    /// Objects whose etag in the manifest differs from that in the store, with both etags.
    other_etags: Mutex<HashMap<ObjectName, Etags>>,
}

/// A dataset's URL, and the object's path in its store.
type ObjectName = (Arc<str>, Path);

/// The etags in the manifest and in the store.
type Etags = [String; 2];

/// Maximum number of objects whose etags are kept.
const MAX_OTHER_ETAGS: usize = 10_000;
/// The limits of a request grow to at most this many times as long.
const MAX_PATIENCE: u32 = 16;

/// Counts what the statistics of the stage do not contain.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    answers: AtomicU64,
    first_byte_ns: AtomicU64,
    retries: AtomicU64,
    /// Answers that the store is busy.
    busy: AtomicU64,
    timeouts: AtomicU64,
    drips: AtomicU64,
    refusals: AtomicU64,
    hedges: AtomicU64,
    hedge_wins: AtomicU64,
    wrong_bytes: AtomicU64,
}

impl Counts {
    /// Counts a request that is made again.
    fn note(&self, kind: LaterKind) {
        let count = match kind {
            LaterKind::Failed => return,
            LaterKind::Timeout => &self.timeouts,
            LaterKind::Drip => &self.drips,
            LaterKind::Busy => &self.busy,
        };
        count.fetch_add(1, Relaxed);
    }
}

impl StoreClient {
    pub(crate) fn new(at_once: usize, retry: RetrySettings, stage: Arc<StageCounters>) -> Self {
        let policy = Mutex::new(HedgePolicy::new(retry.hedge_percent));
        let drips = Mutex::new(DripPolicy::new(retry.request_timeout));
        let limits = RequestLimits::new(at_once.max(1));
        let units = RequestUnits::new(&stage, at_once.max(1));
        Self {
            limits,
            retry,
            stage,
            units,
            policy,
            drips,
            outages: Arc::default(),
            objects: ObjectTimes::default(),
            counts: Counts::default(),
            other_etags: Mutex::default(),
        }
    }

    /// Requests until a complete answer or a final refusal comes.
    pub(crate) async fn get(&self, target: &RequestTarget<'_>, options: &GetOptions) -> Result<Response, RequestError> {
        let (mut failures, mut refusals, mut given_up) = (0, 0, 0);
        let mut outage = None;
        loop {
            let failed = match self.attempt(target, options, given_up).await {
                Ok(got) => return Ok(got),
                Err(failed) => failed,
            };
            let (cause, retry_after) = match &failed {
                RequestError::Later { cause, retry_after, kind } => {
                    given_up += u32::from(matches!(kind, LaterKind::Drip | LaterKind::Timeout));
                    self.counts.note(*kind);
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
            failures += 1;
            let _delayed = self.units.enter(ReadState::Delayed);
            tokio::time::sleep(self.retry.backoff().full_jitter(failures, rand::random()).max(retry_after)).await;
            self.counts.retries.fetch_add(1, Relaxed);
        }
    }

    /// Makes one request, and a hedge if it is slow; `given_up` of the attempts before took too long.
    async fn attempt(
        &self,
        target: &RequestTarget<'_>,
        options: &GetOptions,
        given_up: u32,
    ) -> Result<Response, RequestError> {
        let _permit = match self.limits.requests.try_acquire() {
            Some(permit) => permit,
            None => {
                let _queued = (self.units.enter(ReadState::Queued), self.limits.count(ReadUse::Waiting));
                self.limits.requests.acquire().await
            }
        };
        let _in_flight = (self.units.enter(ReadState::InFlight), self.limits.count(ReadUse::InFlight));
        let wanted = wanted_bytes(options);
        let started = Instant::now();
        let result = self.race(target, options, wanted, given_up).await;
        match &result {
            Ok(got) => {
                let bytes = got.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
                let took = started.elapsed();
                self.stage.item(took, bytes);
                self.objects.note(target.dataset, target.path, took, started + took);
                self.counts.answers.fetch_add(1, Relaxed);
                self.counts.first_byte_ns.fetch_add(nanoseconds(got.first_byte), Relaxed);
                if wanted.is_some() {
                    self.policy.lock().note_done(bytes, started.elapsed());
                }
            }
            Err(_) => {
                self.stage.failure();
                self.policy.lock().note_failed();
            }
        }
        result
    }

    /// Returns the first good answer of a request and, if it is slow, of a second one. The other is dropped, which
    /// cancels it.
    async fn race(
        &self,
        target: &RequestTarget<'_>,
        options: &GetOptions,
        wanted: Option<u64>,
        given_up: u32,
    ) -> Result<Response, RequestError> {
        let first = pin!(self.ask(target, options, given_up));
        let Some(slow_after) = wanted.and_then(|bytes| self.policy.lock().slow_after(bytes)) else {
            return first.await;
        };
        let (mut first, mut pause) = (first, slow_after);
        // The allowance grows with each request that is answered meanwhile, so a hedge that it does not cover now may
        // be allowed later.
        let _permit = loop {
            first = match select(first, pin!(tokio::time::sleep(pause))).await {
                Either::Left((result, _)) => return result,
                Either::Right(((), first)) => first,
            };
            if let Some(permit) = self.limits.requests.try_acquire()
                && self.policy.lock().take_hedge()
            {
                break permit;
            }
            pause *= 2;
        };
        let _in_flight = self.units.enter(ReadState::InFlight);
        self.counts.hedges.fetch_add(1, Relaxed);
        let (result, hedge_won) = match select(first, pin!(self.ask(target, options, given_up))).await {
            Either::Left((Err(_), hedge)) => (hedge.await, true),
            Either::Right((Err(_), first)) => (first.await, false),
            Either::Left((result, _)) => (result, false),
            Either::Right((result, _)) => (result, true),
        };
        self.counts.hedge_wins.fetch_add((hedge_won && result.is_ok()).into(), Relaxed);
        result
    }

    async fn ask(
        &self,
        target: &RequestTarget<'_>,
        options: &GetOptions,
        given_up: u32,
    ) -> Result<Response, RequestError> {
        self.counts.requests.fetch_add(1, Relaxed);
        let patience = patience(given_up).min(MAX_PATIENCE);
        let [request_timeout, silence] =
            [self.retry.request_timeout, self.retry.silence_timeout].map(|limit| limit * patience);
        let limits = AnswerLimits { silence, drips: &self.drips, given_up };
        let asked = tokio::time::timeout(request_timeout, target.ask(options.clone(), &limits)).await;
        asked.unwrap_or_else(|_| Err(RequestError::timeout("no whole answer", request_timeout)))
    }

    /// Counts a fetch whose bytes were wrong.
    pub(crate) fn note_wrong_bytes(&self) {
        self.counts.wrong_bytes.fetch_add(1, Relaxed);
    }

    /// Records that an object's etag differs from that in the manifest.
    pub(crate) fn note_other_etag(&self, target: &RequestTarget<'_>, etags: Etags) {
        let mut others = self.other_etags.lock();
        if others.len() < MAX_OTHER_ETAGS {
            others.insert((target.dataset.clone(), target.path.clone()), etags);
        }
    }

    /// Returns the etags of an object in the manifest and in the store if they differ.
    pub(crate) fn other_etag(&self, dataset: &Arc<str>, path: &Path) -> Option<Etags> {
        self.other_etags.lock().get(&(dataset.clone(), path.clone())).cloned()
    }

    /// Returns the object whose requests took much longer than all others lately, if there is one.
    pub(crate) fn slow_object(&self) -> Option<SlowObject> {
        self.objects.slowest(Instant::now())
    }

    /// Returns the outage of an object of `dataset`, preferably of one that is `wanted`.
    pub(crate) fn outage(&self, dataset: &str, wanted: impl Fn(&object_store::path::Path) -> bool) -> Option<Outage> {
        self.outages.oldest(dataset, wanted)
    }

    /// Returns the units of the stage, to which a caller reports that a read waits before it makes a request.
    pub(crate) const fn units(&self) -> &RequestUnits {
        &self.units
    }

    /// Returns the limits of requests in flight, on which a caller waits before it fetches a block ahead of need.
    pub(crate) const fn limits(&self) -> &RequestLimits {
        &self.limits
    }

    /// Changes the maximum number of requests in flight.
    pub(crate) fn set_requests(&self, requests: usize) {
        self.limits.set(requests);
        self.units.resize(requests);
    }

    /// Returns the number of requests that stores refused because they were busy.
    pub(crate) fn busy(&self) -> u64 {
        self.counts.busy.load(Relaxed)
    }

    pub(crate) const fn retry(&self) -> &RetrySettings {
        &self.retry
    }

    /// Returns the counts. The disk cache adds its own faults.
    pub(crate) fn stats(&self) -> StoreStats {
        let Counts {
            requests,
            answers,
            first_byte_ns,
            retries,
            timeouts,
            drips,
            refusals,
            hedges,
            hedge_wins,
            wrong_bytes,
            ..
        } = &self.counts;
        let outage_ms = self.outages.since().map_or(0, |since| since.elapsed().as_millis());
        StoreStats {
            requests: requests.load(Relaxed),
            answers: answers.load(Relaxed),
            first_byte_ns: first_byte_ns.load(Relaxed),
            retries: retries.load(Relaxed),
            timeouts: timeouts.load(Relaxed),
            drips: drips.load(Relaxed),
            refusals: refusals.load(Relaxed),
            hedges: hedges.load(Relaxed),
            hedge_wins: hedge_wins.load(Relaxed),
            wrong_bytes: wrong_bytes.load(Relaxed),
            cache_faults: 0,
            single_use_bytes: 0,
            outage_ms: u64::try_from(outage_ms).unwrap_or(u64::MAX),
        }
    }
}
