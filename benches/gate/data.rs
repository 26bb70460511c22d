//! Paths of pictures and long records: a rank's feed of batches, and packing.

use std::{fs, path::Path};

use spdl_cli::pictures::write_image_folder;
use spdl_control::messages::Session;
use spdl_dataset::{Jpegs, Overwrite, PackOptions, PackSource};
use spdl_job::JobFile;
use spdl_shard::store::DatasetStore;
use spdl_types::{Position, SessionId};
use spdl_worker::{
    budget::Budget,
    feed::{FeedEvent, FeedRequest, RankFeed, Resources, SlabKind},
};
use tokio::runtime::Runtime;

use crate::{columns::COLUMNS, numpy};

const PICTURES: u64 = 64;
/// Long records of a batch, and the bytes of one.
const LONG_RECORDS: u64 = 4;
const LONG_BYTES: u64 = 8_000_000;
const KINDS: [(&str, Jpegs); 3] =
    [("plain", Jpegs::AsTheyAre), ("crop-ready", Jpegs::CropReady), ("scalable", Jpegs::Scalable)];

/// Writes the pictures, and a dataset of each kind.
pub(crate) fn prepare(folder: &Path) {
    write_image_folder(&folder.join("pictures"), PICTURES, 1, |_| {}).expect("pictures are written");
    for (name, jpegs) in KINDS {
        pack_as(folder, name, jpegs);
    }
    let long = folder.join("long");
    fs::create_dir(&long).expect("a folder");
    runtime().block_on(numpy::write(&long, LONG_RECORDS, LONG_BYTES));
}

/// The functions that make members of records, and shards and indexes of members. The rest of a pack passes groups of records from
/// thread to thread, and adds up statistics ten times a second, however long a second is under valgrind.
pub(crate) const PACKING: [&str; 6] = [
    "spdl_dataset::record::RecordMaker::plan",
    "spdl_dataset::record::RecordMaker::measure",
    "spdl_dataset::record::RecordMaker::read",
    "spdl_dataset::record::RecordMaker::members",
    "spdl_dataset::pack::Packing::record::{{closure}}",
    "spdl_dataset::pack::Packing::close::{{closure}}",
];

/// Packs the pictures repeatedly.
pub(crate) fn pack(folder: &Path, times: u64) {
    for _ in 0..times {
        pack_as(folder, "packed", Jpegs::AsTheyAre);
    }
}

fn pack_as(folder: &Path, name: &str, jpegs: Jpegs) {
    let mut options = PackOptions::new(PackSource::ImageFolder(folder.join("pictures")));
    (options.jpegs, options.overwrite) = (jpegs, Overwrite::Replace);
    runtime().block_on(async {
        spdl_dataset::pack(&store(folder, name), &options, &|_| {}).await.expect("pictures are packed");
    });
}

fn store(folder: &Path, name: &str) -> DatasetStore {
    let to = folder.join(name);
    DatasetStore::create_with(to.to_str().expect("UTF-8"), &Default::default()).expect("a folder")
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts")
}

/// Takes batches of crops of pictures.
pub(crate) fn feed_pictures(folder: &Path, dataset: &str, batches: u64) {
    feed(folder, dataset, (PICTURES, COLUMNS), batches);
}

/// Takes batches of long records.
pub(crate) fn feed_long(folder: &Path, batches: u64) {
    feed(folder, "long", (LONG_RECORDS, numpy::column(LONG_BYTES).as_str()), batches);
}

/// Takes all batches of a rank whose epoch is one batch: from the plan to the filled slot, with one decoding thread.
fn feed(folder: &Path, dataset: &str, (samples, columns): (u64, &str), batches: u64) {
    let (runtime, stopped) = (runtime(), runtime());
    let store = store(folder, dataset);
    let facts = runtime.block_on(store.manifest()).expect("a manifest").facts();
    let text = format!(
        "name = \"gate\"\ndataset = \"{}\"\nseed = 1\nglobal_batch = {samples}\nepochs = {batches}\n{columns}",
        store.url()
    );
    let job = JobFile::parse(&text, "gate").and_then(|file| file.freeze(&facts)).expect("a valid job");
    let global_batch = job.global_batch;
    let session = Session { id: SessionId(1), job, world: 1, global_batch, start: Position::START };
    let budget = Budget { cores: 1.0, memory_bytes: 1 << 30, disk: None };
    let resources = Resources::new("gate", budget).expect("threads");
    let request = FeedRequest { session, rank: 0, from: Position::START, slots: 2, slab: SlabKind::Private };
    let start = |runtime: &Runtime| {
        let _entered = runtime.enter();
        RankFeed::start(&resources, request.clone()).expect("memory for the slots")
    };
    // The first feed starts the task that measures four times a second to tune the read-ahead. Start it on a runtime
    // that never runs.
    drop(start(&stopped));
    let mut feed = start(&runtime);
    runtime.block_on(async {
        while let FeedEvent::Filled { slot, .. } = feed.next().await.expect("a good dataset") {
            feed.free(slot).expect("a lent slot");
        }
    });
}
