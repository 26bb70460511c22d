//! Writes the records of a dataset back as files.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use serde::Serialize;
use spdl_pipeline::{Op, PipelinePlan};
use spdl_shard::{format::RecordKey, manifest::Manifest, store::DatasetStore};

use super::{
    DatasetError, DatasetProgress,
    crop_ready::without_markers,
    cut::{FieldBatch, FoundField, ShardEnd},
    fields::{FieldSource, READ},
    parts::{IndexedField, MAX_WHOLE_BYTES, WantedContent, WantedOf},
    progress::progress_of,
    scalable::{is_scalable, original},
    source::{may_be_picture, wrong},
    stages::{Memory, RunningStages, cpu_threads},
};

/// Number of written batches that may be ready to be counted.
const BATCHES_READY: usize = 4;
/// Number of batches whose files are written at once.
const WRITES_AT_ONCE: usize = 4;

/// The report about an unpacked dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnpackReport {
    /// The folder.
    pub target: String,
    /// Number of records whose fields were written.
    pub records: u64,
    /// Number of files, one for each field.
    pub files: u64,
    /// Number of crop-ready pictures among them, whose restart markers were removed again.
    pub pictures_without_markers: u64,
    /// Number of scalable pictures among them, which became the JPEGs that were packed.
    pub restored_pictures: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// A file to write, or a piece of a long one.
struct UnpackedFile {
    path: String,
    record: String,
    content: Bytes,
    /// Where in the file the content belongs.
    at: u64,
    is_last: bool,
    /// The file that pieces are written to, once it is created.
    file: Option<Arc<File>>,
    /// How the field differed from the file.
    was: FieldWas,
}

/// How a field differs from its file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldWas {
    Same,
    /// A picture that was made crop-ready, and whose restart markers were removed again.
    CropReady,
    Scalable,
}

/// Writes every field of every record of the dataset in `from` to the file `KEY.FIELD` in the folder `target`, which is
/// created if it does not exist, and has to be empty. Every field's checksum is checked.
/// Crop-ready pictures are written without their restart markers: they have the same coefficients, and mostly also the
/// bytes that were packed if the original had no markers. Scalable pictures become the files that were packed, bit for bit.
///
/// Files are written to a folder inside `target` and moved when all are complete: a failed call leaves nothing behind.
///
/// # Errors
/// If the folder is not empty, a field is damaged, a key leads out of the folder, two records have the same key, or
/// something cannot be read or written.
pub async fn unpack(
    from: &DatasetStore,
    target: &Path,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
) -> Result<UnpackReport, DatasetError> {
    unpack_until(from, target, progress, std::future::pending()).await
}

/// Unpacks like [`unpack`], but stops when `stop` is ready.
///
/// # Errors
/// As for [`unpack`], and [`DatasetError::Stopped`].
pub async fn unpack_until(
    from: &DatasetStore,
    target: &Path,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
    stop: impl Future<Output = ()>,
) -> Result<UnpackReport, DatasetError> {
    let manifest = Arc::new(from.manifest().await?);
    let from = from.shards(&manifest)?;
    let staging = Staging::make(target)?;
    match all(&from, &manifest, &staging, progress, stop).await {
        Ok(report) => {
            staging.publish()?;
            Ok(UnpackReport { target: target.display().to_string(), ..report })
        }
        Err(error) => {
            staging.remove();
            Err(error)
        }
    }
}

/// Writes all files to the staging folder. When it returns, no thread writes there any more.
async fn all(
    from: &DatasetStore,
    manifest: &Arc<Manifest>,
    staging: &Staging,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
    stop: impl Future<Output = ()>,
) -> Result<UnpackReport, DatasetError> {
    let total_bytes = manifest.shards().map(|shard| shard.bytes).sum();
    let mut batches = RunningStages::start(stages(from, manifest, staging))?;
    let (mut report, mut shards) = (UnpackReport::default(), 0);
    let writing = async {
        loop {
            let records = report.records;
            let batch = batches.next(|stats| progress(progress_of(stats, READ, total_bytes, shards, records))).await?;
            let Some((batch, is_end_of_shard)) = batch else { return Ok(report) };
            report.add(&batch);
            shards += u64::from(is_end_of_shard);
        }
    };
    let done = tokio::select! {
        biased;
        () = stop => Err(DatasetError::Stopped { url: staging.target.display().to_string() }),
        done = writing => done,
    };
    batches.stop().await;
    done
}

/// Returns the stages that read the dataset and write its files. They report what they wrote for each batch of fields, and
/// whether it was the last one of its shard.
fn stages(from: &DatasetStore, manifest: &Arc<Manifest>, staging: &Staging) -> PipelinePlan<(UnpackReport, bool)> {
    let (store, folder) = (from.clone(), staging.folder.clone());
    // A picture is in memory twice while its markers are removed, or while it is restored. Only its content shows whether
    // it is scalable.
    let wanted: Arc<WantedOf> = Arc::new(|_, field, segments| {
        if segments.is_some() || may_be_picture(field) { WantedContent::Whole } else { WantedContent::Pieces }
    });
    let source = FieldSource { store: from.clone(), manifest: Arc::clone(manifest), wanted, memory_factor: 2 };
    let files = move |batch| UnpackedBatch::of(&store, batch);
    let (creating, open) = (folder.clone(), Mutex::new(None));
    let create =
        move |batch: UnpackedBatch| batch.create(&creating, &mut open.lock().expect("creating a file does not panic"));
    let write = move |batch: UnpackedBatch| batch.write(&folder);
    source
        .stages()
        .pipe("files", Op::cpu(files), cpu_threads())
        .pipe("create", Op::blocking(create), 1)
        .pipe("write", Op::blocking(write), WRITES_AT_ONCE)
        .sink(BATCHES_READY)
}

/// The folder inside the target that files are written to.
struct Staging {
    target: PathBuf,
    folder: PathBuf,
    /// Folders that were created for the target, the outermost first.
    made: Vec<PathBuf>,
}

impl Staging {
    fn make(target: &Path) -> Result<Self, DatasetError> {
        let missing = target.ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
        let mut made: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        made.reverse();
        fs::create_dir_all(target).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => wrong(target, "is not a folder"),
            _ => wrong(target, &format!("cannot be made: {error}")),
        })?;
        let mut entries = fs::read_dir(target).map_err(|error| wrong(target, &format!("cannot be read: {error}")))?;
        if entries.next().is_some() {
            return Err(DatasetError::NotEmpty { path: target.display().to_string() });
        }
        let folder = target.join(format!(".unpacking-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| wrong(&folder, &format!("cannot be made: {error}")))?;
        Ok(Self { target: target.to_owned(), folder, made })
    }

    /// Moves everything to the target.
    fn publish(&self) -> Result<(), DatasetError> {
        let fail = |error: std::io::Error| wrong(&self.target, &format!("cannot be written: {error}"));
        for entry in fs::read_dir(&self.folder).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            fs::rename(entry.path(), self.target.join(entry.file_name())).map_err(fail)?;
        }
        fs::remove_dir(&self.folder).map_err(fail)
    }

    /// Restores the target to its previous state. The first error is the one to report.
    fn remove(&self) {
        let _ = fs::remove_dir_all(&self.folder);
        // Only empty folders are removed: what another process has put there stays.
        for folder in self.made.iter().rev() {
            let _ = fs::remove_dir(folder);
        }
    }
}

impl UnpackReport {
    fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.files += other.files;
        self.pictures_without_markers += other.pictures_without_markers;
        self.restored_pictures += other.restored_pictures;
        self.bytes += other.bytes;
    }
}

/// The files of a batch of fields.
struct UnpackedBatch {
    files: Vec<UnpackedFile>,
    /// Number of records that end with the batch: those of its shard, if it is the last one.
    records: u64,
    is_end_of_shard: bool,
    /// Memory that is held until the files are written.
    _memory: Arc<Memory>,
}

impl UnpackedBatch {
    /// Makes the files of a batch, without restart markers.
    fn of(from: &DatasetStore, batch: FieldBatch) -> Result<Self, DatasetError> {
        let shard = &*batch.shard;
        let damaged = |record: RecordKey<'_>, problem: String| DatasetError::Damaged {
            url: from.url_of(shard.shard().url),
            record: record.to_string(),
            problem,
        };
        let mut files = Vec::new();
        for found in batch.fields {
            let indexed = shard.field(found.place);
            files.extend(field_files(&indexed, found).map_err(|problem| damaged(indexed.key, problem))?);
        }
        let (is_end_of_shard, mut records) = (batch.end.is_some(), 0);
        if let Some(ShardEnd { bytes, rest, .. }) = batch.end {
            if let Some(place) = rest?.first() {
                let IndexedField { key, field, .. } = shard.field(*place);
                return Err(damaged(key, format!("field `{}` is cut off: the shard ends at {bytes}", field.name)));
            }
            records = shard.index().record_count().into();
        }
        Ok(Self { files, records, is_end_of_shard, _memory: batch.memory })
    }

    /// Creates the files whose first piece is in this batch. `open` is the file of the last piece before.
    fn create(mut self, folder: &Path, open: &mut Option<Arc<File>>) -> Result<Self, DatasetError> {
        for piece in self.files.iter_mut().filter(|file| !file.is_whole()) {
            if piece.at == 0 {
                *open = Some(Arc::new(piece.create(folder)?));
            }
            piece.file = open.clone();
        }
        Ok(self)
    }

    fn write(self, folder: &Path) -> Result<(UnpackReport, bool), DatasetError> {
        let mut report = UnpackReport { records: self.records, ..UnpackReport::default() };
        for file in self.files {
            file.write(folder)?;
            report.files += u64::from(file.is_last);
            report.pictures_without_markers += u64::from(file.was == FieldWas::CropReady);
            report.restored_pictures += u64::from(file.was == FieldWas::Scalable);
            report.bytes += file.content.len() as u64;
        }
        Ok((report, self.is_end_of_shard))
    }
}

/// Returns the files of a field, or what is wrong with it: one file, or one for each value of a list that is not null.
fn field_files(indexed: &IndexedField<'_>, mut found: FoundField) -> Result<Vec<UnpackedFile>, String> {
    let IndexedField { key, field, .. } = indexed;
    if let Some(problem) = found.problem {
        return Err(problem);
    }
    // A field of a record can have the name `image/encoded`, and is no folder.
    let path = format!("{key}.{}", field.name.replace('/', "."));
    let Some(path) = path_inside(&path) else {
        return Err(format!("`{}` is not the name of a file inside a folder", path.escape_debug()));
    };
    let Some(files) = found.list.take() else { return Ok(vec![file(indexed, found, path)?]) };
    let numbered = files.into_iter().enumerate().filter_map(|(number, content)| Some((number, content?)));
    let numbered = numbered.map(|(number, content)| {
        let (path, record) = (format!("{path}.{number}"), key.to_string());
        let (content, was) = restored(content).map_err(|problem| format!("field `{}` {problem}", field.name))?;
        Ok(UnpackedFile { path, record, content, at: 0, is_last: true, file: None, was })
    });
    numbered.collect()
}

/// Returns the file of a field that is no list, or what is wrong with it.
fn file(indexed: &IndexedField<'_>, found: FoundField, path: String) -> Result<UnpackedFile, String> {
    let IndexedField { key, field, segments } = indexed;
    if segments.is_some() && u64::from(field.bytes) > MAX_WHOLE_BYTES {
        let mib = MAX_WHOLE_BYTES >> 20;
        return Err(format!(
            "field `{}` is a crop-ready picture of more than {mib} MiB, which `pack` does not make",
            field.name
        ));
    }
    let (at, is_last, is_whole) = (found.at.into(), found.is_last, found.is_whole());
    let content = found.content.expect("all fields are wanted");
    let plain = segments.as_ref().filter(|_| is_whole).and_then(|_| without_markers(&content));
    let (content, was) = match plain {
        Some(plain) => (plain.into(), FieldWas::CropReady),
        None if is_whole => restored(content).map_err(|problem| format!("field `{}` {problem}", field.name))?,
        None => (content, FieldWas::Same),
    };
    Ok(UnpackedFile { path, record: key.to_string(), content, at, is_last, file: None, was })
}

/// Returns the file that a field was made of, or what is wrong with it.
fn restored(content: Bytes) -> Result<(Bytes, FieldWas), String> {
    if !is_scalable(&content) {
        return Ok((content, FieldWas::Same));
    }
    let file = original(&content).map_err(|error| format!("is a scalable picture that is not restored: {error}"))?;
    Ok((file.into_owned().into(), FieldWas::Scalable))
}

/// Returns the path without empty and `.` parts, as `tar` itself takes `./a//b.jpg` for `a/b.jpg`; `None` if the path
/// leads out of the folder or is empty.
fn path_inside(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let is_inside = !path.starts_with('/') && !path.contains('\0') && !parts.contains(&"..");
    (is_inside && !parts.is_empty()).then(|| parts.join("/"))
}

impl UnpackedFile {
    const fn is_whole(&self) -> bool {
        self.at == 0 && self.is_last
    }

    fn create(&self, folder: &Path) -> Result<File, DatasetError> {
        let path = folder.join(&self.path);
        let create = || OpenOptions::new().write(true).create_new(true).open(&path);
        let created = create().or_else(|error| match error.kind() {
            ErrorKind::NotFound => {
                fs::create_dir_all(path.parent().expect("a file in a folder"))?;
                create()
            }
            _ => Err(error),
        });
        created.map_err(|error| self.failed(&error))
    }

    fn write(&self, folder: &Path) -> Result<(), DatasetError> {
        let written = match &self.file {
            Some(file) => file.write_all_at(&self.content, self.at),
            None => self.create(folder)?.write_all(&self.content),
        };
        written.map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> DatasetError {
        let problem = match error.kind() {
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => {
                format!("exists already: record `{}` has the name of another one", self.record)
            }
            _ => format!("cannot be written: {error}"),
        };
        wrong(Path::new(&self.path), &problem)
    }
}
