//! Reading byte ranges of one shard: in parallel parts, with retries, and refused when the object is not the one that
//! the manifest describes.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, path::Path};
use tokio::sync::Semaphore;

use super::{FetchError, backoff::Backoff, pieces::Pieces};
use crate::figures::Stage;

/// A range longer than this is read in parts of about this size, in bytes. Raised, one slow connection holds up more.
const PART_BYTES: u64 = 4 << 20;
/// Parts of one range that are on their way at once.
const PARTS_AT_ONCE: usize = 4;

/// How patient a read is.
#[derive(Clone, Debug)]
pub struct RetrySettings {
    /// Requests for the same bytes before giving up. Default: 8. Raised, a store that is gone is noticed later.
    pub attempts: u32,
    /// Delay before the second request; it doubles from there. Default: 50 ms.
    pub first_delay: Duration,
    /// The longest delay. Default: 5 s.
    pub max_delay: Duration,
    /// How long one request may take. Default: 60 s. Raised, a connection that hangs is given up later.
    pub request_timeout: Duration,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            attempts: 8,
            first_delay: Duration::from_millis(50),
            max_delay: Duration::from_secs(5),
            request_timeout: Duration::from_secs(60),
        }
    }
}

/// What all requests of a process share.
#[derive(Debug)]
pub(crate) struct Requests {
    /// One for each request on its way.
    pub(crate) permits: Semaphore,
    pub(crate) retry: RetrySettings,
    pub(crate) stage: Arc<Stage>,
}

/// A shard as the manifest describes it, and where to read it.
#[derive(Clone, Debug)]
pub struct ShardObject {
    /// The store.
    pub store: Arc<dyn ObjectStore>,
    /// Where in the store.
    pub path: Path,
    /// Its URL as the manifest writes it, for errors.
    pub url: String,
    /// Its size.
    pub bytes: u64,
    /// Its etag, where the manifest has one.
    pub etag: Option<String>,
}

impl ShardObject {
    /// Reads `ranges`, each in parts.
    pub(crate) async fn read(&self, ranges: &[Range<u64>], requests: &Requests) -> Result<Pieces, FetchError> {
        let parts: Vec<Range<u64>> = ranges.iter().flat_map(|range| parts(range.clone(), PART_BYTES)).collect();
        let reads = parts.into_iter().map(|part| async {
            let _permit = requests.permits.acquire().await.expect("the semaphore is never closed");
            Ok::<_, FetchError>((part.start, self.read_part(part, requests).await?))
        });
        let pieces: Vec<(u64, Bytes)> = stream::iter(reads).buffered(PARTS_AT_ONCE).try_collect().await?;
        Ok(Pieces::new(pieces))
    }

    async fn read_part(&self, part: Range<u64>, requests: &Requests) -> Result<Bytes, FetchError> {
        let Requests { retry, stage, .. } = requests;
        let mut backoff = Backoff::new(retry.first_delay, retry.max_delay);
        let mut attempt = 1;
        loop {
            let started = Instant::now();
            let answer = tokio::time::timeout(retry.request_timeout, self.request(part.clone())).await;
            match &answer {
                Ok(Ok(bytes)) => stage.item(started.elapsed(), bytes.len() as u64),
                _ => stage.failure(started.elapsed()),
            }
            let cause = match answer {
                Ok(Ok(bytes)) => return Ok(bytes),
                Ok(Err(RequestError::Final(error))) => return Err(error),
                Ok(Err(RequestError::Again(cause))) => cause,
                Err(_) => format!("no answer within {} s", retry.request_timeout.as_secs()),
            };
            if attempt >= retry.attempts {
                return Err(FetchError::Unreachable {
                    shard: self.url.clone(),
                    start: part.start,
                    end: part.end,
                    attempts: attempt,
                    cause,
                });
            }
            tracing::debug!(shard = self.url, start = part.start, attempt, cause, "request failed; trying again");
            tokio::time::sleep(backoff.delay(rand::random())).await;
            attempt += 1;
        }
    }

    async fn request(&self, part: Range<u64>) -> Result<Bytes, RequestError> {
        let options = GetOptions { range: Some(GetRange::Bounded(part.clone())), ..GetOptions::default() };
        let result = match self.store.get_opts(&self.path, options).await {
            Ok(result) => result,
            Err(error) => return Err(self.classify(error).await),
        };
        self.check(&result.meta).map_err(RequestError::Final)?;
        let bytes = result.bytes().await.map_err(|error| RequestError::Again(error.to_string()))?;
        if bytes.len() as u64 != part.end - part.start {
            return Err(RequestError::Again(format!("{} bytes came of {}", bytes.len(), part.end - part.start)));
        }
        Ok(bytes)
    }

    /// A request that a store refuses may mean that the object is another one: its size tells.
    async fn classify(&self, error: object_store::Error) -> RequestError {
        use object_store::Error;
        match error {
            Error::NotFound { .. }
            | Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::InvalidPath { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. }
            | Error::UnknownConfigurationKey { .. } => {
                RequestError::Final(FetchError::Refused { shard: self.url.clone(), source: Arc::new(error) })
            }
            error => match self.store.head(&self.path).await.map(|meta| self.check(&meta)) {
                Ok(Err(changed)) => RequestError::Final(changed),
                _ => RequestError::Again(error.to_string()),
            },
        }
    }

    fn check(&self, meta: &ObjectMeta) -> Result<(), FetchError> {
        let changed =
            |expected: String, actual: String| Err(FetchError::Changed { shard: self.url.clone(), expected, actual });
        if meta.size != self.bytes {
            return changed(format!("{} bytes", self.bytes), format!("{} bytes", meta.size));
        }
        match (&self.etag, &meta.e_tag) {
            (Some(expected), Some(actual)) if expected != actual => {
                changed(format!("etag {expected}"), format!("etag {actual}"))
            }
            _ => Ok(()),
        }
    }
}

enum RequestError {
    Again(String),
    Final(FetchError),
}

/// Cuts `range` into equal parts of at most `part_bytes`.
fn parts(range: Range<u64>, part_bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let bytes = range.end - range.start;
    let count = bytes.div_ceil(part_bytes);
    (0..count).map(move |part| range.start + bytes * part / count..range.start + bytes * (part + 1) / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_range_without_gap_or_overlap() {
        for bytes in [0, 1, 9, 10, 11, 99, 100, 101] {
            let parts: Vec<_> = parts(7..7 + bytes, 10).collect();
            assert!(parts.iter().all(|part| (1..=10).contains(&(part.end - part.start))), "{parts:?}");
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "{parts:?}");
            assert_eq!(parts.iter().map(|part| part.end - part.start).sum::<u64>(), bytes);
        }
    }
}
