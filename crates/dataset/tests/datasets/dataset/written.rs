//! Records that a program makes, written one by one.

use std::path::Path;

use spdl_dataset::{
    DatasetError, DatasetReport, DatasetWriter, Jpegs, NewRecord, Overwrite, PackOptions, PackOrder, PackSource,
    WriteOptions,
};

use super::{at, files, names, packed, quiet, records, verified, write};

fn record(key: &str, fields: &[(&str, &[u8])]) -> NewRecord {
    let fields = fields.iter().map(|(name, content)| ((*name).to_owned(), content.to_vec())).collect();
    NewRecord { key: key.to_owned(), fields }
}

async fn begun(to: &Path, options: WriteOptions) -> Result<DatasetWriter, DatasetError> {
    DatasetWriter::begin(at(to), options, quiet).await
}

async fn written(
    to: &Path,
    options: WriteOptions,
    records: impl IntoIterator<Item = NewRecord>,
) -> Result<DatasetReport, DatasetError> {
    let mut writer = begun(to, options).await?;
    for record in records {
        writer.add(record)?;
        writer.flush().await?;
    }
    writer.finish().await
}

#[tokio::test]
async fn what_is_written_is_what_pack_makes_of_the_same_files() {
    let folder = tempfile::tempdir().unwrap();
    let (source, by_pack, by_writer) =
        (folder.path().join("in"), folder.path().join("a/set"), folder.path().join("b/set"));
    let mut made = Vec::new();
    for number in 0..500 {
        let (text, picture) = (format!("text {number}"), format!("picture {number} ").repeat(100 + number % 7));
        write(source.join(format!("c/{number:03}.jpg")), &picture);
        write(source.join(format!("c/{number:03}.txt")), &text);
        made.push(record(
            &format!("c/{number:03}"),
            &[("jpg", picture.as_bytes()), ("cls", b"0"), ("txt", text.as_bytes())],
        ));
    }
    let (shard_bytes, block_bytes) = (300 << 10, 32 << 10);
    let order = PackOrder::AsListed;
    let pack = PackOptions { shard_bytes, block_bytes, order, ..PackOptions::new(PackSource::of(&source)) };
    let packed = packed(&pack, &by_pack).await.unwrap();
    let options = WriteOptions { shard_bytes, block_bytes, classes: vec!["c".into()], ..WriteOptions::default() };
    let report = written(&by_writer, options, made).await.unwrap();
    assert!(report.shards > 3, "{report:?}");
    assert_eq!(report, DatasetReport { url: report.url.clone(), ..packed });
    assert!(files(&by_pack) == files(&by_writer));
    let verified = verified(&by_writer).await;
    assert_eq!((verified.faults, verified.records), (vec![], 500));
}

#[tokio::test]
async fn shards_end_at_a_number_of_records_and_a_large_field_is_one_record() {
    let folder = tempfile::tempdir().unwrap();
    let large = vec![7; 20 << 20];
    let fields: Vec<NewRecord> = (0..7)
        .map(|number| record(&format!("{number}"), &[("bin", if number == 3 { &large[..] } else { b"x" })]))
        .collect();
    let options = WriteOptions { shard_records: Some(3), jpegs: Jpegs::CropReady, ..WriteOptions::default() };
    let report = written(folder.path(), options, fields.clone()).await.unwrap();
    assert_eq!((report.records, report.shards, report.samples), (7, 3, 7));
    for (found, made) in records(folder.path()).await.iter().zip(&fields) {
        assert_eq!((&found.1, &found.3), (&made.key, &made.fields));
    }
}

#[tokio::test]
async fn a_label_that_is_not_the_number_of_a_class_is_refused_and_the_next_one_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let classes = |count: usize| WriteOptions {
        classes: (0..count).map(|number| format!("class {number}")).collect(),
        ..WriteOptions::default()
    };
    let mut writer = begun(folder.path(), classes(2)).await.unwrap();
    for (field, label) in [("cls", "2"), ("label", "-1"), ("cls", "99999999999999999999\n")] {
        let error = writer.add(record("a", &[("jpg", b"1"), (field, label.as_bytes())])).unwrap_err().to_string();
        let wanted = format!("has the number {} in the field `{field}`, which is not that of a class: ", label.trim());
        assert!(
            error.contains(&wanted) && error.contains("the 2 classes have the numbers 0 to 1; a field of another name"),
            "{error}"
        );
    }
    let fields: [&[(&str, &[u8])]; 4] =
        [&[("cls", b"0"), ("count", b"7")], &[("label", b"1")], &[("label", b"1.5")], &[("label", b"[7]")]];
    for (number, fields) in fields.iter().enumerate() {
        writer.add(record(&number.to_string(), fields)).unwrap();
    }
    assert_eq!(writer.finish().await.unwrap().records, 4);

    let folder = tempfile::tempdir().unwrap();
    let error = begun(folder.path(), classes(1)).await.unwrap().add(record("a", &[("cls", b"1")])).unwrap_err();
    assert!(error.to_string().contains("the one class has the number 0;"), "{error}");
    let mut without = begun(folder.path(), WriteOptions { overwrite: Overwrite::Replace, ..classes(0) }).await.unwrap();
    without.add(record("a", &[("cls", b"7")])).unwrap();
    without.abort().await;
}

#[tokio::test]
async fn a_record_that_no_reader_would_find_again_is_refused_and_the_next_one_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = begun(folder.path(), WriteOptions::default()).await.unwrap();
    writer.add(record("first", &[("a", b"1")])).unwrap();
    type Case = (&'static str, &'static [(&'static str, &'static [u8])], &'static str);
    let cases: [Case; 14] = [
        ("", &[("a", b"1")], "sample 1 (key ``) has an empty key"),
        ("a.b", &[("a", b"1")], "a dot in its key"),
        ("../a", &[("a", b"1")], "no path in a tar"),
        ("/a", &[("a", b"1")], "no path in a tar"),
        ("__a__/b", &[("a", b"1")], "no path in a tar"),
        (
            "a\n",
            &[("a", b"1")],
            "sample 1 (key `a\\n`) has a key with more than 4096 bytes, or with a control character",
        ),
        ("a", &[], "has no fields"),
        ("a", &[("", b"1")], "has the field ``"),
        ("a", &[("A", b"1")], "has the field `A`: a name has no capitals"),
        ("a", &[("x/y", b"1")], "has the field `x/y`"),
        ("a", &[(".x", b"1")], "does not begin or end with a dot"),
        ("a", &[("x.", b"1")], "does not begin or end with a dot"),
        ("a", &[("x", b"1"), ("x", b"2")], "has the field `x` twice"),
        ("first", &[("a", b"1")], "has the key of the sample before"),
    ];
    for (key, fields, expected) in cases {
        let error = writer.add(record(key, fields)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    writer.add(record("folder.d/second", &[("seg.png", b"2")])).unwrap();
    assert_eq!(writer.finish().await.unwrap().records, 2);
    let keys: Vec<_> = records(folder.path()).await.into_iter().map(|found| (found.1, found.3)).collect();
    let fields = |name: &str, content: &[u8]| vec![(name.to_owned(), content.to_vec())];
    assert_eq!(keys, [("first".into(), fields("a", b"1")), ("folder.d/second".into(), fields("seg.png", b"2"))]);
}

#[tokio::test]
async fn a_key_that_two_records_of_a_shard_have_is_an_error_that_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let made = ["a", "b", "a"].map(|key| record(key, &[("x", key.as_bytes())]));
    let error = written(folder.path(), WriteOptions::default(), made).await.unwrap_err();
    assert!(matches!(&error, DatasetError::KeyTwice { key, .. } if key == "a"), "{error}");
    assert_eq!(names(folder.path()), [""; 0]);
}

#[tokio::test]
async fn a_writer_that_is_aborted_dropped_or_has_no_records_leaves_no_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let options = || WriteOptions { shard_records: Some(2), ..WriteOptions::default() };
    let records = |count: usize| (0..count).map(|number| record(&number.to_string(), &[("x", &[1; 200 << 10])]));

    let mut writer = begun(folder.path(), options()).await.unwrap();
    for record in records(9) {
        writer.add(record).unwrap();
        writer.flush().await.unwrap();
    }
    writer.abort().await;
    assert_eq!(names(folder.path()), [""; 0]);
    assert!(matches!(writer.finish().await, Err(DatasetError::Stopped { .. })));

    let error = written(folder.path(), options(), []).await.unwrap_err();
    assert!(matches!(error, DatasetError::Nothing { .. }), "{error}");
    assert_eq!(names(folder.path()), [""; 0]);

    // The records that a dropped writer has are not all.
    let mut writer = begun(folder.path(), options()).await.unwrap();
    writer.add(record("a", &[("x", b"1")])).unwrap();
    drop(writer);
    let gone = async {
        while !names(folder.path()).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), gone).await.unwrap();
}

#[tokio::test]
async fn what_is_there_stays_until_the_new_dataset_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let one = |text: &'static [u8]| [record("a", &[("x", text)])];
    written(folder.path(), WriteOptions::default(), one(b"old")).await.unwrap();
    let refused = begun(folder.path(), WriteOptions::default()).await.unwrap_err();
    assert!(matches!(refused, DatasetError::InUse { .. }), "{refused}");
    let replace = || WriteOptions { overwrite: Overwrite::Replace, ..WriteOptions::default() };
    let mut writer = begun(folder.path(), replace()).await.unwrap();
    writer.add(record("a", &[("x", b"other")])).unwrap();
    writer.abort().await;
    assert_eq!(records(folder.path()).await[0].3[0].1, b"old");
    written(folder.path(), replace(), one(b"new")).await.unwrap();
    assert_eq!(records(folder.path()).await[0].3[0].1, b"new");
    assert_eq!(names(folder.path()), [".spdl", "shard-000000.tar"]);
    let bad = WriteOptions { shard_bytes: 0, ..replace() };
    assert!(matches!(begun(folder.path(), bad).await, Err(DatasetError::Option { option: "shard_bytes", .. })));
}
