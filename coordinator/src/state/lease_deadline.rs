//! For how long a coordinator leads.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use spdl_wire::mutations::{Mutation, mutated};

/// Until when this coordinator leads for certain, by its own clock. Shared by whoever renews it and all who rely on it.
#[derive(Clone, Debug)]
pub struct LeaseDeadline(Option<Arc<Mutex<Instant>>>);

impl LeaseDeadline {
    /// Nobody else can lead: the state is this coordinator's alone.
    #[must_use]
    pub const fn unbounded() -> Self {
        Self(None)
    }

    /// Until `end`, unless it is extended.
    #[must_use]
    pub fn until(end: Instant) -> Self {
        Self(Some(Arc::new(Mutex::new(end))))
    }

    /// When to stop counting on a lease of `ttl` that was asked for at `asked`. Its giver counts from a later moment, so
    /// nobody else can have it before `asked + ttl`; a quarter is kept back for clocks that run apart and for what is
    /// under way.
    #[must_use]
    pub fn end_of_lease(asked: Instant, ttl: Duration) -> Instant {
        if mutated(Mutation::IgnoreLease) { asked + ttl * 10 } else { asked + ttl * 3 / 4 }
    }

    /// Whether it lasts.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.0.as_ref().is_none_or(|end| Instant::now() < *end.lock())
    }

    /// What is left of it; `None` without end.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.0.as_ref().map(|end| end.lock().saturating_duration_since(Instant::now()))
    }

    /// Makes it last until `end`, unless it is over.
    pub fn extend(&self, end: Instant) {
        if let Some(until) = &self.0 {
            let mut until = until.lock();
            if Instant::now() < *until {
                *until = end.max(*until);
            }
        }
    }

    /// Ends it, for good.
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
