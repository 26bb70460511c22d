//! Measures which part of an epoch comes from a worker's memory, for several sizes of that memory, and the requests and
//! bytes that still come from the store. The store is an S3 server of this process, behind a proxy that counts. The
//! block uses of the same epochs are replayed on caches that evict the least recently used block, or the one whose next
//! use is last (Belady).
//!
//! `cargo bench --bench cache [-- --epochs N] [--records N]`

mod arguments;
mod rank;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use spdl_insight::tuning::{Setting, TuningSettings};
use spdl_job::Job;
use spdl_order::Plan;
use spdl_testkit::{
    proxy::{Proxy, RangesRead},
    s3::S3Server,
};
use spdl_types::Position;
use spdl_worker::feed::{Access, RankFeed};

const RECORD_BYTES: usize = 16_000;
const BLOCK_BYTES: u64 = 64 << 10;
const GLOBAL_BATCH: usize = 32;
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

/// Pulls `epochs` epochs with room for `block_bytes` of blocks.
async fn pull(job: &Job, samples: u64, proxy: &Proxy, block_bytes: u64, epochs: u64) -> Measured {
    let tuning = TuningSettings { requests: Setting::Pinned(16), read_ahead: Setting::Pinned(READ_AHEAD) };
    // Find by trial how much memory leaves this room for blocks, because a part of it has other uses.
    let mut memory_bytes = block_bytes;
    let (resources, mut feed) = loop {
        let resources = rank::resources(memory_bytes, Access { tuning, ..Access::default() });
        if let Ok(feed) = RankFeed::start(&resources, rank::request(job, 1, 0, 2))
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
        for _ in 0..samples / u64::from(job.global_batch) {
            assert!(rank::take(&mut feed).await, "it ended");
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
    let store = rank::pack_records(folder.path(), records as usize, RECORD_BYTES, BLOCK_BYTES).await;
    let manifest = store.manifest().await.expect("the manifest just written");
    let job = |url: &str| rank::job_of_records(url, &manifest.facts(), GLOBAL_BATCH, RECORD_BYTES);
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
    let probe = pull(&job(&url(&proxy)), samples, &proxy, bytes / 2, epochs).await;
    // The blocks in use, and the part of the room that decoding takes once it has begun.
    let beside = probe.window_bytes + (bytes / 2).saturating_sub(probe.limit_bytes);
    for fraction in FRACTIONS {
        let proxy = Proxy::start(server.address());
        let job = job(&url(&proxy));
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
