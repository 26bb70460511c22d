//! Views of datasets of every kind of format: which records they keep, what is read for them, and what is refused.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
};

use crate::counting::counted;
use bytes::Bytes;
use parquet::{
    data_type::{ByteArray, ByteArrayType, FloatType, Int64Type},
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};
use spdl_dataset::{
    ClassOrder, DatasetProgress, IndexOptions, index,
    tar::{TAR_END, append_member},
    view::{EvaluatedView, evaluate},
};
use spdl_job::ViewFile;
use spdl_shard::{
    manifest::Manifest,
    samples::JobSamples,
    view::{open_view, save_view},
};
use spdl_types::SampleId;

use crate::files::at;

const SCHEMA: &str = "message rows { required binary picture; required int64 width; optional float nsfw; required binary split (UTF8); }";
pub(crate) const ROWS: usize = 3_000;
const PICTURE_BYTES: usize = 4_000;

pub(crate) fn quiet(_: DatasetProgress) {}

pub(crate) fn width(row: usize) -> i64 {
    (row * 7919 % 1024) as i64
}

/// Every 13th row has none.
pub(crate) fn nsfw(row: usize) -> Option<f32> {
    (row % 13 != 12).then(|| (row * 31 % 100) as f32 / 100.0)
}

pub(crate) fn split(row: usize) -> &'static str {
    if row.is_multiple_of(5) { "val" } else { "train" }
}

fn parquet(rows: std::ops::Range<usize>) -> Vec<u8> {
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_data_page_size_limit(40_000)
        .set_write_batch_size(16)
        .build();
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let picture = |row: usize| ByteArray::from((0..PICTURE_BYTES).map(|at| (at * row) as u8).collect::<Vec<_>>());
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&rows.clone().map(picture).collect::<Vec<_>>(), None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&rows.clone().map(width).collect::<Vec<_>>(), None, None).unwrap();
    column.close().unwrap();
    let levels: Vec<i16> = rows.clone().map(|row| i16::from(nsfw(row).is_some())).collect();
    let mut column = group.next_column().unwrap().unwrap();
    let scores: Vec<f32> = rows.clone().filter_map(nsfw).collect();
    column.typed::<FloatType>().write_batch(&scores, Some(&levels), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let splits: Vec<ByteArray> = rows.map(split).map(ByteArray::from).collect();
    column.typed::<ByteArrayType>().write_batch(&splits, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

pub(crate) async fn rows(folder: &Path) -> Manifest {
    for (name, rows) in [("a", 0..ROWS / 3), ("b", ROWS / 3..ROWS)] {
        fs::write(folder.join(format!("{name}.parquet")), parquet(rows)).unwrap();
    }
    let options = IndexOptions { block_bytes: Some(1 << 20), ..IndexOptions::default() };
    index(&at(folder), &at(folder), &options, &quiet).await.unwrap();
    at(folder).manifest().await.unwrap()
}

/// Twenty records with a class and a document, as files of one folder.
pub(crate) async fn tar(folder: &Path) -> Manifest {
    let source = folder.join("source");
    fs::create_dir(&source).unwrap();
    for number in 0..20 {
        let document = serde_json::json!({ "meta": { "author": format!("a{}", number % 3) }, "width": number * 10 });
        fs::write(source.join(format!("r{number:02}.json")), document.to_string()).unwrap();
        fs::write(source.join(format!("r{number:02}.cls")), format!("{}\n", number % 4)).unwrap();
        fs::write(source.join(format!("r{number:02}.jpg")), vec![0xff; 1000]).unwrap();
    }
    let packed = folder.join("packed");
    fs::create_dir(&packed).unwrap();
    let mut tar = std::process::Command::new("tar");
    tar.arg("-cf")
        .arg(packed.join("part-0.tar"))
        .args(["--sort=name", "--transform=s,^\\./,,", "-C"])
        .arg(&source)
        .arg(".");
    assert!(tar.status().unwrap().success());
    index(&at(&packed), &at(&packed), &IndexOptions::default(), &quiet).await.unwrap();
    at(&packed).manifest().await.unwrap()
}

pub(crate) fn filter(text: &str) -> ViewFile {
    ViewFile { filter: Some(text.to_owned()), ..ViewFile::default() }
}

pub(crate) async fn view(folder: &Path, view: &ViewFile) -> Result<EvaluatedView, String> {
    let manifest = at(folder).manifest().await.unwrap();
    evaluate(&at(folder), &manifest, view, 0, &quiet).await.map_err(|error| error.to_string())
}

fn ids(view: &EvaluatedView) -> Vec<usize> {
    (0..view.set.kept().len()).map(|nth| view.set.kept().select(nth).0 as usize).collect()
}

async fn kept(folder: &Path, file: &ViewFile) -> Vec<usize> {
    ids(&view(folder, file).await.unwrap())
}

#[tokio::test]
pub(crate) async fn rows_are_kept_by_their_columns() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = rows(folder.path()).await;
    assert!(manifest.block_count() > 4 && manifest.shard_count() == 2, "{manifest:?}");
    let all = 0..ROWS;
    let text = "width >= 256 and nsfw < 0.3 and split == 'train'";
    let expected: Vec<usize> = all
        .clone()
        .filter(|row| width(*row) >= 256 && nsfw(*row).is_some_and(|nsfw| nsfw < 0.3) && split(*row) == "train")
        .collect();
    let found = view(folder.path(), &filter(text)).await.unwrap();
    assert_eq!(ids(&found), expected);
    let facts = JobSamples::View(found.set).facts(&manifest);
    assert_eq!((facts.samples, facts.fingerprint), (expected.len() as u64, manifest.fingerprint()));
    assert_eq!(facts.blocks, u64::from(manifest.block_count()));
    let nulls: Vec<usize> = all.clone().filter(|row| nsfw(*row).is_none()).collect();
    assert_eq!(kept(folder.path(), &filter("nsfw is null")).await, nulls);
    // Only the first block is left.
    let first = view(folder.path(), &ViewFile { first: Some(10), ..filter("split in ['val']") }).await.unwrap();
    assert_eq!(ids(&first), (0..10).map(|number| number * 5).collect::<Vec<_>>());
    assert_eq!(JobSamples::View(first.set).facts(&manifest).blocks, 1);
    // Equal sets have equal fingerprints, whatever the text.
    let again = view(folder.path(), &filter("split = \"train\" and not (width < 256) and nsfw < 0.3")).await.unwrap();
    assert_eq!(again.samples, found.samples);
}

#[tokio::test]
async fn only_the_columns_of_the_view_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = rows(folder.path()).await;
    let (store, bytes) = counted(at(folder.path()), ".parquet");
    let seen = Mutex::new(Vec::new());
    let progress = |at: DatasetProgress| seen.lock().unwrap().push((at.records, at.total_records));
    let found = evaluate(&store, &manifest, &filter("width >= 256"), 0, &progress).await.unwrap();
    let read = bytes.load(Relaxed);
    assert!(read > 0 && read < (ROWS * 16) as u64, "{read} bytes for {ROWS} numbers of 8 bytes");
    assert_eq!(found.bytes, read);
    let seen = seen.into_inner().unwrap();
    assert!(seen.is_sorted() && seen.last() == Some(&(ROWS as u64, Some(ROWS as u64))), "{seen:?}");
    // What a key decides is read from no shard.
    bytes.store(0, Relaxed);
    let tenth = ViewFile { fraction: Some(0.1), ..ViewFile::default() };
    let found = evaluate(&store, &manifest, &tenth, 0, &quiet).await.unwrap();
    assert!((200..400).contains(&found.set.kept().len()), "{found:?}");
    assert_eq!((bytes.load(Relaxed), found.bytes), (0, 0));
}

#[tokio::test]
async fn records_of_files_are_kept_by_their_classes_documents_and_keys() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = tar(folder.path()).await;
    assert_eq!(manifest.samples(), 20);
    let packed = folder.path().join("packed");
    assert_eq!(kept(&packed, &filter("cls == 3")).await, [3, 7, 11, 15, 19]);
    assert_eq!(kept(&packed, &filter("cls in ['0'] and json.width > 100")).await, [12, 16]);
    assert_eq!(kept(&packed, &filter("json.meta.author != 'a0' and json.width < 50")).await, [1, 2, 4]);
    assert_eq!(kept(&packed, &filter("json.nothing is null and key == 'r05'")).await, [5]);
    let unique = |field: &str| ViewFile { unique: Some(field.to_owned()), ..ViewFile::default() };
    assert_eq!(kept(&packed, &unique("cls")).await, [0, 1, 2, 3]);
    assert_eq!(kept(&packed, &unique("key")).await.len(), 20);
    let both = ViewFile { filter: Some("json.width >= 50".into()), first: Some(2), ..unique("json.meta.author") };
    assert_eq!(kept(&packed, &both).await, [5, 6]);
    let list = folder.path().join("keys.txt");
    fs::write(&list, "r03\n\n r17 \nr00\r\nmissing\n").unwrap();
    let keys = ViewFile { keys: Some(list.to_str().unwrap().to_owned()), ..ViewFile::default() };
    let found = view(&packed, &keys).await.unwrap();
    assert_eq!(ids(&found), [0, 3, 17]);
    let missing = found.missing_keys.unwrap();
    assert_eq!(missing.to_string(), format!("no record has 1 of the keys of `view.keys`: `{}`", missing.first[0]));
    assert_eq!(kept(&packed, &ViewFile { filter: Some("cls > 0".into()), ..keys }).await, [3, 17]);
}

#[tokio::test]
async fn some_records_of_each_class_are_drawn_and_more_of_them_hold_the_fewer() {
    let folder = tempfile::tempdir().unwrap();
    tar(folder.path()).await;
    let packed = folder.path().join("packed");
    // The classes of 20 records are 0, 1, 2, 3, 0, ...
    let each =
        |most, seed| ViewFile { each: Some("cls".into()), most_of_each: Some(most), seed, ..ViewFile::default() };
    let mut before = Vec::new();
    for most in 1..=6 {
        let kept = kept(&packed, &each(most, 0)).await;
        assert!(kept.is_sorted() && before.iter().all(|record| kept.contains(record)), "{before:?} {kept:?}");
        let of_class = |class| kept.iter().filter(|record| **record % 4 == class).count() as u64;
        assert_eq!([0, 1, 2, 3].map(of_class), [most.min(5); 4]);
        before = kept;
    }
    assert_eq!(before.len(), 20, "no class has more than five");
    let draws = [kept(&packed, &each(2, 1)).await, kept(&packed, &each(2, 2)).await];
    assert_ne!(draws[0], draws[1], "another seed draws others");
    // It counts what the other keys leave over, and `first` what it leaves.
    let some = ViewFile { filter: Some("cls != 3 and json.width >= 40".into()), ..each(2, 0) };
    let six = kept(&packed, &some).await;
    assert_eq!(six.len(), 6);
    assert!(six.iter().all(|record| record % 4 != 3 && *record >= 4), "{six:?}");
    assert_eq!(kept(&packed, &ViewFile { first: Some(3), ..some }).await, six[..3]);
    assert_eq!(kept(&packed, &ViewFile { unique: Some("cls".into()), ..each(2, 0) }).await, [0, 1, 2, 3]);
    let none = ViewFile { each: Some("json.nothing".into()), ..each(1, 0) };
    assert_eq!(kept(&packed, &none).await.len(), 20, "records without a value are all kept");
    let refused = view(&packed, &ViewFile { each: Some("phash".into()), ..each(1, 0) }).await.unwrap_err();
    assert_eq!(refused, "`view.each` is `phash`: no record has the field `phash`; there are cls, jpg, json, and `key`");
}

#[tokio::test]
async fn folds_divide_the_samples() {
    let folder = tempfile::tempdir().unwrap();
    rows(folder.path()).await;
    let mut all = Vec::new();
    for fold in 0..3 {
        let kept_fold = ViewFile { folds: Some(3), fold: Some(fold), seed: 4, ..ViewFile::default() };
        let rest = ViewFile { fold: None, except_fold: Some(fold), ..kept_fold.clone() };
        let [kept, mut rest] = [kept(folder.path(), &kept_fold).await, kept(folder.path(), &rest).await];
        all.extend_from_slice(&kept);
        rest.extend(kept);
        rest.sort_unstable();
        assert_eq!(rest, (0..ROWS).collect::<Vec<_>>());
    }
    all.sort_unstable();
    assert_eq!(all, (0..ROWS).collect::<Vec<_>>());
}

#[tokio::test]
async fn what_a_view_cannot_mean_is_refused_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    rows(folder.path()).await;
    tar(folder.path()).await;
    let refused = async |at: &Path, file: ViewFile| view(at, &file).await.unwrap_err();
    let (parquet, packed) = (folder.path().to_owned(), folder.path().join("packed"));
    assert_eq!(
        refused(&parquet, filter("nsfw < 1 and widht > 3")).await,
        "`view.where` is wrong at character 14, `widht > 3`: no record has the field `widht`; there are nsfw, picture, split, \
         width, and `key`"
    );
    assert_eq!(
        refused(&packed, ViewFile { unique: Some("phash".into()), ..ViewFile::default() }).await,
        "`view.unique` is `phash`: no record has the field `phash`; there are cls, jpg, json, and `key`"
    );
    assert_eq!(
        refused(&parquet, filter("width == 'a'")).await,
        "shard `a.parquet`, record `a/000000`: `view.where` is wrong at character 7, `== 'a'`: field `width` is the number \
         0, and is compared with a text"
    );
    assert_eq!(
        refused(&packed, filter("jpg == 3")).await,
        "shard `part-0.tar`, record `r00`: `view.where` is wrong at character 5, `== 3`: field `jpg` is no text, and is compared with a number"
    );
    assert_eq!(
        refused(&packed, filter("json.meta == 3")).await,
        "shard `part-0.tar`, record `r00`: `view.where` is wrong at character 11, `== 3`: field `json.meta` is an object, of \
         which members can be named, and is compared with a number"
    );
    assert_eq!(refused(&packed, filter("cls > 100")).await, "`view` keeps none of the 20 samples of the dataset");
    assert_eq!(
        refused(&packed, filter("cls >")).await,
        "`view.where` is wrong at character 6, the end: a number, a text in quotes or a name is expected"
    );
    let list = folder.path().join("other-keys.txt");
    fs::write(&list, "a\nb\nc\nd\n").unwrap();
    let keys = ViewFile { keys: Some(list.to_str().unwrap().to_owned()), ..ViewFile::default() };
    let problem = refused(&packed, keys).await;
    let expected = "keeps no sample: no record has 4 of the keys of `view.keys`: `a`, `b`, `c`, ...";
    assert!(problem.contains(expected), "{problem}");
    for odd in ["/dev/zero", folder.path().to_str().unwrap()] {
        let keys = ViewFile { keys: Some(odd.to_owned()), ..ViewFile::default() };
        let problem = refused(&packed, keys).await;
        assert!(problem.starts_with(&format!("`view.keys` `{odd}` is no regular file")), "{problem}");
    }
    let keys = ViewFile { keys: Some("/nowhere/keys.txt".into()), ..ViewFile::default() };
    assert!(refused(&packed, keys).await.starts_with("`view.keys` `/nowhere/keys.txt` cannot be read: "));
}

#[tokio::test]
async fn an_evaluated_view_is_kept_beside_the_manifest_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = tar(folder.path()).await;
    let packed = folder.path().join("packed");
    let found = view(&packed, &filter("cls == 3")).await.unwrap();
    let store = at(&packed);
    save_view(&store, &manifest, &found.set).await.unwrap();
    assert_eq!(open_view(&store, &manifest, found.samples).await.unwrap(), found.set);
    let path = packed.join(format!(".spdl/view-{}.spdl", found.samples));
    let bytes = fs::read(&path).unwrap();
    assert_eq!(Bytes::from(bytes.clone()), found.set.encode());
    for damaged in [&bytes[..bytes.len() - 1], &[&bytes[..], b"x"].concat(), b""] {
        fs::write(&path, damaged).unwrap();
        let error = open_view(&store, &manifest, found.samples).await.unwrap_err().to_string();
        assert!(error.contains("its checksum does not match"), "{error}");
    }
    // It is written again in place of what is damaged.
    save_view(&store, &manifest, &found.set).await.unwrap();
    assert_eq!(open_view(&store, &manifest, found.samples).await.unwrap().kept().select(1), SampleId(7));
    let other = tempfile::tempdir().unwrap();
    let other = rows(other.path()).await;
    let error = open_view(&store, &other, found.samples).await.unwrap_err().to_string();
    assert!(error.contains("is of a dataset of 20 samples, not of one of 3000"), "{error}");
}

#[tokio::test]
async fn whether_a_picture_is_there_is_known_without_reading_it() {
    let folder = tempfile::tempdir().unwrap();
    let (tars, rows) = (folder.path().join("tars"), folder.path().join("rows"));
    let mut tar = Vec::new();
    for number in 0..20 {
        if number % 3 > 0 {
            append_member(&mut tar, &format!("{number:02}.jpg"), &[0xff; 1000]);
        }
        append_member(&mut tar, &format!("{number:02}.txt"), format!("{}\n", number % 2).as_bytes());
    }
    tar.extend_from_slice(&TAR_END);
    fs::create_dir(&tars).unwrap();
    fs::write(tars.join("0.tar"), tar).unwrap();
    index(&at(&tars), &at(&tars), &IndexOptions::default(), &quiet).await.unwrap();
    let manifest = at(&tars).manifest().await.unwrap();
    let has_picture = |number: &usize| !number.is_multiple_of(3);
    let (store, bytes) = counted(at(&tars), ".tar");
    for (text, expected, is_read) in [
        ("jpg is not null", (0..20).filter(has_picture).collect::<Vec<_>>(), false),
        ("jpg is null", (0..20).filter(|number| !has_picture(number)).collect(), false),
        (
            "jpg is not null and txt == 1",
            (0..20).filter(|number| has_picture(number) && number % 2 == 1).collect(),
            true,
        ),
        ("not (jpg is null or txt is null)", (0..20).filter(has_picture).collect(), false),
    ] {
        bytes.store(0, Relaxed);
        let found = evaluate(&store, &manifest, &filter(text), 0, &quiet).await.unwrap();
        assert_eq!((ids(&found), bytes.load(Relaxed) > 0), (expected, is_read), "{text}");
    }

    // Every ninth row of the golden file has no picture, and every fifth no scores.
    fs::create_dir(&rows).unwrap();
    fs::copy("tests/golden/rows.parquet", rows.join("rows.parquet")).unwrap();
    let count = index(&at(&rows), &at(&rows), &IndexOptions::default(), &quiet).await.unwrap().records as usize;
    let nulls: Vec<usize> = (0..count).filter(|row| row % 9 == 8).collect();
    assert!(!nulls.is_empty());
    assert_eq!(kept(&rows, &filter("picture is null")).await, nulls);
    let others: Vec<usize> = (0..count).filter(|row| row % 9 != 8 && row % 5 != 4).collect();
    assert_eq!(kept(&rows, &filter("picture is not null and scores is not null")).await, others);
    let refused = view(&rows, &filter("scores > 1")).await.unwrap_err();
    assert!(
        refused.ends_with(
            "field `scores` is a list or an array, which has no single value, and is compared with a number"
        ),
        "{refused}"
    );
    let unique = ViewFile { unique: Some("scores".into()), ..ViewFile::default() };
    let refused = view(&rows, &unique).await.unwrap_err();
    assert!(refused.ends_with("field `scores` is a list or an array, which has no single value"), "{refused}");
}

#[tokio::test]
async fn documents_with_numbers_that_are_not_finite_are_compared_as_python_compares_them() {
    let folder = tempfile::tempdir().unwrap();
    let scores = ["NaN", "0.5", "Infinity", "-Infinity", "1e999", "2", "null"];
    let mut tar = Vec::new();
    for (number, score) in scores.iter().enumerate() {
        let document = format!("{{\"score\": {score}, \"label\": {number}}}");
        append_member(&mut tar, &format!("{number}.json"), document.as_bytes());
    }
    tar.extend_from_slice(&TAR_END);
    fs::write(folder.path().join("0.tar"), tar).unwrap();
    index(&at(folder.path()), &at(folder.path()), &IndexOptions::default(), &quiet).await.unwrap();
    for (text, expected) in [
        ("json.label >= 0", &[0, 1, 2, 3, 4, 5, 6][..]),
        ("json.score > 1", &[2, 4, 5]),
        ("json.score < 1", &[1, 3]),
        ("json.score is null", &[6]),
        ("json.score != 0.5", &[0, 2, 3, 4, 5]),
    ] {
        assert_eq!(kept(folder.path(), &filter(text)).await, expected, "{text}");
    }
}

#[tokio::test]
async fn records_that_cannot_be_read_are_left_out_as_far_as_that_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let mut tar = Vec::new();
    for number in 0..6 {
        let document = if number % 3 == 1 { "{\"n\": ".to_owned() } else { format!("{{\"n\": {number}}}") };
        spdl_dataset::tar::append_member(&mut tar, &format!("{number}.json"), document.as_bytes());
    }
    tar.extend(spdl_dataset::tar::TAR_END);
    fs::write(folder.path().join("0.tar"), tar).unwrap();
    let store = at(folder.path());
    index(&store, &store, &IndexOptions::default(), &quiet).await.unwrap();
    let manifest = store.manifest().await.unwrap();
    let all = filter("json.n >= 0");
    let found = evaluate(&store, &manifest, &all, 2, &quiet).await.unwrap();
    assert_eq!((ids(&found), found.undecided.records), (vec![0, 2, 3, 5], 2));
    let first = found.undecided.first.unwrap();
    assert!(first.contains("shard `0.tar`, record `1`: field `json.n` is not a JSON document: EOF"), "{first}");
    // A name that is not compared does not read them.
    let found = evaluate(&store, &manifest, &filter("json is not null"), 0, &quiet).await.unwrap();
    assert_eq!((ids(&found).len(), found.undecided.records), (6, 0));
    for (allowed, record, expected) in
        [(0, "`1`", "EOF"), (1, "`4`", "leaves out 1 such records, and no more: `max_bad_fraction`")]
    {
        let error = evaluate(&store, &manifest, &all, allowed, &quiet).await.unwrap_err().to_string();
        assert!(error.contains(&format!("record {record}")) && error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_label_is_compared_with_names_of_classes() {
    let folder = tempfile::tempdir().unwrap();
    for class in ["cat", "dog", "12"] {
        fs::create_dir(folder.path().join(class)).unwrap();
        for number in 0..3 {
            fs::write(folder.path().join(format!("{class}/{number}.jpg")), "picture").unwrap();
        }
    }
    let options = IndexOptions {
        classes: ClassOrder::Given(vec!["dog".into(), "12".into(), "cat".into()]),
        ..IndexOptions::default()
    };
    index(&at(folder.path()), &at(folder.path()), &options, &quiet).await.unwrap();
    // The records are by name: those of `12`, `cat` and `dog`.
    for (text, expected) in [
        ("cls in ['cat', 'dog']", vec![3, 4, 5, 6, 7, 8]),
        ("cls != 'dog'", vec![0, 1, 2, 3, 4, 5]),
        ("cls == '12' or 'cat' == cls", vec![0, 1, 2, 3, 4, 5]),
        ("cls == 1", vec![0, 1, 2]),
        ("cls >= 1", vec![0, 1, 2, 3, 4, 5]),
    ] {
        assert_eq!(kept(folder.path(), &filter(text)).await, expected, "{text}");
    }
}
