//! Finds where the frames of episodes lie in videos, as `meta/episodes` says, and compares that with the tables of these. Frames are
//! counted and never found by a time in floats, which drifts from one episode to the next.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, TryStreamExt, stream};
use spdl_job::SteadyFrames;
use spdl_media::{Video, VideoReader};
use spdl_shard::format::lerobot::{FrameSpan, VideoObject};

use super::meta::{EpisodeVideo, LeRobotMeta};
use crate::{DatasetError, Listing, Scan, format::footer_files::FooterFile};

/// Number of videos whose tables are read at once.
const VIDEOS_AT_ONCE: usize = 16;
/// Most notes about videos.
const MAX_VIDEO_NOTES: usize = 20;
/// How far the beginning of an episode may be from a frame, in seconds: beyond this, LeRobot's own reader refuses frames.
const SECONDS_TOLERANCE: f64 = 1e-4;

/// The frames of an episode in a video.
#[derive(Clone, Debug, PartialEq)]
struct VideoSpan {
    episode: i64,
    /// Rows of the episode.
    length: i64,
    seconds: [f64; 2],
}

/// The videos that are there.
pub(super) struct FoundVideos(BTreeMap<String, VideoObject>);

/// The videos that the episodes of a file of frames refer to.
pub(super) struct FileVideos {
    /// The numbers of the features that have some.
    pub(super) features: Vec<usize>,
    pub(super) files: Vec<VideoObject>,
    /// For each episode, and in it for each of these features, where its frames lie.
    pub(super) spans: Vec<Option<FrameSpan>>,
}

impl FoundVideos {
    /// Finds those of the listed files that episodes name.
    pub(super) fn new(scan: &Scan<'_>, listed: &Listing, meta: &LeRobotMeta) -> Self {
        let of_episodes = meta.episodes.values().flat_map(|episode| &episode.videos);
        let named: BTreeSet<&str> = of_episodes.map(|video| video.file.as_str()).collect();
        let there = listed.iter().filter(|object| named.contains(object.name) && object.bytes > 0);
        let found = there.map(|object| {
            let etag = scan.from.lasting_etag(object.etag.map(str::to_owned));
            (object.name.to_owned(), VideoObject { path: object.name.to_owned(), bytes: object.bytes, etag })
        });
        Self(found.collect())
    }

    /// Returns the videos of episodes with these numbers, of the features that are to be fields.
    pub(super) fn of_episodes(
        &self,
        meta: &LeRobotMeta,
        numbers: &[i64],
        is_field: impl Fn(&str) -> bool,
    ) -> FileVideos {
        let of_episode = |number: &i64| meta.episodes.get(number).map_or(&[][..], |episode| &episode.videos[..]);
        let is_there = |feature: &usize| {
            let mut videos = numbers.iter().flat_map(of_episode).filter(|video| video.feature == *feature);
            videos.any(|video| self.0.contains_key(&video.file))
        };
        let is_field = |feature: &usize| is_field(&meta.features[*feature]);
        let features: Vec<usize> = (0..meta.features.len()).filter(is_field).filter(is_there).collect();
        let (mut files, mut places, mut spans) = (Vec::new(), BTreeMap::new(), Vec::new());
        for number in numbers {
            for feature in &features {
                let video = of_episode(number).iter().find(|video| video.feature == *feature);
                spans.push(video.and_then(|EpisodeVideo { file, seconds, .. }| {
                    let object = self.0.get(file)?;
                    let [first, end] = seconds.map(|seconds| u32::try_from(frame_at(seconds, meta.fps)).ok());
                    let (first, frames) = (first?, end?.checked_sub(first?)?);
                    let file = *places.entry(&object.path).or_insert_with(|| {
                        files.push(object.clone());
                        files.len() as u32 - 1
                    });
                    Some(FrameSpan { file, first, frames })
                }));
            }
        }
        FileVideos { features, files, spans }
    }
}

/// Returns the number of the frame that begins at a time. Times of episodes are sums of floats, a little off.
fn frame_at(seconds: f64, fps: u32) -> i64 {
    (seconds * f64::from(fps)).round() as i64
}

/// Reads the tables of the videos of all files of frames to index, and returns what contradicts the episodes.
pub(super) async fn odd_videos(
    scan: &Scan<'_>,
    listed: &Listing,
    meta: &LeRobotMeta,
) -> Result<Vec<String>, DatasetError> {
    let is_indexed = |file: &str| !scan.is_chosen || scan.folder.iter().any(|object| object.name == file);
    let mut spans: BTreeMap<&str, Vec<VideoSpan>> = BTreeMap::new();
    for (episode, facts) in meta.episodes.iter().filter(|(_, facts)| is_indexed(&facts.file)) {
        for EpisodeVideo { file, seconds, .. } in &facts.videos {
            let span = VideoSpan { episode: *episode, length: facts.length, seconds: *seconds };
            spans.entry(file).or_default().push(span);
        }
    }
    let mut files = Vec::new();
    for object in listed.iter() {
        if let Some(of_file) = spans.remove(object.name) {
            files.push((FooterFile::new(scan.from, &object), of_file));
        }
    }
    let missing = spans.iter().map(|(file, of_file)| {
        let episodes = of_file.iter().map(|span| span.episode);
        let ends = [episodes.clone().min(), episodes.max()].map(Option::unwrap_or_default);
        format!("`{file}` is not there, which episodes from {} to {} name", ends[0], ends[1])
    });
    let mut notes: Vec<String> = missing.collect();
    let fps = meta.fps;
    let checks = stream::iter(files).map(move |(file, spans)| async move {
        let problems = match read_tables(&file).await? {
            Ok(video) => {
                let mut times: Vec<i64> =
                    video.packets.iter().filter(|packet| packet.is_shown).map(|packet| packet.pts).collect();
                times.sort_unstable();
                check_spans(spans, &times, video.track.time_base, fps)
            }
            Err(problem) => vec![format!("cannot be read: {problem}")],
        };
        Ok::<_, DatasetError>((file.path().to_owned(), problems))
    });
    let mut checks = std::pin::pin!(checks.buffered(VIDEOS_AT_ONCE));
    while let Some((file, problems)) = checks.try_next().await? {
        notes.extend(problems.into_iter().map(|problem| format!("`{file}`: {problem}")));
    }
    let more = notes.len().saturating_sub(MAX_VIDEO_NOTES);
    if more > 0 {
        notes.truncate(MAX_VIDEO_NOTES);
        notes.push(format!("and {more} more of such problems of videos"));
    }
    Ok(notes)
}

/// Reads where the packets of a video lie. The inner error is what is wrong with the video.
async fn read_tables(file: &FooterFile) -> Result<Result<Video, String>, DatasetError> {
    let mut reader = VideoReader::new(file.bytes());
    loop {
        let wanted = reader.wants();
        if wanted.is_empty() {
            return Ok(Err("it is empty".to_owned()));
        }
        match reader.read(&file.read(wanted).await?) {
            Ok(None) => {}
            Ok(Some(video)) => return Ok(Ok(video)),
            Err(error) => return Ok(Err(error.to_string())),
        }
    }
}

/// Returns what contradicts a video whose frames are shown at `times`, in units of `time_base`, by episode.
fn check_spans(mut spans: Vec<VideoSpan>, times: &[i64], time_base: [u32; 2], fps: u32) -> Vec<String> {
    let (mut problems, mut next) = (Vec::new(), 0);
    let (frame_at, steady) = (|seconds: f64| frame_at(seconds, fps), SteadyFrames { fps, time_base });
    spans.sort_by_key(|span| frame_at(span.seconds[0]));
    let count = times.len() as i64;
    for VideoSpan { episode, length, seconds: [from, to] } in spans {
        let mut problem = |problem: String| problems.push(format!("episode {episode} {problem}"));
        let [first, end] = [from, to].map(frame_at);
        let off = (from - first as f64 / f64::from(fps)).abs();
        if end - first != length {
            problem(format!("has {length} rows, and frames {first} to {end}"));
        } else if first < next {
            problem(format!("has frames {first} to {end}, of which others have those up to {next}"));
        } else if end > count {
            problem(format!("has frames {first} to {end}, and the video has {count}"));
        } else if let Some(frame) = (first..end).find(|frame| !steady.is_due(times[*frame as usize], *frame as u64)) {
            let [numerator, denominator] = time_base.map(f64::from);
            let at = times[frame as usize] as f64 * numerator / denominator;
            problem(format!("has frame {frame}, which is shown at {at:.4} s and not after {frame}/{fps} s"));
        } else if off > SECONDS_TOLERANCE {
            problem(format!(
                "begins at {from} s, which is {off:.6} s from frame {first}: LeRobot's own reader refuses that"
            ));
        }
        next = next.max(end);
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::{super::meta::EpisodeMeta, *};

    fn check(spans: &[(i64, i64, f64, f64)], times: &[i64]) -> Vec<String> {
        let span = |&(episode, length, from, to)| VideoSpan { episode, length, seconds: [from, to] };
        check_spans(spans.iter().map(span).collect(), times, [1, 12_800], 10)
    }

    #[test]
    fn each_episode_that_contradicts_its_video_is_named() {
        let times: Vec<i64> = (0..50).map(|frame| frame * 1280).collect();
        assert_eq!(check(&[(0, 20, 0.0, 2.0), (1, 30, 2.0, 5.0)], &times), [""; 0]);
        for (spans, expected) in [
            (&[(7, 20, 0.0, 2.1)][..], "episode 7 has 20 rows, and frames 0 to 21"),
            (
                &[(0, 20, 0.0, 2.0), (1, 30, 1.9, 4.9)],
                "episode 1 has frames 19 to 49, of which others have those up to 20",
            ),
            (&[(0, 20, 0.0, 2.0), (1, 31, 2.0, 5.1)], "episode 1 has frames 20 to 51, and the video has 50"),
            (&[(3, 20, 2.0004, 4.0004)], "episode 3 begins at 2.0004 s, which is 0.000400 s from frame 20"),
        ] {
            let found = check(spans, &times);
            assert!(matches!(&found[..], [one] if one.starts_with(expected)), "{expected}: {found:?}");
        }
        let mut late = times;
        late[25..].iter_mut().for_each(|time| *time += 1280);
        let found = check(&[(0, 20, 0.0, 2.0), (1, 30, 2.0, 5.0)], &late);
        assert_eq!(found, ["episode 1 has frame 25, which is shown at 2.6000 s and not after 25/10 s"]);
    }

    #[test]
    fn frames_are_counted_in_the_right_video_whatever_its_times_are_off() {
        let file = |path: &str| VideoObject { path: path.to_owned(), bytes: 9, etag: None };
        let found = FoundVideos(["a", "b", "c"].map(|path| (path.to_owned(), file(path))).into());
        let video = |feature, file: &str, seconds| EpisodeVideo { feature, file: file.to_owned(), seconds };
        // Sums of floats, at 30 frames a second: 50 episodes of 7 frames lie before the second one.
        let drifted = (0..50).fold(0.0, |sum: f64, _| sum + 7.0 / 30.0);
        assert!((drifted * 30.0 - 350.0).abs() > 0.0);
        let videos = [
            vec![video(0, "a", [0.0, 7.0 / 30.0]), video(2, "c", [4.0, 4.0 + 7.0 / 30.0])],
            vec![video(0, "a", [drifted, drifted + 7.0 / 30.0]), video(2, "c", [0.0, 8.0 / 30.0])],
            vec![video(0, "b", [0.0, 7.0 / 30.0]), video(1, "gone", [0.0, 7.0 / 30.0]), video(2, "gone", [0.0, 1.0])],
            vec![video(0, "b", [7.0 / 30.0, 2.0]), video(2, "c", [-1.0, f64::NAN])],
        ];
        let episode = |videos: &Vec<EpisodeVideo>| EpisodeMeta {
            length: 7,
            frames: [0, 7],
            file: String::new(),
            videos: videos.clone(),
        };
        let features = ["top", "left", "wrist"].map(str::to_owned).to_vec();
        let episodes = (0..).zip(videos.iter().map(episode)).collect();
        let meta = LeRobotMeta { fps: 30, tasks: vec![], features, episodes };
        let span = |file, first, frames| Some(FrameSpan { file, first, frames });
        let of = found.of_episodes(&meta, &[0, 1, 2, 3], |_| true);
        assert_eq!(of.features, [0, 2], "`left` is not there");
        assert_eq!(of.files, ["a", "c", "b"].map(file));
        let expected =
            [span(0, 0, 7), span(1, 120, 7), span(0, 350, 7), span(1, 0, 8), span(2, 0, 7), None, span(2, 7, 53), None];
        assert_eq!(of.spans, expected);
        // Another file of frames has other videos.
        let of = found.of_episodes(&meta, &[2], |_| true);
        assert_eq!((of.features, of.files, of.spans), (vec![0], vec![file("b")], vec![span(0, 0, 7)]));
        let of = found.of_episodes(&meta, &[0], |name| name == "wrist");
        assert_eq!((of.features, of.files, of.spans), (vec![2], vec![file("c")], vec![span(0, 120, 7)]));
    }
}
