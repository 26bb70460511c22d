//! A dataset that Python writes sample by sample.

use parking_lot::Mutex;
use pyo3::{prelude::*, pybacked::PyBackedBytes};
use spdl_dataset::{DatasetError, DatasetWriter, NewFolders, NewRecord, WriteOptions};
use spdl_shard::store::DatasetStore;
use spdl_store::StoreOptions;
use tokio::{runtime::Runtime, time::timeout};

use super::{
    ByteSize,
    failure::{Failure, of_dataset},
    jpegs, json, overwrite,
    work::{END, LOOK, runtime},
};
use crate::errors::ErrorKind;

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
            // If the time is not enough, the next writer removes the rest.
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
