//! A store that injects faults, for tests.

use std::{
    collections::VecDeque,
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use object_store::{Error, GetOptions, GetResult, GetResultPayload, ObjectStore, Result, path::Path};
use parking_lot::Mutex;
use spdl_store::StoreLayer;
use tokio::sync::Barrier;

/// The fault of one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// The store answers as with status 503.
    Unavailable,
    /// The store answers as with status 403.
    Denied,
    /// The connection ends half way.
    Cut,
    /// One bit is flipped.
    FlippedBit,
    /// The answer begins after half a second.
    Late,
    /// No answer ever comes.
    Hang,
}

/// A store with injected faults. They come from a queue, one per read; when the queue is empty, at a fixed rate.
#[derive(Debug)]
pub struct FlakyStore {
    inner: Arc<dyn ObjectStore>,
    faults: Mutex<VecDeque<StoreFault>>,
    every: AtomicU64,
    reads: AtomicU64,
    bytes: AtomicU64,
    /// Reads that wait for others, so that they are answered together.
    group: Mutex<Option<Arc<Barrier>>>,
}

impl FlakyStore {
    /// Wraps `inner`, without faults.
    pub fn new(inner: Arc<dyn ObjectStore>) -> Self {
        Self {
            inner,
            faults: Mutex::default(),
            every: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            group: Mutex::default(),
        }
    }

    /// Adds faults for the next reads to the queue.
    pub fn fail_next(&self, faults: impl IntoIterator<Item = StoreFault>) {
        self.faults.lock().extend(faults);
    }

    /// Returns the number of queued faults.
    pub fn faults_left(&self) -> usize {
        self.faults.lock().len()
    }

    /// Makes every `n`-th read fail as with status 503; 0 for none.
    pub fn fail_every(&self, n: u64) {
        self.every.store(n, Ordering::Relaxed);
    }

    /// Makes every read wait until `count` reads wait, and answers these together.
    pub fn answer_in_groups_of(&self, count: usize) {
        *self.group.lock() = Some(Arc::new(Barrier::new(count)));
    }

    /// Returns the number of reads so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes requested so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn next_fault(&self) -> Option<StoreFault> {
        let read = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        let every = self.every.load(Ordering::Relaxed);
        self.faults.lock().pop_front().or((every > 0 && read.is_multiple_of(every)).then_some(StoreFault::Unavailable))
    }
}

impl fmt::Display for FlakyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlakyStore({})", self.inner)
    }
}

fn fault(what: &str) -> Error {
    Error::Generic { store: "flaky", source: what.into() }
}

#[async_trait::async_trait]
impl StoreLayer for FlakyStore {
    fn inner(&self) -> &dyn ObjectStore {
        &*self.inner
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head {
            return self.inner.get_opts(location, options).await;
        }
        let fault_now = self.next_fault();
        let group = self.group.lock().clone();
        if let Some(group) = group {
            group.wait().await;
        }
        match fault_now {
            Some(StoreFault::Unavailable) => return Err(fault("503 slow down")),
            Some(StoreFault::Denied) => {
                return Err(Error::PermissionDenied { path: location.to_string(), source: "403 forbidden".into() });
            }
            Some(StoreFault::Late) => tokio::time::sleep(Duration::from_millis(500)).await,
            Some(StoreFault::Hang) => std::future::pending().await,
            _ => {}
        }
        let result = self.inner.get_opts(location, options).await?;
        let (meta, range, attributes, extensions) =
            (result.meta.clone(), result.range.clone(), result.attributes.clone(), result.extensions.clone());
        self.bytes.fetch_add(range.end - range.start, Ordering::Relaxed);
        let bytes = result.bytes().await?;
        let payload = GetResultPayload::Stream(answer(fault_now, bytes, &range));
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }
}

fn answer(fault_now: Option<StoreFault>, bytes: Bytes, range: &Range<u64>) -> BoxStream<'static, Result<Bytes>> {
    let chunks = match fault_now {
        Some(StoreFault::Cut) => vec![Ok(bytes.slice(..bytes.len() / 2)), Err(fault("connection cut"))],
        Some(StoreFault::FlippedBit) => {
            let mut wrong = bytes.to_vec();
            let at = wrong.len() / 2;
            wrong[at] ^= 1 << (range.start % 8);
            vec![Ok(Bytes::from(wrong))]
        }
        _ => vec![Ok(bytes)],
    };
    futures::stream::iter(chunks).boxed()
}
