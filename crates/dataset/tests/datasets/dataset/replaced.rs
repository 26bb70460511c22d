//! Replacing a dataset, interrupted at every single write: either the old or the new dataset exists as a whole, and the
//! next run leaves nothing but its own objects.

use std::sync::Arc;

use spdl_dataset::OldMetadata;
use spdl_shard::store::DatasetStore;
use spdl_store::StoreLayer;
use spdl_types::Fingerprint;

use super::{
    interrupted::{Interrupted, Interruption, Writes},
    *,
};

fn copied(from: &Path, to: &Path) {
    files(from).into_iter().for_each(|(name, bytes)| write(to.join(name), bytes));
}

/// Verifies the dataset, and returns its fingerprint and records.
async fn whole(folder: &Path) -> (Fingerprint, Vec<(String, u32, Vec<(String, Vec<u8>)>)>) {
    assert_eq!(verified(folder).await.faults, [], "in {:?}", files(folder).keys());
    let records = records(folder).await.into_iter().map(|(_, key, samples, fields)| (key, samples, fields));
    (at(folder).manifest().await.unwrap().fingerprint(), records.collect())
}

/// Replaces the dataset in `old` by `replace`, interrupted in all ways at every write, and then once without
/// interruption.
async fn replaced<R>(old: &Path, new: &Path, replace: impl Fn(DatasetStore) -> R)
where
    R: Future<Output = Result<DatasetReport, DatasetError>>,
{
    let (before, after) = (whole(old).await, whole(new).await);
    assert_ne!(before, after);
    let scratch = tempfile::tempdir().unwrap();
    for how in [Interruption::Kill, Interruption::FullDisk, Interruption::Once] {
        for write in 0.. {
            let folder = scratch.path().join(format!("{how:?}-{write}"));
            copied(old, &folder);
            let writes = Writes::interrupted(how, write);
            let store =
                at(&folder).through(|inner| Arc::new(Interrupted { inner, writes: Arc::clone(&writes) }).layered());
            let failed = tokio::select! {
                done = replace(store) => done.is_err(),
                () = writes.killed() => true,
            };
            let found = whole(&folder).await;
            let is_old = found.0 == before.0;
            let expected = if is_old { &before } else { &after };
            assert_eq!(found.1, expected.1, "{how:?} at write {write}");
            assert!(failed || !is_old, "{how:?} at write {write} did nothing and said nothing");
            if how != Interruption::Kill && is_old {
                assert_eq!(files(&folder), files(old), "{how:?} at write {write} left something behind");
            }
            assert!(replace(at(&folder)).await.is_ok());
            assert_eq!(whole(&folder).await, after, "{how:?} at write {write}");
            assert_eq!(files(&folder), files(new), "what {how:?} at write {write} left is still there");
            if !writes.were_interrupted() {
                assert!(write > 10, "only {write} writes were interrupted");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_packing_that_is_interrupted_at_any_write_leaves_the_old_dataset_or_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    image_folder(&path("a"), 5);
    image_folder(&path("b"), 3);
    let options = |source: &str, overwrite| PackOptions {
        shard_records: Some(5),
        overwrite,
        name: Some("set".into()),
        ..PackOptions::new(PackSource::ImageFolder(path(source)))
    };
    packed(&options("a", Overwrite::Refuse), &path("old")).await.unwrap();
    packed(&options("b", Overwrite::Refuse), &path("new")).await.unwrap();
    let options = options("b", Overwrite::Replace);
    let options = &options;
    replaced(&path("old"), &path("new"), |to| async move { pack(&to, options, &quiet).await }).await;
}

#[tokio::test]
async fn an_indexing_that_is_interrupted_at_any_write_leaves_the_old_dataset_or_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let voc = annotation(&["cat", "dog"]);
    for shard in ["a", "b", "c", "d", "e"] {
        for set in ["old", "new"] {
            write(path(set).join(format!("{shard}.tar")), tar(&[("1.jpg", b"one"), ("1.xml", voc.as_bytes())]));
        }
    }
    let options = |boxes: Option<&str>, overwrite| IndexOptions {
        boxes: boxes.map(str::to_owned),
        name: Some("set".into()),
        old_metadata: OldMetadata::Discard,
        overwrite,
        ..Default::default()
    };
    indexed(&path("old"), &options(None, Overwrite::Refuse)).await.unwrap();
    indexed(&path("new"), &options(Some("xml"), Overwrite::Refuse)).await.unwrap();
    let options = options(Some("xml"), Overwrite::Replace);
    let options = &options;
    replaced(&path("old"), &path("new"), |to| async move { index(&to, &to, options, &quiet).await }).await;
}

#[tokio::test]
async fn an_index_that_was_lost_comes_back_though_the_rest_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    image_folder(&folder.path().join("in"), 4);
    let set = folder.path().join("set");
    let options =
        PackOptions { shard_records: Some(5), ..PackOptions::new(PackSource::ImageFolder(folder.path().join("in"))) };
    let made = packed(&options, &set).await.unwrap();
    fs::remove_file(set.join(".spdl/shard-000001.tar.idx")).unwrap();
    write(set.join(".spdl/shard-000000.tar.idx"), "damaged");
    let again = IndexOptions { overwrite: Overwrite::Replace, ..Default::default() };
    assert_eq!(indexed(&set, &again).await.unwrap().fingerprint, made.fingerprint);
    assert_eq!(verified(&set).await.faults, []);
    assert_eq!(files(&set).len(), 7);
}
