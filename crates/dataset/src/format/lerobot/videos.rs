//! Compares where `meta/episodes` says that the frames of episodes lie in videos with the tables of these. Frames are counted and never
//! found by a time in floats, which drifts from one episode to the next.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use spdl_media::{Video, VideoReader};

use super::meta::{EpisodeVideo, LeRobotMeta};
use crate::{DatasetError, Scan, format::footer_files::FooterFile};

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

/// Reads the tables of all videos, and returns what contradicts the episodes.
pub(super) async fn odd_videos(scan: &Scan<'_>, meta: &LeRobotMeta) -> Result<Vec<String>, DatasetError> {
    let mut spans: BTreeMap<&str, Vec<VideoSpan>> = BTreeMap::new();
    for (episode, facts) in &meta.episodes {
        for EpisodeVideo { file, seconds } in &facts.videos {
            let span = VideoSpan { episode: *episode, length: facts.length, seconds: *seconds };
            spans.entry(file).or_default().push(span);
        }
    }
    let mut files = Vec::new();
    for object in scan.folder.iter() {
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
    let frame_at = |seconds: f64| (seconds * f64::from(fps)).round() as i64;
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
        } else if let Some(frame) = (first..end).find(|frame| !is_at(times[*frame as usize], time_base, fps, *frame)) {
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

/// Returns whether frame `frame` is the nearest to this time, in whole numbers.
fn is_at(time: i64, [numerator, denominator]: [u32; 2], fps: u32, frame: i64) -> bool {
    let frames = i128::from(time) * i128::from(numerator) * i128::from(fps);
    let exact = i128::from(frame) * i128::from(denominator);
    (frames - exact).abs() * 2 < i128::from(denominator)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
