//! Loose files as a dataset: indexing, verifying and unpacking them, tables, and hostile names and bytes.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use spdl_dataset::{
    DatasetError, DatasetProgress, DatasetReport, FileTable, IndexOptions, LeftOutReason, Overwrite, VerifyOptions,
    index, unpack, verify,
};
use spdl_shard::{
    format::format_called,
    manifest::{Manifest, ManifestBuilder},
    store::DatasetStore,
};
use spdl_store::StoreOptions;
use spdl_types::Fingerprint;

const GOLDEN_INDEX: &[u8] = include_bytes!("../golden/files-v1.idx");
const GOLDEN_MANIFEST: &[u8] = include_bytes!("../golden/manifest-v2.spdl");

pub(crate) fn quiet(_: DatasetProgress) {}

pub(crate) fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.as_ref().parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

pub(crate) fn at(folder: &Path) -> DatasetStore {
    DatasetStore::create_with(folder.to_str().unwrap(), &StoreOptions::default()).unwrap()
}

pub(crate) async fn indexed(folder: &Path, options: &IndexOptions) -> Result<DatasetReport, DatasetError> {
    index(&at(folder), &at(folder), options, &quiet).await
}

fn with_table(path: &Path) -> Result<IndexOptions, DatasetError> {
    let dataset = path.parent().unwrap().join("data");
    let table = Some(Arc::new(FileTable::read(path, dataset.to_str().unwrap())?));
    Ok(IndexOptions { format: format_called("files"), table, ..IndexOptions::default() })
}

pub(crate) async fn faults(folder: &Path) -> Vec<String> {
    let report = verify(&at(folder), &VerifyOptions::default(), &quiet).await.unwrap();
    report.faults.into_iter().map(|fault| format!("{}: {}", fault.record.unwrap_or_default(), fault.problem)).collect()
}

/// The problems alone.
pub(crate) async fn problems(folder: &Path) -> Vec<String> {
    let report = verify(&at(folder), &VerifyOptions::default(), &quiet).await.unwrap();
    report.faults.into_iter().map(|fault| fault.problem).collect()
}

/// The fields of every record by its key, as `unpack` writes them.
pub(crate) async fn unpacked(folder: &Path) -> BTreeMap<String, String> {
    let target = tempfile::tempdir().unwrap();
    unpack(&at(folder), target.path(), &quiet).await.unwrap();
    let mut found = BTreeMap::new();
    let mut folders = vec![target.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(target.path()).unwrap().to_str().unwrap().to_owned();
                found.insert(name, String::from_utf8(fs::read(&path).unwrap()).unwrap());
            }
        }
    }
    found
}

pub(crate) fn texts<const N: usize>(expected: [(&str, &str); N]) -> BTreeMap<String, String> {
    expected.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect()
}

fn class_folders(root: &Path) {
    write(root.join("bee/1.JPEG"), "picture of a bee");
    write(root.join("bee/1.txt"), "a bee");
    write(root.join("ant/x/2.png"), "picture of an ant");
    write(root.join("ant/3.jpg"), "");
    write(root.join("notes.txt"), "not a picture");
    write(root.join("ant/.hidden.jpg"), "hidden");
}

#[tokio::test]
async fn videos_make_the_records_of_a_folder_where_there_are_more_of_them_than_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for name in ["run/1.mp4", "run/1.jpg", "run/1.wav", "wave/2.WebM", "wave/2.wav", "wave/cover.txt"] {
        write(root.join(name), name);
    }
    let report = indexed(root, &IndexOptions::default()).await.unwrap();
    assert_eq!((report.records, report.class_names), (2, vec!["run".to_owned(), "wave".to_owned()]));
    let left_out: Vec<_> = report.left_out.iter().map(|entry| (entry.example.as_str(), entry.why)).collect();
    assert_eq!(left_out, [("wave/cover.txt", LeftOutReason::NoVideo)]);
}

#[tokio::test]
async fn sounds_make_the_records_of_a_folder_where_there_are_more_of_them_than_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for (name, content) in [
        ("ann/1.flac", "one"),
        ("ann/1.txt", "first words"),
        ("ann/2.WAV", "two"),
        ("bob/3.wave", "three"),
        ("bob/cover.jpg", "a picture"),
    ] {
        write(root.join(name), content);
    }
    let report = indexed(root, &IndexOptions::default()).await.unwrap();
    assert_eq!((report.records, report.class_names), (3, vec!["ann".to_owned(), "bob".to_owned()]));
    let left_out: Vec<_> = report.left_out.iter().map(|entry| (entry.example.as_str(), entry.why)).collect();
    assert_eq!(left_out, [("bob/cover.jpg", LeftOutReason::NoSound)]);
    let expected = [
        ("ann/1.cls", "0"),
        ("ann/1.flac", "one"),
        ("ann/1.txt", "first words"),
        ("ann/2.cls", "0"),
        ("ann/2.wav", "two"),
        ("bob/3.cls", "1"),
        ("bob/3.wav", "three"),
    ];
    assert_eq!(unpacked(root).await, texts(expected));
}

#[tokio::test]
async fn a_folder_of_class_folders_is_a_dataset_as_it_lies() {
    let folder = tempfile::tempdir().unwrap();
    class_folders(folder.path());
    let report = indexed(folder.path(), &IndexOptions::default()).await.unwrap();
    assert_eq!((report.records, report.samples, report.shards, report.blocks), (3, 3, 1, 1));
    assert_eq!((report.class_names, report.empty_fields), (vec!["ant".to_owned(), "bee".to_owned()], 1));
    let left_out: Vec<_> = report.left_out.iter().map(|entry| (entry.example.as_str(), entry.why)).collect();
    assert!(left_out.contains(&("notes.txt", LeftOutReason::NoPicture)), "{left_out:?}");
    assert!(left_out.contains(&("ant/.hidden.jpg", LeftOutReason::Hidden)), "{left_out:?}");
    assert!(report.notes.iter().any(|note| note == "file `ant/3.jpg` is empty"), "{:?}", report.notes);

    let manifest = at(folder.path()).manifest().await.unwrap();
    assert_eq!((manifest.format().name(), manifest.shard(0).url), ("files", "files-000000"));
    assert_eq!(faults(folder.path()).await, Vec::<String>::new());
    let expected = [
        ("ant/3.cls", "0"),
        ("ant/3.jpg", ""),
        ("ant/x/2.cls", "0"),
        ("ant/x/2.png", "picture of an ant"),
        ("bee/1.cls", "1"),
        ("bee/1.jpg", "picture of a bee"),
        ("bee/1.txt", "a bee"),
    ];
    assert_eq!(unpacked(folder.path()).await, texts(expected));
}

#[tokio::test]
async fn indexing_again_gives_the_same_dataset_and_a_changed_file_another_one() {
    let folder = tempfile::tempdir().unwrap();
    class_folders(folder.path());
    let first = indexed(folder.path(), &IndexOptions::default()).await.unwrap();
    let refused = indexed(folder.path(), &IndexOptions::default()).await.unwrap_err();
    assert!(matches!(refused, DatasetError::InUse { .. }), "{refused}");
    let again = IndexOptions { overwrite: Overwrite::Replace, ..IndexOptions::default() };
    assert_eq!(indexed(folder.path(), &again).await.unwrap().fingerprint, first.fingerprint);
    write(folder.path().join("cow/4.jpg"), "picture of a cow");
    write(folder.path().join("ape/5.jpg"), "picture of an ape");
    let other = indexed(folder.path(), &again).await.unwrap();
    assert_ne!(other.fingerprint, first.fingerprint);
    assert_eq!(other.class_names, ["ant", "bee", "ape", "cow"], "known classes keep their numbers");
    assert_eq!(unpacked(folder.path()).await["bee/1.cls"], "1");
    assert_eq!(crate::dataset::files(&folder.path().join(".spdl")).len(), 2, "a manifest and an index");
}

#[tokio::test]
async fn files_that_vanish_or_change_are_faults_with_their_names_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    class_folders(folder.path());
    indexed(folder.path(), &IndexOptions::default()).await.unwrap();
    fs::remove_file(folder.path().join("bee/1.txt")).unwrap();
    write(folder.path().join("ant/x/2.png"), "another picture of an ant");
    let faults = faults(folder.path()).await;
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(faults[0].starts_with("ant/x/2: field `png` cannot be read: `"), "{faults:?}");
    assert!(
        faults[0].contains("ant/x/2.png` changed: 17 bytes when it was indexed, 25 bytes in the store"),
        "{faults:?}"
    );
    assert!(
        faults[1].starts_with("bee/1: field `txt` cannot be read: ") && faults[1].contains("bee/1.txt"),
        "{faults:?}"
    );
    let target = tempfile::tempdir().unwrap();
    let error = unpack(&at(folder.path()), target.path(), &quiet).await.unwrap_err().to_string();
    assert!(error.contains("ant/x/2.png` changed"), "{error}");
}

#[tokio::test]
async fn a_table_gives_records_any_fields_whether_tabs_commas_or_json_lines() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for name in ["one.jpg", "deep/two.jpg", "three.jpg", "one.mask.png"] {
        write(root.join("data").join(name), name);
    }
    write(
        root.join("t.tsv"),
        "\u{feff}file\tcaption\tclass\r\none.jpg\ta dog, running\tdog\r\n\r\n./deep/two.jpg\t\tcat\r\n",
    );
    let lines = [
        r#"{"file_name": "one.jpg", "caption": "a dog, running", "class": "dog"}"#,
        r#"{"file_name": "deep/two.jpg", "caption": "", "class": "cat", "score": null}"#,
    ];
    write(root.join("t.jsonl"), lines.join("\n"));
    // As pandas writes it, with the numbers of rows.
    let csv = ",file_name,caption,class\r\n0,one.jpg,\"a dog, running\",dog\r\n1,deep/two.jpg,,cat\r\n";
    write(root.join("t.csv"), csv);
    for table in ["t.tsv", "t.jsonl", "t.csv"] {
        let again = IndexOptions { overwrite: Overwrite::Replace, ..with_table(&root.join(table)).unwrap() };
        let report = indexed(&root.join("data"), &again).await.unwrap();
        assert_eq!(report.class_names, ["cat", "dog"], "{table}");
        assert_eq!(
            report.left_out.iter().map(|entry| (&*entry.example, entry.why)).collect::<Vec<_>>(),
            [("three.jpg", LeftOutReason::NoRow)]
        );
        let expected = [
            ("deep/two.caption", ""),
            ("deep/two.cls", "0"),
            ("deep/two.jpg", "deep/two.jpg"),
            ("one.caption", "a dog, running"),
            ("one.cls", "1"),
            ("one.jpg", "one.jpg"),
            ("one.mask.png", "one.mask.png"),
        ];
        assert_eq!(unpacked(&root.join("data")).await, texts(expected), "{table}");
        assert_eq!(faults(&root.join("data")).await, Vec::<String>::new(), "{table}");
    }
    write(root.join("list.txt"), "three.jpg\none.jpg\n");
    let list = IndexOptions { overwrite: Overwrite::Replace, ..with_table(&root.join("list.txt")).unwrap() };
    assert_eq!(indexed(&root.join("data"), &list).await.unwrap().records, 2);
    let expected = [("one.jpg", "one.jpg"), ("one.mask.png", "one.mask.png"), ("three.jpg", "three.jpg")];
    assert_eq!(unpacked(&root.join("data")).await, texts(expected));
}

#[tokio::test]
async fn numbers_and_nested_values_of_json_lines_become_text() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path().join("data/a.jpg"), "a");
    let line = r#"{"file": "a.jpg", "Score": 0.25, "box": [1, 2], "ok": true, "more": {"k": "v"}, "none": null}"#;
    write(folder.path().join("t.ndjson"), line);
    indexed(&folder.path().join("data"), &with_table(&folder.path().join("t.ndjson")).unwrap()).await.unwrap();
    let expected =
        [("a.box", "[1,2]"), ("a.jpg", "a"), ("a.more", r#"{"k":"v"}"#), ("a.ok", "true"), ("a.score", "0.25")];
    assert_eq!(unpacked(&folder.path().join("data")).await, texts(expected));
}

#[tokio::test]
async fn a_table_that_is_wrong_is_refused_with_the_line() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path().join("data/a.jpg"), "a");
    let cases: [(&str, &[u8], &str); 16] = [
        ("t.csv", b"file,caption\na.jpg,\"x\ny\nb.jpg,z\n", "t.csv:2` has a quote that is not closed"),
        ("t.csv", b"file,caption\na.jpg,\"x\ny\"\nb.jpg\n", "t.csv:4` has 1 columns where the table has 2"),
        ("t.csv", b"id,label\na,x\n", "one of them `file`, `file_name`, `filename`, `path`"),
        (
            "t.jsonl",
            br#"{"file": "a.jpg", "x": "\ud800"}"#,
            "t.jsonl:1` has the key `x`, which has half of a surrogate pair",
        ),
        ("t.tsv", b"file\tcaption\na.jpg\tx\nb.jpg\n", "t.tsv:3` has 1 columns where the table has 2"),
        ("t.tsv", b"file\tcaption\na.jpg\tx\ty\n", "t.tsv:2` has 3 columns where the table has 2"),
        ("t.tsv", b"a.jpg\tx\n", "t.tsv:1` has several columns; name them in the first line"),
        ("t.tsv", b"file\tx\tX\na.jpg\t1\t2\n", "t.tsv:1` names the column `x` twice"),
        ("t.tsv", b"file\ta/b\na.jpg\t1\n", "t.tsv:1` names the column `a/b` twice, or it cannot be the name"),
        ("t.tsv", b"file\na.jpg\n\xff.jpg\n", "t.tsv:3` is not UTF-8"),
        ("t.tsv", b"file\na.jpg\n\n./a.jpg\n", "t.tsv:4` names `a.jpg`, which line 2 names already"),
        ("t.tsv", b"file\n../a.jpg\n", "t.tsv:2` names `../a.jpg`, which is not a path inside"),
        ("t.tsv", b"file\na.jpg\nmissing.jpg\n", "t.tsv:3` names `missing.jpg`, which is not in the dataset's folder,"),
        ("t.tsv", b"\n\n", "a row with the path of a file is expected"),
        ("t.jsonl", b"{\"file\": \"a.jpg\"}\n[1]\n", "t.jsonl:2` is not a JSON object"),
        ("t.jsonl", b"{\"file\": 7}\n", "t.jsonl:1` has no text `file`"),
    ];
    for (name, table, expected) in cases {
        let path = folder.path().join(name);
        write(&path, table);
        let error = match with_table(&path) {
            Ok(options) => indexed(&folder.path().join("data"), &options).await.unwrap_err(),
            Err(error) => error,
        };
        assert!(error.to_string().contains(expected), "{expected}: {error}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_name_that_no_path_can_have_is_an_error_that_shows_it_on_one_line() {
    use std::os::unix::ffi::OsStrExt;
    for (name, shown) in [(&b"two\nlines.jpg"[..], "two\\nlines.jpg"), (&b"\xff.jpg"[..], "jpg")] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path().join("a/good.jpg"), "good");
        fs::write(folder.path().join("a").join(std::ffi::OsStr::from_bytes(name)), "bad").unwrap();
        let error = indexed(folder.path(), &IndexOptions::default()).await.unwrap_err().to_string();
        assert!(error.contains("no path can have; rename or remove it") && error.contains(shown), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[tokio::test]
async fn a_folder_without_files_that_give_a_field_is_no_dataset() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path().join("README"), "nothing");
    let files = IndexOptions { format: format_called("files"), ..IndexOptions::default() };
    let error = indexed(folder.path(), &files).await.unwrap_err().to_string();
    assert!(error.contains("files with an extension are expected") && error.contains("1 file"), "{error}");
    let boxes = IndexOptions { boxes: Some("xml".into()), ..files };
    let error = indexed(folder.path(), &boxes).await.unwrap_err().to_string();
    assert!(error.contains("`boxes`") && error.contains("pack them"), "{error}");
}

#[tokio::test]
async fn blocks_and_shards_hold_a_bounded_number_of_files() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..8300 {
        write(folder.path().join(format!("{number:05}.npy")), [1]);
    }
    let files = IndexOptions { format: format_called("files"), ..IndexOptions::default() };
    let report = indexed(folder.path(), &files).await.unwrap();
    assert_eq!((report.records, report.shards), (8300, 2));
    let manifest = at(folder.path()).manifest().await.unwrap();
    let blocks: Vec<u32> = manifest.block_samples();
    assert!(blocks.iter().all(|samples| (32..96).contains(samples)), "{blocks:?}");
    assert_eq!((blocks[0], blocks.iter().sum::<u32>()), (64, 8300));
    assert_eq!(faults(folder.path()).await, Vec::<String>::new());
}

/// The dataset of the golden files.
async fn golden(folder: &Path) {
    class_folders(folder);
    write(folder.join("ant/x/2.json"), "{}");
    let options = IndexOptions { name: Some("golden".into()), ..IndexOptions::default() };
    indexed(folder, &options).await.unwrap();
}

#[tokio::test]
async fn the_file_index_and_the_manifest_that_names_a_format_are_written_and_read_as_ever() {
    let folder = tempfile::tempdir().unwrap();
    golden(folder.path()).await;
    let written =
        ["files-000000.idx", "manifest.spdl"].map(|name| fs::read(folder.path().join(".spdl").join(name)).unwrap());
    assert_eq!(written, [GOLDEN_INDEX, GOLDEN_MANIFEST]);
    assert_eq!(Manifest::open(GOLDEN_MANIFEST).unwrap().format().name(), "files");
}

/// Gives `bytes` a valid checksum again, as a hostile writer would.
pub(crate) fn reseal(bytes: &mut [u8]) {
    let hash = Fingerprint::of(&bytes[40..]);
    bytes[24..40].copy_from_slice(&hash.0.to_le_bytes());
}

#[test]
fn hostile_bytes_of_a_file_index_neither_panic_nor_slip_through() {
    let format = format_called("files").unwrap();
    let manifest = Manifest::open(GOLDEN_MANIFEST).unwrap();
    for at in 40..GOLDEN_INDEX.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            for width in [1, 2, 4, 8] {
                let mut bytes = GOLDEN_INDEX.to_vec();
                let end = (at + width).min(bytes.len());
                bytes[at..end].fill(value);
                reseal(&mut bytes);
                let hash = Fingerprint::of(&bytes);
                let Ok(index) = format.open_index(bytes.into(), hash) else { continue };
                for record in index.records() {
                    for field in record.fields() {
                        let range = field.range().unwrap_or(0..0);
                        assert!(range.end <= index.shard_bytes());
                        let parts = index.plan(&manifest.shard(0), std::slice::from_ref(&range));
                        assert_eq!(
                            parts.iter().map(|part| part.range.end - part.range.start).sum::<u64>(),
                            range.end - range.start
                        );
                    }
                }
            }
        }
    }
    for length in 0..GOLDEN_INDEX.len() {
        let bytes = GOLDEN_INDEX[..length].to_vec();
        let hash = Fingerprint::of(&bytes);
        assert!(format.open_index(bytes.into(), hash).is_err(), "{length}");
    }
}

#[test]
fn a_manifest_with_an_unknown_format_is_refused_by_the_formats_name() {
    let manifest = ManifestBuilder::new("x").format(format_called("files").unwrap()).finish().unwrap();
    let mut bytes = manifest.bytes().to_vec();
    let at = bytes.windows(5).position(|window| window == b"files").unwrap();
    bytes[at] = b'p';
    reseal(&mut bytes);
    let error = Manifest::open(bytes).unwrap_err().to_string();
    assert!(error.contains("names the format `piles`, which this program does not know"), "{error}");
}

#[tokio::test]
async fn each_row_of_a_table_is_a_record_whatever_stems_its_files_share() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.jpg", "a.png", "a.txt"] {
        write(folder.path().join(format!("data/{name}")), name);
    }
    let table = folder.path().join("t.tsv");
    write(&table, "file\tscore\na.jpg\t1\na.png\t2\n");
    let data = folder.path().join("data");
    indexed(&data, &with_table(&table).unwrap()).await.unwrap();
    let expected =
        [("a.jpg", "a.jpg"), ("a.score", "1"), ("a.txt", "a.txt"), ("a.png.png", "a.png"), ("a.png.score", "2")];
    assert_eq!(unpacked(&data).await, texts(expected));
}

#[tokio::test]
async fn several_captions_of_a_picture_are_samples_whose_keys_differ() {
    let folder = tempfile::tempdir().unwrap();
    let (data, table) = (folder.path().join("data"), folder.path().join("t.csv"));
    for name in ["in.d/a.jpg", "in.d/b.jpg"] {
        write(data.join(name), name);
    }
    let lines = ["in.d/a.jpg,two dogs", "in.d/b.jpg,cats", "in.d/a.jpg,dogs", "in.d/a.jpg,a lawn"];
    write(&table, format!("file,caption\n{}\n", lines.join("\n")));
    let report = indexed(&data, &with_table(&table).unwrap()).await.unwrap();
    let expected = [
        ("in.d/a-2.caption", "dogs"),
        ("in.d/a-2.jpg", "in.d/a.jpg"),
        ("in.d/a-3.caption", "two dogs"),
        ("in.d/a-3.jpg", "in.d/a.jpg"),
        ("in.d/a.caption", "a lawn"),
        ("in.d/a.jpg", "in.d/a.jpg"),
        ("in.d/b.caption", "cats"),
        ("in.d/b.jpg", "in.d/b.jpg"),
    ];
    assert_eq!(unpacked(&data).await, texts(expected));
    assert_eq!(faults(&data).await, Vec::<String>::new());
    let mut other = lines;
    other.reverse();
    write(&table, format!("file,caption\n{}\n", other.join("\n")));
    let again = IndexOptions { overwrite: Overwrite::Replace, ..with_table(&table).unwrap() };
    assert_eq!(
        indexed(&data, &again).await.unwrap().fingerprint,
        report.fingerprint,
        "the order of lines decides nothing"
    );
    // A file that is called as one of them would have its key.
    write(data.join("in.d/a-3.png"), "3");
    write(&table, format!("file,caption\n{}\nin.d/a-3.png,another\n", lines.join("\n")));
    let error = with_table(&table).unwrap_err().to_string();
    let expected = "t.csv:2` is one of several of `in.d/a.jpg`, and would have the key of `in.d/a-3.png` in line 6; give one of the";
    assert!(error.contains(expected), "{error}");
}
