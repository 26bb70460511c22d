//! How long a coordinator may act as the leader.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use spdl_control::coordinator::usable_lease;

/// The time, by this coordinator's own clock, until which it is certain to lead. Shared by the task that renews the
/// lease and all code that relies on it.
#[derive(Clone, Debug)]
pub struct LeaseDeadline(Option<Arc<Mutex<Instant>>>);

impl LeaseDeadline {
    /// Returns a deadline that never passes: no other coordinator can lead, because no other can use the state.
    #[must_use]
    pub const fn unbounded() -> Self {
        Self(None)
    }

    /// Returns a deadline at `end`, which can be extended.
    #[must_use]
    pub fn until(end: Instant) -> Self {
        Self(Some(Arc::new(Mutex::new(end))))
    }

    /// Returns when to stop relying on a lease of `ttl` that was requested at `asked`. etcd counts from a later moment,
    /// so no other coordinator can hold the lease before `asked + ttl`. [`usable_lease`] is earlier.
    #[must_use]
    pub fn end_of_lease(asked: Instant, ttl: Duration) -> Instant {
        asked + usable_lease(ttl)
    }

    /// Returns whether the deadline has not passed.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.0.as_ref().is_none_or(|end| Instant::now() < *end.lock())
    }

    /// Returns the time left; `None` if the deadline is unbounded.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.0.as_ref().map(|end| end.lock().saturating_duration_since(Instant::now()))
    }

    /// Extends the deadline to `end`, unless it has passed.
    pub fn extend(&self, end: Instant) {
        if let Some(until) = &self.0 {
            let mut until = until.lock();
            if Instant::now() < *until {
                *until = end.max(*until);
            }
        }
    }

    /// Ends it now and for good.
    pub fn end(&self) {
        if let Some(until) = &self.0 {
            let mut until = until.lock();
            *until = (*until).min(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    #[test]
    fn it_is_over_before_its_lease_can_be() {
        let asked = Instant::now();
        assert!(LeaseDeadline::end_of_lease(asked, HOUR) < asked + HOUR);
        let over = LeaseDeadline::until(LeaseDeadline::end_of_lease(asked - HOUR, HOUR));
        assert!(!over.is_valid());
        assert_eq!(over.left(), Some(Duration::ZERO));
    }

    #[test]
    fn once_over_it_cannot_be_extended() {
        let deadline = LeaseDeadline::until(Instant::now() + HOUR);
        let shared = deadline.clone();
        shared.extend(Instant::now() + HOUR * 2);
        assert!(deadline.left().unwrap() > HOUR);
        deadline.end();
        assert!(!shared.is_valid());
        shared.extend(Instant::now() + HOUR);
        assert!(!deadline.is_valid());
    }

    #[test]
    fn one_for_life_does_not_end() {
        let deadline = LeaseDeadline::unbounded();
        deadline.end();
        assert!(deadline.is_valid() && deadline.left().is_none());
    }
}
