//! Compares the part of a dataset that a job's order uses at once with the room in the workers' caches.

use spdl_control::coordinator::Status;
use spdl_job::{Job, JobSource};
use spdl_order::{BucketParams, OrderParams};
use spdl_shard::manifest::Manifest;

use super::report;

/// Returns a warning if blocks of the job are fetched more than once an epoch, because the caches of all workers hold less
/// than is in use at once. Without a worker there is nothing to compare with.
pub(crate) fn warning(job: &Job, manifests: &[Manifest], status: &Status) -> Option<String> {
    let bytes = |manifest: &Manifest| (0..manifest.block_count()).map(|block| manifest.block(block).bytes).sum();
    let used = match manifests {
        [manifest] if job.sources.is_empty() => {
            in_use((job.order, job.samples, job.bucket()), manifest.block_count(), bytes(manifest))
        }
        manifests => {
            let of = |(source, manifest): (&JobSource, &Manifest)| {
                in_use((source.order(job.order), source.samples, None), manifest.block_count(), bytes(manifest))
            };
            job.sources.iter().zip(manifests).map(of).sum()
        }
    };
    let caches: Vec<u64> = status.workers.iter().map(|worker| worker.cache.limit_bytes).collect();
    let hold: u64 = caches.iter().sum();
    let (again, room) = match manifests.iter().any(|manifest| manifest.format().is_columnar()) {
        // A cache on disk keeps blocks as they are stored, so they would still be decoded again.
        true => ("fetched and decoded", "`--memory`"),
        false => ("fetched", "`--memory` or `--cache-bytes`"),
    };
    (hold > 0 && used > hold).then(|| {
        format!(
            "the order of job `{}` has {} of its dataset in use at once, and the caches of {} hold {}, so blocks are \
             {again} more than once an epoch\nhint: give workers more {room}, or the job a smaller `window` or fewer \
             `lanes` in `[order]`",
            job.name,
            report::bytes(used),
            report::count(caches.len() as u64, "worker", "workers"),
            report::bytes(hold)
        )
    })
}

/// Returns the bytes of a dataset of so many samples in this order that are in use at once: a window of each lane, or a block of each if
/// nothing is shuffled; with buckets, also the samples that are sorted by size.
fn in_use((order, samples, bucket): (OrderParams, u64, Option<BucketParams>), blocks: u32, dataset_bytes: u64) -> u64 {
    let samples_per_block = samples.div_ceil(u64::from(blocks).max(1));
    let samples_of_lane = if order.shuffle { order.window.max(samples_per_block) } else { samples_per_block };
    let sorted = bucket.map_or(0, |bucket| bucket.window);
    let used = u128::from(order.lanes) * u128::from(samples_of_lane) + u128::from(sorted);
    let bytes = used * u128::from(dataset_bytes) / u128::from(samples.max(1));
    u64::try_from(bytes).unwrap_or(u64::MAX).min(dataset_bytes)
}

#[cfg(test)]
mod tests {
    use spdl_job::JobFile;
    use spdl_order::DatasetFacts;
    use spdl_types::Fingerprint;

    use super::*;

    fn in_use_by(global_batch: u32, order: &str) -> u64 {
        let facts = DatasetFacts::new(Fingerprint(1), 1_000_000, 10_000);
        let column = "[[column]]\nname = \"x\"\nfrom = \"x\"\ndecode = \"int\"";
        let text = format!("name = \"j\"\ndataset = \"/d\"\nglobal_batch = {global_batch}\n{order}\n{column}");
        let job = JobFile::parse(&text, "j.toml").and_then(|file| file.freeze(&facts)).expect("a valid job");
        in_use((job.order, job.samples, job.bucket()), 10_000, 80_000_000_000)
    }

    #[test]
    fn a_global_batch_of_blocks_is_in_use_by_default_and_a_window_of_each_lane_else() {
        assert_eq!(in_use_by(2000, ""), 2000 * 8_000_000);
        assert_eq!(in_use_by(100, "order = { lanes = 10, window = 1000 }"), 100 * 8_000_000);
        assert_eq!(in_use_by(100, "order = { lanes = 10, window = 1 }"), 10 * 8_000_000, "blocks are held whole");
        assert_eq!(in_use_by(100, "shuffle = false\norder = { lanes = 10, window = 1000 }"), 10 * 8_000_000);
        assert_eq!(in_use_by(100, "order = { lanes = 100, window = 1000000 }"), 80_000_000_000, "it is the dataset");
        let sorted = format!("cost = {{ field = \"n\", bucket = 300, sizes = \"{}\" }}", Fingerprint(7));
        let order = "order = { lanes = 10, window = 1000 }";
        assert_eq!(
            in_use_by(100, &format!("{sorted}\n{order}")),
            (10_000 + 30_000) * 80_000,
            "with all that is sorted"
        );
    }
}
