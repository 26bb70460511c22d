//! The errors of datasets, as Python has them.

use pyo3::prelude::*;
use spdl_dataset::DatasetError;
use spdl_store::StoreError;

use crate::errors::ErrorKind;

/// The reason why work has no result.
pub(super) enum Failure {
    Runtime(std::io::Error),
    Dataset(DatasetError),
    /// The thread of the work has ended without a result.
    Panicked,
}

impl Failure {
    pub(super) fn error(&self, py: Python<'_>) -> PyErr {
        match self {
            Self::Runtime(error) => ErrorKind::System.error(py, &format!("cannot start threads: {error}"), None),
            Self::Dataset(error) => of_dataset(py, error),
            Self::Panicked => ErrorKind::System.error(py, "internal error: the work has ended without a result", None),
        }
    }
}

/// Converts the error of a dataset, with the options named as in Python.
pub(super) fn of_dataset(py: Python<'_>, error: &DatasetError) -> PyErr {
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
