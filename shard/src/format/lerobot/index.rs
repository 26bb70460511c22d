//! The index of a file of frames: where its episodes and their tasks begin, and where their frames lie in videos, then the index of
//! the Parquet file.
//! `docs/spec/formats/lerobot.md` has the layout.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use spdl_types::Fingerprint;

use super::videos::{EpisodeVideos, VideoTables};
use crate::{
    FormatError,
    envelope::{FileKind, HEAD_BYTES, check_expected, last_before, sealed, u32_at, wrong},
    format::{
        DecodedBlock, Decoding, FetchedBytes, Field, Format as _, ObjectRange, Record, ShardIndex, StoredFrame,
        parquet::Parquet,
    },
    manifest::Shard,
};

/// The field that has the text of a frame's task.
pub const TASK: &str = "task";

const KIND: FileKind = FileKind { name: "LeRobot index", magic: *b"SPDLLER\n", version: 2, header_bytes: HEADER_BYTES };

const HEADER_BYTES: usize = 72;
const EPISODE_BYTES: usize = 4;
const RUN_BYTES: usize = 8;
const TASK_BYTES: usize = 4;

/// The facts about the rows of a file that its index has beside those of the Parquet file.
#[derive(Clone, Copy, Debug)]
pub struct EpisodeFacts<'f> {
    /// The index of the Parquet file.
    pub parquet: &'f Bytes,
    /// The rows at which episodes begin, row 0 first.
    pub episodes: &'f [u32],
    /// The rows at which another task begins, row 0 first, and its number in `tasks`; none if frames have no task.
    pub task_runs: &'f [(u32, u32)],
    /// The texts of the tasks.
    pub tasks: &'f [&'f str],
    /// The videos that have frames of the episodes.
    pub videos: EpisodeVideos<'f>,
}

impl EpisodeFacts<'_> {
    /// Returns the stored form of the index, and its hash.
    ///
    /// # Errors
    /// If the facts contradict each other or are too many.
    pub fn index(&self) -> Result<(Bytes, Fingerprint), FormatError> {
        let Self { parquet, episodes, task_runs, tasks, videos } = *self;
        let text: String = tasks.concat();
        let counts = [episodes.len(), task_runs.len(), tasks.len(), text.len()];
        let mut file = vec![0; HEAD_BYTES];
        for count in counts.into_iter().chain(videos.counts()) {
            let count = u32::try_from(count);
            let count =
                count.map_err(|_| FormatError::Unwritable("it has too many episodes, tasks or videos".to_owned()))?;
            file.extend(count.to_le_bytes());
        }
        episodes.iter().for_each(|row| file.extend(row.to_le_bytes()));
        for (row, task) in task_runs {
            file.extend(row.to_le_bytes());
            file.extend(task.to_le_bytes());
        }
        let mut end = 0;
        for task in tasks {
            end += task.len() as u32;
            file.extend(end.to_le_bytes());
        }
        file.extend(text.as_bytes());
        videos.append(&mut file);
        file.extend_from_slice(parquet);
        sealed(&KIND, file, open)
    }
}

/// The index of a file, which was checked when it was opened.
#[derive(Debug)]
pub(super) struct LeRobotIndex {
    bytes: Bytes,
    parquet: Arc<dyn ShardIndex>,
    /// Number of fields of the Parquet file.
    fields: u32,
    episodes: U32Table,
    runs: U32Table,
    tasks: U32Table,
    /// Where the texts begin.
    text: usize,
    videos: VideoTables,
}

/// A table in the index's bytes.
#[derive(Clone, Copy, Debug)]
struct U32Table {
    at: usize,
    entries: u32,
    entry_bytes: usize,
}

impl U32Table {
    /// Returns the first number of an entry.
    fn get(&self, bytes: &[u8], entry: u32) -> u32 {
        u32_at(bytes, self.at + entry as usize * self.entry_bytes)
    }

    /// Returns the number of the last entry that is at most `row`; the first entry is 0.
    fn last_at_most(&self, bytes: &[u8], row: u32) -> u32 {
        last_before(self.entries, |entry| self.get(bytes, entry) <= row)
    }

    /// Returns the rows of an entry, of a file of so many rows.
    fn rows(&self, bytes: &[u8], entry: u32, rows: u32) -> Range<u32> {
        let end = if entry + 1 < self.entries { self.get(bytes, entry + 1) } else { rows };
        self.get(bytes, entry)..end
    }

    /// Returns whether the entries begin with row 0 and rise to less than `rows`; they are none if there are no rows.
    fn divides(&self, bytes: &[u8], rows: u32) -> bool {
        let start = |entry: u32| self.get(bytes, entry);
        let is_first = self.entries == 0 || start(0) == 0;
        let is_last = self.entries == 0 || start(self.entries - 1) < rows;
        is_first && is_last && (0..self.entries).map(start).is_sorted_by(|row, next| row < next)
    }
}

/// Opens an index whose hash in the manifest is `expected`.
pub(super) fn open(bytes: Bytes, expected: Fingerprint) -> Result<LeRobotIndex, FormatError> {
    check_expected(&KIND, &bytes, expected)?;
    let mut at = HEADER_BYTES;
    let mut table = |place: usize, entry_bytes: usize| -> Result<U32Table, FormatError> {
        let entries = u32_at(&bytes, place);
        let end = (entries as usize).checked_mul(entry_bytes).and_then(|length| at.checked_add(length));
        let end = end.filter(|end| *end <= bytes.len()).ok_or_else(|| wrong("its tables are longer than it is"))?;
        let table = U32Table { at, entries, entry_bytes };
        at = end;
        Ok(table)
    };
    let (episodes, runs, tasks) = (table(40, EPISODE_BYTES)?, table(44, RUN_BYTES)?, table(48, TASK_BYTES)?);
    let text = table(52, 1)?;
    let texts = std::str::from_utf8(&bytes[text.at..at]).map_err(|_| wrong("its text is not UTF-8"))?;
    let mut start = 0;
    for end in (0..tasks.entries).map(|task| tasks.get(&bytes, task) as usize) {
        if end < start || !texts.is_char_boundary(end) {
            return Err(wrong("its table of text is out of order"));
        }
        start = end;
    }
    if start != texts.len() {
        return Err(wrong("its text has unused bytes"));
    }
    let counts = [56, 60, 64, 68].map(|place| u32_at(&bytes, place));
    let (mut videos, at) = VideoTables::read(&bytes, at, counts, episodes.entries)?;
    let parquet = bytes.slice(at..);
    let hash = Fingerprint::of(&parquet);
    let parquet = Parquet.open_index(parquet, hash)?;
    let rows = parquet.record_count();
    if !episodes.divides(&bytes, rows) || (episodes.entries == 0) != (rows == 0) {
        return Err(wrong("its episodes are out of order"));
    }
    let is_known = |run: u32| u32_at(&bytes, runs.at + run as usize * RUN_BYTES + 4) < tasks.entries;
    if !runs.divides(&bytes, rows) || !(0..runs.entries).all(is_known) {
        return Err(wrong("its tasks are out of order"));
    }
    let fields = if rows > 0 { parquet.record(0).fields } else { 0 };
    let has = |name: &str| rows > 0 && parquet.field_number(&parquet.record(0), name).is_some();
    let names: Vec<&str> = (0..videos.features()).map(|feature| videos.name(&bytes, feature)).collect();
    let is_twice = |name: &&str| has(name) || (*name == TASK && runs.entries > 0) || name.is_empty();
    let mut known = names.clone();
    known.sort_unstable();
    known.dedup();
    if runs.entries > 0 && has(TASK) || names.iter().any(is_twice) || known.len() < names.len() {
        return Err(wrong("it has a field twice"));
    }
    videos.place_behind(parquet.shard_bytes())?;
    let text = text.at;
    Ok(LeRobotIndex { bytes, parquet, fields, episodes, runs, tasks, text, videos })
}

impl LeRobotIndex {
    /// Returns the text of the task of a row.
    fn task(&self, row: u32) -> &[u8] {
        let run = self.runs.last_at_most(&self.bytes, row);
        let task = u32_at(&self.bytes, self.runs.at + run as usize * RUN_BYTES + 4);
        let start = task.checked_sub(1).map_or(0, |before| self.tasks.get(&self.bytes, before));
        &self.bytes[self.text..][start as usize..self.tasks.get(&self.bytes, task) as usize]
    }

    /// Returns the number of the first field that is a frame of a video.
    fn first_frame(&self) -> u32 {
        self.fields + u32::from(self.runs.entries > 0)
    }

    fn episode(&self, record: u32) -> u32 {
        self.episodes.last_at_most(&self.bytes, record)
    }
}

impl ShardIndex for LeRobotIndex {
    fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    fn shard_bytes(&self) -> u64 {
        self.parquet.shard_bytes()
    }

    fn record_count(&self) -> u32 {
        self.parquet.record_count()
    }

    fn record(&self, record: u32) -> Record<'_> {
        let fields = self.first_frame() + self.videos.features();
        Record { index: self, fields, ..self.parquet.record(record) }
    }

    fn field(&self, record: &Record<'_>, nth: u32) -> Field<'_> {
        if nth < self.fields {
            return self.parquet.field(record, nth);
        }
        assert!(nth < record.fields, "field {nth} of {}", record.fields);
        let (name, value) = match nth.checked_sub(self.first_frame()) {
            None => (TASK, self.task(record.number)),
            Some(feature) => {
                let path = self.videos.path(&self.bytes, self.episode(record.number), feature);
                (self.videos.name(&self.bytes, feature), path)
            }
        };
        Field { name, offset: 0, bytes: value.len() as u32, shared_by: 1, crc32c: None, value: Some(value) }
    }

    fn field_number(&self, record: &Record<'_>, name: &str) -> Option<u32> {
        let of_task = || (name == TASK && self.runs.entries > 0).then_some(self.fields);
        let of_video = || Some(self.first_frame() + self.videos.feature(&self.bytes, name)?);
        self.parquet.field_number(record, name).or_else(of_task).or_else(of_video)
    }

    fn series(&self, record: u32) -> Option<Range<u32>> {
        Some(self.episodes.rows(&self.bytes, self.episode(record), self.record_count()))
    }

    fn frame(&self, record: &Record<'_>, nth: u32) -> Option<Result<StoredFrame, String>> {
        let feature = nth.checked_sub(self.first_frame()).filter(|_| nth < record.fields)?;
        let episode = self.episode(record.number);
        let rows = self.episodes.rows(&self.bytes, episode, self.record_count());
        let frame = (record.number - rows.start, rows.end - rows.start);
        Some(self.videos.frame(&self.bytes, (episode, feature), frame))
    }

    fn project(&self, range: Range<u64>, fields: &[String]) -> Vec<Range<u64>> {
        self.parquet.project(range, fields)
    }

    fn plan(&self, shard: &Shard<'_>, ranges: &[Range<u64>]) -> Vec<ObjectRange> {
        let mut plan = self.parquet.plan(shard, ranges);
        self.videos.plan(&self.bytes, ranges, &mut plan);
        plan
    }

    fn decoding(&self, ranges: &[Range<u64>], fetched: &FetchedBytes<'_>) -> Decoding {
        self.parquet.decoding(ranges, fetched)
    }

    fn decode(&self, ranges: &[Range<u64>], fetched: &FetchedBytes<'_>) -> Option<Arc<dyn DecodedBlock>> {
        self.parquet.decode(ranges, fetched)
    }
}
