//! The indexes of LeRobot's files of frames: episodes, tasks, and where their frames lie in videos.

use std::{fs, ops::Range};

use bytes::Bytes;
use spdl_shard::{
    format::{
        ObjectRole, ShardIndex, StoredFrame, StoredObject, format_called,
        lerobot::{EpisodeFacts, EpisodeVideos, FrameSpan, TASK, VideoObject},
    },
    manifest::{MetadataPlace, Shard},
};
use spdl_types::Fingerprint;

use crate::parquet::{GOLDEN, read_all};

#[test]
fn the_index_of_a_file_of_frames_has_its_episodes_and_tasks_or_is_refused() {
    let parquet = Bytes::from(fs::read(GOLDEN[1]).unwrap());
    let tasks = ["push", "öffne", ""];
    let facts = |episodes, task_runs| {
        let videos = EpisodeVideos::default();
        EpisodeFacts { parquet: &parquet, episodes, task_runs, tasks: &tasks, videos }
    };
    let format = format_called("lerobot").unwrap();
    let (bytes, hash) = facts(&[0, 30], &[(0, 1), (5, 0), (30, 2)]).index().unwrap();
    let index = format.open_index(bytes.clone(), hash).unwrap();
    assert_eq!([0, 29, 30, 40].map(|record| index.series(record)), [0..30, 0..30, 30..41, 30..41].map(Some));
    let task = |record| index.record(record).field(TASK).unwrap().value.unwrap().to_vec();
    let expected = ["öffne", "öffne", "push", "push", ""].map(|task| task.as_bytes().to_vec());
    assert_eq!([0, 4, 5, 29, 30].map(task), expected);
    assert_eq!(read_all(&fs::read(GOLDEN[0]).unwrap(), &*index), 0);
    let (without, hash) = facts(&[0], &[]).index().unwrap();
    assert!(format.open_index(without, hash).unwrap().record(0).field(TASK).is_none());
    for episodes in [&[][..], &[1], &[0, 41], &[0, 5, 5]] {
        let error = facts(episodes, &[]).index().unwrap_err().to_string();
        assert!(error.contains("its episodes are out of order"), "{episodes:?}: {error}");
    }
    for task_runs in [&[(0, 3)][..], &[(1, 0)], &[(0, 0), (41, 1)], &[(0, 0), (0, 1)]] {
        let error = facts(&[0], task_runs).index().unwrap_err().to_string();
        assert!(error.contains("its tasks are out of order"), "{task_runs:?}: {error}");
    }
    for end in 0..bytes.len() {
        let cut = bytes.slice(..end);
        assert!(format.open_index(cut.clone(), Fingerprint::of(&cut)).is_err(), "{end} bytes");
    }
}

/// Videos of two features: `wrist` has a video for each of two episodes, and `top` one video with both.
const FILES: [(&str, u64, Option<&str>); 3] =
    [("videos/wrist/0.mp4", 100, Some("x")), ("videos/top/0.mp4", 1000, None), ("videos/wrist/1.mp4", 30, Some("y"))];

fn span(file: u32, first: u32, frames: u32) -> Option<FrameSpan> {
    Some(FrameSpan { file, first, frames })
}

fn files() -> Vec<VideoObject> {
    let file = |(path, bytes, etag): (&str, u64, Option<&str>)| VideoObject {
        path: path.to_owned(),
        bytes,
        etag: etag.map(str::to_owned),
    };
    FILES.map(file).to_vec()
}

/// Returns the index of 41 rows in episodes that begin at these rows, whose frames lie there.
fn index_of(
    features: &[&str],
    files: &[VideoObject],
    episodes: &[u32],
    spans: &[Option<FrameSpan>],
) -> Result<(Bytes, Fingerprint), spdl_shard::FormatError> {
    let parquet = Bytes::from(fs::read(GOLDEN[1]).unwrap());
    let videos = EpisodeVideos { fps: 10, features, files, spans };
    EpisodeFacts { parquet: &parquet, episodes, task_runs: &[(0, 0)], tasks: &["push"], videos }.index()
}

fn plan(index: &dyn ShardIndex, range: Range<u64>) -> Vec<(StoredObject, Range<u64>, u64)> {
    let shard = Shard {
        format: format_called("lerobot").unwrap(),
        url: "data/0.parquet",
        bytes: 7,
        etag: None,
        first_sample: 0,
        samples: index.record_count(),
        records: index.record_count(),
        index_bytes: 0,
        index_hash: Fingerprint(0),
        place: MetadataPlace::Hidden,
    };
    index.plan(&shard, &[range]).into_iter().map(|part| (part.object, part.range, part.at)).collect()
}

#[test]
fn a_record_names_its_frame_by_number_in_the_video_of_its_episode() {
    let spans = [span(0, 5, 30), span(1, 0, 30), span(2, 0, 11), span(1, 30, 11)];
    let (bytes, hash) = index_of(&["wrist", "top"], &files(), &[0, 30], &spans).unwrap();
    let index = format_called("lerobot").unwrap().open_index(bytes.clone(), hash).unwrap();
    assert_eq!(read_all(&fs::read(GOLDEN[0]).unwrap(), &*index), 0);
    let end = index.shard_bytes();
    let places = [end..end + 100, end + 100..end + 1100, end + 1100..end + 1130];
    let frame = |record: u32, name: &str| {
        let record = index.record(record);
        index.frame(&record, index.field_number(&record, name).unwrap())
    };
    for (record, name, video, number) in [
        (0, "wrist", 0, 5),
        (29, "wrist", 0, 34),
        (30, "wrist", 2, 0),
        (40, "wrist", 2, 10),
        (0, "top", 1, 0),
        (29, "top", 1, 29),
        (30, "top", 1, 30),
        (40, "top", 1, 40),
    ] {
        let expected = StoredFrame { video: places[video].clone(), number, fps: 10 };
        assert_eq!(frame(record, name), Some(Ok(expected)), "{record} {name}");
        let field = index.record(record).field(name).unwrap();
        assert_eq!((field.value, field.range()), (Some(FILES[video].0.as_bytes()), None));
    }
    assert_eq!(frame(0, TASK), None);
    assert_eq!(frame(0, "label"), None, "a column");
    // What is read across the borders of videos lies in several objects.
    let object = |nth: usize| {
        let (url, bytes, etag) = FILES[nth];
        StoredObject { url: url.to_owned(), bytes, etag: etag.map(str::to_owned), role: ObjectRole::File }
    };
    let across = plan(&*index, end + 90..end + 1110);
    assert_eq!(
        across,
        [(object(0), 90..100, end + 90), (object(1), 0..1000, end + 100), (object(2), 0..10, end + 1100)]
    );
    assert_eq!(plan(&*index, end + 150..end + 160), [(object(1), 50..60, end + 150)]);
    assert_eq!(plan(&*index, end + 1130..end + 1140), []);
    let all = plan(&*index, 0..end + 1);
    assert_eq!(all[0].0.url, "data/0.parquet");
    assert_eq!(all.last(), Some(&(object(0), 0..1, end)));
    for end in 0..bytes.len() {
        let cut = bytes.slice(..end);
        let opened = format_called("lerobot").unwrap().open_index(cut.clone(), Fingerprint::of(&cut));
        assert!(opened.is_err(), "{end} bytes");
    }
}

#[test]
fn an_episode_without_a_video_or_with_another_number_of_frames_says_so() {
    let spans = [None, span(1, 0, 29)];
    let (bytes, hash) = index_of(&["top"], &files(), &[0, 12], &spans).unwrap();
    let index = format_called("lerobot").unwrap().open_index(bytes, hash).unwrap();
    let frame = |record: u32| {
        let record = index.record(record);
        index.frame(&record, index.field_number(&record, "top").unwrap()).unwrap().map(|frame| frame.number)
    };
    assert_eq!(index.record(3).field("top").unwrap().value, Some(&b""[..]));
    assert!(frame(3).unwrap_err().starts_with("is of an episode without a video"));
    assert_eq!(frame(12), Ok(0));
    let (bytes, hash) = index_of(&["top"], &files(), &[0, 12], &[None, span(1, 0, 30)]).unwrap();
    let index = format_called("lerobot").unwrap().open_index(bytes, hash).unwrap();
    let error = index.frame(&index.record(40), index.field_number(&index.record(40), "top").unwrap()).unwrap();
    assert_eq!(error, Err("is of an episode with 29 rows, and 30 frames in its video".to_owned()));
}

#[test]
fn tables_of_videos_that_contradict_themselves_are_refused() {
    let path = |path: &str| vec![VideoObject { path: path.to_owned(), bytes: 9, etag: None }];
    let empty = vec![VideoObject { path: "a.mp4".to_owned(), bytes: 0, etag: None }];
    let long = vec![VideoObject { path: "a.mp4".to_owned(), bytes: u64::MAX, etag: None }];
    type Tables<'t> = (&'t [&'t str], Vec<VideoObject>, &'t [Option<FrameSpan>], &'t str);
    let cases: [Tables<'_>; 8] = [
        (&["top"], path("a.mp4"), &[span(1, 0, 41)], "its frames of videos are out of order"),
        (&["top"], path("../a.mp4"), &[span(0, 0, 41)], "a video without a path or without bytes"),
        (&["top"], path(""), &[span(0, 0, 41)], "a video without a path or without bytes"),
        (&["top"], empty, &[span(0, 0, 41)], "a video without a path or without bytes"),
        (&["top"], long, &[span(0, 0, 41)], "its videos are too long"),
        (&["label"], path("a.mp4"), &[span(0, 0, 41)], "it has a field twice"),
        (&["top", "top"], path("a.mp4"), &[span(0, 0, 41); 2], "it has a field twice"),
        (&["task"], path("a.mp4"), &[span(0, 0, 41)], "it has a field twice"),
    ];
    for (features, files, spans, expected) in cases {
        let error = index_of(features, &files, &[0], spans).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    // Of one episode and one feature, there is one span.
    assert!(index_of(&["top"], &path("a.mp4"), &[0], &[]).is_err());
    assert!(index_of(&["top"], &path("a.mp4"), &[0], &[span(0, 0, 41); 2]).is_err());
}
