//! Reindexing a dataset that `pack` wrote: the metadata of its manifest is kept, or an error states what would be
//! lost.

use spdl_dataset::OldMetadata;

use super::*;

/// Packs a crop-ready dataset of many small blocks.
async fn packed_dataset(folder: &Path) -> DatasetReport {
    let read = |path: &str| fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap();
    for number in 0..6 {
        write(folder.join(format!("in/space/{number}.jpg")), read("assets/photos/rocket.jpg"));
        write(folder.join(format!("in/people/{number}.jpg")), read("assets/photos/grace_hopper.jpg"));
    }
    let options = PackOptions {
        jpegs: Jpegs::CropReady,
        block_bytes: 200 << 10,
        shard_records: Some(5),
        ..PackOptions::new(PackSource::ImageFolder(folder.join("in")))
    };
    packed(&options, &folder.join("set")).await.unwrap()
}

/// Returns every file of the dataset except its manifest, which records etags.
fn indexes(folder: &Path) -> Vec<Vec<u8>> {
    let mut names: Vec<_> = fs::read_dir(folder.join(".spdl")).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|name| name.extension().is_some_and(|extension| extension == "idx"));
    names.sort();
    names.iter().map(|name| fs::read(name).unwrap()).collect()
}

#[tokio::test]
async fn indexing_again_keeps_what_pack_knows_so_that_jobs_and_checkpoints_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let made = packed_dataset(folder.path()).await;
    let set = folder.path().join("set");
    let before = indexes(&set);
    assert!(made.blocks > 3 && made.classes == 2 && made.crop_ready_pictures == 12, "{made:?}");
    let again = IndexOptions { overwrite: Overwrite::Replace, ..Default::default() };
    let report = indexed(&set, &again).await.unwrap();
    assert_eq!((report.fingerprint, report.blocks, report.classes), (made.fingerprint, made.blocks, 2));
    assert_eq!(indexes(&set), before);
    assert_eq!(verified(&set).await.crop_ready_pictures, 12);

    // A changed shard is indexed from scratch; the metadata of the others is kept.
    write(set.join("shard-000001.tar"), tar(&[("space/new.jpg", b"new"), ("space/new.cls", b"1")]));
    let report = indexed(&set, &again).await.unwrap();
    assert_ne!(report.fingerprint, made.fingerprint);
    let after = indexes(&set);
    assert_eq!((&after[0], &after[2]), (&before[0], &before[2]));
    assert_eq!((report.records, verified(&set).await.faults), (8, vec![]));
}

#[tokio::test]
async fn what_would_be_lost_is_reported_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let made = packed_dataset(folder.path()).await;
    let set = folder.path().join("set");
    let (before, manifest) = (indexes(&set), fs::read(set.join(".spdl/manifest.spdl")).unwrap());
    let replace = IndexOptions { overwrite: Overwrite::Replace, ..Default::default() };
    for (options, expected) in [
        (
            IndexOptions { block_bytes: Some(8 << 20), ..replace.clone() },
            "`block_size` cuts the shards into other blocks",
        ),
        (
            IndexOptions { boxes: Some("jpg".into()), ..replace.clone() },
            "`boxes` gives records other numbers of samples",
        ),
        (
            IndexOptions { classes: ClassOrder::Given(vec!["x".into()]), ..replace.clone() },
            "`classes` gives the classes other names",
        ),
    ] {
        let error = indexed(&set, &options).await.unwrap_err();
        assert!(error.to_string().contains(expected) && error.to_string().contains("checkpoint"), "{error}");
        assert!(error.hint().unwrap().contains("--discard-metadata"));
        assert_eq!(
            (indexes(&set), fs::read(set.join(".spdl/manifest.spdl")).unwrap()),
            (before.clone(), manifest.clone())
        );
    }
    let discard = IndexOptions { old_metadata: OldMetadata::Discard, ..replace };
    let report = indexed(&set, &discard).await.unwrap();
    assert!(report.fingerprint != made.fingerprint && report.blocks < made.blocks && report.classes == 0, "{report:?}");
}
