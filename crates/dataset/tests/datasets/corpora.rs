//! Corpora of speech as people have them: manifests of NeMo, Common Voice, LibriSpeech, Kaldi's folders, and segments of long
//! recordings.

use std::{fs, path::Path, sync::Arc};

use spdl_dataset::{
    DatasetError, DatasetReport, FileTable, IndexOptions, LeftOutReason, Overwrite, VerifyOptions, verify,
};
use spdl_shard::{
    format::{ShardIndex, format_called},
    manifest::Manifest,
};
use spdl_types::Fingerprint;

use crate::files::{at, faults, indexed, texts, unpacked, write};

/// The index of [`kaldi`]'s corpus: version 2.
const GOLDEN_INDEX: &[u8] = include_bytes!("../golden/files-v2.idx");

/// Indexes a folder with a table, again if it was indexed before.
pub(crate) async fn with_table(folder: &Path, table: &Path) -> Result<DatasetReport, DatasetError> {
    let table = Some(Arc::new(FileTable::read(table, folder.to_str().unwrap())?));
    let overwrite = Overwrite::Replace;
    let options = IndexOptions { format: format_called("files"), table, overwrite, ..IndexOptions::default() };
    indexed(folder, &options).await
}

#[tokio::test]
async fn a_manifest_of_nemo_has_paths_from_its_own_folder_or_absolute_ones() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(root.join("corpus/wav/a.wav"), "one");
    write(root.join("corpus/wav/deep/b.flac"), "two");
    let absolute = root.join("corpus/wav/deep/b.flac");
    let lines = [
        r#"{"audio_filepath": "../wav/a.wav", "duration": 1.5, "text": "hello", "lang": "en"}"#.to_owned(),
        format!(r#"{{"audio_filepath": {absolute:?}, "duration": 2, "text": "world", "offset": null}}"#),
    ];
    write(root.join("corpus/lists/train.json"), lines.join("\n"));
    let report = with_table(&root.join("corpus"), &root.join("corpus/lists/train.json")).await.unwrap();
    assert_eq!((report.records, report.samples), (2, 2));
    let expected = [
        ("wav/a.duration", "1.5"),
        ("wav/a.lang", "en"),
        ("wav/a.text", "hello"),
        ("wav/a.wav", "one"),
        ("wav/deep/b.duration", "2"),
        ("wav/deep/b.flac", "two"),
        ("wav/deep/b.text", "world"),
    ];
    assert_eq!(unpacked(&root.join("corpus")).await, texts(expected));
    for (line, expected) in [
        (
            r#"{"audio_filepath": "/elsewhere/a.wav"}"#,
            "t.json:1` names `/elsewhere/a.wav`, which is not inside the dataset's folder",
        ),
        (
            "{\"audio_filepath\": \"wav/a.wav\"}\n{\"audio_filepath\": \"wav/c.wav\"}",
            "t.json:2` names `wav/c.wav`, which is not in",
        ),
    ] {
        write(root.join("corpus/t.json"), line);
        let error = with_table(&root.join("corpus"), &root.join("corpus/t.json")).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn a_table_of_common_voice_names_files_in_clips() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for name in ["a.wav", "b.wav", "c.wav"] {
        write(root.join("clips").join(name), name);
    }
    let table = "client_id\tpath\tsentence\tup_votes\n7\tb.wav\tSaid \"so\", twice.\t2\n8\ta.wav\tYes.\t\n";
    write(root.join("train.tsv"), table);
    let report = with_table(root, &root.join("train.tsv")).await.unwrap();
    assert_eq!((report.records, report.class_names.len()), (2, 0));
    let found = unpacked(root).await;
    assert_eq!(found["clips/b.sentence"], "Said \"so\", twice.");
    assert_eq!((&*found["clips/b.wav"], &*found["clips/a.client_id"], found.len()), ("b.wav", "8", 8));
}

#[tokio::test]
async fn the_lines_of_transcripts_are_texts_of_the_sounds_beside_them() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for name in
        ["84/121/84-121-0000.flac", "84/121/84-121-0001.flac", "174/50/174-50-0000.flac", "174/50/174-50-0001.flac"]
    {
        write(root.join(name), name);
    }
    write(root.join("84/121/84-121.trans.txt"), "84-121-0000 GO DO YOU HEAR\n84-121-0001 YES\n");
    write(root.join("174/50/174-50.trans.txt"), "174-50-0000 NO\n");
    write(root.join("174/readme.txt"), "of no sound");
    let report = indexed(root, &IndexOptions::default()).await.unwrap();
    assert_eq!((report.records, report.class_names), (4, vec!["174".to_owned(), "84".to_owned()]));
    let left_out: Vec<_> = report.left_out.iter().map(|entry| (entry.example.as_str(), entry.why)).collect();
    assert_eq!(left_out, [("174/readme.txt", LeftOutReason::NoSound)]);
    let note = "`174/50/174-50-0001.flac` is in no file of transcripts beside it, and others may be in none";
    assert_eq!(report.notes[0], note);
    let found = unpacked(root).await;
    assert_eq!((&*found["84/121/84-121-0000.txt"], &*found["174/50/174-50-0000.txt"]), ("GO DO YOU HEAR", "NO"));
    assert!(!found.contains_key("174/50/174-50-0001.txt"), "{found:?}");

    write(root.join("174/50/174-50.trans.txt"), "174-50-0000 NO\n\n174-50-0001\n");
    let again = IndexOptions { overwrite: Overwrite::Replace, ..IndexOptions::default() };
    let error = indexed(root, &again).await.unwrap_err().to_string();
    assert!(error.contains("174-50.trans.txt:3` has no text behind the name of a sound"), "{error}");
}

#[tokio::test]
async fn a_file_of_its_own_sound_is_no_file_of_transcripts() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path().join("a.flac"), "sound");
    write(folder.path().join("a.trans.txt"), "one-word");
    indexed(folder.path(), &IndexOptions::default()).await.unwrap();
    assert_eq!(unpacked(folder.path()).await, texts([("a.flac", "sound"), ("a.trans.txt", "one-word")]));
}

/// A folder of two recordings, and a data folder of Kaldi for it.
fn kaldi(root: &Path) {
    write(root.join("corpus/wav/long.wav"), "a long recording");
    write(root.join("corpus/wav/long.json"), "{}");
    write(root.join("corpus/wav/short.wav"), "short");
    write(root.join("data/wav.scp"), "rec-2 wav/short.wav\nrec-1 wav/long.wav\n");
    write(root.join("data/segments"), "ann-2 rec-1 2.5 4.0\nann-1 rec-1 0 2.5\nbob-1 rec-2 1 -1\n");
    write(root.join("data/text"), "ann-1 FIRST WORDS\nann-2 MORE WORDS\nbob-1 YES\n");
    write(root.join("data/utt2spk"), "ann-1 ann\nann-2 ann\nbob-1 bob\n");
}

#[tokio::test]
async fn segments_of_a_recording_are_records_that_share_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let (root, corpus) = (folder.path(), folder.path().join("corpus"));
    kaldi(root);
    let report = with_table(&corpus, &root.join("data")).await.unwrap();
    assert_eq!((report.records, report.samples, report.shards, report.blocks), (3, 3, 1, 1));
    // The bytes of a recording count once, whatever shares it.
    let manifest = at(&corpus).manifest().await.unwrap();
    assert_eq!(manifest.shard(0).bytes, "a long recording{}short".len() as u64);
    assert_eq!(faults(&corpus).await, Vec::<String>::new());
    let verified = verify(&at(&corpus), &VerifyOptions::default(), &|_| ()).await.unwrap();
    assert_eq!((verified.records, verified.bytes), (3, manifest.shard(0).bytes), "a recording is read once");
    let expected = [
        ("wav/long@0.duration", "2.5"),
        ("wav/long@0.json", "{}"),
        ("wav/long@0.offset", "0.0"),
        ("wav/long@0.speaker", "ann"),
        ("wav/long@0.text", "FIRST WORDS"),
        ("wav/long@0.utterance", "ann-1"),
        ("wav/long@0.wav", "a long recording"),
        ("wav/long@2.5.duration", "1.5"),
        ("wav/long@2.5.json", "{}"),
        ("wav/long@2.5.offset", "2.5"),
        ("wav/long@2.5.speaker", "ann"),
        ("wav/long@2.5.text", "MORE WORDS"),
        ("wav/long@2.5.utterance", "ann-2"),
        ("wav/long@2.5.wav", "a long recording"),
        ("wav/short.duration", ""),
        ("wav/short.offset", "1.0"),
        ("wav/short.speaker", "bob"),
        ("wav/short.text", "YES"),
        ("wav/short.utterance", "bob-1"),
        ("wav/short.wav", "short"),
    ];
    assert_eq!(unpacked(&corpus).await, texts(expected));
    let again = with_table(&corpus, &root.join("data")).await.unwrap();
    assert_eq!(again.fingerprint, report.fingerprint);
}

#[tokio::test]
async fn a_block_has_all_segments_of_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut lines = String::from("file,start,end\n");
    for file in 0..3 {
        write(root.join(format!("corpus/{file}.wav")), vec![b'x'; 5000]);
        for start in 0..100 {
            lines.push_str(&format!("{file}.wav,{},{}\n", start * 2, start * 2 + 1));
        }
    }
    write(root.join("segments.csv"), lines);
    let corpus = root.join("corpus");
    let table = Some(Arc::new(FileTable::read(&root.join("segments.csv"), corpus.to_str().unwrap()).unwrap()));
    let options =
        IndexOptions { format: format_called("files"), table, block_bytes: Some(1000), ..IndexOptions::default() };
    let report = indexed(&corpus, &options).await.unwrap();
    assert_eq!((report.records, report.blocks), (300, 3));
    let manifest = at(&corpus).manifest().await.unwrap();
    assert_eq!(manifest.block_samples(), [100, 100, 100]);
    let store = at(&corpus);
    let index = store.index(&manifest.shard(0)).await.unwrap();
    for (number, record) in index.records().enumerate() {
        let field = record.field("wav").unwrap();
        assert_eq!(field.range(), Some(number as u64 / 100 * 5000..(number as u64 / 100 + 1) * 5000));
        assert_eq!(field.shared_by, 100);
        let parts = index.plan(&manifest.shard(0), &[field.range().unwrap()]);
        assert_eq!(parts.len(), 1);
        assert_eq!(parts[0].object.url, format!("{}.wav", number / 100));
    }
}

#[tokio::test]
async fn lines_of_one_file_have_to_say_where_they_begin_and_to_differ() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path().join("a.wav"), "a");
    for (table, expected) in [
        ("file,offset\na.wav,1\na.wav,2\na.wav,1\n", "t.csv:4` is the same as line 2; leave one of them out"),
        (
            "file,offset\na.wav,1\na.wav,soon\n",
            "t.csv:3` names `a.wav`, as other lines do, and begins at no number of seconds",
        ),
        (
            "id,file,text\n1,a.wav,x\n1, a.wav,x\n",
            "t.csv:3` names `a.wav`, which line 2 names already; lines of one file differ in a field, or have a `offset`",
        ),
    ] {
        write(folder.path().join("t.csv"), table);
        let error = with_table(folder.path(), &folder.path().join("t.csv")).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[tokio::test]
async fn segments_that_begin_at_once_have_numbers_and_the_order_of_lines_decides_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (root, table) = (folder.path(), folder.path().join("t.csv"));
    write(root.join("corpus/a.wav"), "a");
    let lines = ["a.wav,1.5,2,bob", "a.wav,0,9,all", "a.wav,1.50,2,cid", "a.wav,1.5,2,ann", "a.wav,1.5,0.5,dan"];
    write(&table, format!("file,offset,duration,who\n{}\n", lines.join("\n")));
    let corpus = root.join("corpus");
    let report = with_table(&corpus, &table).await.unwrap();
    assert_eq!((report.records, report.blocks), (5, 1));
    let found = unpacked(&corpus).await;
    let who: Vec<&str> = ["a@0", "a@1.5", "a@1.5-2", "a@1.5-3", "a@1.5-4"]
        .iter()
        .map(|key| found[&format!("{key}.who")].as_str())
        .collect();
    assert_eq!(who, ["all", "dan", "ann", "bob", "cid"]);
    let mut reversed = lines;
    reversed.reverse();
    write(&table, format!("file,offset,duration,who\n{}\n", reversed.join("\n")));
    assert_eq!(with_table(&corpus, &table).await.unwrap().fingerprint, report.fingerprint);
}

#[tokio::test]
async fn a_value_takes_the_place_of_a_file_that_records_share_but_not_of_the_sound() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.wav", "a.txt", "b.wav"] {
        write(folder.path().join(name), name);
    }
    let lines = r#"{"file": "a.wav", "offset": 0, "wav": "x"}
{"file": "a.wav", "offset": 1, "txt": "words", "wav": "x"}
{"file": "a.wav", "offset": 2}
{"file": "b.wav"}"#;
    write(folder.path().join("t.jsonl"), lines);
    with_table(folder.path(), &folder.path().join("t.jsonl")).await.unwrap();
    let expected = [
        ("a@0.offset", "0"),
        ("a@0.txt", "a.txt"),
        ("a@0.wav", "a.wav"),
        ("a@1.offset", "1"),
        ("a@1.txt", "words"),
        ("a@1.wav", "a.wav"),
        ("a@2.offset", "2"),
        ("a@2.txt", "a.txt"),
        ("a@2.wav", "a.wav"),
        ("b.offset", "0"),
        ("b.wav", "b.wav"),
    ];
    assert_eq!(unpacked(folder.path()).await, texts(expected));
}

#[tokio::test]
async fn hostile_bytes_of_an_index_with_shared_files_neither_panic_nor_slip_through() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus");
    kaldi(folder.path());
    with_table(&corpus, &folder.path().join("data")).await.unwrap();
    let [index, manifest] =
        ["files-000000.idx", "manifest.spdl"].map(|name| fs::read(corpus.join(".spdl").join(name)).unwrap());
    assert_eq!(index, GOLDEN_INDEX, "it is written as ever");
    check_changed(&index, manifest, check_plans);
}

/// Checks that an index whose bytes are changed is invalid, or harmless: it opens, and passes `check`.
pub(crate) fn check_changed(index: &[u8], manifest: Vec<u8>, check: impl Fn(&dyn ShardIndex, &Manifest)) {
    let manifest = Manifest::open(manifest).unwrap();
    let format = format_called("files").unwrap();
    let mut opened = 0;
    for at in 40..index.len() {
        for value in [0, 1, 2, 4, 5, 0x80, 0xff] {
            for width in [1, 2, 4, 8] {
                let mut bytes = index.to_vec();
                let end = (at + width).min(bytes.len());
                bytes[at..end].fill(value);
                let hash = Fingerprint::of(&bytes[40..]);
                bytes[24..40].copy_from_slice(&hash.0.to_le_bytes());
                let hash = Fingerprint::of(&bytes);
                let Ok(index) = format.open_index(bytes.into(), hash) else { continue };
                opened += 1;
                check(&*index, &manifest);
            }
        }
    }
    assert!(opened > 100, "{opened}");
}

/// Checks that the plan of every field reads its bytes.
pub(crate) fn check_plans(index: &dyn ShardIndex, manifest: &Manifest) {
    for record in index.records() {
        assert!(!record.key.text().is_empty());
        for (nth, field) in (0..).zip(record.fields()) {
            _ = index.packet_table(&record, nth);
            let range = field.range().unwrap_or(0..0);
            assert!(range.end <= index.shard_bytes());
            let parts = index.plan(&manifest.shard(0), std::slice::from_ref(&range));
            let planned: u64 = parts.iter().map(|part| part.range.end - part.range.start).sum();
            assert_eq!(planned, range.end - range.start);
        }
    }
}
