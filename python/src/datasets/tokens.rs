//! Packing the tokens of a dataset as files of another format.

use std::{num::NonZeroUsize, sync::Arc, thread};

use pyo3::prelude::*;
use spdl_dataset::{
    DatasetDocuments, DatasetError, DatasetProgress, DatasetReport, DocumentSource, NewFolders, PackOrder,
    TokenBuildProgress, TokenEncoding, TokenPackOptions, build_token_part, pack_tokens_until,
};
use spdl_shard::store::DatasetStore;
use spdl_store::StoreOptions;
use spdl_worker::decode::read_tokens;

use super::{ByteSize, checked_part, failure::of_dataset, json, overwrite, work::run};

/// Packs the tokens of a dataset, or a part of them, as Megatron's files, and returns the report as JSON. Takes what
/// `spdl-ctl pack --to megatron` takes.
#[pyfunction]
#[pyo3(signature = (source, dataset, *, vocab, from_field, eos, name, seed, no_shuffle, shard_size, records_per_shard, block_size, force, exist_ok,
    part, on_progress))]
#[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools, reason = "keyword arguments of Python")]
pub(crate) fn pack_tokens(
    py: Python<'_>,
    source: String,
    dataset: String,
    vocab: u32,
    from_field: String,
    eos: Option<u32>,
    name: Option<String>,
    seed: u64,
    no_shuffle: bool,
    shard_size: ByteSize,
    records_per_shard: Option<u32>,
    block_size: ByteSize,
    force: bool,
    exist_ok: bool,
    part: Option<String>,
    on_progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let part = checked_part(py, part, force, exist_ok)?;
    let encoding = TokenEncoding::of_vocab(vocab).map_err(|error| of_dataset(py, &error))?;
    let from = from_field.split('|').map(str::to_owned).collect();
    let options = TokenPackOptions {
        eos,
        name,
        order: if no_shuffle { PackOrder::AsListed } else { PackOrder::Shuffled { seed } },
        shard_bytes: shard_size.0,
        shard_records: records_per_shard,
        block_bytes: block_size.0,
        overwrite: overwrite(force),
        ..TokenPackOptions::new(from, Arc::new(move |value| read_tokens(value, vocab)), encoding)
    };
    run(py, on_progress, async move |stop, progress| {
        if exist_ok && let Some(there) = DatasetReport::of_existing(&dataset).await {
            return Ok(json(&there));
        }
        let from = DatasetStore::open(&source)?;
        let folders = NewFolders::of(&dataset);
        let to = DatasetStore::create_with(&dataset, &StoreOptions::from_env())?;
        let packed = async {
            let Some(part) = part else {
                return Ok(json(&pack_tokens_until(&from, &to, &options, &*progress, stop).await?));
            };
            let documents: Arc<dyn DocumentSource> = Arc::new(DatasetDocuments::open(&from, &options).await?);
            let building = options.building(thread::available_parallelism().map_or(1, NonZeroUsize::get));
            let show = |TokenBuildProgress { documents, bytes, total_bytes, .. }| {
                let total_bytes = Some(total_bytes);
                progress(DatasetProgress { records: documents, bytes, total_bytes, ..DatasetProgress::default() });
            };
            Ok::<_, DatasetError>(json(&build_token_part(&to, &documents, &building, part, &show, stop).await?))
        };
        let packed = packed.await;
        if packed.is_err() {
            folders.remove_empty();
        }
        packed
    })
}
