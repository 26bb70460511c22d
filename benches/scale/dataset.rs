//! A dataset of many shards, as a worker, a local loader or `spdl-ctl plan` opens it: its manifest and the plan of a job.

use std::{fs, path::Path};

use serde_json::{Value, json};
use spdl_order::{BatchParams, EpochEnd, OrderParams, Plan};
use spdl_shard::{
    manifest::{BlockFacts, MANIFEST_NAME, ManifestBuilder, ShardFacts},
    store::DatasetStore,
};
use spdl_types::Fingerprint;

use crate::cost::measure;

/// The numbers of shards that are measured.
pub(crate) const SHARDS: [u32; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Samples of a shard, which is a block: 10^10 in the largest dataset.
const SAMPLES: u32 = 10_000;
const GLOBAL_BATCH: u32 = 4096;
const WORLD: u32 = 64;
/// Batches of a rank that are planned.
const STEPS: u64 = 200;

/// Writes the manifest of a dataset into a folder.
pub(crate) fn write(folder: &Path, shards: u32) {
    let mut builder = ManifestBuilder::new("many");
    let block = BlockFacts { offset: 0, bytes: 1 << 30, first_record: 0, records: SAMPLES, samples: SAMPLES };
    for number in 0..shards {
        let shard = ShardFacts {
            url: format!("part-{:03}/shard-{number:06}.tar", number / 1000),
            bytes: 1 << 30,
            etag: Some(format!("\"{number:032x}\"")),
            records: SAMPLES,
            index_bytes: 500_000,
            index_hash: Fingerprint::of(&number.to_le_bytes()),
        };
        builder.shard(&shard, &[block]).expect("the shard fits");
    }
    let manifest = builder.finish().expect("the manifest is valid");
    fs::write(folder.join(MANIFEST_NAME), manifest.bytes()).expect("the manifest is written");
}

/// Opens the dataset of a folder, plans a job on it and the batches of one of its ranks. Call it in a process of its own.
pub(crate) fn run(folder: &Path) -> Value {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let store = DatasetStore::open(folder.to_str().expect("UTF-8")).expect("a folder");
    let (mut manifest, mut plan) = (None, None);
    let opening = measure(|| manifest = Some(runtime.block_on(store.manifest()).expect("the manifest just written")));
    let manifest = manifest.expect("it was opened");
    let order = OrderParams::default_for(&manifest.facts(), GLOBAL_BATCH, true);
    let planning = measure(|| plan = Some(Plan::new(&manifest.block_samples(), 17, order).expect("a plan")));
    let plan = plan.expect("it was made");
    let params = BatchParams { global_batch: GLOBAL_BATCH, epochs: 2, epoch_end: EpochEnd::Drop, end: None };
    let (mut items, mut at) = (Vec::new(), spdl_types::Position::START);
    let mut steps = || {
        for _ in 0..STEPS {
            let step = params.step(plan.samples(), at).expect("there are more steps");
            plan.rank_items(&step, 7, WORLD, &mut items);
            // The facts that a worker looks up for each sample.
            for item in &items {
                std::hint::black_box(manifest.shard(manifest.block(item.located.block).shard).url.len());
            }
            at = step.next;
        }
    };
    let first = measure(&mut steps);
    let later = measure(&mut steps);
    let samples = (STEPS * u64::from(GLOBAL_BATCH / WORLD)) as f64;
    let (anonymous, of_files) = resident();
    json!({
        "shards": manifest.shard_count(),
        "samples": manifest.samples(),
        "manifest_mb": manifest.bytes().len() as f64 / 1e6,
        "open_s": opening.cpu_s,
        "plan_s": planning.cpu_s,
        "first_us": first.cpu_s * 1e6 / samples,
        "sample_us": later.cpu_s * 1e6 / samples,
        "memory_mb": anonymous as f64 / 1e6,
        "mapped_mb": of_files as f64 / 1e6,
    })
}

/// Returns the bytes of this process's memory that are its own, and those that are pages of files.
fn resident() -> (u64, u64) {
    let status = fs::read_to_string("/proc/self/status").expect("the status of this process");
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
        line.trim().strip_suffix(" kB").and_then(|kb| kb.parse::<u64>().ok()).expect("a number of kB") << 10
    };
    (of("RssAnon:"), of("RssFile:"))
}
