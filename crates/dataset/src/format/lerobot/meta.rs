//! Reads `meta/` of a dataset: `info.json`, the tasks and the episodes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use spdl_shard::manifest::is_relative_path;

use super::columns::ReadColumns;
use crate::{
    DatasetError, Listing, Scan,
    format::{footer_files::FooterFile, parquet::OpenParquet},
};

/// The file that says what the dataset is.
pub(super) const INFO: &str = "meta/info.json";
const TASKS: &str = "meta/tasks.parquet";
const EPISODES: &str = "meta/episodes/";
/// Most bytes of `info.json`.
const MAX_INFO_BYTES: u64 = 16 << 20;
/// Most bytes of a block that the index of a file of `meta/` is made for.
const META_BLOCK_BYTES: u64 = 64 << 20;
/// Most names that an error has.
pub(super) const SHOWN: usize = 5;

#[derive(Debug, Deserialize)]
struct InfoJson {
    codebase_version: String,
    fps: f64,
    data_path: Option<String>,
    video_path: Option<String>,
    #[serde(default)]
    features: BTreeMap<String, FeatureJson>,
    total_episodes: Option<u64>,
    total_frames: Option<u64>,
    total_tasks: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct FeatureJson {
    dtype: String,
}

/// A feature whose frames lie in videos.
struct VideoFeature {
    key: String,
    /// The path of its files.
    path: String,
}

/// Where the frames of an episode lie in a video, as `meta/episodes` says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EpisodeVideo {
    /// The number of the feature.
    pub(super) feature: usize,
    pub(super) file: String,
    /// Seconds of the file.
    pub(super) seconds: [f64; 2],
}

/// What `meta/` says.
#[derive(Debug)]
pub(super) struct LeRobotMeta {
    /// Frames of a second.
    pub(super) fps: u32,
    /// The texts of the tasks, by their numbers.
    pub(super) tasks: Vec<String>,
    /// The features whose frames lie in videos.
    pub(super) features: Vec<String>,
    /// The episodes, by their numbers.
    pub(super) episodes: BTreeMap<i64, EpisodeMeta>,
}

/// What `meta/episodes` says about an episode.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EpisodeMeta {
    pub(super) length: i64,
    /// The numbers of its frames in the dataset.
    pub(super) frames: [i64; 2],
    /// The file that has its rows.
    pub(super) file: String,
    /// Its frames in the videos of each feature that has some.
    pub(super) videos: Vec<EpisodeVideo>,
}

impl LeRobotMeta {
    /// Reads all of the files that are listed, and notes what is odd but harmless.
    pub(super) async fn read(scan: &Scan<'_>, listed: &Listing, notes: &mut Vec<String>) -> Result<Self, DatasetError> {
        let wrong = |path: &str, problem: String| DatasetError::Source { path: scan.from.url_of(path), problem };
        let info = scan.from.read(INFO, MAX_INFO_BYTES).await?;
        let info = InfoJson::read(&info).map_err(|problem| wrong(INFO, problem))?;
        let fps = info.fps as u32;
        let files = |is_one: &dyn Fn(&str) -> bool| -> Vec<FooterFile> {
            listed
                .iter()
                .filter(|object| is_one(object.name))
                .map(|object| FooterFile::new(scan.from, &object))
                .collect()
        };
        let of_tasks = files(&|name| name == TASKS);
        let of_episodes = files(&|name| name.starts_with(EPISODES) && name.ends_with(".parquet"));
        if of_tasks.is_empty() {
            notes.push(format!("there is no `{TASKS}`, so frames have no field `task`"));
        }
        let mut task_texts = Vec::new();
        for file in of_tasks {
            let columns = read(&file, TASK_COLUMNS.map(str::to_owned).to_vec()).await?;
            task_texts = tasks(&columns).map_err(|problem| file.wrong(problem))?;
        }
        if of_episodes.is_empty() {
            return Err(wrong(EPISODES, "has no file of episodes: copy it from where the dataset was made".to_owned()));
        }
        let data_path = info.data_path.as_deref().unwrap_or(DATA_PATH);
        let videos = info.videos();
        let mut by_number: BTreeMap<i64, EpisodeMeta> = BTreeMap::new();
        for file in of_episodes {
            let columns = read(&file, episode_columns(&videos)).await?;
            for (number, episode) in
                episodes_of(&columns, data_path, &videos, notes).map_err(|problem| file.wrong(problem))?
            {
                if by_number.insert(number, episode).is_some() {
                    return Err(wrong(EPISODES, format!("has episode {number} twice")));
                }
            }
        }
        let problems = spans_of(&by_number);
        if !problems.is_empty() {
            return Err(wrong(EPISODES, shown("contradicts itself", &problems)));
        }
        let frames = by_number.values().map(|episode| episode.length).sum::<i64>() as u64;
        for (what, stated, found) in [
            ("total_episodes", info.total_episodes, by_number.len() as u64),
            ("total_frames", info.total_frames, frames),
            ("total_tasks", info.total_tasks, task_texts.len() as u64),
        ] {
            if let Some(stated) = stated.filter(|stated| *stated != found) {
                notes.push(format!("`{INFO}` says that `{what}` is {stated}, and the dataset has {found}"));
            }
        }
        let features = videos.into_iter().map(|video| video.key).collect();
        Ok(Self { fps, tasks: task_texts, features, episodes: by_number })
    }

    /// Lists the files of `meta` and the videos, if the caller chose files of frames.
    ///
    /// # Errors
    /// If they cannot be listed.
    pub(super) async fn list(scan: &Scan<'_>) -> Result<Option<Listing>, DatasetError> {
        if !scan.is_chosen {
            return Ok(None);
        }
        if !scan.from.can_list() {
            let problem = "cannot be listed there: copy `meta` to a folder or a bucket with the dataset".to_owned();
            return Err(DatasetError::Source { path: scan.from.url_of(EPISODES), problem });
        }
        Listing::of(scan.from, |name| name.starts_with("meta/") || is_video(name)).await.map(Some)
    }

    /// Keeps of the objects to scan the files of frames.
    ///
    /// # Errors
    /// If one is missing, or the caller chose another.
    pub(super) fn choose(&self, scan: &mut Scan<'_>, notes: &mut Vec<String>) -> Result<(), DatasetError> {
        let wrong = |path: &str, problem: String| DatasetError::Source { path: scan.from.url_of(path), problem };
        let named: BTreeSet<&str> = self.episodes.values().map(|episode| episode.file.as_str()).collect();
        let mut found = BTreeSet::new();
        let mut others = Vec::new();
        scan.folder.retain(|object| {
            let is_named = named.contains(object.name);
            if is_named {
                found.insert(object.name.to_owned());
            } else if scan.is_chosen || object.name.starts_with("data/") && object.name.ends_with(".parquet") {
                others.push(object.name.to_owned());
            }
            is_named
        });
        let missing = named.iter().find(|name| !found.contains(**name)).filter(|_| !scan.is_chosen);
        if let Some(missing) = missing {
            let problem = format!(
                "names `{missing}`, which is not there: copy it from where the dataset was made, or choose the files that are \
                 there with `--shards`"
            );
            return Err(wrong(EPISODES, problem));
        }
        match others.first() {
            Some(other) if scan.is_chosen => Err(wrong(other, "has no episode, as `meta/episodes` says".to_owned())),
            Some(other) => {
                notes.push(format!("`{other}` is left out: no episode of `meta/episodes` lies in it"));
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Returns whether a file may be one of the videos, which lie where `info.json` says.
fn is_video(name: &str) -> bool {
    name.starts_with("videos/") || name.ends_with(".mp4")
}

/// Where the files of frames lie, if `info.json` does not say it.
const DATA_PATH: &str = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet";
const VIDEO_PATH: &str = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4";

impl InfoJson {
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let info: Self =
            serde_json::from_slice(bytes).map_err(|error| format!("is no `info.json` of LeRobot: {error}"))?;
        let version = info.codebase_version.escape_debug().to_string();
        match info.codebase_version.trim_start_matches('v').split('.').next() {
            Some("3") => {}
            Some("1" | "2") => {
                return Err(format!(
                    "says that the dataset is of LeRobot {version}, and v3.0 is read: convert it with LeRobot's own program, \
                     `python -m lerobot.datasets.v30.convert_dataset_v21_to_v30 --help`, or index its rows alone with \
                     `--format parquet`"
                ));
            }
            _ => return Err(format!("says that the dataset is of LeRobot {version}, and v3.0 is read")),
        }
        if info.fps < 1.0 || info.fps > 1e6 || info.fps.fract() != 0.0 {
            return Err(format!("says that `fps` is {}, which is no whole number of frames a second", info.fps));
        }
        Ok(info)
    }

    /// Returns the features whose frames lie in videos.
    fn videos(&self) -> Vec<VideoFeature> {
        let form = self.video_path.as_deref().unwrap_or(VIDEO_PATH);
        let video = |key: &String| VideoFeature { key: key.clone(), path: form.replace("{video_key}", key) };
        self.features.iter().filter(|(_, feature)| feature.dtype == "video").map(|(key, _)| video(key)).collect()
    }
}

/// Reads columns of a file of `meta/`.
async fn read(file: &FooterFile, names: Vec<String>) -> Result<ReadColumns, DatasetError> {
    let open = OpenParquet::open(file, META_BLOCK_BYTES).await?;
    ReadColumns::read(file, &open.index(file, META_BLOCK_BYTES, None)?, names).await
}

/// The text is the index of a table of pandas.
const TASK_COLUMNS: [&str; 3] = ["task_index", "task", "__index_level_0__"];

/// Returns the texts of the tasks. LeRobot takes them by their places, so that their numbers have to be these.
fn tasks(columns: &ReadColumns) -> Result<Vec<String>, String> {
    let name = if columns.has("task") { "task" } else { "__index_level_0__" };
    let (numbers, texts) = (columns.integers("task_index")?, columns.texts(name)?);
    match (0..).zip(&numbers).find(|(place, number)| place != *number) {
        None => Ok(texts),
        Some((place, number)) => Err(format!("has task {number} in row {place}, where LeRobot expects task {place}")),
    }
}

const EPISODE_COLUMNS: [&str; 6] =
    ["episode_index", "length", "dataset_from_index", "dataset_to_index", "data/chunk_index", "data/file_index"];

/// The columns that say where an episode lies in the videos of a feature: `videos/KEY/` and one of these.
const VIDEO_COLUMNS: [&str; 4] = ["chunk_index", "file_index", "from_timestamp", "to_timestamp"];

/// Returns the columns of the episodes that are read.
fn episode_columns(videos: &[VideoFeature]) -> Vec<String> {
    let of_videos = videos.iter().flat_map(|video| VIDEO_COLUMNS.map(|name| video_column(video, name)));
    EPISODE_COLUMNS.map(str::to_owned).into_iter().chain(of_videos).collect()
}

fn video_column(video: &VideoFeature, name: &str) -> String {
    format!("videos/{}/{name}", video.key)
}

/// Returns the episodes of a file, with their numbers.
fn episodes_of(
    columns: &ReadColumns,
    data_path: &str,
    videos: &[VideoFeature],
    notes: &mut Vec<String>,
) -> Result<Vec<(i64, EpisodeMeta)>, String> {
    let [numbers, lengths, from, to, chunks, files] = EPISODE_COLUMNS.map(|name| columns.integers(name));
    let (numbers, lengths, from, to, chunks, files) = (numbers?, lengths?, from?, to?, chunks?, files?);
    let mut found = Vec::with_capacity(numbers.len());
    for row in 0..numbers.len() {
        let file = numbered_path(data_path, chunks[row], files[row])?;
        let frames = [from[row], to[row]];
        found.push((numbers[row], EpisodeMeta { length: lengths[row], frames, file, videos: Vec::new() }));
    }
    for (feature, video) in videos.iter().enumerate() {
        let [chunk, file, from, to] = VIDEO_COLUMNS.map(|name| video_column(video, name));
        let numbers = [columns.integers(&chunk), columns.integers(&file)];
        let seconds = [columns.floats(&from), columns.floats(&to)];
        let ([Ok(chunks), Ok(files)], [Ok(from), Ok(to)]) = (numbers, seconds) else {
            notes.push(format!("episodes do not say where they lie in the videos of `{}`", video.key));
            continue;
        };
        for (row, (_, episode)) in found.iter_mut().enumerate() {
            let file = numbered_path(&video.path, chunks[row], files[row])?;
            episode.videos.push(EpisodeVideo { feature, file, seconds: [from[row], to[row]] });
        }
    }
    Ok(found)
}

/// Returns the path of a file by its numbers.
fn numbered_path(form: &str, chunk: i64, file: i64) -> Result<String, String> {
    let path =
        form.replace("{chunk_index:03d}", &format!("{chunk:03}")).replace("{file_index:03d}", &format!("{file:03}"));
    if path.contains(['{', '}']) || !is_relative_path(&path) {
        return Err(format!("has its frames in `{}`, as `{INFO}` says, which is no path", path.escape_debug()));
    }
    Ok(path)
}

/// Returns what is wrong with the spans of episodes: each begins where the one before it ends.
fn spans_of(episodes: &BTreeMap<i64, EpisodeMeta>) -> Vec<String> {
    let (mut problems, mut next) = (Vec::new(), 0);
    for (number, EpisodeMeta { length, frames: [from, to], .. }) in episodes {
        if to - from != *length || *length < 1 {
            problems.push(format!("episode {number} has frames {from} to {to} and {length} frames"));
        } else if *from != next {
            problems.push(format!("episode {number} begins at frame {from}, and those before it end at {next}"));
        }
        next = *to;
    }
    problems
}

/// Returns an error with the first of these problems.
pub(super) fn shown(what: &str, problems: &[String]) -> String {
    let more = problems.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{what}: {}{more}", problems[..problems.len().min(SHOWN)].join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_versions_are_refused_and_v2_names_the_converter() {
        let info = |version: &str, fps: &str| {
            InfoJson::read(format!("{{\"codebase_version\": \"{version}\", \"fps\": {fps}}}").as_bytes()).map(|_| ())
        };
        assert_eq!(info("v3.0", "30"), Ok(()));
        assert_eq!(info("v3.1", "10.0"), Ok(()));
        for (version, fps, expected) in [
            ("v2.1", "30", "convert_dataset_v21_to_v30"),
            ("v4.0", "30", "is of LeRobot v4.0, and v3.0 is read"),
            ("v3.0", "0", "`fps` is 0"),
            ("v3.0", "29.97", "`fps` is 29.97"),
            ("v3.0", "\"x\"", "is no `info.json`"),
        ] {
            let error = info(version, fps).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }

    #[test]
    fn spans_of_episodes_follow_each_other() {
        let of = |spans: &[(i64, i64, i64)]| {
            let episode =
                |(length, from, to)| EpisodeMeta { length, frames: [from, to], file: String::new(), videos: vec![] };
            spans_of(&(0..).zip(spans.iter().map(|span| episode(*span))).collect())
        };
        assert_eq!(of(&[(3, 0, 3), (2, 3, 5)]), [""; 0]);
        assert_eq!(of(&[(3, 0, 4)]), ["episode 0 has frames 0 to 4 and 3 frames"]);
        assert_eq!(of(&[(3, 0, 3), (2, 2, 4)]), ["episode 1 begins at frame 2, and those before it end at 3"]);
        assert_eq!(of(&[(3, 0, 3), (2, 4, 6)]).len(), 1);
    }

    #[test]
    fn files_have_the_names_that_info_json_says() {
        assert_eq!(numbered_path(DATA_PATH, 0, 12), Ok("data/chunk-000/file-012.parquet".to_owned()));
        for path in ["../{file_index:03d}", "data/{episode_chunk}", "/a"] {
            assert!(numbered_path(path, 0, 0).is_err(), "{path}");
        }
    }
}
