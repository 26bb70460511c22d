//! Tables about members of tars: NeMo's manifests of tars, lhotse's Shar, and any other.

use std::{fs, io::Write as _, path::Path, sync::Arc};

use flate2::{Compression, write::GzEncoder};
use spdl_dataset::{
    DatasetError, DatasetReport, FileTable, IndexOptions, LeftOutReason, Overwrite, ShardList, VerifyOptions,
    tar::{TAR_END, append_member},
    verify,
};
use spdl_shard::format::format_called;

use crate::files::{at, faults, indexed, texts, unpacked, write};

fn write_tar(path: &Path, members: &[(&str, &str)]) {
    let mut tar = Vec::new();
    for (name, content) in members {
        append_member(&mut tar, name, content.as_bytes());
    }
    tar.extend(TAR_END);
    write(path, tar);
}

fn options(folder: &Path, table: &Path) -> Result<IndexOptions, DatasetError> {
    let table = FileTable::read(table, folder.to_str().unwrap())?;
    Ok(IndexOptions { table: Some(Arc::new(table)), overwrite: Overwrite::Replace, ..IndexOptions::default() })
}

async fn with_table(folder: &Path, table: &Path) -> Result<DatasetReport, DatasetError> {
    indexed(folder, &options(folder, table)?).await
}

async fn error_of(folder: &Path, table: &Path) -> String {
    with_table(folder, table).await.unwrap_err().to_string()
}

/// Two tars as NeMo writes them, and the lines of their manifest, which lies elsewhere.
fn nemo(root: &Path) -> Vec<String> {
    write_tar(&root.join("tars/audio_0.tar"), &[("a_talk.wav", "a long talk"), ("b.WAV", "bee"), ("c.flac", "sea")]);
    write_tar(&root.join("tars/audio_1.tar"), &[("d.flac", "dee"), ("left_out.flac", "no line")]);
    let line = |file: &str, shard: u32, rest: &str| {
        format!(r#"{{"audio_filepath": "{file}", "duration": 2.5, "shard_id": {shard}, {rest}}}"#)
    };
    vec![
        line("d.flac", 1, r#""text": "four""#),
        line("a_talk.wav", 0, r#""text": "one", "offset": 0.5"#),
        line("a_talk-sub10.wav", 0, r#""text": "last", "offset": 20"#),
        line("a_talk-sub2.wav", 0, r#""text": "third", "offset": 7.25"#),
        line("b.WAV", 0, r#""text": "two", "lang": "en""#),
        line("c.flac", 0, r#""text": "thrée""#),
    ]
}

#[tokio::test]
async fn a_manifest_of_nemos_tars_gives_members_values_and_parts_of_one_are_records() {
    let folder = tempfile::tempdir().unwrap();
    let (tars, manifest) = (folder.path().join("tars"), folder.path().join("lists/tarred_audio_manifest.json"));
    write(&manifest, nemo(folder.path()).join("\n"));
    let report = with_table(&tars, &manifest).await.unwrap();
    assert_eq!((report.records, report.samples, report.shards), (6, 6, 2));
    let left_out: Vec<_> = report.left_out.iter().map(|entry| (entry.example.as_str(), entry.why)).collect();
    assert_eq!(left_out, [("left_out.flac", LeftOutReason::NoRow)]);
    assert_eq!(faults(&tars).await, Vec::<String>::new());
    let verified = verify(&at(&tars), &VerifyOptions::default(), &|_| ()).await.unwrap();
    assert_eq!(verified.records, 6);
    let found = unpacked(&tars).await;
    let of = |key: &str, fields: &[&str]| fields.iter().map(|field| found[&format!("{key}.{field}")].clone()).collect();
    let read: Vec<Vec<String>> =
        [("a_talk", "wav"), ("a_talk-sub2", "wav"), ("a_talk-sub10", "wav"), ("b", "wav"), ("d", "flac")]
            .map(|(key, sound)| of(key, &[sound, "text", "offset", "duration", "shard_id"]))
            .into();
    let expected = [
        ["a long talk", "one", "0.5", "2.5", "0"],
        ["a long talk", "third", "7.25", "2.5", "0"],
        ["a long talk", "last", "20", "2.5", "0"],
        ["bee", "two", "0", "2.5", "0"],
        ["dee", "four", "0", "2.5", "1"],
    ];
    assert_eq!(read, expected);
    assert_eq!((&*found["c.text"], &*found["b.lang"], found.contains_key("c.lang")), ("thrée", "en", false));
    // The parts of a member are one after the other, and share its bytes.
    let store = at(&tars);
    let manifest = store.manifest().await.unwrap();
    let index = store.index(&manifest.shard(0)).await.unwrap();
    let shared: Vec<_> = index.records().map(|record| record.field("wav").map(|field| field.shared_by)).collect();
    assert_eq!(shared, [Some(3), Some(3), Some(3), Some(1), None]);
    assert_eq!(manifest.block_samples(), [5, 1]);
}

#[tokio::test]
async fn segments_of_members_that_begin_at_once_are_records_with_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let (tars, table) = (folder.path().join("tars"), folder.path().join("segments.csv"));
    write_tar(&tars.join("0.tar"), &[("talk.wav", "two people"), ("b.wav", "bee")]);
    write(
        &table,
        "file,offset,duration,text\ntalk.wav,3,2,second\ntalk.wav,3,1,first\ntalk.wav,0,3,before\nb.wav,0,1,b\n",
    );
    assert_eq!(with_table(&tars, &table).await.unwrap().records, 4);
    assert_eq!(faults(&tars).await, Vec::<String>::new());
    let found = unpacked(&tars).await;
    let texts: Vec<&str> =
        ["talk@0", "talk@3", "talk@3-2", "b"].iter().map(|key| found[&format!("{key}.text")].as_str()).collect();
    assert_eq!(texts, ["before", "first", "second", "b"]);
    assert_eq!(found["talk@3-2.wav"], "two people");
}

#[tokio::test]
async fn indexing_again_keeps_the_dataset_and_other_values_make_another() {
    let folder = tempfile::tempdir().unwrap();
    let (tars, manifest) = (folder.path().join("tars"), folder.path().join("manifest.json"));
    let mut lines = nemo(folder.path());
    write(&manifest, lines.join("\n"));
    let report = with_table(&tars, &manifest).await.unwrap();
    lines.reverse();
    write(&manifest, lines.join("\n"));
    assert_eq!(with_table(&tars, &manifest).await.unwrap().fingerprint, report.fingerprint);
    write(&manifest, lines.join("\n").replace("four", "five"));
    assert_ne!(with_table(&tars, &manifest).await.unwrap().fingerprint, report.fingerprint);
    assert_eq!(unpacked(&tars).await["d.text"], "five");
}

#[tokio::test]
async fn lines_of_members_that_are_not_there_or_not_clear_are_errors_and_chosen_tars_need_not_have_all() {
    let folder = tempfile::tempdir().unwrap();
    let (tars, manifest) = (folder.path().join("tars"), folder.path().join("manifest.json"));
    let lines = nemo(folder.path());
    let missing = r#"{"audio_filepath": "e.wav", "shard_id": 1}"#;
    write(&manifest, format!("{}\n{missing}", lines.join("\n")));
    let error = error_of(&tars, &manifest).await;
    assert!(error.contains("manifest.json:7` names `e.wav`, which is in none of the tars"), "{error}");
    let chosen =
        IndexOptions { shards: ShardList::Named(vec!["audio_1.tar".into()]), ..options(&tars, &manifest).unwrap() };
    assert_eq!(indexed(&tars, &chosen).await.unwrap().records, 1);
    write(&manifest, lines.join("\n"));
    write_tar(&tars.join("audio_2.tar"), &[("d.flac", "dee again")]);
    let error = error_of(&tars, &manifest).await;
    assert!(error.contains("manifest.json:1` names `d.flac`, which the tars have more than once"), "{error}");
    write_tar(&tars.join("audio_2.tar"), &[("x.1.flac", "one"), ("x.2.flac", "two")]);
    let more = [1, 2].map(|number| format!(r#"{{"audio_filepath": "x.{number}.flac", "shard_id": 2}}"#));
    write(&manifest, format!("{}\n{}", lines.join("\n"), more.join("\n")));
    let error = error_of(&tars, &manifest).await;
    assert!(
        error.contains("names `x.2.flac`, which is in one record with another member") && error.contains("last-dot"),
        "{error}"
    );
    let boxes = IndexOptions { boxes: Some("xml".into()), ..options(&tars, &manifest).unwrap() };
    let error = indexed(&tars, &boxes).await.unwrap_err().to_string();
    assert!(error.contains("is for tars without a table"), "{error}");
}

#[tokio::test]
async fn any_table_gives_members_of_tars_values_and_classes_unless_its_files_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let (tars, table) = (folder.path().join("tars"), folder.path().join("labels.csv"));
    write_tar(&tars.join("0.tar"), &[("a.jpg", "A"), ("a.txt", "old"), ("b.jpg", "B"), ("c.jpg", "C")]);
    write_tar(&tars.join("plain"), &[("d.jpg", "D"), ("e.jpg", "E")]);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&fs::read(tars.join("plain")).unwrap()).unwrap();
    write(tars.join("1.tar.gz"), packed.finish().unwrap());
    write(&table, "file,class,txt\na.jpg,dog,new\nc.jpg,cat,other\nd.jpg,dog,packed\n");
    let report = with_table(&tars, &table).await.unwrap();
    assert_eq!((report.records, report.class_names.clone()), (3, vec!["cat".to_owned(), "dog".to_owned()]));
    let left_out: Vec<_> =
        report.left_out.iter().map(|entry| (entry.example.as_str(), entry.files, entry.why)).collect();
    let expected = [("b.jpg", 2, LeftOutReason::NoRow), ("a.txt", 1, LeftOutReason::FieldTaken)];
    assert_eq!(left_out, expected);
    let expected = [
        ("a.cls", "1"),
        ("a.jpg", "A"),
        ("a.txt", "new"),
        ("c.cls", "0"),
        ("c.jpg", "C"),
        ("c.txt", "other"),
        ("d.cls", "1"),
        ("d.jpg", "D"),
        ("d.txt", "packed"),
    ];
    assert_eq!(unpacked(&tars).await, texts(expected));
    // A table about files that are there is about these, whatever lies beside them.
    for name in ["a.jpg", "c.jpg", "d.jpg"] {
        write(tars.join(name), name);
    }
    with_table(&tars, &table).await.unwrap();
    assert_eq!(unpacked(&tars).await["a.jpg"], "a.jpg");
    let tar = IndexOptions { format: format_called("tar"), ..options(&tars, &table).unwrap() };
    indexed(&tars, &tar).await.unwrap();
    assert_eq!(unpacked(&tars).await["a.jpg"], "A");
}

#[tokio::test]
async fn several_captions_of_a_member_are_samples_whose_keys_differ() {
    let folder = tempfile::tempdir().unwrap();
    let (tars, table) = (folder.path().join("tars"), folder.path().join("t.tsv"));
    write_tar(&tars.join("0.tar"), &[("a.jpg", "A"), ("b.jpg", "B")]);
    write(&table, "file\tcaption\na.jpg\tone\nb.jpg\tthree\na.jpg\tfour\n");
    assert_eq!(with_table(&tars, &table).await.unwrap().records, 3);
    let expected = [
        ("a-2.caption", "one"),
        ("a-2.jpg", "A"),
        ("a.caption", "four"),
        ("a.jpg", "A"),
        ("b.caption", "three"),
        ("b.jpg", "B"),
    ];
    assert_eq!(unpacked(&tars).await, texts(expected));
}

#[tokio::test]
async fn a_table_is_refused_for_a_format_that_has_its_own_values() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path().join("data/a.tfrecord"), "");
    write(folder.path().join("t.csv"), "file,text\na.tfrecord,one\n");
    let options = options(&folder.path().join("data"), &folder.path().join("t.csv")).unwrap();
    let error =
        indexed(&folder.path().join("data"), &IndexOptions { format: format_called("tfrecord"), ..options }).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("is for loose files and for tars, and not for tfrecord"), "{error}");
}

/// A Shar of three cuts in two shards, and features that are not read.
fn shar(root: &Path) {
    let cut = |id: &str, supervisions: &str| {
        let recording = r#""recording": {"id": "r", "sources": [{"type": "shar", "channels": [0], "source": ""}]}"#;
        format!(
            r#"{{"id": "{id}", "start": 0, "duration": 1.5, "channel": 0, "supervisions": [{supervisions}], {recording}, "type": "MonoCut"}}"#
        )
    };
    let one = r#"{"id": "s", "text": "HELLO", "speaker": "ann", "language": "en"}"#;
    let two = r#"{"id": "t", "text": "WORLD", "speaker": "bob", "language": "en"}"#;
    let shards = [vec![cut("r.1-0", one), cut("r.1-1", &format!("{one}, {two}"))], vec![cut("r.2-0", "")]];
    for (number, cuts) in shards.iter().enumerate() {
        let file = fs::File::create(root.join(format!("cuts.{number:06}.jsonl.gz"))).unwrap();
        let mut file = GzEncoder::new(file, Compression::fast());
        file.write_all(cuts.join("\n").as_bytes()).unwrap();
        file.finish().unwrap();
    }
    write_tar(
        &root.join("recording.000000.tar"),
        &[("r.1-0.flac", "first"), ("r.1-0.json", "{}"), ("r.1-1.flac", "second"), ("r.1-1.json", "{}")],
    );
    write_tar(&root.join("recording.000001.tar"), &[("r.2-0.flac", "third"), ("r.2-0.json", "{}")]);
    write_tar(&root.join("features.000000.tar"), &[("r.1-0.llc", "features"), ("r.1-0.json", "{}")]);
}

#[tokio::test]
async fn a_shar_has_the_texts_of_its_cuts() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    shar(root);
    let report = with_table(root, root).await.unwrap();
    assert_eq!((report.records, report.shards), (3, 2));
    assert_eq!(faults(root).await, Vec::<String>::new());
    let found = unpacked(root).await;
    let expected = [
        ("r.1-0.flac", "first"),
        ("r.1-0.text", "HELLO"),
        ("r.1-0.speaker", "ann"),
        ("r.1-1.flac", "second"),
        ("r.1-1.text", "HELLO WORLD"),
        ("r.1-1.language", "en"),
        ("r.2-0.flac", "third"),
        ("r.2-0.duration", "1.5"),
    ];
    for (name, content) in expected {
        assert_eq!(found[name], content, "{name}");
    }
    assert!(!found.contains_key("r.1-1.speaker") && !found.contains_key("r.2-0.text"), "{found:?}");
    assert!(found["r.2-0.cut"].contains(r#""id": "r.2-0""#), "{found:?}");
    for (line, expected) in [
        (r#"{"id": "m", "tracks": [], "type": "MixedCut"}"#, "has the mixed cut `m`"),
        (r#"{"id": "p", "type": "PaddingCut"}"#, "has the padding cut `p`"),
        (r#"{"id": "s", "start": 2.5}"#, "has the cut `s`, which begins within its recording"),
        ("[]", "is no cut"),
        (r#"{"id": "absent"}"#, "names `absent`, which is in none of the tars"),
    ] {
        write(root.join("cuts.000002.jsonl"), line);
        let error = error_of(root, root).await;
        assert!(error.contains(expected), "{error}");
    }
    fs::remove_file(root.join("cuts.000002.jsonl")).unwrap();
    for number in 0..2 {
        fs::remove_file(root.join(format!("recording.{number:06}.tar"))).unwrap();
    }
    let error = error_of(root, root).await;
    assert!(error.contains("tars called `recording.*.tar` are expected"), "{error}");
}
