//! Finds the files of frames of a LeRobot v3 dataset, which `meta/` describes, and indexes them. The columns that say of which
//! episode and task a row is are read and compared with `meta/`; no other values are.

mod check;
mod columns;
mod meta;
mod videos;

use std::sync::{Arc, Mutex};

use futures::{FutureExt, StreamExt, TryStreamExt, stream::BoxStream};
use spdl_shard::format::{
    Format, MadeIndex,
    lerobot::{EpisodeFacts, EpisodeVideos, LeRobot, TASK},
};

use super::{
    FormatScan, Takes,
    footer_files::{FileIndexer, FooterFile, index_files},
    parquet::{OpenParquet, PageIndexer},
};
use crate::{DatasetError, DatasetOddities, Listing, MemoryBound, Scan, ShardResult, hidden::is_hidden_shard};
use check::{FileRows, check_file};
use columns::ReadColumns;
use meta::{INFO, LeRobotMeta};
use videos::FoundVideos;

/// Bytes in memory of what is read of a row.
const ROW_BYTES: u64 = 64;

/// Finds LeRobot v3.
#[derive(Debug)]
pub(super) struct LeRobotScan;

impl FormatScan for LeRobotScan {
    fn format(&self) -> &'static dyn Format {
        &LeRobot
    }

    fn is_shard(&self, name: &str) -> bool {
        name.starts_with("data/") && name.ends_with(".parquet")
    }

    fn takes(&self) -> Takes {
        Takes::Listed
    }

    fn recognises(&self, folder: &Listing) -> bool {
        let has = |is_one: &dyn Fn(&str) -> bool| {
            folder.iter().any(|object| is_one(object.name) && !is_hidden_shard(object.name))
        };
        has(&|name| name == INFO) && has(&|name| self.is_shard(name))
    }

    fn scan<'s>(&self, scan: Scan<'s>) -> BoxStream<'s, Result<ShardResult, DatasetError>> {
        shards(scan).into_stream().try_flatten().boxed()
    }
}

/// Reads `meta/`, then indexes the files of frames that it names.
async fn shards(mut scan: Scan<'_>) -> Result<BoxStream<'_, Result<ShardResult, DatasetError>>, DatasetError> {
    let mut notes = Vec::new();
    let chosen = LeRobotMeta::list(&scan).await?;
    let listed = chosen.as_ref().unwrap_or(&scan.folder);
    let meta = LeRobotMeta::read(&scan, listed, &mut notes).await?;
    notes.extend(videos::odd_videos(&scan, listed, &meta).await?);
    let videos = FoundVideos::new(&scan, listed, &meta);
    meta.choose(&mut scan, &mut notes)?;
    let indexer = EpisodeIndexer {
        meta: Arc::new(meta),
        videos,
        pages: PageIndexer::default(),
        notes: Mutex::new(notes),
        memory: MemoryBound::new(),
    };
    Ok(index_files(scan, indexer))
}

/// Makes the indexes of files of frames.
struct EpisodeIndexer {
    meta: Arc<LeRobotMeta>,
    videos: FoundVideos,
    pages: PageIndexer,
    /// What is odd about `meta/`, until a shard has it.
    notes: Mutex<Vec<String>>,
    /// Bounds what is read of rows.
    memory: MemoryBound,
}

impl FileIndexer for EpisodeIndexer {
    async fn index(
        &self,
        file: &FooterFile,
        block_bytes: u64,
        odd: &mut DatasetOddities,
    ) -> Result<MadeIndex, DatasetError> {
        for note in std::mem::take(&mut *self.notes.lock().expect("nothing panics with it")) {
            odd.note(|| note);
        }
        let open = OpenParquet::open(file, block_bytes).await?;
        let as_rows = open.index(file, block_bytes, None)?;
        let _memory = self.memory.take(u64::from(as_rows.records).saturating_mul(ROW_BYTES)).await;
        let columns = ReadColumns::read(file, &as_rows, FileRows::COLUMNS.map(str::to_owned).to_vec()).await?;
        let rows = FileRows::of(&columns).map_err(|problem| file.wrong(problem))?;
        let checked = check_file(&self.meta, file.path(), &rows).map_err(|problem| file.wrong(problem))?;
        for note in checked.notes {
            odd.note(|| note);
        }
        let made = open.index(file, block_bytes, Some(&checked.episodes))?;
        self.pages.note(file, &open, odd);
        let has_task = columns.has(TASK);
        // A column of the file is the field, if there is one of the name.
        let is_field = |name: &str| name != TASK && !columns.has(name);
        let videos = self.videos.of_episodes(&self.meta, &checked.numbers, is_field);
        let features: Vec<&str> = videos.features.iter().map(|feature| self.meta.features[*feature].as_str()).collect();
        let facts = EpisodeFacts {
            parquet: &made.index,
            episodes: &checked.episodes,
            task_runs: if has_task { &[] } else { &checked.task_runs },
            tasks: &self.meta.tasks.iter().map(String::as_str).collect::<Vec<_>>(),
            videos: EpisodeVideos {
                fps: self.meta.fps,
                features: &features,
                files: &videos.files,
                spans: &videos.spans,
            },
        };
        let unwritable = |source| DatasetError::Unwritable { url: file.path().to_owned(), source };
        let (index, hash) = facts.index().map_err(unwritable)?;
        let mut fields = made.fields;
        if !has_task {
            fields.push((TASK.to_owned(), Some(made.records.into())));
        }
        fields.extend(features.iter().map(|feature| ((*feature).to_owned(), Some(made.records.into()))));
        Ok(MadeIndex { index, hash, fields, ..made })
    }
}
