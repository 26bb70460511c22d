//! Feeds of ranks in this process, and records of bytes for them. Each benchmark uses a part of it.
#![allow(dead_code)]

use std::{fs, path::Path, sync::Arc};

use spdl_control::messages::Session;
use spdl_dataset::{PackOptions, PackSource, pack};
use spdl_job::{Job, JobFile};
use spdl_order::DatasetFacts;
use spdl_shard::store::DatasetStore;
use spdl_types::{Position, SessionId};
use spdl_worker::{
    budget::Budget,
    feed::{Access, FeedEvent, FeedRequest, RankFeed, Resources, SlabKind},
};

/// Returns all cores of the machine, and this memory.
pub(crate) fn resources(memory_bytes: u64, access: Access) -> Arc<Resources> {
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    Resources::with_access("bench", Budget { cores, memory_bytes, disk: None }, access).expect("threads")
}

/// Returns what a rank asks for that begins at the start.
pub(crate) fn request(job: &Job, world: u32, rank: u32, slots: u32) -> FeedRequest {
    let (global_batch, start) = (job.global_batch, Position::START);
    let session = Session { id: SessionId(1), job: job.clone(), world, global_batch, start };
    FeedRequest { session, rank, from: start, slots, slab: SlabKind::Private }
}

/// Starts the only rank of a job.
pub(crate) fn start(resources: &Arc<Resources>, job: &Job, slots: u32) -> RankFeed {
    RankFeed::start(resources, request(job, 1, 0, slots)).expect("memory for the slots")
}

/// Takes a batch and frees its slot; returns whether there was one.
pub(crate) async fn take(feed: &mut RankFeed) -> bool {
    let FeedEvent::Filled { slot, .. } = feed.next().await.expect("a good dataset") else { return false };
    feed.free(slot).expect("a lent slot");
    true
}

/// Takes all batches, and returns the number of their samples.
pub(crate) async fn drain(mut feed: RankFeed) -> u64 {
    let mut entries = 0;
    while let FeedEvent::Filled { slot, used_bytes, .. } = feed.next().await.expect("a good dataset") {
        let batch = feed.slab().read(slot).expect("a filled slot");
        entries += feed.layout().read(&batch[..used_bytes as usize]).expect("a batch").len() as u64;
        drop(batch);
        feed.free(slot).expect("a lent slot");
    }
    entries
}

/// Returns the job of a file with this text.
pub(crate) fn job(text: &str, facts: &DatasetFacts) -> Job {
    JobFile::parse(text, "bench").and_then(|file| file.freeze(facts)).expect("a valid job")
}

/// Packs records of so many bytes into a folder.
pub(crate) async fn pack_records(folder: &Path, records: usize, bytes: usize, block_bytes: u64) -> DatasetStore {
    let files = folder.join("files");
    fs::create_dir_all(&files).expect("a folder");
    let mut list = String::new();
    for record in 0..records {
        let name = format!("{record:06}.bin");
        let bytes: Vec<u8> = (0..bytes).map(|at| (record * 31 + at * 7) as u8).collect();
        fs::write(files.join(&name), bytes).expect("a file");
        list.push_str(&format!("{name}\t{}\n", record % 10));
    }
    fs::write(files.join("list.txt"), list).expect("a file");
    let path = folder.join("dataset");
    let store = DatasetStore::create_with(path.to_str().expect("UTF-8"), &Default::default()).expect("a folder");
    let options = PackOptions { block_bytes, ..PackOptions::new(PackSource::FileList(files.join("list.txt"))) };
    pack(&store, &options, &|_| {}).await.expect("files are packed");
    store
}

/// Returns an endless job of such records.
pub(crate) fn job_of_records(url: &str, facts: &DatasetFacts, global_batch: usize, bytes: usize) -> Job {
    let text = format!(
        "name = \"bench\"\ndataset = \"{url}\"\nglobal_batch = {global_batch}\nepochs = 1000000\n\
         [[column]]\nname = \"bytes\"\nfrom = \"bin\"\ndecode = \"bytes\"\nmax_bytes = {bytes}\n"
    );
    job(&text, facts)
}
