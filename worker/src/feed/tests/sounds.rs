//! Tests of feeds whose samples are segments of long sounds.

use std::{fs, sync::Arc, time::Instant};

use spdl_dataset::{FileTable, IndexOptions, index};
use spdl_shard::{format::format_called, store::DatasetStore};
use spdl_types::{Position, Stage};

use super::{
    PLENTY,
    fixture::{FeedFixture, Seen, resources, run},
    flaky,
};
use crate::{budget::MIN_MEMORY_BYTES, fetch::flaky::StoreFault};

/// Frames of a recording: with one channel of 16 bits, more than 4 MiB.
const FRAMES: usize = 2_200_000;
const RECORDINGS: usize = 2;
const SEGMENTS: usize = 12;
const SEGMENT_FRAMES: usize = 32_000;
const WAVE: &str = r#"
    name = "wave"
    from = "wav"
    decode = "audio"
    span = { start = "offset", seconds = "duration" }
"#;

fn sample(recording: usize, frame: usize) -> i16 {
    ((frame * 7919 + recording * 31) % 65_536) as u16 as i16
}

/// The first frame of a segment; the last one ends with its recording.
fn start(segment: usize) -> usize {
    if segment + 1 == SEGMENTS { FRAMES - SEGMENT_FRAMES } else { segment * 160_000 }
}

/// Writes recordings at 16 kHz and a table of segments, whose labels are their numbers, and indexes them.
async fn recordings(epochs: u32) -> FeedFixture {
    let (directory, lists) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut table = "file,offset,duration,cls\n".to_owned();
    for recording in 0..RECORDINGS {
        let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0\0\x7d\0\0\x02\0\x10\0data".to_vec();
        file.extend((2 * FRAMES as u32).to_le_bytes());
        file.extend((0..FRAMES).flat_map(|frame| sample(recording, frame).to_le_bytes()));
        let name = format!("{recording}.wav");
        fs::write(directory.path().join(&name), file).unwrap();
        for segment in 0..SEGMENTS {
            let seconds = |frames: usize| frames as f64 / 16_000.0;
            let (start, length, label) =
                (seconds(start(segment)), seconds(SEGMENT_FRAMES), recording * SEGMENTS + segment);
            table.push_str(&format!("{name},{start},{length},{label}\n"));
        }
    }
    let list = lists.path().join("segments.csv");
    fs::write(&list, table).unwrap();
    let place = directory.path().to_str().unwrap().to_owned();
    let store = DatasetStore::open(&place).unwrap();
    let table = Some(Arc::new(FileTable::read(&list, &place).unwrap()));
    let options = IndexOptions { format: format_called("files"), table, ..IndexOptions::default() };
    index(&store, &store, &options, &|_| {}).await.unwrap();
    let facts = store.manifest().await.unwrap().facts();
    FeedFixture::of_column(directory, &facts, &format!("epochs = {epochs}\nglobal_batch = 6"), WAVE)
}

/// Asserts that samples are what the recordings have there.
fn check<'s>(samples: impl ExactSizeIterator<Item = &'s Seen>, epochs: usize) {
    assert_eq!(samples.len(), epochs * RECORDINGS * SEGMENTS);
    for Seen { label, text, .. } in samples {
        let label = usize::try_from(*label).unwrap();
        let (recording, first) = (label / SEGMENTS, start(label % SEGMENTS));
        let expected = (first..first + SEGMENT_FRAMES).map(|frame| f32::from(sample(recording, frame)) / 32_768.0);
        assert!(text.as_chunks().0.iter().map(|one| f32::from_le_bytes(*one)).eq(expected), "segment {label}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_segment_costs_its_own_bytes_however_little_memory_there_is() {
    let fixture = recordings(2).await;
    let own_bytes = (2 * RECORDINGS * SEGMENTS * SEGMENT_FRAMES * 2) as u64;
    for memory_bytes in [PLENTY, MIN_MEMORY_BYTES] {
        let (made, wrap) = flaky();
        let resources = resources(memory_bytes, Some(wrap));
        resources.datasets.open(&fixture.job).await.unwrap();
        let store = made.lock().clone().unwrap();
        let (reads, bytes) = (store.reads(), store.bytes());
        let (samples, _) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
        check(samples.values(), 2);
        let (reads, bytes) = (store.reads() - reads, store.bytes() - bytes);
        // In the least memory, batches may have to start again, which reads their segments again.
        let again = if memory_bytes == PLENTY { 0 } else { own_bytes / 2 };
        // The index of the shard is read, too.
        let most = own_bytes + again + (16 << 10);
        assert!((own_bytes..most).contains(&bytes), "{bytes} bytes in {memory_bytes}, and segments have {own_bytes}");
        assert!(reads <= 1 + 3 * (RECORDINGS * SEGMENTS) as u64, "{reads} reads");
        let stages = resources.stages(Instant::now());
        let decode = stages.iter().find(|stage| stage.stage == Stage::Decode).unwrap();
        assert!(
            (own_bytes..own_bytes + again + (64 << 10)).contains(&decode.bytes),
            "{} bytes were decoded",
            decode.bytes
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_changes_no_segment() {
    let fixture = recordings(2).await;
    let (made, wrap) = flaky();
    let resources = resources(PLENTY, Some(wrap));
    resources.datasets.open(&fixture.job).await.unwrap();
    let store = made.lock().clone().unwrap();
    store.fail_next([StoreFault::Unavailable, StoreFault::Cut].into_iter().cycle().take(40));
    let (samples, _) = run(&resources, &fixture.session(2), Position::START).await.unwrap();
    check(samples.values(), 2);
    assert_eq!(store.faults_left(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recordings_that_memory_keeps_are_read_whole_where_that_costs_less() {
    let epochs = 30;
    let fixture = recordings(epochs).await;
    let (made, wrap) = flaky();
    let resources = resources(PLENTY, Some(wrap));
    resources.datasets.open(&fixture.job).await.unwrap();
    let store = made.lock().clone().unwrap();
    let before = store.bytes();
    let (samples, _) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
    check(samples.values(), epochs as usize);
    let (read, whole) = (store.bytes() - before, (2 * RECORDINGS * FRAMES) as u64);
    let segments = u64::from(epochs) * (RECORDINGS * SEGMENTS * SEGMENT_FRAMES * 2) as u64;
    // Some batches are on their way when the first 64 samples have told.
    assert!(read < whole * 2 && whole * 2 < segments, "{read} bytes of {whole}, and segments have {segments}");
}
