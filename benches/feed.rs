//! Compares a rank's feed with bare decoding of the same samples on as many threads, in images per second, and counts
//! its allocations.
//!
//! `cargo bench --bench feed [-- --images N] [--threads T] [--epochs E]`
#![allow(unsafe_code)] // The counting allocator.

mod arguments;
mod bare;
mod columns;
mod rank;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use bare::Bare;
use columns::COLUMNS;
use spdl_cli::pictures::write_image_folder;
use spdl_dataset::{PackOptions, PackSource, pack};
use spdl_job::Job;
use spdl_shard::store::DatasetStore;
use spdl_worker::{
    budget::Budget,
    feed::{FeedEvent, RankFeed, Resources},
};

/// Counts the allocations of all threads.
struct AllocationCounter;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static ALLOCATED_BYTES: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static COUNTING: AllocationCounter = AllocationCounter;

fn count(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    ALLOCATED_BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

// SAFETY: the system's allocator does the work, with the same arguments.
unsafe impl GlobalAlloc for AllocationCounter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as promised by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes);
        // SAFETY: as promised by the caller.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as promised by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() {
    if !arguments::request_stats() {
        return;
    }
    let images = arguments::number("--images", 1000);
    let epochs = arguments::number("--epochs", 3);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let threads = arguments::number("--threads", cores);
    let directory = tempfile::tempdir().expect("a directory for temporary files");
    let store = dataset(directory.path(), images).await;
    let manifest = store.manifest().await.expect("the manifest just written");
    let text = format!(
        "name = \"bench\"\ndataset = \"{}\"\nseed = 1\nglobal_batch = 64\nepochs = {epochs}\n{COLUMNS}",
        store.url()
    );
    let job = rank::job(&text, &manifest.facts());
    println!("{images} pictures, {threads} decoding threads, random_resized_crop 224, batch 64, u8");
    let bare = Bare::open(&store, &job, threads as usize).await;
    let mut before = bare.run(0..epochs);
    println!("{:32} {before:8.0} images/s", "bare decoding, bytes in memory");
    let feeds =
        [("feed, 1 GiB", 1 << 30, 1), ("feed, 48 MiB: records only", 48 << 20, 1), ("feed, 4 ranks", 1 << 30, 4)];
    for (name, memory_bytes, world) in feeds {
        let rate = feed(&job, threads as f64, memory_bytes, world).await;
        // The machine's speed drifts: compare with the mean of the runs before and after.
        let after = bare.run(0..epochs);
        println!("{name:32} {rate:8.0} images/s  {:.2} of bare", rate / ((before + after) / 2.0));
        before = after;
    }
    steady(&job, threads as f64).await;
    // A process with a log, as the worker is, makes the spans of every batch.
    tracing_subscriber::fmt().with_env_filter("info").with_writer(std::io::sink).init();
    for _ in 0..3 {
        let before = bare.run(0..epochs);
        let rate = feed(&job, threads as f64, 1 << 30, 1).await;
        let bare = (before + bare.run(0..epochs)) / 2.0;
        println!("{:32} {rate:8.0} images/s  {:.2} of bare", "feed, 1 GiB, with a log", rate / bare);
    }
}

async fn dataset(directory: &Path, images: u64) -> DatasetStore {
    let folder = directory.join("pictures");
    write_image_folder(&folder, images, 1, |_| {}).expect("pictures are written");
    let to = directory.join("packed");
    let store = DatasetStore::create_with(to.to_str().expect("UTF-8"), &Default::default()).expect("a folder");
    let options = PackOptions::new(PackSource::ImageFolder(folder));
    pack(&store, &options, &|_| {}).await.expect("pictures are packed");
    store
}

/// Pulls the whole job with `world` ranks; returns images per second.
async fn feed(job: &Job, cores: f64, memory_bytes: u64, world: u32) -> f64 {
    let resources = Resources::new("bench", Budget { cores, memory_bytes, disk: None }).expect("threads");
    let started = Instant::now();
    let rank = |rank| RankFeed::start(&resources, rank::request(job, world, rank, 0)).expect("memory for the slots");
    let ranks: Vec<_> = (0..world).map(|number| tokio::spawn(rank::drain(rank(number)))).collect();
    let mut entries = 0;
    for rank in ranks {
        entries += rank.await.expect("no panic");
    }
    entries as f64 / started.elapsed().as_secs_f64()
}

/// Prints the allocations of a feed once all blocks are in memory: in all epochs but the first.
async fn steady(job: &Job, cores: f64) {
    let budget = Budget { cores, memory_bytes: 1 << 30, disk: None };
    let resources = Resources::new("bench", budget).expect("threads");
    let mut feed = rank::start(&resources, job, 0);
    let [mut batches, mut samples, mut allocations, mut bytes] = [0_u64; 4];
    loop {
        let before = [&ALLOCATIONS, &ALLOCATED_BYTES].map(|counter| counter.load(Ordering::Relaxed));
        let FeedEvent::Filled { slot, used_bytes, .. } = feed.next().await.expect("a good dataset") else { break };
        let batch = feed.slab().read(slot).expect("a filled slot");
        let view = feed.layout().read(&batch[..used_bytes as usize]).expect("a batch");
        let (epoch, entries) = (view.header().epoch, view.len() as u64);
        drop(batch);
        feed.free(slot).expect("a lent slot");
        if epoch > 0 {
            let after = [&ALLOCATIONS, &ALLOCATED_BYTES].map(|counter| counter.load(Ordering::Relaxed));
            batches += 1;
            samples += entries;
            allocations += after[0] - before[0];
            bytes += after[1] - before[1];
        }
    }
    let per = |count: u64, of: u64| count as f64 / of.max(1) as f64;
    println!(
        "allocations: {:.1} per batch, {:.2} and {:.0} bytes per sample, over {batches} batches",
        per(allocations, batches),
        per(allocations, samples),
        per(bytes, samples),
    );
}
