//! A shard that was replaced after the manifest was made is refused by name.

use std::time::Duration;

use object_store::{ObjectStoreExt, WriteMultipart};
use spdl_testkit::{
    processes::{ctl, run},
    proxy::RequestFault,
};

use super::fixture::{FeedSettings, StorageFixture};

/// The least that S3 takes for a part that is not the last one.
const PART_BYTES: usize = 5 << 20;

impl StorageFixture {
    /// Indexes the dataset on the server, so that the manifest has the store's etags.
    async fn with_etags(&self) {
        let mut index = ctl();
        index.args(["index", &self.server.url("set"), "--force", "--json", "--block-size", "48KiB"]);
        // The test's server gives etags of the objects that are asked for, and none in its lists.
        index.args(["--shards", &self.shards().join(",")]);
        index.envs(self.server.environment()).env("AWS_SKIP_SIGNATURE", "true");
        run(&mut index).json();
        let manifest = self.server.client().get(&self.server.key("set/.spdl/manifest.spdl")).await.unwrap();
        let local = self.folder.path().join("dataset/.spdl/manifest.spdl");
        std::fs::write(local, manifest.bytes().await.unwrap()).unwrap();
    }

    /// Uploads a changed copy of a shard in parts, as `aws s3 cp` does with large files, and returns its etag: it is computed from those
    /// of the parts and ends with their number.
    async fn upload_in_parts(&self, shard: &str, change: fn(&mut Vec<u8>)) -> String {
        let (client, key) = (self.server.client(), self.server.key(&format!("set/{shard}")));
        let mut bytes = std::fs::read(self.folder.path().join("dataset").join(shard)).unwrap();
        change(&mut bytes);
        let mut upload = client.put_multipart(&key).await.unwrap();
        for part in bytes.chunks(PART_BYTES) {
            upload.put_part(part.to_vec().into()).await.unwrap();
        }
        upload.complete().await.unwrap();
        let etag = client.head(&key).await.unwrap().e_tag.expect("the server gives etags");
        let parts = bytes.len().div_ceil(PART_BYTES);
        assert!(etag.trim_matches('"').ends_with(&format!("-{parts}")), "{etag}");
        etag
    }

    /// Returns the error of a run in which the store fails for a shard and, when it works again, has replaced it.
    async fn error_when<R: Future>(&self, shard: &str, replace: impl FnOnce() -> R) -> String {
        self.proxy.order(shard, 1, 1 << 40, RequestFault::Status(503, None));
        let mut fed = self.feed(&self.url, 1, &FeedSettings::default()).await;
        while !fed.feed.stall().is_some_and(|stall| stall.waiting_for.contains("have failed for")) {
            tokio::select! {
                next = fed.next() => assert!(next.unwrap(), "the end came without the shard"),
                () = tokio::time::sleep(Duration::from_millis(1)) => {}
            }
        }
        replace().await;
        self.proxy.forget_orders();
        let error = fed.rest().await.unwrap_err();
        assert!(!error.is_retryable(), "{error}");
        error.to_string()
    }

    /// Replaces a shard on the server by a changed copy.
    async fn replace(&self, shard: &str, change: fn(&mut Vec<u8>)) {
        let key = self.server.key(&format!("set/{shard}"));
        let mut bytes = std::fs::read(self.folder.path().join("dataset").join(shard)).unwrap();
        change(&mut bytes);
        self.server.client().put(&key, bytes.into()).await.unwrap();
    }
}

/// Changes bytes in each record and keeps the length.
fn other_bytes(bytes: &mut [u8]) {
    bytes.iter_mut().filter(|byte| **byte > 127).for_each(|byte| *byte ^= 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_of_another_size_is_refused_by_name() {
    let fixture = StorageFixture::new(24, 6).await;
    let shard = fixture.shards().remove(2);
    fixture.replace(&shard, |bytes| bytes.truncate(bytes.len() - 1024)).await;
    let error = fixture.run(1, &FeedSettings::default()).await.unwrap_err();
    assert!(error.to_string().contains(&format!("shard `{shard}` changed")) && !error.is_retryable(), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_of_the_same_size_with_another_etag_and_other_bytes_is_refused_in_the_middle_of_a_run() {
    let fixture = StorageFixture::new(24, 6).await;
    fixture.with_etags().await;
    assert_eq!(fixture.run(1, &FeedSettings::default()).await.unwrap().batches, fixture.undisturbed(1).await);
    let shard = fixture.shards().remove(2);
    let error = fixture.error_when(&shard, || fixture.replace(&shard, |bytes| other_bytes(bytes))).await;
    for part in [&format!("shard `{shard}` changed"), "etag", "and checksum", "copy it again"] {
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_was_uploaded_in_parts_is_refused_by_name_when_another_one_is() {
    // Two shards of 6 MB, each in two parts.
    let fixture = StorageFixture::new(560, 280).await;
    let shards = fixture.shards();
    let mut etags = Vec::new();
    for shard in &shards {
        etags.push(fixture.upload_in_parts(shard, |_| {}).await);
    }
    fixture.with_etags().await;
    assert_eq!(fixture.run(1, &FeedSettings::default()).await.unwrap().batches, fixture.undisturbed(1).await);
    let found = run(ctl().arg("verify").arg(&fixture.url).arg("--json")).json();
    assert_eq!((&found["faults"], &found["other_etags"]), (&serde_json::json!([]), &0.into()), "{found}");

    let shard = &shards[1];
    let error = fixture.error_when(shard, || fixture.upload_in_parts(shard, |bytes| other_bytes(bytes))).await;
    let other =
        fixture.server.client().head(&fixture.server.key(&format!("set/{shard}"))).await.unwrap().e_tag.unwrap();
    assert_ne!(other, etags[1]);
    for part in [&format!("shard `{shard}` changed"), etags[1].trim_matches('"'), other.trim_matches('"')] {
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copied_dataset_whose_etags_are_others_delivers_the_same_samples() {
    let fixture = StorageFixture::new(24, 6).await;
    fixture.with_etags().await;
    // A multipart copy of one part.
    for shard in fixture.shards() {
        let (client, key) = (fixture.server.client(), fixture.server.key(&format!("set/{shard}")));
        let before = client.head(&key).await.unwrap().e_tag;
        let bytes = std::fs::read(fixture.folder.path().join("dataset").join(&shard)).unwrap();
        let mut upload = WriteMultipart::new(client.put_multipart(&key).await.unwrap());
        upload.write(&bytes);
        upload.finish().await.unwrap();
        assert_ne!(client.head(&key).await.unwrap().e_tag, before);
    }
    assert_eq!(fixture.run(1, &FeedSettings::default()).await.unwrap().batches, fixture.undisturbed(1).await);
    for place in [&fixture.url, &fixture.local()] {
        let found = run(ctl().arg("verify").arg(place).arg("--json")).json();
        assert_eq!((&found["faults"], &found["other_etags"]), (&serde_json::json!([]), &4.into()), "{place}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_is_partly_in_the_disk_cache_is_refused_all_the_same() {
    let fixture = StorageFixture::new(24, 6).await;
    fixture.with_etags().await;
    let cache = tempfile::tempdir().unwrap();
    let settings = FeedSettings::with_disk(cache.path());
    assert_eq!(fixture.run(1, &settings).await.unwrap().batches, fixture.undisturbed(1).await);
    let mut blocks: Vec<_> = std::fs::read_dir(cache.path()).unwrap().map(|file| file.unwrap().path()).collect();
    blocks.retain(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("blk-")));
    blocks.sort();
    assert_eq!(blocks.len(), 12);
    blocks.iter().step_by(2).for_each(|block| std::fs::remove_file(block).unwrap());
    let shards = fixture.shards();
    for shard in &shards {
        fixture.replace(shard, |bytes| other_bytes(bytes)).await;
    }
    let error = fixture.run(1, &settings).await.unwrap_err().to_string();
    assert!(shards.iter().any(|shard| error.contains(&format!("shard `{shard}` changed"))), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_bytes_where_the_manifest_knows_no_etag_are_refused_by_their_checksums() {
    let fixture = StorageFixture::new(24, 6).await;
    let shard = fixture.shards().remove(2);
    fixture.replace(&shard, |bytes| other_bytes(bytes)).await;
    let error = fixture.run(1, &FeedSettings::default()).await.unwrap_err().to_string();
    for part in [&format!("shard `{shard}`"), "checksum", "was replaced"] {
        assert!(error.contains(part), "{error}");
    }
}
