//! Measures what reading parts of scalable pictures gives a job that a store limits: the first epoch of a dataset, with blocks that are read
//! whole and with the parts that the crops need, in turn. The store is a folder that answers after a while and gives so many bytes a second.
//!
//! `cargo bench --bench parts -- DATASET [--rounds N] [--latency-ms N] [--mb-per-s N]`, where DATASET is a folder that `spdl-ctl pack --scalable` has written

mod arguments;

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use object_store::{GetOptions, GetResult, ObjectStore, Result, path::Path};
use parking_lot::Mutex;
use spdl_core::{
    Position,
    job::{Job, JobFile},
    messages::{Session, SessionId},
};
use spdl_shard::store::{DatasetStore, StoreLayer};
use spdl_worker::{
    budget::Budget,
    feed::{Access, FeedEvent, FeedRequest, RankFeed, Resources, SlabKind, StoreAccess},
};

const GLOBAL_BATCH: u32 = 32;
const MEMORY_BYTES: u64 = 1 << 30;

/// A store that answers late, and whose answers share a link.
#[derive(Debug)]
struct SlowStore {
    inner: Arc<dyn ObjectStore>,
    latency: Duration,
    bytes_per_s: f64,
    /// When the link has sent what it was given.
    is_free: Mutex<Instant>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    bytes: AtomicU64,
}

impl fmt::Display for SlowStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlowStore({})", self.inner)
    }
}

impl SlowStore {
    /// Waits until the link has sent an answer.
    async fn send(&self, Range { start, end }: Range<u64>) {
        let bytes = end - start;
        self.counts.requests.fetch_add(1, Relaxed);
        self.counts.bytes.fetch_add(bytes, Relaxed);
        tokio::time::sleep(self.latency).await;
        let sent = {
            let mut is_free = self.is_free.lock();
            *is_free = (*is_free).max(Instant::now()) + Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
            *is_free
        };
        tokio::time::sleep_until(sent.into()).await;
    }
}

#[async_trait::async_trait]
impl StoreLayer for SlowStore {
    fn inner(&self) -> &dyn ObjectStore {
        &*self.inner
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let (is_head, is_shard) = (options.head, location.as_ref().ends_with(".tar"));
        let got = self.inner.get_opts(location, options).await?;
        if is_shard && !is_head {
            self.send(got.range.clone()).await;
        }
        Ok(got)
    }
}

/// What an epoch took.
struct Epoch {
    seconds: f64,
    requests: u64,
    bytes: u64,
}

/// Pulls the first epoch with nothing in memory.
async fn epoch(job: &Job, reads_parts: bool, latency: Duration, bytes_per_s: f64) -> Epoch {
    let counts = Arc::new(Counts::default());
    let of_store = counts.clone();
    let wrap = move |inner: Arc<dyn ObjectStore>| {
        let is_free = Mutex::new(Instant::now());
        Arc::new(SlowStore { inner, latency, bytes_per_s, is_free, counts: of_store.clone() }).layered()
    };
    let stores = StoreAccess { wrap: Some(Arc::new(wrap)), ..StoreAccess::default() };
    let access = Access { stores, reads_parts, ..Access::default() };
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    let budget = Budget { cores, memory_bytes: MEMORY_BYTES, disk: None };
    let resources = Resources::with_access("bench", budget, access).expect("threads");
    let (global_batch, start) = (job.global_batch, Position::START);
    let session = Session { id: SessionId(1), job: job.clone(), world: 1, global_batch, start };
    let request = FeedRequest { session, rank: 0, from: start, slots: 4, slab: SlabKind::Private };
    let begin = Instant::now();
    let mut feed = RankFeed::start(&resources, request).expect("memory");
    while let FeedEvent::Filled { slot, .. } = feed.next().await.expect("a good dataset") {
        feed.free(slot).expect("a lent slot");
    }
    let seconds = begin.elapsed().as_secs_f64();
    Epoch { seconds, requests: counts.requests.load(Relaxed), bytes: counts.bytes.load(Relaxed) }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    let Some(folder) = std::env::args().nth(1).filter(|_| arguments::request_stats()) else { return };
    if folder.starts_with("--") {
        eprintln!("which dataset? `spdl-ctl pack --scalable` makes one");
        return;
    }
    let rounds = arguments::number("--rounds", 3);
    let latency = Duration::from_millis(arguments::number("--latency-ms", 15));
    let bytes_per_s = arguments::number("--mb-per-s", 50) as f64 * 1e6;
    let store = DatasetStore::open(&folder).expect("a dataset");
    let facts = store.manifest().await.expect("a manifest").facts();
    let text = format!(
        "name = \"bench\"\ndataset = \"{folder}\"\nglobal_batch = {GLOBAL_BATCH}\nepochs = 1\n\
         [[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n\
         ops = [{{ random_resized_crop = {{ size = 224 }} }}, {{ random_flip = {{}} }}]\n"
    );
    let job = JobFile::parse(&text, "bench").and_then(|file| file.freeze(&facts)).expect("a valid job");
    let pictures = facts.samples as f64;
    println!(
        "{pictures} pictures, {:.0} MB/s after {} ms; medians of {rounds} rounds, for each picture",
        bytes_per_s / 1e6,
        latency.as_millis()
    );
    println!("{:12} {:>10} {:>10} {:>10}", "read", "pictures/s", "bytes", "requests");
    let mut epochs = [vec![], vec![]];
    for _ in 0..rounds {
        for (way, epochs) in epochs.iter_mut().enumerate() {
            epochs.push(epoch(&job, way == 1, latency, bytes_per_s).await);
        }
    }
    for (name, epochs) in ["whole blocks", "parts"].into_iter().zip(&mut epochs) {
        epochs.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let Epoch { seconds, requests, bytes } = epochs[epochs.len() / 2];
        println!(
            "{name:12} {:10.0} {:10.0} {:10.2}",
            pictures / seconds,
            bytes as f64 / pictures,
            requests as f64 / pictures
        );
    }
}
