//! Writes the records of a dataset back as files.

use std::{
    fs::{self, OpenOptions},
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use serde::Serialize;
use tokio::sync::Semaphore;

use super::{
    DatasetError, DatasetProgress,
    crop_ready::without_markers,
    fields::{FoundField, ShardFields},
    report::Meter,
    source::wrong,
};
use crate::{
    manifest::Manifest,
    store::{DatasetStore, StoreError},
};

/// Number of shards that are read at once. Each uses 32 MiB of memory.
const SHARDS_AT_ONCE: usize = 4;

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
    /// Bytes of all files.
    pub bytes: u64,
}

/// A file to write.
struct UnpackedFile {
    path: String,
    record: String,
    content: Bytes,
    /// Whether it is a picture that was made crop-ready.
    is_crop_ready: bool,
}

/// Writes every field of every record of the dataset in `from` to the file `KEY.FIELD` in the folder `target`, which is
/// created if it does not exist, and has to be empty. Every field's checksum is checked before the field is written.
/// Crop-ready pictures are written without their restart markers: they have the same coefficients, and mostly also the
/// bytes that were packed if the original had no markers.
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
    let manifest = from.manifest().await?;
    let staging = Staging::make(target)?;
    let writers = Arc::new(Semaphore::new(SHARDS_AT_ONCE));
    let done = tokio::select! {
        biased;
        () = stop => Err(DatasetError::Stopped { url: target.display().to_string() }),
        done = all(from, &manifest, &staging, &writers, progress) => done,
    };
    // Another thread finishes the writes that it was given, and their files must not appear after the cleanup.
    let _all = writers.acquire_many(SHARDS_AT_ONCE as u32).await.expect("it is never closed");
    match done {
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

async fn all(
    from: &DatasetStore,
    manifest: &Manifest,
    staging: &Staging,
    writers: &Arc<Semaphore>,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
) -> Result<UnpackReport, DatasetError> {
    let meter = Meter::new(manifest.shards().map(|shard| shard.bytes).sum(), progress);
    let mut report = UnpackReport::default();
    let unpacking = Unpacking { from, manifest, folder: staging.folder.as_path().into(), writers, meter };
    let mut shards = std::pin::pin!(
        stream::iter(0..manifest.shard_count()).map(|number| unpacking.shard(number)).buffer_unordered(SHARDS_AT_ONCE)
    );
    while let Some(shard) = shards.try_next().await? {
        report.add(&shard);
    }
    Ok(report)
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
        self.bytes += other.bytes;
    }
}

/// The state of an unpacking run.
struct Unpacking<'u> {
    from: &'u DatasetStore,
    manifest: &'u Manifest,
    folder: Arc<Path>,
    /// One permit for each thread that writes.
    writers: &'u Arc<Semaphore>,
    meter: Meter<'u>,
}

impl Unpacking<'_> {
    async fn shard(&self, number: u32) -> Result<UnpackReport, DatasetError> {
        let (from, shard) = (self.from, self.manifest.shard(number));
        let damaged = |record: &str, problem: String| DatasetError::Damaged {
            url: from.url_of(shard.url),
            record: record.into(),
            problem,
        };
        let index = from.index(&shard).await?;
        let object = match shard.format.object(&shard) {
            Some(object) => {
                let meta = from.object().head(&from.path_of(&object.url)).await;
                Some(meta.map_err(|source| StoreError::of(&from.url_of(shard.url), source))?)
            }
            None => None,
        };
        let mut fields = ShardFields::read(from, shard, &*index, object, Box::new(|_, _, _| true));
        let mut done = UnpackReport { records: u64::from(index.record_count()), ..UnpackReport::default() };
        while let Some((found, bytes)) = fields.next().await? {
            let files = found.into_iter();
            let files = files.map(|found| file(found).map_err(|(record, problem)| damaged(record, problem)));
            let files: Vec<UnpackedFile> = files.collect::<Result<_, _>>()?;
            let folder = Arc::clone(&self.folder);
            let permit = Arc::clone(self.writers).acquire_owned().await.expect("it is never closed");
            let writing = tokio::task::spawn_blocking(move || {
                let _permit = permit;
                write_all(&folder, &files)
            });
            done.add(&writing.await.expect("writing does not panic")?);
            self.meter.add(0, 0, bytes);
        }
        let bytes = fields.bytes();
        if let Some((key, field)) = fields.rest().next() {
            return Err(damaged(key, format!("field `{}` is cut off: the shard ends at {bytes}", field.name)));
        }
        self.meter.add(1, done.records, 0);
        Ok(done)
    }
}

fn file(found: FoundField<'_>) -> Result<UnpackedFile, (&str, String)> {
    let FoundField { key, field, segments, problem, content } = found;
    if let Some(problem) = problem {
        return Err((key, problem));
    }
    let path = format!("{key}.{}", field.name);
    let Some(path) = path_inside(&path).filter(|_| !field.name.contains('/')) else {
        return Err((key, format!("`{}` is not the name of a file inside a folder", path.escape_debug())));
    };
    let content = content.expect("all fields are wanted");
    Ok(UnpackedFile { path, record: key.to_owned(), content, is_crop_ready: segments.is_some() })
}

/// Returns the path without empty and `.` parts, as `tar` itself takes `./a//b.jpg` for `a/b.jpg`; `None` if the path
/// leads out of the folder or is empty.
fn path_inside(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    let is_inside = !path.starts_with('/') && !path.contains('\0') && !parts.contains(&"..");
    (is_inside && !parts.is_empty()).then(|| parts.join("/"))
}

fn write_all(target: &Path, files: &[UnpackedFile]) -> Result<UnpackReport, DatasetError> {
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

fn write(target: &Path, file: &UnpackedFile, content: &[u8]) -> Result<(), DatasetError> {
    let (path, shown) = (target.join(&file.path), Path::new(&file.path));
    let fail = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => {
            wrong(shown, &format!("exists already: record `{}` has the name of another one", file.record))
        }
        _ => wrong(shown, &format!("cannot be written: {error}")),
    };
    fs::create_dir_all(path.parent().expect("a file in a folder")).map_err(fail)?;
    let mut out = OpenOptions::new().write(true).create_new(true).open(&path).map_err(fail)?;
    out.write_all(content).map_err(fail)
}
