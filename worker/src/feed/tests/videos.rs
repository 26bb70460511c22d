//! Tests of feeds whose samples take frames of the same videos.

use std::{collections::BTreeMap, fs, sync::Arc};

use spdl_dataset::{FileTable, IndexOptions, index};
use spdl_frames::{FrameChildCommand, FrameCounts, FrameDecodeError, frame_child_main};
use spdl_media::OpenVideo;
use spdl_shard::{format::format_called, store::DatasetStore};
use spdl_testkit::skipped;
use spdl_types::Position;

use super::{
    PLENTY,
    fixture::{FeedFixture, Seen, resources_with, run},
    flaky,
};
use crate::{
    budget::MIN_MEMORY_BYTES,
    feed::{Access, Resources, StoreAccess, WrapStore},
    frames::FrameAccess,
};

/// 40 frames of H.264 with 20 in a group of pictures.
const GROUPS: &[u8] = include_bytes!("../../../../crates/media/tests/videos/groups.mkv");
const CLIPS: usize = 16;

/// The program of the children.
#[test]
#[ignore = "runs in children of other tests"]
fn child() {
    if frame_child_main() == std::process::ExitCode::SUCCESS {
        std::process::exit(0);
    }
}

/// Returns resources whose children run a test of this program; `None` where there is no library, which is reported.
fn decoding(memory_bytes: u64, wrap: Option<WrapStore>) -> Option<Arc<Resources>> {
    let arguments = ["feed::tests::videos::child", "--exact", "--ignored", "--nocapture"].map(Into::into).into();
    let command = FrameChildCommand { program: std::env::current_exe().unwrap(), arguments };
    let frames = Some(FrameAccess { command, package_folders: Vec::new() });
    let resources = resources_with(
        memory_bytes,
        Access { frames, stores: StoreAccess { wrap, ..StoreAccess::default() }, ..Access::default() },
    );
    match resources.decoding.frames.as_ref().unwrap().check() {
        Ok(_) => Some(resources),
        Err(error @ FrameDecodeError::Library { .. }) => {
            skipped(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Writes videos with so many samples of each, in the order of the files, and indexes them.
async fn videos(files: &[Vec<u8>], clips: usize, global_batch: usize, clip: &str) -> FeedFixture {
    let (directory, lists) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut table = "file,offset,cls,times\n".to_owned();
    for (number, file) in files.iter().enumerate() {
        fs::write(directory.path().join(format!("{number}.mkv")), file).unwrap();
        let row = |clip: usize| {
            let second = 0.2 + 0.2 * clip as f64;
            format!("{number}.mkv,{clip},{},{second:.2} {:.2}\n", number * clips + clip, second + 0.25)
        };
        let rows = (0..clips).map(row);
        table.extend(rows);
    }
    let list = lists.path().join("clips.csv");
    fs::write(&list, table).unwrap();
    let place = directory.path().to_str().unwrap().to_owned();
    let store = DatasetStore::open(&place).unwrap();
    let table = Some(Arc::new(FileTable::read(&list, &place).unwrap()));
    let options = IndexOptions { format: format_called("files"), table, ..IndexOptions::default() };
    index(&store, &store, &options, &|_| {}).await.unwrap();
    let facts = store.manifest().await.unwrap().facts();
    let more = format!("global_batch = {global_batch}\nbad_samples = \"mask\"\nmax_bad_fraction = 1.0");
    let column = format!(
        "name = \"video\"\nfrom = \"mkv\"\ndecode = \"video\"\nclip = {{ {clip} }}\nops = [{{ center_crop = 48 }}]"
    );
    FeedFixture::of_column(directory, &facts, &more, &column)
}

/// Returns for each sample of an epoch whether it is good, and its frames; and what was decoded for them.
async fn samples(fixture: &FeedFixture, resources: &Arc<Resources>) -> (BTreeMap<u64, (bool, Vec<u8>)>, FrameCounts) {
    let before = resources.decoding.frame_counts();
    let (seen, _) = run(resources, &fixture.session(1), Position::START).await.unwrap();
    let counts = resources.decoding.frame_counts();
    let counts = FrameCounts { packets: counts.packets - before.packets, frames: counts.frames - before.frames };
    let by_id = |Seen { id, flags, text, .. }: Seen| (id, (flags == 0, text));
    (seen.into_values().map(by_id).collect(), counts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_samples_of_a_batch_need_of_one_video_is_decoded_once_and_gives_the_same_frames() {
    let Some(resources) = decoding(PLENTY, None) else { return };
    let clips = [
        "frames = 2",
        "frames = 3, stride = 7",
        "frames = 4, pick = \"uniform\"",
        "frames = 12",
        "frames = 2, at = \"times\"",
        "frames = 2, snap = \"key_frame\"",
    ];
    for clip in clips {
        let alone = videos(&[GROUPS.to_vec()], CLIPS, 1, clip).await;
        let together = videos(&[GROUPS.to_vec()], CLIPS, CLIPS, clip).await;
        let (expected, of_each) = samples(&alone, &resources).await;
        assert!(expected.len() == CLIPS && expected.values().all(|(is_good, _)| *is_good));
        let (found, of_all) = samples(&together, &resources).await;
        assert!(found == expected, "{clip}: frames depend on what else is in a batch");
        assert!(of_all.packets <= 40, "{clip}: {of_all:?} for all, each packet at most once");
        assert!(3 * of_all.packets <= of_each.packets, "{clip}: {of_all:?} for all, {of_each:?} one by one");
        assert!(of_all.frames <= of_each.frames);
        // Frames are kept as far as there is memory for them.
        let little = decoding(MIN_MEMORY_BYTES, None).unwrap();
        assert!(samples(&together, &little).await.0 == expected, "{clip}: frames depend on memory");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_packet_makes_those_samples_bad_that_are_bad_alone() {
    let Some(resources) = decoding(PLENTY, None) else { return };
    let mut files = vec![GROUPS.to_vec(); 3];
    // A packet of the second group of pictures, and the end of the file.
    let packet = OpenVideo::open(GROUPS).unwrap().video.packets[28];
    files[0][packet.offset as usize..][..packet.bytes as usize].fill(0xff);
    files[1].truncate(GROUPS.len() * 2 / 3);
    let alone = videos(&files, CLIPS, 1, "frames = 2").await;
    let together = videos(&files, CLIPS, 3 * CLIPS, "frames = 2").await;
    let (expected, of_each) = samples(&alone, &resources).await;
    let good =
        |number: usize| expected.values().skip(number * CLIPS).take(CLIPS).filter(|(is_good, _)| *is_good).count();
    assert!((1..CLIPS).contains(&good(0)) && good(1) == 0 && good(2) == CLIPS, "{} {} {}", good(0), good(1), good(2));
    let (found, of_all) = samples(&together, &resources).await;
    assert!(found == expected, "what is bad depends on what else is in a batch");
    assert!(of_all.packets < of_each.packets, "{of_all:?} for all, {of_each:?} one by one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clips_of_long_matroska_files_read_their_own_packets() {
    const VIDEOS: usize = 6;
    let short = videos(&vec![GROUPS.to_vec(); VIDEOS], 1, 3, "frames = 4").await;
    // Behind the segment may be anything.
    let long = videos(&vec![[GROUPS, &[0; 5 << 20]].concat(); VIDEOS], 1, 3, "frames = 4").await;
    let (made, wrap) = flaky();
    let (Some(whole), Some(parts)) = (decoding(PLENTY, None), decoding(PLENTY, Some(wrap))) else { return };
    let (expected, _) = samples(&short, &whole).await;
    parts.datasets.open(&long.job).await.unwrap();
    let store = made.lock().clone().unwrap();
    let (reads, bytes) = (store.reads(), store.bytes());
    assert!(samples(&long, &parts).await.0 == expected);
    let (reads, bytes) = (store.reads() - reads, store.bytes() - bytes);
    // Beside the index of the shard, a clip reads what lies between its first packet and its last one, with one request.
    assert!(bytes < (VIDEOS * GROUPS.len() + (8 << 10)) as u64, "{bytes} bytes");
    assert!(reads <= 1 + VIDEOS as u64, "{reads} reads");
}
