//! Makes the shards of loose files from a listing of the folder: of files, only long sounds are read, for their tables.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
};

use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use spdl_shard::{
    FormatError,
    format::files::FileIndexBuilder,
    index::{INDEX_SUFFIX, IndexFile},
    manifest::{ShardFacts, is_relative_path},
};

use super::{
    frames::{ListedVideo, folder, folder_of, video},
    packet_tables::PacketTables,
    records::{
        ListedRecord, by_folder, group, has_field, is_picture_file, is_sound_file, is_video_file, name_at, neighbours,
    },
    table::{FileTable, RowFields},
    transcripts::{TEXT_FIELD, Transcripts},
};
use crate::{
    BlockCutter, DatasetError, DatasetOddities, FolderPictures, LABEL_FIELD, LeftOutReason, Listing, Outline, Scan,
    ScannedShard, ShardResult, Splits, is_unread_picture, note_of_pictures, pictures, refuse_as_classes,
};

/// Number of files at which a shard is closed. When raised, a worker reads longer indexes for a few samples; when
/// lowered, there are more of them.
const SHARD_FILES: u32 = 8192;
/// Number of records at which a shard is closed, where records share files.
const SHARD_RECORDS: u32 = 65_536;
/// Bytes of the tables of sounds at which a shard is closed: those of some thousand hours.
const SHARD_TABLE_BYTES: u64 = 32 << 20;
/// Number of files at which a block is closed, if it has not reached its size by then. Every file is a request, so a block
/// of small files saves nothing by being longer; a shorter one shuffles better and waits for fewer requests.
const BLOCK_FILES: u32 = 64;

/// Returns the name of shard number `number`.
fn shard_name(number: usize) -> String {
    format!("files-{number:06}")
}

/// Returns whether this is an index that `index` wrote.
fn is_index(name: &str) -> bool {
    let name = name.strip_suffix(".new").unwrap_or(name).strip_suffix(INDEX_SUFFIX);
    let number = name.and_then(|name| name.strip_prefix("files-"));
    number.is_some_and(|number| number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit()))
}

pub(super) fn scan(scan: Scan<'_>) -> BoxStream<'_, Result<ShardResult, DatasetError>> {
    let shards = async move {
        let mut shards = Shards::start(scan)?;
        if matches!(shards.makes_record, MakesRecord::Sounds) {
            shards.transcripts = Transcripts::read(shards.scan.from, &shards.files).await?;
        }
        Ok::<_, DatasetError>(stream::try_unfold(shards, Shards::next))
    };
    stream::once(shards).try_flatten().map_ok(|shard| ShardResult::Scanned(Box::new(shard))).boxed()
}

/// The shards of a folder, one after the other.
struct Shards<'s> {
    scan: Scan<'s>,
    files: Listing,
    labels: LabelSource<'s>,
    transcripts: Transcripts,
    makes_record: MakesRecord<'s>,
    /// The first file that was not grouped into records so far.
    next_file: usize,
    /// Records that are in no shard so far.
    pending: VecDeque<ListedRecord>,
    number: usize,
    /// The oddities of the folder, which are reported with its first shard.
    odd: DatasetOddities,
    /// Whether a record with several pictures was noted.
    has_noted_pictures: bool,
    /// Whether a sound without a text among transcripts was noted.
    has_noted_text: bool,
    packet_tables: PacketTables<'s>,
}

/// Which files make records.
enum MakesRecord<'s> {
    Pictures,
    /// There are more of them than pictures, such as covers.
    Sounds,
    /// There are more of them than pictures, and not fewer than sounds.
    Videos,
    /// There are no pictures, sounds or videos.
    All,
    /// The files that a table has a row for.
    Rows(&'s FileTable),
    /// The pictures of a folder together.
    Frames,
}

impl MakesRecord<'_> {
    /// Chooses by what there is most of in a folder.
    fn of(files: &Listing) -> Self {
        let count = |is_one: fn(&str) -> bool| files.iter().filter(|file| is_one(file.name)).count();
        match (count(is_picture_file), count(is_sound_file), count(is_video_file)) {
            (0, 0, 0) => Self::All,
            (pictures, sounds, videos) if videos > pictures && videos >= sounds => Self::Videos,
            (pictures, sounds, _) if sounds > pictures => Self::Sounds,
            _ => Self::Pictures,
        }
    }

    fn is_one(&self, path: &str) -> bool {
        match self {
            Self::Pictures => is_picture_file(path),
            Self::Sounds => is_sound_file(path),
            Self::Videos => is_video_file(path),
            Self::All => true,
            Self::Rows(table) => !table.rows(path).is_empty(),
            Self::Frames => is_picture_file(path) && path.contains('/'),
        }
    }
}

/// The source of the values of records.
enum LabelSource<'s> {
    None,
    /// The first folder of a file's path is its class.
    Folders(BTreeMap<String, String>),
    Table {
        table: &'s FileTable,
        classes: BTreeMap<String, String>,
    },
}

impl<'s> Shards<'s> {
    fn start(mut scan: Scan<'s>) -> Result<Self, DatasetError> {
        let mut files = std::mem::take(&mut scan.folder);
        let mut odd = DatasetOddities::default();
        files.retain(|file| match left_out(file.name, file.bytes) {
            Some(why) => {
                odd.left_out.add(&file.name.escape_debug().to_string(), why);
                false
            }
            None => !is_index(file.name),
        });
        files.sort_by(by_folder);
        let table = scan.options.table.as_deref();
        let makes_record = match (scan.options.pictures, table) {
            (FolderPictures::Frames, _) => MakesRecord::Frames,
            (FolderPictures::Samples, Some(table)) => MakesRecord::Rows(table),
            (FolderPictures::Samples, None) => MakesRecord::of(&files),
        };
        if let MakesRecord::All = makes_record
            && let Some(unread) = files.iter().find(|file| is_unread_picture(file.name))
        {
            odd.note(|| format!("pictures such as `{}`: {}", unread.name, LeftOutReason::UnreadPicture.text()));
        }
        let labels = match table {
            Some(table) => {
                check_rows(table, &files, scan.options.pictures)?;
                LabelSource::Table { table, classes: numbers(&scan, table.classes()?)? }
            }
            None => folders(&scan, &files, &makes_record, &mut odd)?,
        };
        if let LabelSource::Folders(classes) | LabelSource::Table { classes, .. } = &labels {
            odd.classes.extend(classes.keys().cloned());
        }
        let packet_tables = PacketTables::new(scan.from, &files, |path| match &makes_record {
            MakesRecord::Rows(table) => table.rows(path).len(),
            MakesRecord::Sounds => usize::from(is_sound_file(path)),
            MakesRecord::Videos => usize::from(is_video_file(path)),
            MakesRecord::Pictures | MakesRecord::Frames | MakesRecord::All => 0,
        });
        scan.meter.expect_bytes(files.iter().map(|file| file.bytes).sum());
        Ok(Self {
            scan,
            files,
            labels,
            transcripts: Transcripts::default(),
            makes_record,
            next_file: 0,
            pending: VecDeque::new(),
            number: 0,
            odd,
            has_noted_pictures: false,
            has_noted_text: false,
            packet_tables,
        })
    }

    /// Makes the next shard, and returns it with those that follow; `None` if no record is left.
    async fn next(mut self) -> Result<Option<(ScannedShard, Self)>, DatasetError> {
        Ok(self.shard().await?.map(|shard| (shard, self)))
    }

    /// Makes the next shard; `None` if no record is left.
    async fn shard(&mut self) -> Result<Option<ScannedShard>, DatasetError> {
        let mut index = FileIndexBuilder::default();
        let mut blocks = BlockCutter::new(self.scan.block_bytes).with_objects(BLOCK_FILES);
        let unwritable = |source: FormatError, number| DatasetError::Unwritable { url: shard_name(number), source };
        while index.file_count() < SHARD_FILES
            && index.record_count() < SHARD_RECORDS
            && index.table_bytes() < SHARD_TABLE_BYTES
        {
            let Some(record) = self.next_record() else { break };
            let start = index.shard_bytes();
            for (number, field) in &record.files {
                if let Some(table) = self.packet_tables.of(*number).await? {
                    index.packet_table(field, table);
                }
            }
            for row in self.rows(&record) {
                let (number, files) = (index.record_count(), index.file_count());
                self.record(&record, &row, &mut index)?.map_err(|source| unwritable(source, self.number))?;
                blocks.record_of_objects(number, start, index.shard_bytes(), 1, index.file_count() - files);
            }
        }
        if index.record_count() == 0 {
            return self.nothing();
        }
        let (records, bytes) = (index.record_count(), index.shard_bytes());
        self.scan.meter.counts().add(1, records.into(), bytes);
        self.scan.meter.report();
        let (index, index_hash) = index.finish().map_err(|source| unwritable(source, self.number))?;
        let too_long = || FormatError::Unwritable("one of its blocks has 4 GiB or more".to_owned());
        let blocks = blocks.finish().ok_or_else(|| unwritable(too_long(), self.number))?;
        let url = shard_name(self.number);
        let facts = ShardFacts { url, bytes, etag: None, records, index_bytes: index.len() as u64, index_hash };
        self.number += 1;
        let (index, odd) = (IndexFile::of(index, index_hash), std::mem::take(&mut self.odd));
        Ok(Some(ScannedShard { facts, blocks, index, odd }))
    }

    /// Ends the shards; fails if there were none.
    fn nothing(&mut self) -> Result<Option<ScannedShard>, DatasetError> {
        if self.number > 0 {
            return Ok(None);
        }
        let mut problem = "files with an extension are expected, such as `a.jpg`".to_owned();
        if let Some(words) = self.odd.left_out.in_words() {
            problem.push_str(&format!("; it contains: {words}"));
        }
        Err(DatasetError::Nothing { origin: self.scan.from.url().to_owned(), problem })
    }

    fn next_record(&mut self) -> Option<ListedRecord> {
        while self.pending.is_empty() && self.next_file < self.files.len() {
            let is_of_frames = matches!(self.makes_record, MakesRecord::Frames);
            let together = if is_of_frames { folder } else { neighbours };
            let together = together(&self.files, self.next_file);
            self.next_file = together.end;
            self.pending =
                if is_of_frames { self.video(together).into_iter().collect() } else { self.records(together).into() };
        }
        self.pending.pop_front()
    }

    /// Makes a record of the frames of a folder, if it has some, and its row if there is a table.
    fn video(&mut self, folder: Range<usize>) -> Option<ListedRecord> {
        let (files, left_out) = (&self.files, &mut self.odd.left_out);
        let ListedVideo { record, note } = video(files, folder, |path, why| left_out.add(path, why))?;
        if let LabelSource::Table { table, .. } = &self.labels
            && table.rows(folder_of(files.get(record.files[0].0).name)).is_empty()
        {
            record.files.iter().for_each(|(number, _)| left_out.add(files.get(*number).name, LeftOutReason::NoRow));
            return None;
        }
        if let Some(note) = note {
            self.odd.note(|| note);
        }
        Some(record)
    }

    fn records(&mut self, neighbours: Range<usize>) -> Vec<ListedRecord> {
        let (makes_record, transcripts, odd) = (&self.makes_record, &self.transcripts, &mut self.odd);
        let is_one = |path: &str| makes_record.is_one(path);
        let has_rows = matches!(makes_record, MakesRecord::Rows(_));
        let records = group(&self.files, neighbours, is_one, has_rows, |path, why| {
            if transcripts.has_read(path) {
                return;
            }
            let why = match why {
                LeftOutReason::NoPicture if has_rows => LeftOutReason::NoRow,
                LeftOutReason::NoPicture if matches!(makes_record, MakesRecord::Sounds) => LeftOutReason::NoSound,
                LeftOutReason::NoPicture if matches!(makes_record, MakesRecord::Videos) => LeftOutReason::NoVideo,
                LeftOutReason::NoPicture if is_unread_picture(path) => LeftOutReason::UnreadPicture,
                why => why,
            };
            odd.left_out.add(path, why);
        });
        for record in records.iter().filter(|_| !self.has_noted_pictures && !has_rows) {
            let first = self.files.get(record.files[0].0).name;
            let fields = record.files.iter().map(|(_, field)| field.as_str());
            if let Some(note) = note_of_pictures(&first[..record.key_bytes], &pictures(fields)) {
                self.has_noted_pictures = true;
                odd.note(|| note);
                break;
            }
        }
        records
    }

    /// Returns the rows that a record has: one, or of a table all those of its file.
    fn rows(&self, record: &ListedRecord) -> Vec<RecordRow> {
        let first = self.files.get(record.files[0].0).name;
        let LabelSource::Table { table, .. } = &self.labels else {
            return vec![RecordRow { row: 0, key: None, shares: false }];
        };
        let rows = match self.makes_record {
            MakesRecord::Frames => table.rows(&first[..record.key_bytes]),
            _ => table.rows(first),
        };
        let has_key = rows.len() > 1;
        let key = |row| has_key.then(|| table.key(row, &first[..record.key_bytes]));
        rows.clone().map(|row| RecordRow { row, key: key(row), shares: row > rows.start }).collect()
    }

    /// Appends a record to the index.
    fn record(
        &mut self,
        record: &ListedRecord,
        row: &RecordRow,
        index: &mut FileIndexBuilder,
    ) -> Result<Result<(), FormatError>, DatasetError> {
        let first = self.files.get(record.files[0].0);
        let key = row.key.as_deref().unwrap_or(&first.name[..record.key_bytes]);
        let mut values = self.values(first.name, key, row.row)?;
        if let MakesRecord::Frames = self.makes_record {
            values.retain(|(name, _)| record.files.iter().all(|(_, field)| field != name));
        }
        let odd = &mut self.odd;
        if !self.has_noted_text && !self.transcripts.is_empty() && self.transcripts.text(key).is_none() {
            self.has_noted_text = true;
            odd.note(|| format!("`{}` is in no file of transcripts beside it, and others may be in none", first.name));
        }
        // A value replaces a file of the same field, because the caller gave the value.
        let is_taken = |field: &str| values.iter().any(|(name, _)| name == field);
        let (mut files, mut fields) = (Vec::new(), Vec::new());
        for (number, field) in &record.files {
            let file = self.files.get(*number);
            if is_taken(field) {
                odd.left_out.add(file.name, LeftOutReason::FieldTaken);
                continue;
            }
            if file.bytes == 0 {
                odd.empty_fields += 1;
                odd.note(|| format!("file `{}` is empty", file.name));
            }
            // The files of a list are one field.
            if fields.last() != Some(field) {
                odd.field(field);
                fields.push(field.clone());
            }
            let etag = file.etag.map(str::to_owned).and_then(|etag| self.scan.from.lasting_etag(Some(etag)));
            files.push((field.as_str(), file, etag));
        }
        let (number, field) = &record.files[0];
        if files.is_empty() || (row.key.is_some() && is_taken(field)) {
            // A record needs the file that makes it, so this file stays, and the value is dropped.
            let file = self.files.get(*number);
            values.retain(|(name, _)| name != field);
            let etag = self.scan.from.lasting_etag(file.etag.map(str::to_owned));
            odd.field(field);
            fields.insert(0, field.clone());
            files.insert(0, (field.as_str(), file, etag));
        }
        for (name, _) in &values {
            odd.field(name);
            fields.push(name.clone());
        }
        odd.end(Outline { key: key.to_owned(), fields });
        let files = files.iter().map(|(field, file, etag)| {
            let mut file = *file;
            file.etag = etag.as_deref();
            (*field, file)
        });
        let texts = values.iter().map(|(name, value)| (&**name, &**value));
        Ok(match &row.key {
            None => index.record(record.key_bytes, files, texts),
            Some(key) if row.shares => {
                let is_taken = |field: &str| values.iter().any(|(name, _)| name == field);
                index.record_sharing(key, is_taken, texts)
            }
            Some(key) => index.record_called(key, files, texts),
        })
    }

    /// Returns the values of the record with this key that the file at `path` makes, with a table those of row `row`.
    fn values(&self, path: &str, key: &str, row: usize) -> Result<RowFields, DatasetError> {
        let mut values = match &self.labels {
            LabelSource::None => Vec::new(),
            LabelSource::Folders(classes) => {
                let (folder, _) = path.split_once('/').expect("every file that makes a record lies in a folder");
                vec![(LABEL_FIELD.to_owned(), classes[folder].clone())]
            }
            LabelSource::Table { table, classes } => table.values(row, classes)?,
        };
        if let Some(text) = self.transcripts.text(key) {
            values.push((TEXT_FIELD.to_owned(), text.to_owned()));
        }
        Ok(values)
    }
}

/// A record of a file, of which there are several if rows of a table say where each begins.
struct RecordRow {
    /// Number of its row in the table.
    row: usize,
    /// Its key, if that is not the file's path without its ending.
    key: Option<String>,
    /// Whether its files are those of the record before it.
    shares: bool,
}

/// Returns why a file can be in no record, whatever its neighbours.
fn left_out(path: &str, bytes: u64) -> Option<LeftOutReason> {
    if !is_relative_path(path) {
        return Some(LeftOutReason::BadName);
    }
    if u32::try_from(bytes).is_err() {
        return Some(LeftOutReason::TooLarge);
    }
    (!has_field(path)).then_some(LeftOutReason::NoField)
}

/// Checks that every row of the table has its file in the folder, or its folder of frames.
fn check_rows(table: &FileTable, files: &Listing, pictures: FolderPictures) -> Result<(), DatasetError> {
    let is_of_frames = pictures == FolderPictures::Frames;
    for (row, path) in table.files().enumerate().filter(|_| is_of_frames) {
        let folder = format!("{path}/");
        if files.find_by(|name| name[..name_at(name)].cmp(&folder)).is_none() {
            return Err(
                table.error(row, &format!("names `{path}`, which is no folder of frames in the dataset's folder"))
            );
        }
        if table.rows(path).len() > 1 {
            return Err(
                table.error(row, &format!("names `{path}`, as another row does: a folder of frames is one sample"))
            );
        }
    }
    for (row, path) in table.files().enumerate().filter(|_| !is_of_frames) {
        if files.find_by(|name| by_folder(name, path)).is_none() {
            return Err(table.error(
                row,
                &format!("names `{path}`, which is not in the dataset's folder, is hidden or has no extension"),
            ));
        }
    }
    Ok(())
}

/// Returns the labels that folders give: the class of a file is the first folder of its path. If a file that makes a
/// record lies in no folder, there are no labels.
fn folders<'s>(
    scan: &Scan<'_>,
    files: &Listing,
    makes_record: &MakesRecord<'_>,
    odd: &mut DatasetOddities,
) -> Result<LabelSource<'s>, DatasetError> {
    let mut found: BTreeSet<String> = BTreeSet::new();
    for file in files.iter().filter(|file| makes_record.is_one(file.name)) {
        // The folder of frames is the sample.
        let sample = if let MakesRecord::Frames = makes_record { folder_of(file.name) } else { file.name };
        let Some((folder, _)) = sample.split_once('/') else {
            odd.note(|| format!("no labels: `{sample}` lies in no folder"));
            return Ok(LabelSource::None);
        };
        if !found.contains(folder) {
            found.insert(folder.to_owned());
        }
    }
    if scan.classes.is_empty() && scan.options.splits == Splits::One {
        refuse_as_classes(scan.from.url(), found.iter().map(String::as_str))?;
    }
    Ok(LabelSource::Folders(numbers(scan, found)?))
}

/// Returns the numbers of classes, as decimal text: the fixed ones first, then the `others` in their order.
pub(in crate::format) fn numbers(
    scan: &Scan<'_>,
    others: BTreeSet<String>,
) -> Result<BTreeMap<String, String>, DatasetError> {
    let mut others: Vec<String> = others.into_iter().filter(|class| !scan.classes.contains(class)).collect();
    scan.options.classes.sort(&mut others)?;
    let classes = scan.classes.iter().cloned().chain(others);
    Ok(classes.zip(0_u32..).map(|(class, number)| (class, number.to_string())).collect())
}
