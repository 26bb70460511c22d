//! How long requests for each object took in the last seconds, to name one that is much slower than all others.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use object_store::path::Path;
use parking_lot::Mutex;
use spdl_accounting::nanoseconds;
use spdl_insight::SlowObject;

use super::request::ObjectName;

/// Times count for at least this long, and at most twice as long.
const SPAN: Duration = Duration::from_secs(5);
/// Maximum number of objects in a span. Further ones are not counted.
const MAX_OBJECTS: usize = 4096;
/// An object is slow if its requests take this many times as long as those for all others.
const SLOWER: u64 = 4;
/// Minimum number of requests for an object, and for all others, before they are compared.
const LEAST: (u64, u64) = (2, 8);

type TimesByObject = HashMap<ObjectName, ObjectTime>;

#[derive(Clone, Copy, Debug, Default)]
struct ObjectTime {
    requests: u64,
    total_ns: u64,
}

/// The times of requests, by dataset and object.
#[derive(Debug, Default)]
pub(crate) struct ObjectTimes(Mutex<Spans>);

#[derive(Debug, Default)]
struct Spans {
    /// Start of the current span.
    since: Option<Instant>,
    current: TimesByObject,
    previous: TimesByObject,
}

impl Spans {
    fn turn(&mut self, now: Instant) {
        let age = self.since.map(|since| now.saturating_duration_since(since));
        if age.is_some_and(|age| age < SPAN) {
            return;
        }
        self.previous = std::mem::take(&mut self.current);
        if age.is_none_or(|age| age >= 2 * SPAN) {
            self.previous.clear();
        }
        self.since = Some(now);
    }
}

impl ObjectTimes {
    /// Counts an answered request.
    pub(crate) fn note(&self, object: ObjectName, took: Duration, now: Instant) {
        let mut spans = self.0.lock();
        spans.turn(now);
        if spans.current.len() < MAX_OBJECTS || spans.current.contains_key(&object) {
            let time = spans.current.entry(object).or_default();
            time.requests += 1;
            time.total_ns += nanoseconds(took);
        }
    }

    /// Returns the object whose requests took longest, if they took much longer than those for all others.
    pub(crate) fn slowest(&self, now: Instant) -> Option<SlowObject> {
        let mut spans = self.0.lock();
        spans.turn(now);
        let mut objects: HashMap<&Path, ObjectTime> = HashMap::new();
        let mut all = ObjectTime::default();
        for ((_, path), time) in spans.previous.iter().chain(&spans.current) {
            for sum in [objects.entry(path).or_default(), &mut all] {
                sum.requests += time.requests;
                sum.total_ns += time.total_ns;
            }
        }
        let mean_ns = |time: ObjectTime| time.total_ns / time.requests.max(1);
        let enough = objects.into_iter().filter(|(_, time)| time.requests >= LEAST.0);
        let (path, slow) = enough.max_by_key(|(_, time)| mean_ns(*time))?;
        let others = ObjectTime { requests: all.requests - slow.requests, total_ns: all.total_ns - slow.total_ns };
        let is_slow = others.requests >= LEAST.1 && mean_ns(slow) > SLOWER * mean_ns(others);
        is_slow.then(|| SlowObject {
            object: path.to_string(),
            requests: slow.requests,
            mean_ns: mean_ns(slow),
            other_requests: others.requests,
            other_mean_ns: mean_ns(others),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts requests for objects, each of which takes as many milliseconds as its number says.
    fn note(times: &ObjectTimes, took_ms: &[u64], now: Instant) {
        for (number, took_ms) in took_ms.iter().enumerate() {
            let path = Path::from(format!("{number}.tar"));
            times.note(("http://data".into(), path), Duration::from_millis(*took_ms), now);
        }
    }

    #[test]
    fn an_object_is_slow_if_it_takes_much_longer_than_all_others_and_for_as_long_as_it_does() {
        let (times, now) = (ObjectTimes::default(), Instant::now());
        assert_eq!(times.slowest(now), None, "no request yet");
        for _ in 0..4 {
            note(&times, &[10, 12, 9, 30], now);
        }
        assert_eq!(times.slowest(now), None, "three times as long is not much longer");
        for _ in 0..4 {
            note(&times, &[10, 11, 9, 300], now);
        }
        let slow = times.slowest(now).unwrap();
        assert_eq!((&*slow.object, slow.requests, slow.mean_ns), ("3.tar", 8, 165_000_000));
        assert_eq!((slow.other_requests, slow.other_mean_ns), (24, 10_166_666));
        note(&times, &[10, 12, 9], now + SPAN);
        assert!(times.slowest(now + SPAN).is_some(), "the span before still counts");
        assert_eq!(times.slowest(now + 3 * SPAN), None, "that was long ago");
    }

    #[test]
    fn a_few_requests_decide_nothing_and_many_objects_take_little_memory() {
        let (times, now) = (ObjectTimes::default(), Instant::now());
        note(&times, &[1, 1, 1, 1, 1, 1, 1, 1, 900], now);
        assert_eq!(times.slowest(now), None, "one request can be slow by chance");
        note(&times, &vec![1; 2 * MAX_OBJECTS], now);
        assert_eq!(times.0.lock().current.len(), MAX_OBJECTS);
    }
}
