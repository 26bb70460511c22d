//! Tars whose files have dots in their names: pictures that look as if each were meant as a record are not silently one.

use std::{fs, path::Path};

use spdl_dataset::{
    DatasetError, DatasetReport, IndexOptions, Overwrite, index,
    tar::{KeyEnd, TAR_END, append_member},
};
use spdl_shard::store::DatasetStore;

/// Writes a shard of files of these names.
fn write(folder: &Path, shard: &str, names: impl IntoIterator<Item = String>) {
    let mut tar = Vec::new();
    for name in names {
        append_member(&mut tar, &name, name.as_bytes());
    }
    tar.extend(TAR_END);
    fs::write(folder.join(shard), tar).unwrap();
}

async fn indexed(folder: &Path, key_ends_at: Option<KeyEnd>) -> Result<DatasetReport, DatasetError> {
    let store = DatasetStore::open(folder.to_str().unwrap()).unwrap();
    let options = IndexOptions { key_ends_at, overwrite: Overwrite::Replace, ..Default::default() };
    index(&store, &store, &options, &|_| {}).await
}

#[tokio::test]
async fn numbered_pictures_of_few_classes_are_refused_until_it_is_said_whether_each_is_a_record() {
    // As they lie in Kaggle's folder, and one class after the other, in one shard and in two.
    let sorted =
        || ["cat", "dog"].map(|class| (0..12).map(move |n| format!("train/{class}.{n}.jpg"))).into_iter().flatten();
    let mixed = || (0..12).flat_map(|n| ["cat", "dog"].map(|class| format!("train/{class}.{n}.jpg")));
    let written: [&dyn Fn(&Path); 3] =
        [&|folder| write(folder, "0.tar", sorted()), &|folder| write(folder, "0.tar", mixed()), &|folder| {
            write(folder, "0.tar", sorted().filter(|name| name.contains("cat")));
            write(folder, "1.tar", sorted().filter(|name| name.contains("dog")));
        }];
    for write in written {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        let error = indexed(folder.path(), None).await.unwrap_err();
        let expected =
            "pictures with 12 names such as `0.jpg` are fields of one record, such as `train/cat` in shard `0.tar`";
        assert!(error.to_string().contains(expected), "{error}");
        assert!(error.hint().unwrap().contains("--key-ends-at last-dot"));
        assert!(!folder.path().join("manifest.spdl").exists());
        let report = indexed(folder.path(), Some(KeyEnd::LastDot)).await.unwrap();
        assert_eq!((report.records, report.fields), (24, [("jpg".to_owned(), 24)].into()));
        let report = indexed(folder.path(), Some(KeyEnd::FirstDot)).await.unwrap();
        assert_eq!((report.fields.len(), report.notes.is_empty()), (12, true));
    }
}

#[tokio::test]
async fn views_and_frames_of_one_thing_are_one_record() {
    let folder = tempfile::tempdir().unwrap();
    let views = (0..20).flat_map(|n| ["left.jpg", "right.jpg", "json"].map(|field| format!("{n:03}.{field}")));
    write(folder.path(), "0.tar", views);
    let report = indexed(folder.path(), None).await.unwrap();
    assert_eq!((report.records, report.fields["left.jpg"], report.notes), (20, 20, vec![]));
    let frames = (0..20).flat_map(|n| (0..16).map(move |frame| format!("{n:03}.{frame}.jpg")));
    write(folder.path(), "0.tar", frames);
    let report = indexed(folder.path(), None).await.unwrap();
    assert_eq!((report.records, report.fields.len()), (20, 16));
    let [note] = &report.notes[..] else { panic!("{:?}", report.notes) };
    assert!(note.contains("pictures with 16 names such as `0.jpg` are fields of one record, such as `000`"), "{note}");
}
