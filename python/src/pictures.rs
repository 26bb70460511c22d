//! Test data for users who have none: the demo's pictures, packed.

use std::path::PathBuf;

use pyo3::prelude::*;
use spdl_cli::pictures::write_image_folder;
use spdl_dataset::{PackOptions, PackSource, pack};
use spdl_shard::store::DatasetStore;
use spdl_store::StoreOptions;

use crate::errors::ErrorKind;

/// Draws `count` photograph-like pictures from `seed` and packs them as a dataset in `folder`, which it creates and
/// which must not hold a dataset yet. Returns the number of classes.
#[pyfunction]
#[pyo3(signature = (folder, count, seed=0))]
pub(crate) fn pack_pictures(py: Python<'_>, folder: PathBuf, count: u64, seed: u64) -> PyResult<usize> {
    py.detach(|| write(&folder, count, seed)).map_err(|problem| ErrorKind::Data.error(py, &problem, None))?;
    Ok(spdl_cli::pictures::Pictures::classes().count())
}

fn write(folder: &std::path::Path, count: u64, seed: u64) -> Result<(), String> {
    let problem = |what: &dyn std::fmt::Display| format!("pictures in `{}`: {what}", folder.display());
    let dataset = std::path::absolute(folder).map_err(|error| problem(&error))?;
    let source = dataset.with_extension("pictures");
    write_image_folder(&source, count, seed, |_| {}).map_err(|error| problem(&error))?;
    let options = PackOptions { block_bytes: 256 << 10, ..PackOptions::new(PackSource::ImageFolder(source.clone())) };
    let store = DatasetStore::create_with(&dataset.display().to_string(), &StoreOptions::default())
        .map_err(|error| problem(&error))?;
    let runtime = tokio::runtime::Runtime::new().map_err(|error| problem(&error))?;
    let packed = runtime.block_on(pack(&store, &options, &|_| {})).map_err(|error| problem(&error));
    std::fs::remove_dir_all(&source).map_err(|error| problem(&error))?;
    packed.map(|_| ())
}
