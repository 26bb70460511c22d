//! The disk of a worker's cache is full.

use std::fs;

use spdl_testkit::{
    disk::SmallDisk,
    processes::{Cluster, TestDataset, undisturbed},
    s3::S3Server,
    skipped,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_cache_that_is_full_is_done_without_and_nothing_of_others_is_deleted() {
    let dataset = TestDataset::of_pictures(60, 20);
    let disk = match SmallDisk::mount(dataset.path("disk"), 2 << 20) {
        Ok(disk) => disk,
        Err(reason) => return skipped(format_args!("no file system can be mounted here: {reason}")),
    };
    let server = S3Server::start();
    let url = server.upload(&dataset.path("dataset"), "full").await;
    let job = dataset.job("full", "epochs = 3");
    let text = fs::read_to_string(&job).unwrap();
    let local = format!("{:?}", dataset.path("dataset"));
    assert!(text.contains(&local), "{text}");
    fs::write(&job, text.replace(&local, &format!("{url:?}"))).unwrap();

    let cache = disk.path("cache");
    fs::create_dir(&cache).unwrap();
    // A file with a foreign name, and one of half a megabyte whose name looks like one of the cache's own.
    let strangers = [("notes.txt", 10), ("blk-of-somebody-else", 512 << 10)];
    strangers.iter().for_each(|(name, bytes)| fs::write(cache.join(name), vec![7; *bytes]).unwrap());

    let environment = server.environment().map(|(name, value)| (name.to_owned(), value)).to_vec();
    let mut cluster = Cluster::start_with(0, &[], environment);
    let folder = cache.to_str().unwrap().to_owned();
    cluster.start_worker("node-0", &["--cache-dir", &folder, "--cache-bytes", "1GiB"]);
    cluster.submit(&job);
    let report = cluster.pull_all("full", 1, &["node-0"], &["--from", "0:0"]).remove(0);
    let steps = report["batches"].as_u64().unwrap();

    // The same job with the dataset on the local disk.
    let local_job = dataset.job("full", "epochs = 3");
    let alone = undisturbed(&local_job, steps, &[]);
    assert_eq!(report["content_digest"], alone["content_digest"]);
    for (name, bytes) in strangers {
        assert_eq!(fs::read(cache.join(name)).unwrap(), vec![7; bytes], "{name}");
    }
    let ours = fs::read_dir(&cache).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    let ours: Vec<String> = ours.filter(|name| strangers.iter().all(|(stranger, _)| name != stranger)).collect();
    assert!(ours.iter().any(|name| name.starts_with("blk-")), "something was kept: {ours:?}");
    drop(cluster);
    server.clear().await;
}
