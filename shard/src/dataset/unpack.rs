//! Writing the records of a dataset back as files.

use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write as _},
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use serde::Serialize;

use super::{
    DatasetError, Progress,
    crop_ready::without_markers,
    fields::{FieldReader, FoundField},
    report::Meter,
    source::wrong,
};
use crate::{
    manifest::{Manifest, is_relative_path},
    store::{DatasetStore, StoreError},
};

/// Shards that are read at once. Raised, more memory is used, 32 MiB each.
const SHARDS_AT_ONCE: usize = 4;

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnpackReport {
    /// The folder.
    pub target: String,
    /// Records whose fields are there.
    pub records: u64,
    /// Files, one for each field.
    pub files: u64,
    /// Crop-ready pictures among them, whose restart markers were taken out again.
    pub pictures_without_markers: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// A file to write.
struct File {
    path: String,
    record: String,
    content: Bytes,
    /// Whether it is a picture that was made crop-ready.
    is_crop_ready: bool,
}

/// Writes every field of every record of the dataset in `from` to the file `KEY.FIELD` in the folder `target`, which is
/// made, or is there and empty. Every field's checksum is checked before it is written. Crop-ready pictures are written
/// without their restart markers: with the same coefficients, and, where it had none before, mostly the bytes that were packed.
///
/// # Errors
/// If there is something in the folder already, a field is damaged, a key leads out of the folder, two records have the
/// same key, or something cannot be read or written. What was written by then stays.
pub async fn unpack(
    from: &DatasetStore,
    target: &Path,
    progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<UnpackReport, DatasetError> {
    let manifest = from.manifest().await?;
    make_empty(target)?;
    let meter = Meter::new(manifest.shards().map(|shard| shard.bytes).sum(), progress);
    let target: Arc<Path> = target.into();
    let mut report = UnpackReport { target: target.display().to_string(), ..UnpackReport::default() };
    let mut shards = std::pin::pin!(
        stream::iter(0..manifest.shard_count())
            .map(|number| unpack_shard(from, &manifest, number, &target, &meter))
            .buffer_unordered(SHARDS_AT_ONCE)
    );
    while let Some(shard) = shards.try_next().await? {
        report.add(&shard);
    }
    Ok(report)
}

fn make_empty(target: &Path) -> Result<(), DatasetError> {
    fs::create_dir_all(target).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => wrong(target, "is not a folder"),
        _ => wrong(target, &format!("cannot be made: {error}")),
    })?;
    let mut entries = fs::read_dir(target).map_err(|error| wrong(target, &format!("cannot be read: {error}")))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(DatasetError::NotEmpty { path: target.display().to_string() }),
    }
}

impl UnpackReport {
    fn add(&mut self, other: &Self) {
        self.records += other.records;
        self.files += other.files;
        self.pictures_without_markers += other.pictures_without_markers;
        self.bytes += other.bytes;
    }
}

async fn unpack_shard(
    from: &DatasetStore,
    manifest: &Manifest,
    number: u32,
    target: &Arc<Path>,
    meter: &Meter<'_>,
) -> Result<UnpackReport, DatasetError> {
    let shard = manifest.shard(number);
    let damaged = |record: &str, problem: String| DatasetError::Damaged {
        url: from.url_of(shard.url),
        record: record.into(),
        problem,
    };
    let index = from.index(&shard).await?;
    let meta = from.object().head(&from.shard_path(&shard)).await;
    let meta = meta.map_err(|source| StoreError::of(&from.url_of(shard.url), source))?;
    let mut reader = FieldReader::new(&index);
    let mut done = UnpackReport { records: u64::from(index.record_count()), ..UnpackReport::default() };
    let mut chunks = std::pin::pin!(from.stream(shard.url, meta));
    while let Some(chunk) = chunks.try_next().await? {
        let found = reader.read(&chunk, |_, _, _| true).into_iter();
        let files = found.map(|found| file(found).map_err(|(record, problem)| damaged(record, problem)));
        let files: Vec<File> = files.collect::<Result<_, _>>()?;
        let target = Arc::clone(target);
        let writing = tokio::task::spawn_blocking(move || write_all(&target, &files));
        done.add(&writing.await.expect("writing does not panic")?);
        meter.add(0, 0, chunk.len() as u64);
    }
    let bytes = reader.bytes();
    if let Some((key, field, _)) = reader.rest().next() {
        return Err(damaged(key, format!("field `{}` is cut off: the shard ends at {bytes}", field.name)));
    }
    meter.add(1, done.records, 0);
    Ok(done)
}

fn file(found: FoundField<'_>) -> Result<File, (&str, String)> {
    let FoundField { key, field, segments, crc32c, content } = found;
    if crc32c != field.crc32c {
        let problem = format!("field `{}` at byte {} has other bytes than were indexed", field.name, field.offset);
        return Err((key, problem));
    }
    let path = format!("{key}.{}", field.name);
    if !is_relative_path(&path) || field.name.contains('/') {
        return Err((key, format!("`{}` is not the name of a file inside a folder", path.escape_debug())));
    }
    let content = content.expect("all fields are wanted");
    Ok(File { path, record: key.to_owned(), content, is_crop_ready: segments.is_some() })
}

fn write_all(target: &Path, files: &[File]) -> Result<UnpackReport, DatasetError> {
    let mut done = UnpackReport { files: files.len() as u64, ..UnpackReport::default() };
    for file in files {
        let plain = if file.is_crop_ready { without_markers(&file.content) } else { None };
        done.pictures_without_markers += u64::from(plain.is_some());
        let content = plain.as_deref().unwrap_or(&file.content);
        done.bytes += content.len() as u64;
        write(target, file, content)?;
    }
    Ok(done)
}

fn write(target: &Path, file: &File, content: &[u8]) -> Result<(), DatasetError> {
    let path = target.join(&file.path);
    let fail = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => {
            wrong(&path, &format!("exists already: record `{}` has the name of another one", file.record))
        }
        _ => wrong(&path, &format!("cannot be written: {error}")),
    };
    fs::create_dir_all(path.parent().expect("a file in a folder")).map_err(fail)?;
    let mut out = OpenOptions::new().write(true).create_new(true).open(&path).map_err(fail)?;
    out.write_all(content).map_err(fail)
}
