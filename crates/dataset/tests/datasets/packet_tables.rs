//! The tables of long sounds and videos in the indexes of loose files.

use std::{collections::BTreeMap, fs, path::Path};

use spdl_dataset::IndexOptions;
use spdl_media::{SoundTable, StoredVideo, VideoTable};
use spdl_shard::{format::format_called, manifest::Manifest};

use crate::{
    corpora::{check_changed, check_plans, with_table},
    files::{indexed, write},
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
    let read = |name: &str| fs::read(folder.join(".spdl").join(name)).unwrap();
    let manifest = Manifest::open(read("manifest.spdl")).unwrap();
    let hash = manifest.shard(0).index_hash;
    let index = format_called("files").unwrap().open_index(read("files-000000.idx").into(), hash).unwrap();
    index.records().map(|record| (record.key.to_string(), index.packet_table(&record, 0).map(&of_table))).collect()
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
