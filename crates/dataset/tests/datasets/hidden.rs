//! What is hidden in a folder, and what is there twice by a link, is no part of a dataset, in every format.

use std::{collections::BTreeSet, fs, os::unix::fs::symlink, path::Path};

use crate::{
    dataset::{at, quiet, write},
    tar::tar,
};
use spdl_dataset::{DatasetReport, IndexOptions, LeftOutReason, PackOptions, PackSource, ShardList, index, pack};

async fn indexed(folder: &Path, options: &IndexOptions) -> DatasetReport {
    index(&at(folder), &at(folder), options, &quiet).await.unwrap()
}

/// The name and the bytes of a shard of 8 records or more in each format whose shards are files that stand for themselves.
pub(crate) fn shards() -> [(&'static str, Vec<u8>); 5] {
    let golden = |name: &str| fs::read(format!("tests/golden/{name}")).unwrap();
    let names = ["0.txt", "1.txt", "2.txt", "3.txt", "4.txt", "5.txt", "6.txt", "7.txt"];
    let tar = tar(&names.map(|name| (name, &b"x"[..])));
    let compressed = zstd::encode_all(&*tar, 0).unwrap();
    let array_record = zstd::decode_all(&*golden("array_record/plain.zst")).unwrap();
    [
        ("0.tar", tar),
        ("0.tar.zst", compressed),
        ("0.tfrecord-00000-of-00001", golden("tf.tfrecord")),
        ("0.parquet", golden("rows.parquet")),
        ("0.array_record", array_record),
    ]
}

/// Writes what others keep beside a shard: whole copies of it, and files of its name that are none.
fn write_hidden(folder: &Path, name: &str, shard: &[u8]) -> u64 {
    let copies =
        [".git/annex/objects/a1", ".snapshot/hourly.0", ".Trash-1000/files", "_temporary/0", "@eaDir", "a/.nfs"];
    copies.iter().for_each(|copy| write(folder.join(copy).join(name), shard));
    for damaged in [format!("._{name}"), format!("__MACOSX/._{name}"), format!("a/._{name}"), format!("_{name}")] {
        write(folder.join(damaged), [0, 5, 0x16, 7]);
    }
    copies.len() as u64 + 4
}

fn left_out(report: &DatasetReport) -> Vec<(LeftOutReason, u64, &str)> {
    report.left_out.iter().map(|entry| (entry.why, entry.files, &*entry.example)).collect()
}

#[tokio::test]
async fn hidden_shards_are_counted_and_not_read_in_every_format() {
    for (name, shard) in shards() {
        let folder = tempfile::tempdir().unwrap();
        let (alone, beside) = (folder.path().join("alone"), folder.path().join("beside"));
        write(alone.join("a").join(name), &shard);
        write(beside.join("a").join(name), &shard);
        let hidden = write_hidden(&beside, name, &shard);
        // What a transfer has not finished ends in other letters.
        write(beside.join(format!("a/.{name}.Xa81f")), "half");
        let expected = indexed(&alone, &IndexOptions::default()).await;
        let report = indexed(&beside, &IndexOptions::default()).await;
        assert_eq!((report.shards, report.records), (1, expected.records), "{name}");
        let [(why, files, example)] = left_out(&report)[..] else { panic!("{:?}", report.left_out) };
        let unfinished = u64::from(name.contains("record"));
        let in_trash = format!(".Trash-1000/files/{name}");
        assert_eq!((why, files, example), (LeftOutReason::Hidden, hidden + unfinished, &*in_trash));

        // What the caller names is meant.
        let chosen = ShardList::Named(vec![format!(".snapshot/hourly.0/{name}")]);
        let format = Some(expected_format(&alone).await);
        let elsewhere = folder.path().join("elsewhere");
        let options = IndexOptions { shards: chosen, format, ..IndexOptions::default() };
        let report = index(&at(&beside), &at(&elsewhere), &options, &quiet).await.unwrap();
        assert_eq!((report.records, left_out(&report)), (expected.records, vec![]));
    }
}

async fn expected_format(folder: &Path) -> &'static dyn spdl_shard::format::Format {
    at(folder).manifest().await.unwrap().format()
}

#[tokio::test]
async fn a_shard_that_has_two_names_is_one() {
    for (name, shard) in shards() {
        let folder = tempfile::tempdir().unwrap();
        let (dataset, store) = (folder.path().join("dataset"), folder.path().join("store"));
        write(store.join("object"), &shard);
        fs::create_dir_all(dataset.join("day")).unwrap();
        symlink(store.join("object"), dataset.join(format!("b-{name}"))).unwrap();
        symlink(store.join("object"), dataset.join("day").join(name)).unwrap();
        fs::hard_link(store.join("object"), dataset.join(format!("c-{name}"))).unwrap();
        // Another file with the same bytes is another shard.
        write(dataset.join(format!("a-{name}")), &shard);
        let report = indexed(&dataset, &IndexOptions::default()).await;
        assert_eq!(report.shards, 2, "{name}");
        let urls: BTreeSet<String> =
            at(&dataset).manifest().await.unwrap().shards().map(|shard| shard.url.to_owned()).collect();
        assert_eq!(urls, [format!("a-{name}"), format!("b-{name}")].into());
        let twice = [(LeftOutReason::SameFile, 2, &*format!("c-{name}"))];
        assert_eq!(left_out(&report), twice);
    }
}

/// Writes a folder of pictures in two classes, with what others keep in it. Returns the number of the latter.
fn write_pictures(root: &Path) -> u64 {
    for name in ["ant/1.jpg", "ant/_DSC0001.jpg", "_background_/2.jpg"] {
        write(root.join(name), name);
    }
    let hidden = [
        "ant/.ipynb_checkpoints/1-checkpoint.jpg",
        "ant/@eaDir/1.jpg/SYNOPHOTO_THUMB_M.jpg",
        ".git/annex/objects/a1/1.jpg",
        ".git/HEAD",
        "__MACOSX/ant/._1.jpg",
        "ant/._1.jpg",
        ".DS_Store",
        "lost+found/17.jpg",
    ];
    hidden.iter().for_each(|name| write(root.join(name), "?"));
    // A hidden tar does not make the folder one of tars.
    write(root.join(".cache/pictures.tar"), tar(&[("0.txt", b"x")]));
    hidden.len() as u64 + 1
}

#[tokio::test]
async fn hidden_pictures_are_counted_and_no_class_whether_packed_listed_or_as_they_lie() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("pictures");
    let hidden = write_pictures(&root);
    let [first, of_root] = [".DS_Store", ".git/HEAD"].map(str::to_owned);
    let check = |report: &DatasetReport, classes: &[&str], hidden: u64, what: &str| {
        assert_eq!((report.records, &*report.class_names.join(" ")), (3, &*classes.join(" ")), "{what}");
        let found = left_out(report);
        assert_eq!(found.len(), 1, "{what}: {found:?}");
        assert_eq!((found[0].0, found[0].1), (LeftOutReason::Hidden, hidden), "{what}");
        assert!([&*first, &*of_root].contains(&found[0].2), "{what}: {found:?}");
    };
    let classes = ["_background_", "ant"];
    for (number, source) in [PackSource::of(&root), PackSource::StoredFolder(at(&root))].into_iter().enumerate() {
        let to = folder.path().join(format!("packed-{number}"));
        let report = pack(&at(&to), &PackOptions::new(source.clone()), &quiet).await.unwrap();
        check(&report, &classes, hidden, &format!("{source:?}"));
    }
    // As `find . -type f` writes it.
    let mut names: Vec<String> = vec![];
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match entry.is_dir() {
                true => folders.push(entry),
                false if entry.extension().is_some() => {
                    names.push(format!("./{}\n", entry.strip_prefix(&root).unwrap().display()));
                }
                false => {}
            }
        }
    }
    write(root.join("list.txt"), names.concat());
    let options = PackOptions::new(PackSource::of(&root.join("list.txt")));
    let report = pack(&at(&folder.path().join("listed")), &options, &quiet).await.unwrap();
    assert_eq!((report.records, left_out(&report).len()), (3, 1));
    assert_eq!(left_out(&report)[0], (LeftOutReason::Hidden, hidden - 2, "./.cache/pictures.tar"));
    fs::remove_file(root.join("list.txt")).unwrap();

    let report = indexed(&root, &IndexOptions::default()).await;
    check(&report, &classes, hidden, "as they lie");
    assert_eq!(expected_format(&root).await.name(), "files");
}
