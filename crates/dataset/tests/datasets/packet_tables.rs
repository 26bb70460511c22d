//! The tables of long sounds and videos in the indexes of loose files and of tars.

use std::{collections::BTreeMap, fs, io::Write as _, path::Path, sync::Arc};

use flate2::{Compression, write::GzEncoder};
use spdl_dataset::{
    FieldChoice, FileTable, IndexOptions, Overwrite, PackOptions, PackSource, pack,
    tar::{TAR_END, append_member},
};
use spdl_media::{SoundTable, StoredVideo, VideoTable};
use spdl_shard::manifest::Manifest;

use crate::{
    corpora::{check_changed, check_plans, with_table},
    files::{at, faults, indexed, quiet, write},
};

/// The index of a recording with two segments, and of a short one: version 3.
const GOLDEN_INDEX: &[u8] = include_bytes!("../golden/files-v3-tables.idx");
/// A second of AAC, whose packets follow each other in any number.
const ADTS: &[u8] = include_bytes!("../../../media/tests/mono.aac");
const FLAC: &[u8] = include_bytes!("../../../media/tests/stereo.flac");
/// Videos of 40 frames.
const MATROSKA: &[u8] = include_bytes!("../../../media/tests/videos/groups.mkv");
const WEBM: &[u8] = include_bytes!("../../../media/tests/videos/vp9.webm");
const MP4: &[u8] = include_bytes!("../../../media/tests/videos/tables.mp4");
/// More than 4 MiB.
const LONG_BYTES: usize = 4_300_000;

/// Returns a WAV of 16 bits at 16 kHz.
fn wav(bytes: usize) -> Vec<u8> {
    let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data".to_vec();
    file.extend(u32::try_from(bytes).unwrap().to_le_bytes());
    file.resize(file.len() + bytes, 3);
    file
}

/// Returns the number of frames that the table of each record's first file tells.
fn frames(folder: &Path, of_table: impl Fn(&[u8]) -> u64) -> BTreeMap<String, Option<u64>> {
    let folder = [folder.join(".spdl"), folder.to_owned()].into_iter().find(|folder| folder.exists()).unwrap();
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    let manifest = Manifest::open(read("manifest.spdl")).unwrap();
    let shard = manifest.shard(0);
    let index = read(&format!("{}.idx", shard.url)).into();
    let index = manifest.format().open_index(index, shard.index_hash).unwrap();
    index.records().map(|record| (record.key.to_string(), index.packet_table(&record, 0).map(&of_table))).collect()
}

/// Returns a tar of these members.
fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, content) in members {
        append_member(&mut tar, name, content);
    }
    [&tar[..], &TAR_END].concat()
}

fn of_sound(table: &[u8]) -> u64 {
    SoundTable::read(table).unwrap().frames()
}

#[tokio::test]
async fn of_which_sounds_there_is_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus");
    write(corpus.join("long.wav"), wav(LONG_BYTES));
    write(corpus.join("short.wav"), wav(5000));
    write(corpus.join("short.flac"), FLAC);
    write(corpus.join("talk.aac"), ADTS.repeat(LONG_BYTES / ADTS.len() + 1));
    let damaged = [&ADTS.repeat(LONG_BYTES / ADTS.len() + 1)[..], b"no packet"].concat();
    write(corpus.join("torn.aac"), damaged);
    indexed(&corpus, &IndexOptions::default()).await.unwrap();
    let long = Some(LONG_BYTES as u64 / 2);
    let found = frames(&corpus, of_sound);
    // Without segments, no more is read than the heads.
    assert_eq!(found["long"], long);
    assert!(found.iter().all(|(key, frames)| key == "long" || frames.is_none()), "{found:?}");
    let lines = [
        "long.wav,0",
        "long.wav,1.5",
        "short.wav,0",
        "short.wav,0.1",
        "talk.aac,0",
        "talk.aac,7",
        "torn.aac,0",
        "torn.aac,7",
    ];
    write(folder.path().join("list.csv"), format!("file,offset\n{}\n", lines.join("\n")));
    with_table(&corpus, &folder.path().join("list.csv")).await.unwrap();
    let found = frames(&corpus, of_sound);
    assert_eq!(found.len(), 8);
    for key in ["long@0", "long@1.5"] {
        assert_eq!(found[key], long, "{key}");
    }
    assert!(found["talk@0"].is_some() && found["talk@0"] == found["talk@7"], "{found:?}");
    assert!(["short@0", "short@0.1", "torn@0", "torn@7"].iter().all(|key| found[*key].is_none()), "{found:?}");
}

#[tokio::test]
async fn of_which_videos_there_is_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus");
    // Behind the segment of Matroska may be anything.
    let long = |file: &[u8]| [file, &[0; LONG_BYTES]].concat();
    write(corpus.join("long.mkv"), long(MATROSKA));
    write(corpus.join("web.webm"), long(WEBM));
    write(corpus.join("short.mkv"), MATROSKA);
    write(corpus.join("torn.mkv"), [&MATROSKA[..MATROSKA.len() / 2], &[0xff; LONG_BYTES]].concat());
    write(corpus.join("none.webm"), vec![7; LONG_BYTES]);
    write(corpus.join("tables.mp4"), long(MP4));
    let options = IndexOptions::default();
    indexed(&corpus, &options).await.unwrap();
    let of_video = |table: &[u8]| VideoTable::read(StoredVideo::read(table).unwrap().table).unwrap().frames();
    let found = frames(&corpus, of_video);
    let has_table = |key: &String| ["long", "web"].contains(&key.as_str());
    assert_eq!(found.len(), 6, "{found:?}");
    assert!(found.iter().all(|(key, frames)| frames.is_some() == has_table(key)), "{found:?}");
    assert_eq!(found["long"], Some(40));
}

#[tokio::test]
async fn of_which_members_of_tars_there_is_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let shards = folder.path().join("shards");
    let (pcm, talk) = (wav(LONG_BYTES), ADTS.repeat(LONG_BYTES / ADTS.len() + 1));
    let torn = [&talk[..], b"no packet"].concat();
    let video = [MATROSKA, &[0; LONG_BYTES]].concat();
    let members: [(&str, &[u8]); 8] = [
        ("long.wav", &pcm),
        ("none.flac", &[7; LONG_BYTES]),
        ("picture.jpg", &talk),
        ("short.wav", &wav(5000)),
        ("talk.aac", &talk),
        ("talk.json", b"{}"),
        ("torn.aac", &torn),
        ("video.mkv", &video),
    ];
    write(shards.join("talks.tar"), tar(&members));
    indexed(&shards, &IndexOptions::default()).await.unwrap();
    let of_table = |table: &[u8]| match StoredVideo::read(table) {
        Ok(stored) => VideoTable::read(stored.table).unwrap().frames(),
        Err(_) => of_sound(table),
    };
    let long = LONG_BYTES as u64 / 2;
    let found = frames(&shards, of_table);
    // All of a tar is read, so a sound needs no segments for a table.
    let expected = [("long", Some(long)), ("none", None), ("picture", None), ("short", None), ("talk", found["talk"])];
    let expected = expected.into_iter().chain([("torn", None), ("video", Some(40))]);
    assert_eq!(found, expected.map(|(key, frames)| (key.to_owned(), frames)).collect());
    assert!(found["talk"].is_some_and(|frames| frames > 1_000_000), "{found:?}");
    assert!(faults(&shards).await.is_empty());
    // Of a compressed tar, all is read.
    let packed = folder.path().join("compressed");
    let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
    compressed.write_all(&tar(&members)).unwrap();
    write(packed.join("talks.tar.gz"), compressed.finish().unwrap());
    indexed(&packed, &IndexOptions::default()).await.unwrap();
    assert!(frames(&packed, of_table).values().all(Option::is_none));
    // Each segment has the table of its recording.
    write(folder.path().join("list.csv"), "file,offset\ntalk.aac,0\ntalk.aac,7.5\nlong.wav,0\nshort.wav,0\n");
    let table = FileTable::read(&folder.path().join("list.csv"), shards.to_str().unwrap()).unwrap();
    let options =
        IndexOptions { table: Some(Arc::new(table)), overwrite: Overwrite::Replace, ..IndexOptions::default() };
    indexed(&shards, &options).await.unwrap();
    let of_segments = frames(&shards, of_table);
    assert_eq!(of_segments.len(), 4);
    assert!(of_segments["talk@0"] == found["talk"] && of_segments["talk@7.5"] == found["talk"], "{of_segments:?}");
    assert_eq!((of_segments["long"], of_segments["short"]), (Some(long), None));
}

#[tokio::test]
async fn what_is_packed_has_the_tables_that_its_index_would_have() {
    let folder = tempfile::tempdir().unwrap();
    let [sounds, packed] = ["sounds", "packed"].map(|name| folder.path().join(name));
    write(sounds.join("a/long.wav"), wav(LONG_BYTES));
    write(sounds.join("a/short.wav"), wav(5000));
    write(sounds.join("b/talk.aac"), ADTS.repeat(LONG_BYTES / ADTS.len() + 1));
    let fields = Some(FieldChoice::parse("wav,aac").unwrap());
    let options = PackOptions { fields, ..PackOptions::new(PackSource::ImageFolder(sounds)) };
    pack(&at(&packed), &options, &quiet).await.unwrap();
    let written = frames(&packed, of_sound);
    let has_table = ["a/long", "a/short", "b/talk"].map(|key| written[key].is_some());
    assert_eq!(has_table, [true, false, true], "{written:?}");
    let options = IndexOptions { overwrite: Overwrite::Replace, ..IndexOptions::default() };
    indexed(&packed, &options).await.unwrap();
    assert_eq!(frames(&packed, of_sound), written);
}

#[tokio::test]
async fn hostile_bytes_of_an_index_with_tables_neither_panic_nor_slip_through() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus");
    write(corpus.join("long.wav"), wav(LONG_BYTES));
    write(corpus.join("short.flac"), FLAC);
    let list = "file,offset,text\nlong.wav,0,one\nlong.wav,1.5,two\nshort.flac,0,three\n";
    write(folder.path().join("list.csv"), list);
    with_table(&corpus, &folder.path().join("list.csv")).await.unwrap();
    let [index, manifest] =
        ["files-000000.idx", "manifest.spdl"].map(|name| fs::read(corpus.join(".spdl").join(name)).unwrap());
    assert_eq!(index, GOLDEN_INDEX, "it is written as ever");
    check_changed(&index, manifest, check_plans);
}
