//! The settings for reading from stores, and the state of the cache on disk.

use std::time::Duration;

use spdl_types::backoff::Backoff;

/// The state of a cache on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskCacheState {
    /// Bytes of the blocks in it.
    pub used_bytes: u64,
    /// The most bytes of blocks in it.
    pub limit_bytes: u64,
    /// How many blocks had no room.
    pub refused: u64,
    /// Whether nothing is written because the disk failed.
    pub is_failing: bool,
    /// Blocks that are still to be written.
    pub to_write: usize,
}

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
