//! Folders of frames as a dataset: each is a record with a list of pictures.

use std::{fs, ops::Range, path::Path, sync::Arc};

use bytes::Bytes;
use spdl_dataset::{
    DatasetError, DatasetReport, FileTable, FolderPictures, IndexOptions, LeftOutReason, LookAt, Overwrite,
    SampleReader, SeenRecord,
};
use spdl_shard::{
    format::{FieldValue, ShardIndex, format_called},
    manifest::Manifest,
};

use crate::{
    corpora::check_changed,
    files::{at, faults, indexed, unpacked, write},
};

const GOLDEN_INDEX: &[u8] = include_bytes!("../golden/files-v3.idx");

fn of_frames() -> IndexOptions {
    IndexOptions { pictures: FolderPictures::Frames, ..IndexOptions::default() }
}

/// Two videos of a class, one of another, and other files.
fn videos(root: &Path) {
    for number in [1, 2, 9, 10, 11] {
        write(root.join(format!("run/a/{number}.jpg")), format!("frame {number} of a"));
    }
    write(root.join("run/b.x/000001.png"), "the only frame of b");
    for (name, content) in
        [("img_1.jpg", "i1"), ("flow_2.jpg", ""), ("flow_1.jpg", "f1"), ("img_2.jpg", "i2"), ("cover.jpg", "c")]
    {
        write(root.join("wave/c").join(name), content);
    }
    write(root.join("wave/c/notes.txt"), "no frame");
    write(root.join("notes.txt"), "no frame");
}

async fn seen(root: &Path) -> Vec<SeenRecord> {
    let mut seen = Vec::new();
    SampleReader::open(&at(root)).await.unwrap().read(LookAt::All, |record| seen.push(record)).await.unwrap();
    seen
}

/// The fields of each record: their names and files.
async fn fields(root: &Path) -> Vec<(String, Vec<(String, Vec<String>)>)> {
    let text = |file: Option<Bytes>| String::from_utf8(file.unwrap().to_vec()).unwrap();
    let files = |value: FieldValue| value.into_files().into_iter().map(text).collect();
    let of_record = |record: SeenRecord| {
        (record.key, record.fields.into_iter().map(|field| (field.name, files(field.value.unwrap()))).collect())
    };
    seen(root).await.into_iter().map(of_record).collect()
}

fn field(name: &str, files: &[&str]) -> (String, Vec<String>) {
    (name.to_owned(), files.iter().map(|file| (*file).to_owned()).collect())
}

#[tokio::test]
async fn each_folder_of_frames_is_a_sample_with_its_pictures_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    videos(root);
    let report: DatasetReport = indexed(root, &of_frames()).await.unwrap();
    assert_eq!((report.records, report.samples), (3, 3));
    assert_eq!(report.class_names, ["run", "wave"]);
    let left_out: Vec<_> =
        report.left_out.iter().map(|entry| (entry.example.as_str(), entry.files, entry.why)).collect();
    assert_eq!(left_out, [("notes.txt", 2, LeftOutReason::NoFrame), ("wave/c/cover.jpg", 1, LeftOutReason::NoFrame)]);
    assert!(report.notes.iter().any(|note| note.contains("file `wave/c/flow_2.jpg` is empty")), "{:?}", report.notes);
    let of_a: Vec<String> = [1, 2, 9, 10, 11].map(|number| format!("frame {number} of a")).to_vec();
    let expected = [
        ("run/a".to_owned(), vec![("jpg".to_owned(), of_a), field("cls", &["0"])]),
        ("run/b.x".to_owned(), vec![field("png", &["the only frame of b"]), field("cls", &["0"])]),
        (
            "wave/c".to_owned(),
            vec![field("flow.jpg", &["f1", ""]), field("img.jpg", &["i1", "i2"]), field("cls", &["1"])],
        ),
    ];
    assert_eq!(fields(root).await, expected);
    assert_eq!(faults(root).await, Vec::<String>::new());
    let unpacked = unpacked(root).await;
    assert_eq!(
        (unpacked.len(), &*unpacked["run/a.jpg.3"], &*unpacked["wave/c.img.jpg.1"]),
        (13, "frame 10 of a", "i2")
    );
    // Without the option, each picture is a sample.
    let again = IndexOptions { overwrite: Overwrite::Replace, ..IndexOptions::default() };
    assert_eq!(indexed(root, &again).await.unwrap().records, 11);
}

#[tokio::test]
async fn the_ranges_of_frames_are_those_of_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    videos(root);
    indexed(root, &of_frames()).await.unwrap();
    let store = at(root);
    let manifest = store.manifest().await.unwrap();
    let shard = manifest.shard(0);
    let index = store.index(&shard).await.unwrap();
    for record in index.records() {
        for (nth, field) in (0..).zip(record.fields()) {
            let files = index.files(&record, nth);
            assert_eq!(files.is_some(), ["jpg", "flow.jpg", "img.jpg"].contains(&field.name), "{record:?}");
            let Some(files) = files else { continue };
            assert_eq!(files.first().unwrap().start..files.last().unwrap().end, field.range().unwrap());
            for file in files.iter().filter(|file| !file.is_empty()) {
                let plan = index.plan(&shard, std::slice::from_ref(file));
                assert_eq!(plan.len(), 1, "a frame is an object");
                let object = &plan[0].object;
                assert!(object.url.starts_with(&*record.key.text()), "{}", object.url);
                assert_eq!((plan[0].range.clone(), plan[0].at), (0..object.bytes, file.start));
            }
        }
    }
}

#[tokio::test]
async fn rows_of_a_table_name_folders_of_frames() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("data");
    videos(&root);
    let with_table = |text: &str| {
        let path = folder.path().join("videos.csv");
        write(&path, text);
        let table = Some(Arc::new(FileTable::read(&path, root.to_str().unwrap())?));
        Ok::<_, DatasetError>(IndexOptions {
            format: format_called("files"),
            table,
            overwrite: Overwrite::Replace,
            ..of_frames()
        })
    };
    let options = with_table("file,class,jpg\nwave/c,b,text\nrun/a,a,text\n").unwrap();
    let report = indexed(&root, &options).await.unwrap();
    assert_eq!((report.records, report.class_names), (2, vec!["a".to_owned(), "b".to_owned()]));
    assert!(
        report.left_out.iter().any(|entry| entry.example == "run/b.x/000001.png" && entry.why == LeftOutReason::NoRow)
    );
    let found = fields(&root).await;
    assert_eq!(found[0].1[1], field("cls", &["0"]), "frames stay where a value has the name of their field");
    assert_eq!(found[1].1[2..], [field("cls", &["1"]), field("jpg", &["text"])][..]);
    let options = with_table("file,class\nrun/none,a\n").unwrap();
    let error = indexed(&root, &options).await.unwrap_err().to_string();
    assert!(error.contains("names `run/none`, which is no folder of frames in the dataset's folder"), "{error}");
    let options = with_table("file,offset\nrun/a,0\nrun/a,1\n").unwrap();
    let error = indexed(&root, &options).await.unwrap_err().to_string();
    assert!(error.contains("names `run/a`, as another row does: a folder of frames is one sample"), "{error}");
}

#[tokio::test]
async fn a_folder_in_no_other_has_no_class_and_other_formats_have_no_frames() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(root.join("a/1.jpg"), "one");
    write(root.join("a/3.jpg"), "three");
    let report = indexed(root, &of_frames()).await.unwrap();
    assert_eq!((report.records, report.class_names.len()), (1, 0));
    assert!(report.notes.iter().any(|note| note == "no labels: `a` lies in no folder"), "{:?}", report.notes);
    let options = IndexOptions { format: format_called("tar"), overwrite: Overwrite::Replace, ..of_frames() };
    let error = indexed(root, &options).await.unwrap_err().to_string();
    assert!(
        error.contains("frames") && error.contains("is for loose files (`--format files`), and not for tar"),
        "{error}"
    );
}

#[tokio::test]
async fn the_golden_index_of_version_3_is_written_and_hostile_bytes_of_it_neither_panic_nor_slip_through() {
    let folder = tempfile::tempdir().unwrap();
    videos(folder.path());
    indexed(folder.path(), &of_frames()).await.unwrap();
    let [index, manifest] =
        ["files-000000.idx", "manifest.spdl"].map(|name| fs::read(folder.path().join(".spdl").join(name)).unwrap());
    assert!(index == GOLDEN_INDEX, "it is written as ever");
    check_changed(&index, manifest, check);
}

/// Checks that what an index says of its fields and lists adds up.
fn check(index: &dyn ShardIndex, manifest: &Manifest) {
    let mut end = 0;
    for record in index.records() {
        assert!(!record.key.text().is_empty());
        for (nth, field) in (0..).zip(record.fields()) {
            assert_eq!(index.field_number(&record, field.name), Some(nth));
            let Some(range) = field.range() else { continue };
            assert_eq!(range.start, end, "fields follow each other");
            end = range.end;
            let parts = index.plan(&manifest.shard(0), std::slice::from_ref(&range));
            assert_eq!(parts.iter().map(|part| part.range.end - part.range.start).sum::<u64>(), end - range.start);
            let Some(files) = index.files(&record, nth) else { continue };
            assert!(files.len() > 1 && files[0].start == range.start && files[files.len() - 1].end == end);
            assert!(files.windows(2).all(|pair| pair[0].end == pair[1].start));
            // A hostile size would take too much memory.
            if end - range.start < 1 << 20 {
                let zeros = |range: Range<u64>| Some(Bytes::from(vec![0; (range.end - range.start) as usize]));
                let FieldValue::List(opened) = index.open(&field, &zeros).unwrap() else {
                    panic!("{field:?} is a list")
                };
                assert_eq!(opened.len(), files.len());
            }
        }
    }
    assert_eq!(end, index.shard_bytes());
}
