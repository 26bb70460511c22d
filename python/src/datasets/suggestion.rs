//! Suggests a job for a dataset.

use pyo3::{prelude::*, types::PyDict};
use spdl_cli::suggest::{JobPurpose, RECORDS, SeenDataset, SuggestionOptions};
use spdl_dataset::LookAt;

use super::{reading::wait, work::runtime};
use crate::{errors::ErrorKind, job::dict};

/// A job as a dict, and the fields that it leaves out, each with the reason.
type NativeSuggestion = (Py<PyDict>, Vec<(String, String)>);

/// Returns a job as a dict with the keys of a job file, and the fields that it leaves out, each with the reason.
#[pyfunction]
#[pyo3(signature = (dataset, *, size, batch, validation, training))]
pub(crate) fn suggest(
    py: Python<'_>,
    dataset: &str,
    size: u32,
    batch: Option<u32>,
    validation: bool,
    training: Option<&str>,
) -> PyResult<NativeSuggestion> {
    let runtime =
        runtime().map_err(|error| ErrorKind::System.error(py, &format!("cannot start threads: {error}"), None))?;
    let seen = wait(py, &runtime, SeenDataset::look(dataset, LookAt::Spread(RECORDS)))?;
    let training = match training {
        Some(training) => Some(wait(py, &runtime, SeenDataset::look(training, LookAt::Spread(RECORDS)))?),
        None => None,
    };
    let (purpose, name) = if validation { (JobPurpose::Validation, "val") } else { (JobPurpose::Training, "train") };
    let options = SuggestionOptions { purpose, name: name.to_owned(), dataset: seen.url().to_owned(), size, batch };
    let suggested = seen.job(&options, training.as_ref());
    let wrong = |problem: String| ErrorKind::Setting.error(py, &problem, None);
    if suggested.columns == 0 {
        let fields = suggested.left_out.iter().map(|(name, why)| format!("`{name}`: {why}")).collect::<Vec<_>>();
        let problem = format!("no column can read what the records of `{dataset}` have: {}", fields.join("; "));
        return Err(wrong(problem));
    }
    seen.checked(&suggested.text).map_err(|error| wrong(error.to_string()))?;
    let table: toml::Table = toml::from_str(&suggested.text).expect("it was just read");
    Ok((dict(py, &table)?.unbind(), suggested.left_out))
}
