//! Tars as other programs write them: oddities are counted and named, and what cannot be read is refused with a hint.

use std::process::Command;

use spdl_dataset::{
    tar::{OddMembers, TarAnomaly},
    unpack,
};

use super::*;

/// Runs a program in a folder.
fn run(folder: &Path, program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).current_dir(folder).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

fn odd(report: &DatasetReport) -> Vec<(TarAnomaly, u64, &str, &str)> {
    report
        .odd_members
        .iter()
        .map(|OddMembers { what, count, shard, first }| (*what, *count, &**shard, &**first))
        .collect()
}

/// Returns the error and the hint for a folder with these shards.
async fn refused(folder: &Path) -> String {
    let error = indexed(folder, &Default::default()).await.unwrap_err();
    let left: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| name.to_str().unwrap().ends_with(".tar")), "nothing is left of it: {left:?}");
    format!("{error}\n{}", error.hint().unwrap())
}

#[tokio::test]
async fn links_and_members_without_a_field_are_counted_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for name in ["a.jpg", "a.cls", "README", ".hidden.jpg"] {
        write(data.join(name), name);
    }
    fs::hard_link(data.join("a.jpg"), data.join("b.jpg")).unwrap();
    std::os::unix::fs::symlink("a.jpg", data.join("c.jpg")).unwrap();
    let shards = folder.path().join("shards");
    fs::create_dir(&shards).unwrap();
    run(&data, "tar", &["--sort=name", "-cf", "../shards/gnu.tar", "."]);
    let report = indexed(&shards, &Default::default()).await.unwrap();
    assert_eq!(report.records, 1);
    let expected = [
        (TarAnomaly::HardLink, 1, "gnu.tar", "./b.jpg"),
        (TarAnomaly::Symlink, 1, "gnu.tar", "./c.jpg"),
        (TarAnomaly::NoField, 2, "gnu.tar", "./.hidden.jpg"),
    ];
    assert_eq!(odd(&report), expected);

    // The keys begin with `./` and are unpacked as `tar` itself unpacks them.
    unpack(&at(&shards), &folder.path().join("out"), &quiet).await.unwrap();
    assert_eq!(fs::read(folder.path().join("out/a.cls")).unwrap(), b"a.cls");
    assert_eq!(fs::read_dir(folder.path().join("out")).unwrap().count(), 2);
}

#[tokio::test]
async fn members_behind_the_end_of_joined_tars_are_counted_and_named() {
    let folder = tempfile::tempdir().unwrap();
    for (shard, pictures) in [("a.tar", ["1.jpg", "2.jpg"]), ("b.tar", ["3.jpg", "4.jpg"])] {
        pictures.iter().for_each(|picture| write(folder.path().join(picture), picture));
        run(folder.path(), "tar", &["-cf", shard, pictures[0], pictures[1]]);
    }
    let joined =
        [fs::read(folder.path().join("a.tar")).unwrap(), fs::read(folder.path().join("b.tar")).unwrap()].concat();
    write(folder.path().join("joined/j.tar"), &joined);
    let report = indexed(&folder.path().join("joined"), &Default::default()).await.unwrap();
    assert_eq!((report.records, odd(&report)), (2, vec![(TarAnomaly::BehindTheEnd, 2, "j.tar", "3.jpg")]));
    assert!(TarAnomaly::BehindTheEnd.text().contains("`cat`"));
    assert_eq!(verified(&folder.path().join("joined")).await.faults, []);
}

#[tokio::test]
async fn repeated_keys_and_torn_records_are_counted_and_named() {
    let folder = tempfile::tempdir().unwrap();
    // All pictures and then all labels, as in a tar sorted by extension; a key that occurs twice; and a record that
    // continues in the next shard.
    let members: [(&str, &[u8]); 6] =
        [("1.jpg", b"x"), ("2.jpg", b"x"), ("1.cls", b"1"), ("2.cls", b"1"), ("1.jpg", b"y"), ("9.jpg", b"x")];
    write(folder.path().join("a.tar"), tar(&members));
    write(folder.path().join("b.tar"), tar(&[("9.cls", b"1"), ("1.jpg", b"x")]));
    let report = indexed(folder.path(), &Default::default()).await.unwrap();
    assert_eq!(report.records, 8);
    assert_eq!(odd(&report), [(TarAnomaly::KeyTwice, 1, "a.tar", "1"), (TarAnomaly::Torn, 3, "a.tar", "1")]);
    let fields: Vec<_> = report.fields.iter().map(|(name, records)| (name.as_str(), *records)).collect();
    assert_eq!(fields, [("cls", 3), ("jpg", 5)]);
}

#[tokio::test]
async fn a_tar_that_cannot_be_read_in_place_is_refused_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    write(data.join("a.jpg"), "picture");
    let sparse = fs::File::create(data.join("sparse.bin")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, b"end", (1 << 20) - 3).unwrap();
    let shards = |name: &str| {
        fs::create_dir(folder.path().join(name)).unwrap();
        format!("../{name}/s.tar")
    };
    run(&data, "tar", &["-czf", &shards("gzip"), "a.jpg"]);
    run(&data, "tar", &["--sparse", "-cf", &shards("sparse"), "sparse.bin"]);
    for (name, expected) in [
        ("gzip", ["compressed with gzip", "decompress it (`gunzip`"]),
        ("sparse", ["`sparse.bin` is a sparse file", "without `--sparse`"]),
    ] {
        let refusal = refused(&folder.path().join(name)).await;
        assert!(expected.iter().all(|part| refusal.contains(part)), "{refusal}");
        assert!(!refusal.contains("copy the shard once more"), "{refusal}");
    }
}

#[tokio::test]
async fn names_in_latin_1_are_read_with_the_same_keys_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let named = |name: &[u8]| path("data").join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name));
    // The name is once in the header, once in a GNU long name or a pax record.
    let long = [&[b'l'; 120][..], b"\xc4\xd6.jpg"].concat();
    write(named(b"caf\xe9.jpg"), "one");
    write(named(b"caf\xe9.cls"), "1");
    write(named("\u{e9}t\u{e9}.jpg".as_bytes()), "two");
    write(named(&long), "three");
    let expected = ["caf\\xe9".to_owned(), format!("{}\\xc4\\xd6", "l".repeat(120)), "\u{e9}t\u{e9}".to_owned()];
    for format in ["gnu", "pax"] {
        let set = path(format);
        fs::create_dir(&set).unwrap();
        let shard = set.join("s.tar");
        run(&path("data"), "tar", &[&format!("--format={format}"), "--sort=name", "-cf", shard.to_str().unwrap(), "."]);
        let report = indexed(&set, &Default::default()).await.unwrap();
        assert_eq!(odd(&report), [(TarAnomaly::NotUtf8, 3, "s.tar", "./caf\\xe9.cls")]);
        let found = records(&set).await;
        let keys: Vec<_> = found.iter().map(|(_, key, ..)| key.trim_start_matches("./")).collect();
        assert_eq!(keys, expected, "{format}");
        assert_eq!(found[0].3, [("cls".to_owned(), b"1".to_vec()), ("jpg".to_owned(), b"one".to_vec())]);
        assert_eq!(verified(&set).await.faults, []);
        unpack(&at(&set), &path(&format!("{format}-out")), &quiet).await.unwrap();
        assert_eq!(fs::read(path(&format!("{format}-out")).join("caf\\xe9.jpg")).unwrap(), b"one");
    }
}

#[tokio::test]
async fn keys_that_only_files_can_have_come_back_as_files() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("in");
    write(root.join("c/a\tb.jpg"), "tab");
    write(root.join("c/a\nb.jpg"), "line end");
    packed(&PackOptions::new(PackSource::ImageFolder(root)), &folder.path().join("set")).await.unwrap();
    assert_eq!(verified(&folder.path().join("set")).await.faults, []);
    unpack(&at(&folder.path().join("set")), &folder.path().join("out"), &quiet).await.unwrap();
    assert_eq!(fs::read(folder.path().join("out/c/a\tb.jpg")).unwrap(), b"tab");
    assert_eq!(fs::read(folder.path().join("out/c/a\nb.jpg")).unwrap(), b"line end");
}

#[tokio::test]
async fn a_command_that_fails_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write(path("shards/a.tar"), tar(&[("1.jpg", b"one")]));
    write(path("shards/b.tar"), &tar(&[("2.jpg", b"two")])[..700]);
    refused(&path("shards")).await;

    // Two records have the same name: the second is detected when the first is written.
    write(path("twice/a.tar"), tar(&[("a.txt", b"1"), ("b.txt", b"2"), ("./a.txt", b"3")]));
    indexed(&path("twice"), &Default::default()).await.unwrap();
    let error = unpack(&at(&path("twice")), &path("out/deep"), &quiet).await.unwrap_err().to_string();
    assert!(error.contains("`a.txt` exists already: record `./a` has the name of another one"), "{error}");
    assert!(!path("out").exists(), "the folders that were made for it are removed, too");
    fs::create_dir(path("mine")).unwrap();
    unpack(&at(&path("twice")), &path("mine"), &quiet).await.unwrap_err();
    assert_eq!(fs::read_dir(path("mine")).unwrap().count(), 0, "a folder that was there stays, as it was");
}
