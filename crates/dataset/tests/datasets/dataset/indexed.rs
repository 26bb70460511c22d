//! Datasets of tars that exist.

use super::*;

#[tokio::test]
async fn shards_that_exist_are_indexed_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let b = tar(&[("x/1.jpg", b"one"), ("x/1.cls", b"4"), ("x/2.jpg", b""), ("x/2.cls", b"5")]);
    write(folder.path().join("b.tar"), &b);
    write(folder.path().join("more/a.tar"), tar(&[("y.jpg", &[7; 20_000_000])]));
    write(folder.path().join("notes.txt"), "no shard");
    let options =
        IndexOptions { name: Some("mine".into()), classes: ClassOrder::Given(vec!["k".into()]), ..Default::default() };
    let report = indexed(folder.path(), &options).await.unwrap();
    assert_eq!((report.shards, report.records, report.samples, report.empty_fields), (2, 3, 3, 1));
    assert_eq!(report.notes, ["shard `b.tar`, record `x/2`: field `jpg` is empty"]);
    assert_eq!(fs::read(folder.path().join("b.tar")).unwrap(), b, "shards are not rewritten");
    let found = records(folder.path()).await;
    assert_eq!(found[0].0, "b.tar");
    assert_eq!(found[1].3, [("jpg".into(), vec![]), ("cls".into(), b"5".to_vec())]);
    assert_eq!(found[2].3, [("jpg".into(), vec![7; 20_000_000])]);
    let manifest = at(folder.path()).manifest().await.unwrap();
    assert_eq!((manifest.name(), manifest.class(0)), ("mine", "k"));
    assert_eq!(verified(folder.path()).await.faults, []);

    let error = indexed(folder.path(), &options).await.unwrap_err();
    assert!(matches!(&error, DatasetError::InUse { url } if url.ends_with("manifest.spdl")), "{error}");
    let named = |name: &str| IndexOptions {
        shards: ShardList::Named(vec![name.into()]),
        overwrite: Overwrite::Replace,
        ..Default::default()
    };
    assert_eq!(indexed(folder.path(), &named("more/a.tar")).await.unwrap().shards, 1);
    let error = indexed(folder.path(), &named("gone.tar")).await.unwrap_err().to_string();
    assert!(error.contains("gone.tar` does not exist"), "{error}");
    let error = indexed(folder.path(), &named("../b.tar")).await.unwrap_err().to_string();
    assert!(error.contains("`../b.tar`"), "{error}");
}

#[tokio::test]
async fn a_tar_that_is_cut_is_named_with_the_byte() {
    let folder = tempfile::tempdir().unwrap();
    let whole = tar(&[("1.jpg", b"one"), ("2.jpg", &[1; 9000])]);
    write(folder.path().join("good.tar"), &whole);
    write(folder.path().join("poor.tar"), &whole[..3000]);
    let error = indexed(folder.path(), &Default::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "shard `poor.tar` at byte 3000: the tar is cut off: it ends inside a member");
    assert_eq!(names(folder.path()), ["good.tar", "poor.tar"], "what is not finished is no dataset");
    let empty = tempfile::tempdir().unwrap();
    let error = indexed(empty.path(), &Default::default()).await.unwrap_err().to_string();
    assert!(
        error.contains("shards (`*.tar`, MDS, Parquet, TFRecord, ArrayRecord or Megatron) or pictures are expected"),
        "{error}"
    );
}
