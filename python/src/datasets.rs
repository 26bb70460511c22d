//! Datasets that Python makes: packed, indexed and merged as `spdl-ctl` does it, or written sample by sample.

use std::{
    path::PathBuf,
    pin::Pin,
    str::FromStr,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use pyo3::{prelude::*, pybacked::PyBackedBytes};
use serde::Serialize;
use spdl_shard::{
    dataset::{
        Annotations, ClassOrder, DatasetError, DatasetProgress, DatasetWriter, FieldChoice, IndexOptions, Jpegs,
        NewFolders, NewRecord, OldMetadata, Overwrite, PackOptions, PackOrder, PackPart, PackSource, ShardList, Splits,
        WriteOptions, index_until, merge, pack_part_until, pack_until,
    },
    format::{files::FileTable, format_called, format_names},
    store::{DatasetStore, StoreError, StoreOptions},
    tar::KeyEnd,
};
use spdl_types::size::parse_bytes;
use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
    time::timeout,
};

use crate::errors::ErrorKind;

/// Time between two looks at signals and progress.
const LOOK: Duration = Duration::from_millis(100);
/// How long work that was interrupted gets to remove what it wrote.
const END: Duration = Duration::from_secs(5);

/// How far work is: `(shards, records, bytes, total records, total bytes)`.
type Progress = (u64, u64, u64, Option<u64>, Option<u64>);

/// A number of bytes: an int, or a text as `"256MiB"`.
pub(crate) struct ByteSize(u64);

impl<'py> FromPyObject<'_, 'py> for ByteSize {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = object.extract::<String>() {
            let wrong =
                |problem: String| ErrorKind::Setting.error(object.py(), &format!("size `{text}`: {problem}"), None);
            return parse_bytes(&text).map(Self).map_err(wrong);
        }
        object.extract().map(Self).map_err(|_| {
            let problem = format!("size `{}`: write a number of bytes, or a text such as `256MiB`", object.as_any());
            ErrorKind::Setting.error(object.py(), &problem, None)
        })
    }
}

/// Returns how classes are numbered: by what, and its names.
async fn class_order(given: Option<(String, Vec<String>)>) -> Result<ClassOrder, DatasetError> {
    Ok(match given.as_ref().map(|(by, names)| (by.as_str(), names.as_slice())) {
        Some(("numeric", _)) => ClassOrder::Numeric,
        Some(("file", [file])) => ClassOrder::of_file(file.as_ref())?,
        Some(("dataset", [dataset])) => ClassOrder::of_dataset(&DatasetStore::open(dataset)?).await?,
        Some((_, names)) => ClassOrder::Given(names.to_vec()),
        None => ClassOrder::ByName,
    })
}

/// Packs a source and returns the report as JSON. Takes what `spdl-ctl pack` takes.
#[pyfunction]
#[pyo3(signature = (source, dataset, *, name, fields, annotations, annotations_beside, classes, all_splits, seed, no_shuffle, shard_size,
    records_per_shard, block_size, crop_ready, scalable, force, part, on_progress))]
#[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "keyword arguments of Python")]
pub(crate) fn pack(
    py: Python<'_>,
    source: PathBuf,
    dataset: String,
    name: Option<String>,
    fields: Option<String>,
    annotations: Option<PathBuf>,
    annotations_beside: bool,
    classes: Option<(String, Vec<String>)>,
    all_splits: bool,
    seed: u64,
    no_shuffle: bool,
    shard_size: ByteSize,
    records_per_shard: Option<u32>,
    block_size: ByteSize,
    crop_ready: bool,
    scalable: bool,
    force: bool,
    part: Option<String>,
    on_progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let setting = |problem: String| ErrorKind::Setting.error(py, &problem, None);
    if annotations.is_some() && annotations_beside {
        return Err(setting("`annotations` and `annotations_beside` are both given".to_owned()));
    }
    if part.is_some() && force {
        return Err(setting("`part` and `force` are both given: a part replaces nothing".to_owned()));
    }
    let part =
        part.map(|part| PackPart::from_str(&part).map_err(|problem| setting(format!("`part` is `{part}`: {problem}"))));
    let part = part.transpose()?;
    let of_store = |error: StoreError| of_dataset(py, &error.into());
    let elsewhere = annotations.map(|folder| Annotations::under(&folder)).transpose().map_err(of_store)?;
    let options = PackOptions {
        name,
        fields: fields.as_deref().map(FieldChoice::parse).transpose().map_err(|error| of_dataset(py, &error))?,
        annotations: elsewhere.or(annotations_beside.then_some(Annotations::Beside)),
        all_splits,
        order: if no_shuffle { PackOrder::AsListed } else { PackOrder::Shuffled { seed } },
        shard_bytes: shard_size.0,
        shard_records: records_per_shard,
        block_bytes: block_size.0,
        jpegs: jpegs(crop_ready, scalable).map_err(|problem| setting(problem.to_owned()))?,
        overwrite: overwrite(force),
        ..PackOptions::new(PackSource::open(&source).map_err(of_store)?)
    };
    run(py, on_progress, async move |stop, progress| {
        let folders = NewFolders::of(&dataset);
        let options = PackOptions { classes: class_order(classes).await?, ..options };
        let store = DatasetStore::create_with(&dataset, &StoreOptions::from_env())?;
        if let Some(part) = part {
            return Ok(json(&pack_part_until(&store, &options, part, &*progress, stop).await?));
        }
        let packed = pack_until(&store, &options, &*progress, stop).await;
        if packed.is_err() {
            folders.remove_empty();
        }
        Ok(json(&packed?))
    })
}

/// Makes a manifest for what is in a folder, and returns the report as JSON. Takes what `spdl-ctl index` takes.
#[pyfunction]
#[pyo3(signature = (dataset, *, format, table, out, shards, split, all_splits, name, boxes, key_ends_at, classes, block_size, skip_bad_shards, force, discard_metadata, on_progress))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn index(
    py: Python<'_>,
    dataset: String,
    format: Option<String>,
    table: Option<PathBuf>,
    out: Option<String>,
    shards: Option<Vec<String>>,
    split: Option<String>,
    all_splits: bool,
    name: Option<String>,
    boxes: Option<String>,
    key_ends_at: Option<String>,
    classes: Option<(String, Vec<String>)>,
    block_size: Option<ByteSize>,
    skip_bad_shards: u32,
    force: bool,
    discard_metadata: bool,
    on_progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let setting = |problem: &str| ErrorKind::Setting.error(py, problem, None);
    if discard_metadata && !force {
        return Err(setting("`discard_metadata` is for a manifest that is replaced: give `force=True`, too"));
    }
    let called = |name: &str| {
        let known = || format_names().collect::<Vec<_>>().join(", ");
        format_called(name).ok_or_else(|| setting(&format!("`format` is `{name}`; known are: {}", known())))
    };
    let table = table.as_deref().map(FileTable::read).transpose().map_err(|error| of_dataset(py, &error))?;
    let format = match &format {
        Some(name) => Some(called(name)?),
        None => table.as_ref().and_then(|_| format_called("files")),
    };
    let key_ends_at = key_ends_at
        .as_deref()
        .map(|name| KeyEnd::named(name).map_err(|known| setting(&format!("`key_ends_at` is `{name}`; {known}"))));
    let options = IndexOptions {
        format,
        table: table.map(Arc::new),
        shards: shards.map_or(ShardList::All, ShardList::Named),
        splits: Splits::of(split, all_splits),
        name,
        boxes,
        key_ends_at: key_ends_at.transpose()?,
        block_bytes: block_size.map(|size| size.0),
        skip_bad_shards,
        overwrite: overwrite(force),
        old_metadata: if discard_metadata { OldMetadata::Discard } else { OldMetadata::Keep },
        ..IndexOptions::default()
    };
    run(py, on_progress, async move |stop, progress| {
        let from = DatasetStore::open(&dataset)?;
        let to = match &out {
            Some(out) => DatasetStore::create_with(out, &StoreOptions::from_env())?,
            None => from.clone(),
        };
        let options = IndexOptions { classes: class_order(classes).await?, ..options };
        Ok(json(&index_until(&from, &to, &options, &*progress, stop).await?))
    })
}

/// Makes one dataset of parts, and returns the report as JSON.
#[pyfunction]
pub(crate) fn merge_parts(py: Python<'_>, dataset: String) -> PyResult<String> {
    run(py, None, async move |_, _| {
        Ok(json(&merge(&DatasetStore::open_with(&dataset, &StoreOptions::from_env())?).await?))
    })
}

/// A dataset that is written sample by sample.
#[pyclass(frozen, module = "spdl_cluster._native")]
pub(crate) struct NativeWriter {
    process: u32,
    url: String,
    /// `None` when it is closed.
    open: Mutex<Option<OpenWriter>>,
}

struct OpenWriter {
    runtime: Runtime,
    writer: DatasetWriter,
    folders: NewFolders,
}

#[pymethods]
impl NativeWriter {
    #[new]
    #[pyo3(signature = (dataset, *, name, classes, shard_size, records_per_shard, block_size, crop_ready, scalable, force))]
    #[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        dataset: String,
        name: Option<String>,
        classes: Vec<String>,
        shard_size: ByteSize,
        records_per_shard: Option<u32>,
        block_size: ByteSize,
        crop_ready: bool,
        scalable: bool,
        force: bool,
    ) -> PyResult<Self> {
        let jpegs = jpegs(crop_ready, scalable).map_err(|problem| ErrorKind::Setting.error(py, problem, None))?;
        let options = WriteOptions {
            name,
            classes,
            shard_bytes: shard_size.0,
            shard_records: records_per_shard,
            block_bytes: block_size.0,
            jpegs,
            overwrite: overwrite(force),
        };
        let opened = py.detach(|| {
            let runtime = runtime().map_err(Failure::Runtime)?;
            let folders = NewFolders::of(&dataset);
            let begun = runtime.block_on(async {
                let store = DatasetStore::create_with(&dataset, &StoreOptions::from_env())?;
                DatasetWriter::begin(store, options, |_| {}).await
            });
            match begun {
                Ok(writer) => Ok(OpenWriter { runtime, writer, folders }),
                Err(error) => {
                    folders.remove_empty();
                    Err(Failure::Dataset(error))
                }
            }
        });
        let open = opened.map_err(|failure| failure.error(py))?;
        Ok(Self { process: std::process::id(), url: dataset, open: Mutex::new(Some(open)) })
    }

    /// Number of samples so far.
    #[getter]
    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |open| Ok(open.writer.count()))
    }

    /// Adds a sample, with the key or else its number. Waits while the store is slower than the caller.
    fn write(&self, py: Python<'_>, key: Option<String>, fields: Vec<(String, PyBackedBytes)>) -> PyResult<()> {
        let fields = fields.into_iter().map(|(name, content)| (name, content.to_vec())).collect();
        self.with(py, |open| {
            let key = key.unwrap_or_else(|| format!("{:09}", open.writer.count()));
            open.writer.add(NewRecord { key, fields })
        })?;
        self.wait(py, async |writer| writer.flush().await)
    }

    /// Writes the rest and the manifest, and returns the report as JSON.
    fn finish(&self, py: Python<'_>) -> PyResult<String> {
        let report = self.wait(py, async |writer| writer.finish().await)?;
        self.end(py, false);
        Ok(json(&report))
    }

    /// Removes what was written.
    fn abort(&self, py: Python<'_>) {
        if !self.is_forked() {
            self.end(py, true);
        }
    }

    /// Whether another process made it, and this one was forked from that.
    #[getter]
    fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }
}

impl NativeWriter {
    /// Calls `with` with the open writer, detached from Python.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        with: impl FnOnce(&mut OpenWriter) -> Result<T, DatasetError> + Send,
    ) -> PyResult<T> {
        if self.is_forked() {
            let problem = format!(
                "the writer of `{}` belongs to process {}; process {} was forked from it and cannot use it",
                self.url,
                self.process,
                std::process::id()
            );
            return Err(ErrorKind::Forked.error(py, &problem, Some("make a writer in the process that uses it")));
        }
        match py.detach(|| self.open.lock().as_mut().map(with)) {
            Some(done) => done.map_err(|error| of_dataset(py, &error)),
            None => {
                let problem = format!("the writer of `{}` is closed", self.url);
                Err(ErrorKind::Closed.error(py, &problem, None))
            }
        }
    }

    /// Waits for a step of the writer, and looks after signals meanwhile. After an error nothing can be written any more.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        step: impl AsyncFn(&mut DatasetWriter) -> Result<T, DatasetError> + Send + Sync,
    ) -> PyResult<T> {
        loop {
            let done = self.with(py, |OpenWriter { runtime, writer, .. }| {
                runtime.block_on(async { timeout(LOOK, step(writer)).await.ok().transpose() })
            });
            match done {
                Ok(Some(done)) => return Ok(done),
                Ok(None) => py.check_signals()?,
                Err(error) => {
                    self.end(py, false);
                    return Err(error);
                }
            }
        }
    }

    /// Closes the writer. What was written is removed if `is_aborted`.
    fn end(&self, py: Python<'_>, is_aborted: bool) {
        py.detach(|| {
            let open = self.open.lock().take();
            if let Some(open) = open {
                open.end(is_aborted);
            }
        });
    }
}

impl OpenWriter {
    fn end(self, is_aborted: bool) {
        let Self { runtime, mut writer, folders } = self;
        if is_aborted {
            // Afterwards the next writer removes what is left.
            let _ = runtime.block_on(async { timeout(END, writer.abort()).await });
        }
        drop(writer);
        folders.remove_empty();
        runtime.shutdown_background();
    }
}

impl Drop for NativeWriter {
    fn drop(&mut self) {
        let Some(open) = self.open.get_mut().take() else { return };
        if self.process == std::process::id() {
            Python::attach(|py| py.detach(|| open.end(true)));
        } else {
            // The threads that it would wait for exist only in the parent.
            std::mem::forget(open);
        }
    }
}

/// Why work has no result.
enum Failure {
    Runtime(std::io::Error),
    Dataset(DatasetError),
    /// Its thread has ended without one.
    Panicked,
}

impl Failure {
    fn error(&self, py: Python<'_>) -> PyErr {
        match self {
            Self::Runtime(error) => ErrorKind::System.error(py, &format!("cannot start threads: {error}"), None),
            Self::Dataset(error) => of_dataset(py, error),
            Self::Panicked => ErrorKind::System.error(py, "internal error: the work has ended without a result", None),
        }
    }
}

/// Runs work on another thread. Meanwhile shows its progress and looks after signals: the first stops the work, which then gets
/// some seconds to remove what it wrote, and the second is not waited for.
fn run<T, W, F>(py: Python<'_>, on_progress: Option<Py<PyAny>>, work: W) -> PyResult<T>
where
    T: Send + 'static,
    W: FnOnce(Stopped, OnProgress) -> F + Send + 'static,
    F: Future<Output = Result<T, DatasetError>>,
{
    let at = Arc::new(Mutex::new(DatasetProgress::default()));
    let (stop, stopped) = oneshot::channel::<()>();
    let (sender, receiver) = mpsc::channel();
    let shared = Arc::clone(&at);
    let all = move || {
        let done = runtime().map_err(Failure::Runtime).and_then(|runtime| {
            let stopped: Stopped = Box::pin(async { drop(stopped.await) });
            let progress: OnProgress = Box::new(move |progress| *shared.lock() = progress);
            let done = runtime.block_on(work(stopped, progress)).map_err(Failure::Dataset);
            runtime.shutdown_background();
            done
        });
        // After a second interruption nobody waits.
        let _ = sender.send(done);
    };
    let thread = thread::Builder::new().name("dataset".to_owned());
    thread.spawn(all).map_err(|error| Failure::Runtime(error).error(py))?;
    let (receiver, mut stop) = (Mutex::new(receiver), Some(stop));
    let mut interrupted: Option<(PyErr, Instant)> = None;
    let show = || -> PyResult<()> {
        let Some(on_progress) = &on_progress else { return Ok(()) };
        let DatasetProgress { shards, records, bytes, total_records, total_bytes } = *at.lock();
        let progress: Progress = (shards, records, bytes, total_records, total_bytes);
        on_progress.call1(py, progress).map(drop)
    };
    loop {
        let done = py.detach(|| receiver.lock().recv_timeout(LOOK));
        let done = match done {
            Ok(done) => done,
            Err(RecvTimeoutError::Disconnected) => Err(Failure::Panicked),
            Err(RecvTimeoutError::Timeout) => {
                let looked = py.check_signals();
                match &interrupted {
                    None => {
                        if let Err(error) = looked.and_then(|()| show()) {
                            interrupted = Some((error, Instant::now()));
                            stop = None;
                        }
                        continue;
                    }
                    Some((_, since)) if looked.is_ok() && since.elapsed() < END => continue,
                    Some(_) => Err(Failure::Panicked),
                }
            }
        };
        drop(stop);
        return match (interrupted, done) {
            (Some((error, _)), _) => Err(error),
            (None, Ok(done)) => show().map(|()| done),
            (None, Err(failure)) => Err(failure.error(py)),
        };
    }
}

/// Is ready when the work is to stop.
type Stopped = Pin<Box<dyn Future<Output = ()>>>;
/// Takes how far the work is.
type OnProgress = Box<dyn Fn(DatasetProgress) + Send + Sync>;

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

fn json(report: &impl Serialize) -> String {
    serde_json::to_string(report).expect("plain data serialises")
}

const fn jpegs(crop_ready: bool, scalable: bool) -> Result<Jpegs, &'static str> {
    match (crop_ready, scalable) {
        (true, true) => Err("`crop_ready` and `scalable` are both given: a picture is stored in one way"),
        (true, false) => Ok(Jpegs::CropReady),
        (false, true) => Ok(Jpegs::Scalable),
        (false, false) => Ok(Jpegs::AsTheyAre),
    }
}

const fn overwrite(force: bool) -> Overwrite {
    if force { Overwrite::Replace } else { Overwrite::Refuse }
}

/// Converts the error of a dataset. Its options have the names that they have in Python.
fn of_dataset(py: Python<'_>, error: &DatasetError) -> PyErr {
    let kind = match error {
        DatasetError::Option { .. }
        | DatasetError::Loses { .. }
        | DatasetError::Record { .. }
        | DatasetError::KeyTwice { .. }
        | DatasetError::Store(StoreError::BadLocation { .. } | StoreError::Secret { .. }) => ErrorKind::Setting,
        _ => ErrorKind::Data,
    };
    let text = match error {
        DatasetError::Option { option, problem } => {
            let name = match *option {
                "shard_bytes" => "shard_size",
                "shard_records" => "records_per_shard",
                "block_bytes" => "block_size",
                other => other,
            };
            format!("`{name}` {problem}")
        }
        error => error.to_string(),
    };
    let flags = [
        ("`--out`", "`out`"),
        ("`--split NAME`", "`split=NAME`"),
        ("`--all-splits`", "`all_splits=True`"),
        ("`--key-ends-at last-dot`", "`key_ends_at=\"last-dot\"`"),
        ("`first-dot`", "`\"first-dot\"`"),
        ("--skip-bad-shards", "`skip_bad_shards`"),
        ("--discard-metadata", "`discard_metadata=True`"),
        ("--force", "`force=True`"),
    ];
    let hint =
        error.hint().map(|hint| flags.iter().fold(hint.to_owned(), |hint, (flag, name)| hint.replace(flag, name)));
    kind.error(py, &text, hint.as_deref())
}
