//! Datasets that Python makes: packed, indexed and merged as `spdl-ctl` does it, or written sample by sample.

mod class_folders;
mod failure;
mod reading;
mod sheet;
mod suggestion;
mod tokens;
pub(crate) mod work;
mod writer;

use std::{num::NonZeroUsize, path::PathBuf, str::FromStr, sync::Arc, thread};

use pyo3::prelude::*;
use serde::Serialize;
use spdl_dataset::{
    Annotations, ClassOrder, DatasetError, DatasetReport, FieldChoice, FileTable, FolderPictures, IndexOptions, Jpegs,
    NewFolders, OldMetadata, Overwrite, PackOptions, PackOrder, PackPart, PackSource, ShardList, Splits, index_until,
    merge, merge_tokens, pack_part_until, pack_until, tar::KeyEnd,
};
use spdl_shard::{
    format::{format_called, format_names, token_files::raw_dtype},
    store::DatasetStore,
};
use spdl_store::{StoreError, StoreOptions};
use spdl_types::size::parse_bytes;

pub(crate) use self::{
    class_folders::image_folder, reading::NativeDataset, sheet::sheet_png, suggestion::suggest, tokens::pack_tokens,
    writer::NativeWriter,
};
use self::{failure::of_dataset, work::run};
use crate::errors::ErrorKind;

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

/// Returns how classes are numbered, from the kind of numbering and its names.
async fn class_order(given: Option<(String, Vec<String>)>) -> Result<ClassOrder, DatasetError> {
    Ok(match given.as_ref().map(|(by, names)| (by.as_str(), names.as_slice())) {
        Some(("numeric", _)) => ClassOrder::Numeric,
        Some(("file", [file])) => ClassOrder::of_file(file.as_ref())?,
        Some(("dataset", [dataset])) => ClassOrder::of_dataset(&DatasetStore::open(dataset)?).await?,
        Some((_, names)) => ClassOrder::Given(names.to_vec()),
        None => ClassOrder::ByName,
    })
}

/// Reads which part is packed, and checks that it goes with the options about what is there.
fn checked_part(py: Python<'_>, part: Option<String>, force: bool, exist_ok: bool) -> PyResult<Option<PackPart>> {
    let setting = |problem: String| ErrorKind::Setting.error(py, &problem, None);
    if exist_ok && (force || part.is_some()) {
        let other = if force { "force" } else { "part" };
        return Err(setting(format!("`exist_ok` and `{other}` are both given: one keeps what is there")));
    }
    if part.is_some() && force {
        return Err(setting("`part` and `force` are both given: a part replaces nothing".to_owned()));
    }
    let read =
        |part: String| PackPart::from_str(&part).map_err(|problem| setting(format!("`part` is `{part}`: {problem}")));
    part.map(read).transpose()
}

/// Packs a source and returns the report as JSON. Takes what `spdl-ctl pack` takes.
#[pyfunction]
#[pyo3(signature = (source, dataset, *, name, fields, annotations, annotations_beside, classes, all_splits, seed, no_shuffle, shard_size,
    records_per_shard, block_size, crop_ready, scalable, gop, force, exist_ok, part, on_progress))]
#[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "keyword arguments of Python")]
pub(crate) fn pack(
    py: Python<'_>,
    source: Vec<PathBuf>,
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
    gop: Option<u32>,
    force: bool,
    exist_ok: bool,
    part: Option<String>,
    on_progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let setting = |problem: String| ErrorKind::Setting.error(py, &problem, None);
    if annotations.is_some() && annotations_beside {
        return Err(setting("`annotations` and `annotations_beside` are both given".to_owned()));
    }
    let part = checked_part(py, part, force, exist_ok)?;
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
        gop,
        overwrite: overwrite(force),
        ..PackOptions::new(PackSource::open_all(&source).map_err(|error| of_dataset(py, &error))?)
    };
    run(py, on_progress, async move |stop, progress| {
        if exist_ok && let Some(there) = DatasetReport::of_existing(&dataset).await {
            return Ok(json(&there));
        }
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
#[pyo3(signature = (dataset, *, format, table, frames, out, shards, split, all_splits, name, boxes, key_ends_at, dtype, end_token, classes, block_size, skip_bad_shards, force, discard_metadata, on_progress))]
#[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "keyword arguments of Python")]
pub(crate) fn index(
    py: Python<'_>,
    dataset: Vec<String>,
    format: Option<String>,
    table: Option<PathBuf>,
    frames: bool,
    out: Option<String>,
    shards: Option<Vec<String>>,
    split: Option<String>,
    all_splits: bool,
    name: Option<String>,
    boxes: Option<String>,
    key_ends_at: Option<String>,
    dtype: Option<String>,
    end_token: Option<i64>,
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
    let divided = ShardList::of_paths(&dataset, shards.map(ShardList::Named));
    let (dataset, shards) = divided.map_err(|error| of_dataset(py, &error))?;
    let table = table.as_deref().map(|table| FileTable::read(table, &dataset)).transpose();
    let table = table.map_err(|error| of_dataset(py, &error))?;
    let format = format.as_deref().map(called).transpose()?;
    let key_ends_at = key_ends_at
        .as_deref()
        .map(|name| KeyEnd::named(name).map_err(|known| setting(&format!("`key_ends_at` is `{name}`; {known}"))));
    let dtype =
        dtype.as_deref().map(|name| raw_dtype(name).map_err(|known| setting(&format!("`dtype` is `{name}`; {known}"))));
    let options = IndexOptions {
        format,
        table: table.map(Arc::new),
        pictures: if frames { FolderPictures::Frames } else { FolderPictures::Samples },
        shards,
        splits: Splits::of(split, all_splits),
        name,
        boxes,
        key_ends_at: key_ends_at.transpose()?,
        dtype: dtype.transpose()?,
        end_token,
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
        let store = DatasetStore::open_with(&dataset, &StoreOptions::from_env())?;
        let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        match merge_tokens(&store, threads).await? {
            Some(report) => Ok(json(&report)),
            None => Ok(json(&merge(&store).await?)),
        }
    })
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
