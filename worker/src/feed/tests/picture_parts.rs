//! Tests of feeds whose clips are pictures of folders of frames, of which only those of the clips are read.

use std::{fs, path::PathBuf};

use jpeg_encoder::{ColorType, Encoder};
use spdl_dataset::{FolderPictures, IndexOptions, index};
use spdl_jpeg::testing::XorShift;
use spdl_shard::{format::FieldValue, store::DatasetStore};
use spdl_types::{Position, SampleId};

use super::{
    PLENTY, TWO_EPOCHS,
    fixture::{FeedFixture, Seen, resources, run},
    flaky,
};
use crate::{
    budget::MIN_MEMORY_BYTES,
    decode::{Decoder, FieldLookup, FieldTarget, SampleKey},
};

const VIDEOS: u64 = 24;
const FRAMES: u64 = 14;
const CLIP: &str = r#"
    name = "video"
    from = "jpg"
    decode = "video"
    clip = { frames = 3, stride = 2 }
    ops = [{ random_resized_crop = 24 }, { random_flip = {} }]
"#;

/// The files of the frames of video number `id`, in order.
fn frames_of(fixture: &FeedFixture, id: u64) -> Vec<PathBuf> {
    let folder = fixture.directory.path().join(format!("class-{}/video-{id:03}", id * 2 / VIDEOS));
    (0..FRAMES).map(|frame| folder.join(format!("{frame}.jpg"))).collect()
}

/// Indexes folders of frames in two classes, with a `change` of the files of each video.
async fn indexed(column: &str, change: impl Fn(u64, &mut Vec<Vec<u8>>)) -> FeedFixture {
    let directory = tempfile::tempdir().unwrap();
    for id in 0..VIDEOS {
        let folder = directory.path().join(format!("class-{}/video-{id:03}", id * 2 / VIDEOS));
        fs::create_dir_all(&folder).unwrap();
        let mut files: Vec<Vec<u8>> = (0..FRAMES)
            .map(|frame| {
                let mut draw = XorShift::new(id * FRAMES + frame + 1);
                let pixels: Vec<u8> = (0..48 * 32 * 3).map(|_| draw.below(256) as u8).collect();
                let mut file = Vec::new();
                Encoder::new(&mut file, 90).encode(&pixels, 48, 32, ColorType::Rgb).unwrap();
                file
            })
            .collect();
        change(id, &mut files);
        files
            .iter()
            .enumerate()
            .for_each(|(frame, file)| fs::write(folder.join(format!("{frame}.jpg")), file).unwrap());
    }
    let store = DatasetStore::open(directory.path().to_str().unwrap()).unwrap();
    let options = IndexOptions { pictures: FolderPictures::Frames, ..IndexOptions::default() };
    index(&store, &store, &options, &|_| {}).await.unwrap();
    let facts = store.manifest().await.unwrap().facts();
    FeedFixture::of_column(directory, &facts, TWO_EPOCHS, column)
}

/// Decodes the clip of a sample from all frames of its video; also returns the bytes of the frames that it needs.
fn expected(fixture: &FeedFixture, decoder: &Decoder, key: SampleKey) -> (Vec<u8>, u64) {
    let files = frames_of(fixture, key.id.0);
    let list = files.iter().map(|file| Some(fs::read(file).unwrap().into())).collect();
    let list = FieldValue::List(list);
    let (mut label, mut clip) = ([0; 8], vec![0; 3 * 24 * 24 * 3]);
    let field = |name: &str| match name {
        "cls" => Some(bytes::Bytes::from_static(b"0").into()),
        _ => Some(list.clone()),
    };
    let mut targets = [FieldTarget::Fixed(&mut label), FieldTarget::Fixed(&mut clip)];
    decoder.decode_sample(key, &field, &mut targets).unwrap();
    let needed = decoder.video_pictures([(key, &field as &dyn FieldLookup)], ("jpg", files.len())).unwrap();
    assert_eq!(needed.len(), 3);
    let bytes = needed.into_iter().map(|frame| fs::metadata(&files[frame]).unwrap().len()).sum();
    (clip, bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clips_of_frames_read_the_pictures_that_they_have_and_no_others() {
    let fixture = indexed(CLIP, |_, _| ()).await;
    let decoder = Decoder::new(&fixture.job, []).unwrap();
    for memory_bytes in [PLENTY, MIN_MEMORY_BYTES] {
        let (made, wrap) = flaky();
        let resources = resources(memory_bytes, Some(wrap));
        // The index is read by the first run.
        let (first, steps) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
        assert_eq!((first.len() as u64, steps), (2 * VIDEOS, 2 * VIDEOS / 12));
        let store = made.lock().clone().unwrap();
        let (bytes, reads) = (store.bytes(), store.reads());
        let (again, _) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
        assert!(again == first);
        let mut expected_bytes = 0;
        for ((at, _), Seen { id, label, text, .. }) in &first {
            let key = SampleKey { epoch: at.epoch, id: SampleId(*id), sample_in_record: 0 };
            let (clip, bytes) = expected(&fixture, &decoder, key);
            assert!(*text == clip, "sample {id} of epoch {}", at.epoch);
            assert_eq!(*label as u64, id * 2 / VIDEOS);
            expected_bytes += bytes;
        }
        assert_eq!((store.bytes() - bytes, store.reads() - reads), (expected_bytes, 3 * 2 * VIDEOS));
        let (shared, _) = run(&resources, &fixture.session(2), Position::START).await.unwrap();
        assert!(shared == first);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clips_that_have_most_frames_come_from_whole_blocks_and_are_the_same() {
    let column = CLIP.replace("frames = 3, stride = 2", "frames = 13");
    let fixture = indexed(&column, |_, _| ()).await;
    let (alone, _) = run(&resources(PLENTY, None), &fixture.session(1), Position::START).await.unwrap();
    let (shared, _) = run(&resources(PLENTY, None), &fixture.session(3), Position::START).await.unwrap();
    assert!(shared == alone);
    assert_eq!(alone.len() as u64, 2 * VIDEOS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_frame_is_a_bad_sample_by_key_and_number_and_one_that_is_gone_ends_the_feed_by_its_name() {
    let column = CLIP.replace("stride = 2", "pick = \"start\"");
    let fixture = indexed(&column, |id, files| {
        // The second one is in no clip.
        let broken = if id == 7 { 1 } else { 9 };
        files[broken].truncate(100);
    })
    .await;
    let resources = resources(PLENTY, None);
    let (seen, _) = run(&resources, &fixture.session(1), Position::START).await.unwrap();
    assert!(seen.len() as u64 == 2 * VIDEOS && seen.values().all(|sample| sample.id != 7));
    let bad = resources.decoding.bad.lock().unreported(100);
    assert_eq!(bad.len(), 1);
    assert_eq!((bad[0].sample, &*bad[0].key), (SampleId(7), "class-0/video-007"));
    assert!(bad[0].cause.contains("picture 1 of the list, from 0: field `jpg`"), "{}", bad[0].cause);

    fs::remove_file(&frames_of(&fixture, 20)[2]).unwrap();
    let error = run(&resources, &fixture.session(1), Position::START).await.unwrap_err();
    assert!(error.to_string().contains("file `class-1/video-020/2.jpg` cannot be read"), "{error}");
    assert!(!error.is_retryable());
}
