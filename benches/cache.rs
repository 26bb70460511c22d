//! Measures which part of an epoch comes from a worker's memory, for several sizes of that memory, and the requests and
//! bytes that still come from the store. The store is an S3 server of this process, behind a proxy that counts. The
//! block uses of the same epochs are replayed on caches that evict the least recently used block, or the one whose next
//! use is last (Belady).
//!
//! `cargo bench --bench cache [-- --epochs N] [--records N]`

mod arguments;

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use spdl_control::messages::Session;
use spdl_dataset::{PackOptions, PackSource, pack};
use spdl_insight::tuning::{Setting, TuningSettings};
use spdl_job::{Job, JobFile};
use spdl_order::Plan;
use spdl_shard::{manifest::Manifest, store::DatasetStore};
use spdl_testkit::{
    proxy::{Proxy, RangesRead},
    s3::S3Server,
};
use spdl_types::{Position, SessionId};
use spdl_worker::{
    budget::Budget,
    feed::{Access, FeedEvent, FeedRequest, RankFeed, Resources, SlabKind},
};

const RECORD_BYTES: usize = 16_000;
const BLOCK_BYTES: u64 = 64 << 10;
const GLOBAL_BATCH: u32 = 32;
/// Steps read ahead.
const READ_AHEAD: u32 = 4;
/// The fractions of the dataset that fit into the memory, beside the blocks in use.
const FRACTIONS: [f64; 5] = [0.1, 0.25, 0.5, 0.75, 0.9];

/// The measurements of a worker.
struct Measured {
    /// The mean of the epochs after the first two.
    epoch: RangesRead,
    /// The most bytes of blocks that were in use at once.
    window_bytes: u64,
    limit_bytes: u64,
}

/// Packs records into a folder.
async fn dataset(folder: &Path, records: u64) -> Manifest {
    let files = folder.join("files");
    fs::create_dir_all(&files).expect("a folder");
    let mut list = String::new();
    for record in 0..records as usize {
        let name = format!("{record:06}.bin");
        let bytes: Vec<u8> = (0..RECORD_BYTES).map(|at| (record * 31 + at * 7) as u8).collect();
        fs::write(files.join(&name), bytes).expect("a file");
        list.push_str(&format!("{name}\t{}\n", record % 10));
    }
    fs::write(files.join("list.txt"), list).expect("a file");
    let path = folder.join("dataset");
    let store = DatasetStore::create_with(path.to_str().expect("UTF-8"), &Default::default()).expect("a folder");
    let options =
        PackOptions { block_bytes: BLOCK_BYTES, ..PackOptions::new(PackSource::FileList(files.join("list.txt"))) };
    pack(&store, &options, &|_| {}).await.expect("files are packed");
    store.manifest().await.expect("the manifest just written")
}

fn job(url: &str, manifest: &Manifest) -> Job {
    let text = format!(
        "name = \"bench\"\ndataset = \"{url}\"\nglobal_batch = {GLOBAL_BATCH}\nepochs = 1000000\n\
         [[column]]\nname = \"bytes\"\nfrom = \"bin\"\ndecode = \"bytes\"\nmax_bytes = {RECORD_BYTES}\n"
    );
    JobFile::parse(&text, "bench").and_then(|file| file.freeze(&manifest.facts())).expect("a valid job")
}

/// Pulls `epochs` epochs with room for `block_bytes` of blocks.
async fn pull(job: &Job, samples: u64, proxy: &Proxy, block_bytes: u64, epochs: u64) -> Measured {
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    let tuning = TuningSettings { requests: Setting::Pinned(16), read_ahead: Setting::Pinned(READ_AHEAD) };
    let (global_batch, start) = (job.global_batch, Position::START);
    let session = Session { id: SessionId(1), job: job.clone(), world: 1, global_batch, start };
    // Find by trial how much memory leaves this room for blocks, because a part of it has other uses.
    let mut memory_bytes = block_bytes;
    let (resources, mut feed) = loop {
        let budget = Budget { cores, memory_bytes, disk: None };
        let access = Access { tuning, ..Access::default() };
        let resources = Resources::with_access("bench", budget, access).expect("threads");
        let request = FeedRequest { session: session.clone(), rank: 0, from: start, slots: 2, slab: SlabKind::Private };
        if let Ok(feed) = RankFeed::start(&resources, request)
            && resources.cache_stats().limit_bytes >= block_bytes
        {
            break (resources, feed);
        }
        memory_bytes += 64 << 10;
    };
    let window_bytes = Arc::new(AtomicU64::new(0));
    let (watched, most) = (resources.clone(), window_bytes.clone());
    let watch = tokio::spawn(async move {
        loop {
            most.fetch_max(watched.cache_stats().window_bytes, Relaxed);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let mut at_ends = Vec::new();
    for _ in 0..epochs {
        for _ in 0..samples / u64::from(global_batch) {
            let FeedEvent::Filled { slot, .. } = feed.next().await.expect("a good dataset") else { panic!("it ended") };
            feed.free(slot).expect("a lent slot");
        }
        at_ends.push(proxy.read_of(".tar"));
    }
    watch.abort();
    let [warm, end] = [at_ends[1], at_ends[at_ends.len() - 1]];
    let mean = |total: u64| total / (epochs - 2);
    let epoch = RangesRead { requests: mean(end.requests - warm.requests), bytes: mean(end.bytes - warm.bytes) };
    Measured { epoch, window_bytes: window_bytes.load(Relaxed), limit_bytes: resources.cache_stats().limit_bytes }
}

/// Returns the blocks that each batch of some epochs uses, each block once.
fn block_uses(plan: &Plan, job: &Job, epochs: u64) -> Vec<Vec<u32>> {
    let mut items = Vec::new();
    let steps = plan.steps(Position::START, &job.batches(job.global_batch)).take_while(|step| step.from.epoch < epochs);
    let blocks = steps.map(|step| {
        plan.rank_items(&step, 0, 1, &mut items);
        items.iter().map(|item| item.located.block).collect::<BTreeSet<_>>().into_iter().collect()
    });
    blocks.collect()
}

/// Replays batches of blocks on a cache of `room` blocks, and returns its hit rate per epoch after the first two
/// epochs. Evicts the block with the lowest rank first; `rank` gets a use and the next use of its block.
fn replay(uses: &[Vec<u32>], blocks: usize, room: usize, epochs: u64, rank: impl Fn(usize, usize) -> i64) -> f64 {
    let flat: Vec<u32> = uses.iter().flatten().copied().collect();
    let mut next_use = vec![usize::MAX; flat.len()];
    let mut seen = HashMap::new();
    for (at, block) in flat.iter().enumerate().rev() {
        next_use[at] = seen.insert(*block, at).unwrap_or(usize::MAX);
    }
    let (mut ranks, mut order, mut misses) = (HashMap::new(), BTreeSet::new(), 0);
    let from = flat.len() * 2 / epochs as usize;
    for (at, block) in flat.iter().enumerate() {
        match ranks.insert(*block, rank(at, next_use[at])) {
            Some(before) => drop(order.remove(&(before, *block))),
            None => misses += usize::from(at >= from),
        }
        order.insert((ranks[block], *block));
        if order.len() > room {
            let (_, first) = order.pop_first().expect("it is full");
            ranks.remove(&first);
        }
    }
    1.0 - misses as f64 / ((epochs - 2) as usize * blocks) as f64
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    if !arguments::request_stats() {
        return;
    }
    let (records, epochs) = (arguments::number("--records", 16_384), arguments::number("--epochs", 10).max(3));
    let folder = tempfile::tempdir().expect("a directory for temporary files");
    let manifest = dataset(folder.path(), records).await;
    let server = S3Server::start_open();
    server.upload(&folder.path().join("dataset"), "records").await;
    let url = |proxy: &Proxy| proxy.before(&server.web_url("records"));
    let samples = manifest.facts().samples;
    let bytes: u64 = (0..manifest.facts().blocks).map(|block| manifest.block(block as u32).bytes).sum();
    let blocks = manifest.facts().blocks as usize;
    println!("{samples} records in {blocks} blocks, {:.1} MB; batches of {GLOBAL_BATCH}", bytes as f64 / 1e6);
    println!(
        "{:>8} {:>9} {:>9} {:>6} {:>9} {:>6} {:>7} {:>9} {:>9}",
        "fraction", "room, MB", "in use", "hits", "of it", "LRU", "Belady", "requests", "MB"
    );
    let proxy = Proxy::start(server.address());
    let probe = pull(&job(&url(&proxy), &manifest), samples, &proxy, bytes / 2, epochs).await;
    // The blocks in use, and the part of the room that decoding takes once it has begun.
    let beside = probe.window_bytes + (bytes / 2).saturating_sub(probe.limit_bytes);
    for fraction in FRACTIONS {
        let proxy = Proxy::start(server.address());
        let job = job(&url(&proxy), &manifest);
        let room = (fraction * bytes as f64) as u64 + beside;
        let Measured { epoch, window_bytes, limit_bytes } = pull(&job, samples, &proxy, room, epochs).await;
        let plan = Plan::new(&manifest.block_samples(), job.seed, job.order).expect("a plan");
        let uses = block_uses(&plan, &job, epochs);
        let rooms = (limit_bytes as f64 / bytes as f64 * blocks as f64) as usize;
        let lru = replay(&uses, blocks, rooms, epochs, |at, _| at as i64);
        let belady = replay(&uses, blocks, rooms, epochs, |_, next| -i64::try_from(next).unwrap_or(i64::MAX));
        let hits = 1.0 - epoch.bytes as f64 / bytes as f64;
        println!(
            "{fraction:>8} {:>9.1} {:>9.1} {hits:>6.3} {:>9.3} {lru:>6.3} {belady:>7.3} {:>9} {:>9.1}",
            limit_bytes as f64 / 1e6,
            window_bytes as f64 / 1e6,
            hits / fraction,
            epoch.requests,
            epoch.bytes as f64 / 1e6
        );
    }
}
