//! The limit of requests in flight, which can be changed at run time, and how long it has held reads back.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Fetches ahead of need may take this part of the requests, so that some are free for what a batch waits for.
const AHEAD: (usize, usize) = (3, 4);

/// Permits whose number can be changed while some of them are taken.
#[derive(Debug)]
pub(crate) struct Permits {
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

    pub(crate) fn try_acquire(&self) -> Option<Permit<'_>> {
        self.semaphore.try_acquire().ok().map(|permit| Permit { permits: self, permit: Some(permit) })
    }

    pub(crate) async fn acquire(&self) -> Permit<'_> {
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
    pub(crate) requests: Permits,
    /// One for each block that is fetched whole.
    pub(crate) ahead: Permits,
    usage: Mutex<Usage>,
}

/// How the limits are used.
#[derive(Clone, Copy, Debug)]
struct Usage {
    in_flight: usize,
    waiting: usize,
    accounted_until: Instant,
    totals: UsageTimes,
}

/// Times since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UsageTimes {
    /// Time in which any request was in flight.
    pub(crate) active: Duration,
    /// Time in which a read waited for a permit.
    pub(crate) held_back: Duration,
}

/// What a read does that has or wants a permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadUse {
    /// Its request is in flight.
    InFlight,
    /// It waits for a permit.
    Waiting,
}

impl RequestLimits {
    pub(crate) fn new(requests: usize) -> Self {
        let usage = Usage { in_flight: 0, waiting: 0, accounted_until: Instant::now(), totals: UsageTimes::default() };
        Self { requests: Permits::new(requests), ahead: Permits::new(ahead_of(requests)), usage: Mutex::new(usage) }
    }

    /// Changes the maximum number of requests in flight. Those beyond it are completed.
    pub(crate) fn set(&self, requests: usize) {
        self.requests.set(requests);
        self.ahead.set(ahead_of(requests));
    }

    /// Counts a read until the returned value is dropped.
    pub(crate) fn count(&self, read: ReadUse) -> CountedRead<'_> {
        self.change(|usage| *usage.number(read) += 1);
        CountedRead { limits: self, read }
    }

    /// Returns the times up to now.
    pub(crate) fn times(&self) -> UsageTimes {
        self.change(|usage| usage.totals)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Usage) -> T) -> T {
        let mut usage = self.usage.lock();
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(usage.accounted_until);
        usage.accounted_until = now;
        if usage.in_flight > 0 {
            usage.totals.active += elapsed;
        }
        if usage.waiting > 0 {
            usage.totals.held_back += elapsed;
        }
        change(&mut usage)
    }
}

fn ahead_of(requests: usize) -> usize {
    (requests * AHEAD.0 / AHEAD.1).max(1)
}

impl Usage {
    const fn number(&mut self, read: ReadUse) -> &mut usize {
        match read {
            ReadUse::InFlight => &mut self.in_flight,
            ReadUse::Waiting => &mut self.waiting,
        }
    }
}

/// A read that is counted.
#[must_use]
pub(crate) struct CountedRead<'l> {
    limits: &'l RequestLimits,
    read: ReadUse,
}

impl Drop for CountedRead<'_> {
    fn drop(&mut self) {
        self.limits.change(|usage| *usage.number(self.read) -= 1);
    }
}

#[cfg(test)]
mod tests {
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
        let limits = RequestLimits::new(1);
        let _taken = limits.requests.try_acquire().unwrap();
        let raise = async {
            tokio::task::yield_now().await;
            limits.set(2);
        };
        let (permit, ()) = tokio::join!(limits.requests.acquire(), raise);
        drop(permit);
        assert_eq!((free(&limits.requests), free(&limits.ahead)), (1, 1));
    }

    #[test]
    fn times_count_while_reads_are_in_flight_and_while_others_wait() {
        let limits = RequestLimits::new(1);
        let wait = || {
            let until = Instant::now() + Duration::from_millis(2);
            while Instant::now() < until {}
        };
        wait();
        assert_eq!(limits.times(), UsageTimes::default());
        let in_flight = limits.count(ReadUse::InFlight);
        wait();
        let waiting = limits.count(ReadUse::Waiting);
        wait();
        drop((waiting, in_flight));
        let times = limits.times();
        assert!(times.held_back >= Duration::from_millis(2) && times.active > times.held_back, "{times:?}");
        wait();
        assert_eq!(limits.times(), times);
    }
}
