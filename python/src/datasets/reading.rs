//! Single records of a dataset, by their numbers and keys.

use std::{collections::HashMap, future::Future, pin::pin, sync::OnceLock};

use pyo3::{prelude::*, types::PyBytes};
use spdl_cli::kind::{FoundKind, ValueKind};
use spdl_dataset::{DatasetError, SampleReader, SeenField, SeenRecord};
use spdl_shard::{format::FieldValue, store::DatasetStore};
use spdl_types::Fingerprint;
use tokio::{runtime::Runtime, time::timeout};

use super::{failure::of_dataset, work::runtime};
use crate::{errors::ErrorKind, open::CHECK};

/// A field: its name, what its values are, and the values; a single one is a list of one, `None` for one that is null.
type NativeField = (String, &'static str, bool, Vec<Option<Py<PyBytes>>>);

/// The records of a dataset.
#[pyclass(frozen, module = "spdl_cluster._native")]
pub(crate) struct NativeDataset {
    reader: SampleReader,
    url: String,
    runtime: Runtime,
    process: u32,
    /// The first sample of each key, by the key's hash.
    keys: OnceLock<HashMap<u128, u64>>,
}

#[pymethods]
impl NativeDataset {
    #[staticmethod]
    fn open(py: Python<'_>, url: &str) -> PyResult<Self> {
        let runtime =
            runtime().map_err(|error| ErrorKind::System.error(py, &format!("cannot start threads: {error}"), None))?;
        let store = DatasetStore::open(url).map_err(|error| of_dataset(py, &error.into()))?;
        let reader = wait(py, &runtime, SampleReader::open(&store))?;
        let (url, process) = (store.url().to_owned(), std::process::id());
        Ok(Self { reader, url, runtime, process, keys: OnceLock::new() })
    }

    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    #[getter]
    fn name(&self) -> &str {
        self.reader.manifest().name()
    }

    #[getter]
    fn format(&self) -> &'static str {
        self.reader.manifest().format().name()
    }

    #[getter]
    fn fingerprint(&self) -> String {
        self.reader.manifest().fingerprint().to_string()
    }

    #[getter]
    fn samples(&self) -> u64 {
        self.reader.manifest().samples()
    }

    #[getter]
    fn classes(&self) -> Vec<String> {
        self.reader.manifest().classes().map(str::to_owned).collect()
    }

    /// Returns the key of a sample's record, the number of the sample in it, and its fields.
    fn record(&self, py: Python<'_>, sample: u64) -> PyResult<(String, u32, Vec<NativeField>)> {
        self.check_process(py)?;
        let (SeenRecord { key, fields }, nth) = wait(py, &self.runtime, self.reader.sample(sample))?;
        let fields = fields.into_iter().map(|field| native(py, &key, field)).collect::<PyResult<_>>()?;
        Ok((key, nth, fields))
    }

    /// Returns the first sample of the record with this key; `None` if there is none. The first call reads the indexes of all shards.
    fn find(&self, py: Python<'_>, key: &str) -> PyResult<Option<u64>> {
        self.check_process(py)?;
        if self.keys.get().is_none() {
            let mut keys = HashMap::new();
            let reading = self.reader.keys(|key, sample| {
                keys.entry(Fingerprint::of(key.as_bytes()).0).or_insert(sample);
            });
            wait(py, &self.runtime, reading)?;
            self.keys.get_or_init(|| keys);
        }
        Ok(self.keys.get().and_then(|keys| keys.get(&Fingerprint::of(key.as_bytes()).0)).copied())
    }
}

impl NativeDataset {
    /// Fails in a forked child, which lacks the threads.
    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if self.process == std::process::id() {
            return Ok(());
        }
        let problem = format!("this dataset was opened in process {}, and belongs to it", self.process);
        Err(ErrorKind::Forked.error(py, &problem, Some("open it in the process that uses it")))
    }
}

/// Converts a field: what its values are, whether they are a list, and the values.
fn native(py: Python<'_>, record: &str, SeenField { name, value, .. }: SeenField) -> PyResult<NativeField> {
    let mut kind = FoundKind::of(&value).kind;
    let value = value.map_err(|problem| ErrorKind::Data.error(py, &format!("record `{record}`: {problem}"), None))?;
    let is_list = matches!(value, FieldValue::List(_));
    if let ValueKind::List(inner) = kind {
        kind = *inner;
    }
    let what = match kind {
        ValueKind::Picture(_) => "picture",
        ValueKind::Array(..) | ValueKind::Npy(..) => "array",
        ValueKind::WholeNumber => "int",
        ValueKind::Number => "float",
        ValueKind::Json => "json",
        ValueKind::Text | ValueKind::Voc | ValueKind::Frame => "text",
        ValueKind::Sound(_)
        | ValueKind::Video(_)
        | ValueKind::Empty
        | ValueKind::Other(_)
        | ValueKind::List(_)
        | ValueKind::Wrong => "bytes",
    };
    let values = value.into_files().into_iter().map(|file| file.map(|file| PyBytes::new(py, &file).unbind()));
    Ok((name, what, is_list, values.collect()))
}

/// Waits for a future, and handles signals meanwhile.
pub(super) fn wait<T: Send>(
    py: Python<'_>,
    runtime: &Runtime,
    future: impl Future<Output = Result<T, DatasetError>> + Send,
) -> PyResult<T> {
    py.detach(|| {
        runtime.block_on(async {
            let mut future = pin!(future);
            loop {
                match timeout(CHECK, &mut future).await {
                    Ok(done) => return done.map_err(|error| Python::attach(|py| of_dataset(py, &error))),
                    Err(_) => Python::attach(|py| py.check_signals())?,
                }
            }
        })
    })
}
