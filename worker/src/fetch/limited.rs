//! The limit of requests in flight, which can be changed at run time.

use std::sync::Arc;

use parking_lot::Mutex;
use spdl_accounting::StageCounters;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{
    request::{AskStore, RequestError, Response, StoreRequest},
    units::{ReadState, RequestUnits},
};

/// Fetches ahead of need may take this part of the requests, so that some are free for what a batch waits for.
const AHEAD: (usize, usize) = (3, 4);

/// Permits whose number can be changed while some of them are taken.
#[derive(Debug)]
struct Permits {
    semaphore: Semaphore,
    limit: Mutex<Limit>,
}

#[derive(Debug)]
struct Limit {
    permits: usize,
    /// Permits that are taken beyond the limit: they are not given back.
    excess: usize,
}

impl Permits {
    fn new(permits: usize) -> Self {
        Self { semaphore: Semaphore::new(permits), limit: Mutex::new(Limit { permits, excess: 0 }) }
    }

    fn set(&self, permits: usize) {
        let mut limit = self.limit.lock();
        if permits > limit.permits {
            let added = permits - limit.permits;
            let still_taken = added.min(limit.excess);
            limit.excess -= still_taken;
            self.semaphore.add_permits(added - still_taken);
        } else {
            let removed = limit.permits - permits;
            limit.excess += removed - self.semaphore.forget_permits(removed);
        }
        limit.permits = permits;
    }

    fn try_acquire(&self) -> Option<Permit<'_>> {
        self.semaphore.try_acquire().ok().map(|permit| Permit { permits: self, permit: Some(permit) })
    }

    async fn acquire(&self) -> Permit<'_> {
        let permit = self.semaphore.acquire().await.expect("the semaphore is never closed");
        Permit { permits: self, permit: Some(permit) }
    }
}

/// A permit that is taken; given back when dropped.
#[must_use]
pub(crate) struct Permit<'p> {
    permits: &'p Permits,
    permit: Option<SemaphorePermit<'p>>,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut limit = self.permits.limit.lock();
        if limit.excess > 0
            && let Some(permit) = self.permit.take()
        {
            limit.excess -= 1;
            permit.forget();
        }
    }
}

/// The limits of requests in flight.
#[derive(Debug)]
pub(crate) struct RequestLimits {
    /// One for each request in flight.
    requests: Permits,
    /// One for each block that is fetched whole.
    ahead: Permits,
    /// What the requests do.
    pub(crate) units: RequestUnits,
}

impl RequestLimits {
    pub(super) fn new(requests: usize, stage: &StageCounters) -> Self {
        let units = RequestUnits::new(stage, requests);
        Self { requests: Permits::new(requests), ahead: Permits::new(ahead_of(requests)), units }
    }

    /// Changes the maximum number of requests in flight. Those beyond it are completed.
    pub(crate) fn set_requests(&self, requests: usize) {
        self.requests.set(requests);
        self.ahead.set(ahead_of(requests));
        self.units.resize(requests);
    }

    /// Waits until it is the turn of a block to be read from the store ahead of need.
    pub(super) async fn ahead(&self) -> Permit<'_> {
        self.wait(&self.ahead, ReadState::Ahead).await
    }

    /// Returns a permit for a second request beside a slow one, if one is free.
    pub(super) fn beside(&self) -> Option<Permit<'_>> {
        self.requests.try_acquire()
    }

    async fn wait<'p>(&self, permits: &'p Permits, state: ReadState) -> Permit<'p> {
        match permits.try_acquire() {
            Some(permit) => permit,
            None => {
                let _waiting = self.units.enter(state);
                permits.acquire().await
            }
        }
    }
}

fn ahead_of(requests: usize) -> usize {
    (requests * AHEAD.0 / AHEAD.1).max(1)
}

/// Lets so many requests be in flight.
#[derive(Debug)]
pub(super) struct Limited<I> {
    pub(super) inner: I,
    pub(super) limits: Arc<RequestLimits>,
}

impl<I: AskStore> AskStore for Limited<I> {
    async fn ask(&self, request: StoreRequest<'_>) -> Result<Response, RequestError> {
        let _permit = self.limits.wait(&self.limits.requests, ReadState::Queued).await;
        let _in_flight = self.limits.units.enter(ReadState::InFlight);
        self.inner.ask(request).await
    }
}

#[cfg(test)]
mod tests {
    use spdl_types::Stage;

    use super::*;

    fn free(permits: &Permits) -> usize {
        let taken: Vec<_> = std::iter::from_fn(|| permits.try_acquire()).collect();
        taken.len()
    }

    #[test]
    fn the_number_of_permits_follows_the_limit_however_many_are_taken() {
        let permits = Permits::new(4);
        let mut taken: Vec<_> = std::iter::from_fn(|| permits.try_acquire()).collect();
        permits.set(2);
        assert!(permits.try_acquire().is_none());
        taken.pop();
        taken.pop();
        assert_eq!(free(&permits), 0, "two are still taken");
        taken.pop();
        assert_eq!(free(&permits), 1);
        permits.set(1);
        permits.set(6);
        assert_eq!(free(&permits), 5);
        taken.clear();
        assert_eq!(free(&permits), 6);
    }

    #[tokio::test]
    async fn who_waits_gets_a_permit_that_is_added() {
        let limits = RequestLimits::new(1, &StageCounters::new(Stage::Fetch));
        let _taken = limits.requests.try_acquire().unwrap();
        let raise = async {
            tokio::task::yield_now().await;
            limits.set_requests(2);
        };
        let (permit, ()) = tokio::join!(limits.requests.acquire(), raise);
        drop(permit);
        assert_eq!((free(&limits.requests), free(&limits.ahead)), (1, 1));
    }
}
