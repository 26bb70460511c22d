//! Tracks the objects for which requests fail and are retried, to explain why a batch does not come.

use std::{collections::HashMap, fmt, sync::Arc, time::Instant};

use object_store::path::Path;
use parking_lot::Mutex;

use super::request::ObjectName;

/// Maximum bytes of a store's error text that are kept.
const MAX_CAUSE_BYTES: usize = 300;

/// The objects for which requests fail, of all datasets of a process.
#[derive(Debug, Default)]
pub(crate) struct OutageTracker {
    open: Mutex<HashMap<ObjectName, Outage>>,
}

/// The outage of one object: the requests for it fail.
#[derive(Clone, Debug)]
pub(crate) struct Outage {
    /// Path of the object in its store.
    pub(crate) path: Path,
    pub(crate) since: Instant,
    failures: u64,
    cause: String,
    /// Number of requests that are being retried.
    waiting: usize,
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, since, failures, cause, .. } = self;
        let seconds = since.elapsed().as_secs();
        write!(f, "requests for `{path}` have failed for {seconds} s, {failures} in all, the last with: {cause}")
    }
}

/// Keeps an outage open while a failed request is retried; the outage ends when the last guard is dropped.
#[derive(Debug)]
pub(crate) struct OutageGuard {
    outages: Arc<OutageTracker>,
    object: ObjectName,
}

impl OutageTracker {
    pub(crate) fn enter(self: &Arc<Self>, object: ObjectName) -> OutageGuard {
        let mut open = self.open.lock();
        let outage = open.entry(object.clone()).or_insert_with(|| Outage {
            path: object.1.clone(),
            since: Instant::now(),
            failures: 0,
            cause: String::new(),
            waiting: 0,
        });
        outage.waiting += 1;
        OutageGuard { outages: self.clone(), object }
    }

    /// Returns the oldest outage of an object of `dataset`, preferably of one that is `wanted`.
    pub(crate) fn oldest(&self, dataset: &str, wanted: impl Fn(&Path) -> bool) -> Option<Outage> {
        let open = self.open.lock();
        let of_dataset = open.iter().filter(|((of, _), _)| &**of == dataset);
        let oldest = of_dataset.min_by_key(|((_, path), outage)| (!wanted(path), outage.since));
        oldest.map(|(_, outage)| outage.clone())
    }

    /// Returns the start of the oldest outage, if there is one.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.open.lock().values().map(|outage| outage.since).min()
    }
}

impl OutageGuard {
    /// Counts one more failure.
    pub(crate) fn note(&self, cause: &str) {
        let mut open = self.outages.open.lock();
        let outage = open.get_mut(&self.object).expect("an outage is open while a guard for it exists");
        outage.failures += 1;
        let kept = (0..=cause.len().min(MAX_CAUSE_BYTES)).rev().find(|end| cause.is_char_boundary(*end)).unwrap_or(0);
        cause[..kept].clone_into(&mut outage.cause);
    }
}

impl Drop for OutageGuard {
    fn drop(&mut self) {
        let mut open = self.outages.open.lock();
        let outage = open.get_mut(&self.object).expect("an outage is open while a guard for it exists");
        outage.waiting -= 1;
        if outage.waiting == 0 {
            open.remove(&self.object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_lasts_from_the_first_failure_to_the_end_of_the_last_request() {
        let outages = Arc::new(OutageTracker::default());
        let dataset: Arc<str> = "s3://b/d".into();
        let (one, other) = (Path::from("d/1.tar"), Path::from("d/2.tar"));
        let first = outages.enter((dataset.clone(), one.clone()));
        first.note("503");
        let second = outages.enter((dataset.clone(), one.clone()));
        second.note(&"ä".repeat(1000));
        let third = outages.enter((dataset.clone(), other.clone()));
        third.note("reset");
        let reported = outages.oldest(&dataset, |path| *path == other).unwrap();
        assert!(reported.to_string().contains("`d/2.tar`") && reported.to_string().contains("reset"), "{reported}");
        let reported = outages.oldest(&dataset, |_| false).unwrap();
        assert!(
            reported.to_string().contains("`d/1.tar`")
                && reported.failures == 2
                && reported.cause.len() == MAX_CAUSE_BYTES
        );
        assert!(outages.oldest("s3://b/e", |_| true).is_none());
        drop((first, third));
        assert!(outages.oldest(&dataset, |_| true).is_some());
        drop(second);
        assert!(outages.oldest(&dataset, |_| true).is_none() && outages.since().is_none());
    }
}
