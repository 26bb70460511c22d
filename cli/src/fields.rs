//! Looks for the fields that a job names in the record indexes of its dataset, so that a wrong name is an error before anything is
//! decoded.

use std::collections::BTreeSet;

use spdl_job::{Column, Job, JobError, decoded_columns, no_such_field};
use spdl_shard::{
    format::{KEY_NAME, SHARD_NAME},
    manifest::Manifest,
    store::DatasetStore,
};
use spdl_store::StoreError;

/// Maximum number of shards, spread over the dataset, in which a field is looked for that those before lack.
const SHARDS: usize = 8;
/// Maximum number of records of a shard, spread over it, that are looked at.
const RECORDS: usize = 1000;

/// Returns the error for the first column whose field no record has that was looked at. Of a dataset that has the fields, only the index
/// of the first shard is read.
///
/// # Errors
/// [`StoreError`] if an index cannot be read.
pub(crate) async fn missing(
    store: &DatasetStore,
    manifest: &Manifest,
    job: &Job,
) -> Result<Option<JobError>, StoreError> {
    let is_of_record = |name: &String| [KEY_NAME, SHARD_NAME].contains(&name.as_str());
    let has_field = |column: &&Column| !column.from.is_empty() && !column.from.iter().any(is_of_record);
    let mut missing: Vec<_> = decoded_columns(&job.columns).filter(has_field).collect();
    let mut names = BTreeSet::new();
    let shards = manifest.shards();
    let step = shards.len().div_ceil(SHARDS).max(1);
    for shard in shards.filter(|shard| shard.records > 0).step_by(step) {
        if missing.is_empty() {
            break;
        }
        let index = store.index(&shard).await?;
        let records = (0..index.record_count()).step_by((index.record_count() as usize).div_ceil(RECORDS).max(1));
        for record in records.map(|record| index.record(record)) {
            missing.retain(|column| !column.from.iter().any(|name| index.field_number(&record, name).is_some()));
            if missing.is_empty() {
                break;
            }
            names.extend(record.fields().map(|field| field.name.to_owned()));
        }
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Ok(missing.first().map(|column| no_such_field(&job.name, column, &names)))
}
