//! Which sample each decoding thread works on, so that a rank that waits for a slow one can be told which it is.

use std::{
    fmt::{Display, Write as _},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use spdl_types::{Position, SessionId};

/// The samples that the decoding threads of a process work on.
#[derive(Debug)]
pub(crate) struct SamplesAtWork(Vec<Mutex<SampleAtWork>>);

/// The sample that one thread works on. Its texts are used again, so that nothing is allocated for a sample.
#[derive(Debug, Default)]
struct SampleAtWork {
    /// The session and the rank that it is for, its position, and when it was begun.
    work: Option<((SessionId, u32), Position, Instant)>,
    key: String,
    shard: String,
    /// The user's function that is called with it; empty if none is.
    function: String,
}

/// A sample that has been at work for long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LongSample {
    /// Key of its record.
    pub(super) key: String,
    /// URL of its shard.
    pub(super) shard: String,
    /// The user's function that it is in, if it is in one.
    pub(super) function: Option<String>,
    /// How long it has been at work.
    pub(super) took: Duration,
}

impl SamplesAtWork {
    /// Creates the table of so many threads, which do nothing yet.
    pub(super) fn new(threads: usize) -> Self {
        Self((0..threads).map(|_| Mutex::default()).collect())
    }

    /// Notes that a thread begins a sample of a rank.
    pub(super) fn begin(&self, thread: usize, rank: (SessionId, u32), at: Position, key: impl Display, shard: &str) {
        let mut sample = self.0[thread].lock();
        let SampleAtWork { work, key: of_record, shard: of_block, function } = &mut *sample;
        *work = Some((rank, at, Instant::now()));
        [&mut *of_record, &mut *of_block, function].into_iter().for_each(String::clear);
        of_block.push_str(shard);
        // Writing to a string does not fail.
        let _ = write!(of_record, "{key}");
    }

    /// Notes that a function is called with the sample of a thread, or, with `None`, that it has returned.
    pub(super) fn call(&self, thread: usize, function: Option<&str>) {
        let mut sample = self.0[thread].lock();
        sample.function.clear();
        sample.function.push_str(function.unwrap_or_default());
    }

    /// Notes that a thread is done with its sample.
    pub(super) fn end(&self, thread: usize) {
        self.0[thread].lock().work = None;
    }

    /// Returns the sample that a rank needs first, of those that have been at work for at least `least` at `now`.
    pub(super) fn first_long(&self, rank: (SessionId, u32), least: Duration, now: Instant) -> Option<LongSample> {
        let mut first: Option<(Position, LongSample)> = None;
        for sample in &self.0 {
            let sample = sample.lock();
            let Some((_, at, since)) = sample.work.filter(|(of, ..)| *of == rank) else { continue };
            let took = now.saturating_duration_since(since);
            if took >= least && first.as_ref().is_none_or(|(before, _)| at < *before) {
                let (key, shard) = (sample.key.clone(), sample.shard.clone());
                let function = Some(sample.function.clone()).filter(|function| !function.is_empty());
                first = Some((at, LongSample { key, shard, function, took }));
            }
        }
        first.map(|(_, sample)| sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_sample_that_a_rank_needs_first_is_named_with_the_function_that_it_is_in() {
        let (work, hour) = (SamplesAtWork::new(3), Duration::from_secs(3600));
        let (rank, other) = ((SessionId(1), 0), (SessionId(1), 1));
        let at = |offset| Position { epoch: 0, offset };
        work.begin(0, rank, at(9), "late", "0.tar");
        work.begin(1, other, at(1), "of another rank", "1.tar");
        work.begin(2, rank, at(4), "soon", "2.tar");
        let later = Instant::now() + hour;
        let named = || work.first_long(rank, hour, later).map(|sample| (sample.key, sample.shard, sample.function));
        assert_eq!(named(), Some(("soon".to_owned(), "2.tar".to_owned(), None)));
        work.call(2, Some("module:slow"));
        assert_eq!(named().unwrap().2.as_deref(), Some("module:slow"));
        work.call(2, None);
        assert_eq!(named().unwrap().2, None);
        work.end(2);
        assert_eq!(named().unwrap().0, "late");
        assert_eq!(work.first_long(rank, 3 * hour, later), None, "nothing has taken that long");
        work.begin(0, other, at(9), "", "");
        assert_eq!(named(), None);
    }
}
