//! Manifests that do not lie with their shards.

use super::*;

/// Tars in the folder `theirs`, and their manifest in `ours`, where files with the same names lie.
async fn apart(folder: &Path) -> [std::path::PathBuf; 2] {
    let [theirs, ours] = ["theirs", "ours"].map(|name| folder.join(name));
    let made = folder.join("made");
    image_folder(&folder.join("images"), 3);
    let source = PackSource::of(&folder.join("images"));
    packed(&PackOptions::new(source), &made).await.unwrap();
    fs::create_dir(&theirs).unwrap();
    fs::rename(made.join("shard-000000.tar"), theirs.join("part-a.tar")).unwrap();
    fs::create_dir(&ours).unwrap();
    write(ours.join("part-a.tar"), "a file of somebody's");
    index(&at(&theirs), &at(&ours), &IndexOptions::default(), &quiet).await.unwrap();
    [theirs, ours]
}

#[tokio::test]
async fn what_replaces_such_a_dataset_removes_its_indexes_and_touches_no_shard() {
    let folder = tempfile::tempdir().unwrap();
    let [theirs, ours] = apart(folder.path()).await;
    let before = at(&ours).manifest().await.unwrap();
    assert_eq!(before.base(), Some("../theirs"));
    assert_eq!(verified(&ours).await.faults, []);

    // The index is made again, and its metadata is kept.
    let options = IndexOptions { overwrite: Overwrite::Replace, ..IndexOptions::default() };
    index(&at(&theirs), &at(&ours), &options, &quiet).await.unwrap();
    let again = at(&ours).manifest().await.unwrap();
    assert_eq!((again.base(), again.fingerprint()), (before.base(), before.fingerprint()));

    let source = PackSource::of(&folder.path().join("images"));
    let options = PackOptions { overwrite: Overwrite::Replace, ..PackOptions::new(source) };
    packed(&options, &ours).await.unwrap();
    assert_eq!(names(&theirs), ["part-a.tar"]);
    assert_eq!(names(&ours), [".spdl", "part-a.tar", "shard-000000.tar"]);
    assert_eq!(names(&ours.join(".spdl")), ["manifest.spdl", "shard-000000.tar.idx"]);
    assert_eq!(fs::read(ours.join("part-a.tar")).unwrap(), b"a file of somebody's");
    assert_eq!(at(&ours).manifest().await.unwrap().base(), None);
}

#[tokio::test]
async fn one_folder_by_two_names_is_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let [theirs, ours] = apart(folder.path()).await;
    std::os::unix::fs::symlink(&theirs, folder.path().join("link")).unwrap();
    index(&at(&theirs), &at(&folder.path().join("link")), &IndexOptions::default(), &quiet).await.unwrap();
    assert_eq!(at(&theirs).manifest().await.unwrap().base(), None);
    // A path that leads back is written as it is without that.
    let options = IndexOptions { overwrite: Overwrite::Replace, ..IndexOptions::default() };
    index(&at(&ours.join("../theirs")), &at(&ours), &options, &quiet).await.unwrap();
    assert_eq!(at(&ours).manifest().await.unwrap().base(), Some("../theirs"));
}
