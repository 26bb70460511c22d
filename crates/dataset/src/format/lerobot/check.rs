//! Compares the rows of a file of frames with what `meta/` says about its episodes, as the checks do that others have written for
//! datasets that train wrongly without an error.

use std::collections::BTreeMap;

use super::{
    columns::ReadColumns,
    meta::{LeRobotMeta, shown},
};

/// How far a time in seconds may be from the frame's number over the frames of a second: LeRobot's own tolerance.
const TIME_TOLERANCE: f64 = 1e-4;
/// Most notes about times of a file.
const MAX_TIME_NOTES: usize = 3;

/// What is read of the rows of a file.
pub(super) struct FileRows {
    episode: Vec<i64>,
    frame: Vec<i64>,
    index: Vec<i64>,
    /// Empty if there are no tasks.
    task: Vec<i64>,
    /// Empty if there are no times.
    time: Vec<f64>,
}

impl FileRows {
    /// The columns that are read.
    pub(super) const COLUMNS: &[&str; 5] = &["episode_index", "frame_index", "index", "task_index", "timestamp"];

    /// Takes the columns.
    ///
    /// # Errors
    /// If one is missing, or has a row without a number.
    pub(super) fn of(columns: &ReadColumns) -> Result<Self, String> {
        let [episode, frame, index, task, time] = *Self::COLUMNS;
        Ok(Self {
            episode: columns.integers(episode)?,
            frame: columns.integers(frame)?,
            index: columns.integers(index)?,
            task: if columns.has(task) { columns.integers(task)? } else { Vec::new() },
            time: if columns.has(time) { columns.floats(time)? } else { Vec::new() },
        })
    }
}

/// What a file that agrees with `meta/` has.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CheckedFile {
    /// The rows at which episodes begin.
    pub(super) episodes: Vec<u32>,
    /// The numbers of these episodes.
    pub(super) numbers: Vec<i64>,
    /// The rows at which another task begins, and its number.
    pub(super) task_runs: Vec<(u32, u32)>,
    /// What is odd and changes no value.
    pub(super) notes: Vec<String>,
}

/// Checks the rows of the file at `path`.
///
/// # Errors
/// What contradicts `meta/`, by episode.
pub(super) fn check_file(meta: &LeRobotMeta, path: &str, rows: &FileRows) -> Result<CheckedFile, String> {
    let mut problems = Vec::new();
    let mut checked =
        CheckedFile { episodes: Vec::new(), numbers: Vec::new(), task_runs: Vec::new(), notes: Vec::new() };
    let mut seen: BTreeMap<i64, usize> = BTreeMap::new();
    let mut first = 0;
    for of_episode in rows.episode.chunk_by(|a, b| a == b) {
        let (number, range) = (of_episode[0], first..first + of_episode.len());
        first = range.end;
        checked.episodes.push(range.start as u32);
        checked.numbers.push(number);
        if let Some(before) = seen.insert(number, range.start) {
            problems.push(format!("episode {number} has rows from {before} and again from {}", range.start));
            continue;
        }
        let Some(stated) = meta.episodes.get(&number) else {
            problems.push(format!("episode {number} is not in `meta/episodes`"));
            continue;
        };
        let mut problem = |problem: String| problems.push(format!("episode {number} {problem}"));
        let (length, [from, to]) = (range.len(), stated.frames);
        if stated.file != path {
            problem(format!("lies in `{}`, as `meta/episodes` says", stated.file));
        }
        if length as i64 != stated.length {
            problem(format!("has {length} rows, and {} as `meta/episodes` says", stated.length));
        } else if rows.index[range.start] != from {
            let found = rows.index[range.start];
            problem(format!("begins at `index` {found}, and its frames are {from} to {to} as `meta/episodes` says"));
        }
        let counts =
            |of: &[i64], start: i64| (start..).zip(&of[range.clone()]).position(|(count, found)| count != *found);
        if let Some(at) = counts(&rows.frame, 0) {
            problem(format!("has `frame_index` {} in its row {at}", rows.frame[range.start + at]));
        }
        if let Some(at) = counts(&rows.index, rows.index[range.start]) {
            problem(format!("has `index` {} in its row {at}", rows.index[range.start + at]));
        }
        let mut tasks = rows.task.get(range.clone()).into_iter().flatten();
        if let Some(task) = tasks.find(|task| !meta.tasks.is_empty() && !is_task(meta, **task)) {
            problem(format!("has `task_index` {task}, which `meta/tasks.parquet` has not"));
        }
        let off = |(frame, time): (usize, &f64)| (time - frame as f64 / f64::from(meta.fps)).abs() > TIME_TOLERANCE;
        let times = rows.time.get(range.clone()).into_iter().flatten();
        if let Some(at) = times.clone().enumerate().position(off).filter(|_| checked.notes.len() < MAX_TIME_NOTES) {
            let time = rows.time[range.start + at];
            let fps = meta.fps;
            checked
                .notes
                .push(format!("episode {number} has `timestamp` {time} in its row {at}, at {fps} frames a second"));
        }
    }
    for (number, stated) in &meta.episodes {
        if stated.file == path && !seen.contains_key(number) {
            problems.push(format!("episode {number} has no rows here, and {} as `meta/episodes` says", stated.length));
        }
    }
    if !problems.is_empty() {
        return Err(shown("contradicts `meta/episodes`", &problems));
    }
    if !meta.tasks.is_empty() {
        let mut before = None;
        for (row, task) in (0..).zip(&rows.task).filter(|(_, task)| is_task(meta, **task)) {
            if before.replace(*task) != Some(*task) {
                checked.task_runs.push((row, *task as u32));
            }
        }
    }
    Ok(checked)
}

fn is_task(meta: &LeRobotMeta, task: i64) -> bool {
    usize::try_from(task).is_ok_and(|task| task < meta.tasks.len())
}

#[cfg(test)]
mod tests {
    use super::{super::meta::EpisodeMeta, *};

    const PATH: &str = "data/chunk-000/file-000.parquet";

    fn meta() -> LeRobotMeta {
        let episode =
            |length, from| EpisodeMeta { length, frames: [from, from + length], file: PATH.to_owned(), videos: vec![] };
        let tasks = vec!["push".to_owned(), "pull".to_owned()];
        LeRobotMeta { fps: 10, tasks, features: vec![], episodes: [(0, episode(3, 0)), (1, episode(2, 3))].into() }
    }

    fn rows() -> FileRows {
        FileRows {
            episode: vec![0, 0, 0, 1, 1],
            frame: vec![0, 1, 2, 0, 1],
            index: vec![0, 1, 2, 3, 4],
            task: vec![1, 1, 0, 0, 0],
            time: vec![0.0, 0.1, 0.2, 0.0, 0.1],
        }
    }

    #[test]
    fn episodes_and_runs_of_tasks_are_found() {
        let checked = check_file(&meta(), PATH, &rows()).unwrap();
        let (episodes, numbers) = (vec![0, 3], vec![0, 1]);
        let expected = CheckedFile { episodes, numbers, task_runs: vec![(0, 1), (2, 0)], notes: vec![] };
        assert_eq!(checked, expected);
        let late = FileRows { time: vec![0.0, 0.1, 0.2, 0.0, 0.2], ..rows() };
        let notes = check_file(&meta(), PATH, &late).unwrap().notes;
        assert_eq!(notes, ["episode 1 has `timestamp` 0.2 in its row 1, at 10 frames a second"]);
    }

    #[test]
    fn each_disagreement_is_named_with_its_episode() {
        type Change = fn(&mut FileRows, &mut LeRobotMeta);
        let cases: [(Change, &str); 9] = [
            (|rows, _| rows.frame[4] = 2, "episode 1 has `frame_index` 2 in its row 1"),
            (|rows, _| rows.index[4] = 9, "episode 1 has `index` 9 in its row 1"),
            (|rows, _| rows.index = vec![5, 6, 7, 3, 4], "episode 0 begins at `index` 5, and its frames are 0 to 3"),
            (|rows, _| rows.task[3] = 2, "episode 1 has `task_index` 2, which `meta/tasks.parquet` has not"),
            (|rows, _| rows.episode[4] = 7, "episode 7 is not in `meta/episodes`"),
            (|rows, _| rows.episode = vec![0, 0, 1, 1, 0], "episode 0 has rows from 0 and again from 4"),
            (|_, meta| meta.episodes.get_mut(&1).unwrap().length = 3, "episode 1 has 2 rows, and 3 as"),
            (|_, meta| meta.episodes.get_mut(&1).unwrap().file = "b".to_owned(), "episode 1 lies in `b`"),
            (
                |rows, _| {
                    for column in [&mut rows.episode, &mut rows.frame, &mut rows.index, &mut rows.task] {
                        column.truncate(3);
                    }
                },
                "episode 1 has no rows here, and 2 as",
            ),
        ];
        for (change, expected) in cases {
            let (mut rows, mut meta) = (rows(), meta());
            change(&mut rows, &mut meta);
            let error = check_file(&meta, PATH, &rows).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
