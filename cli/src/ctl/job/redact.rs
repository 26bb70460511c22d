//! `spdl-ctl job redact`: samples that do not come any more from a sample of the training on; and `job redactions`, which prints them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use spdl_control::messages::ToCoordinator;
use spdl_job::Job;
use spdl_order::{RedactedSamples, Redaction};
use spdl_shard::format::ShardIndex;
use spdl_types::SampleId;

use super::{
    describe,
    place::{self, ChangePlace},
};
use crate::{
    ctl::{CtlError, coordinator::Connection, job_file, output::outln, report},
    datasets::EvaluatedDataset,
};

/// The number of indexes that are read at the same time.
const INDEXES: usize = 16;
/// The number of unknown keys that an error names.
const NAMED_KEYS: usize = 10;
/// The most characters of a set of samples that the command prints.
const SHOWN_CHARACTERS: usize = 200;

/// Arguments of `job redact`.
#[derive(Debug, Args)]
pub(super) struct RedactArgs {
    /// The name of the job.
    name: String,
    /// A file with the keys of the samples' records, one in a line, as `__key__` has them; those of all sources.
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// Where it begins: `next`, the first sample that no rank has reached; a number of samples, counted over all epochs; or EPOCH:OFFSET.
    #[arg(long, value_name = "WHERE", default_value = "next", value_parser = ChangePlace::parse)]
    at: ChangePlace,
    /// Goes on if no dataset of the job has some of the keys.
    #[arg(long)]
    allow_unknown: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Arguments of `job redactions`.
#[derive(Debug, Args)]
pub(super) struct RedactionsArgs {
    /// The name of the job.
    name: String,
    #[command(flatten)]
    connection: Connection,
}

/// Runs `job redact`.
pub(super) async fn run(args: RedactArgs) -> Result<(), CtlError> {
    let RedactArgs { name, keys, at, allow_unknown, connection } = args;
    let wanted = read_keys(&keys)?;
    let job = describe(&connection, &name).await?;
    job.check_redactable()?;
    let samples = samples_of(job.clone(), &wanted, allow_unknown, &keys).await?;
    let count = samples.len();
    let from = at.samples_before(&job);
    place::change(&connection, &ToCoordinator::Redact { job: name.clone(), from, samples: samples.clone() }).await?;
    let job = describe(&connection, &name).await?;
    // Some may be redacted from an earlier one on.
    let has_some = |of: &&Redaction| samples.without(&[&of.samples]).len() < count;
    let from = job.redactions.iter().rev().find(has_some).map_or(0, |of| of.from);
    outln!(
        "{} of job `{name}` {} redacted from sample {}, {}, on",
        report::count(count, "sample", "samples"),
        if count == 1 { "is" } else { "are" },
        report::grouped(from),
        job.position_of(from)
    )?;
    let tables = tables_of(&job.redactions);
    if tables.len() <= SHOWN_CHARACTERS * job.redactions.len() {
        outln!("\nthe file of job `{name}` needs the same, to give these batches without the cluster:\n\n{tables}")?;
    } else {
        outln!(
            "\n`spdl-ctl job redactions {name}` prints what the job's file needs to give these batches without the cluster"
        )?;
    }
    Ok(())
}

/// Runs `job redactions`.
pub(super) async fn print(args: RedactionsArgs) -> Result<(), CtlError> {
    let job = describe(&args.connection, &args.name).await?;
    if job.redactions.is_empty() { Ok(()) } else { outln!("{}", tables_of(&job.redactions)) }
}

/// Returns what a job file needs for redactions.
fn tables_of(redactions: &[Redaction]) -> String {
    let table = |Redaction { from, samples }: &Redaction| {
        let samples = serde_json::to_string(samples).expect("plain data serialises");
        format!("[[redaction]]\nfrom = {from}\nsamples = {samples}")
    };
    redactions.iter().map(table).collect::<Vec<_>>().join("\n\n")
}

/// Reads keys, one in a line. Empty lines are left out.
fn read_keys(path: &Path) -> Result<BTreeSet<String>, CtlError> {
    let text = std::fs::read_to_string(path).map_err(|source| CtlError::ReadFile { path: path.to_owned(), source })?;
    let keys: BTreeSet<String> = text
        .lines()
        .map(|line| line.trim_end_matches('\r'))
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    if keys.is_empty() {
        return Err(CtlError::Keys { path: path.to_owned(), problem: "has no key".to_owned() });
    }
    Ok(keys)
}

/// Finds the samples of the records with these keys, in all datasets of a job.
async fn samples_of(
    job: Job,
    wanted: &BTreeSet<String>,
    allows_unknown: bool,
    path: &Path,
) -> Result<RedactedSamples, CtlError> {
    let open = job_file::open_frozen(job).await?;
    let mut found: BTreeMap<&str, u64> = wanted.iter().map(|key| (key.as_str(), 0)).collect();
    let mut samples = Vec::new();
    let mut first = 0;
    for EvaluatedDataset { store, manifest, .. } in open.datasets.iter() {
        let indexes = stream::iter(manifest.shards().map(|shard| async move {
            let first = shard.first_sample;
            store.index(&shard).await.map(|index| (first, index))
        }));
        let mut indexes = indexes.buffer_unordered(INDEXES);
        while let Some((in_dataset, index)) = indexes.try_next().await? {
            add_samples(&*index, first + in_dataset, &mut found, &mut samples);
        }
        first += manifest.samples();
    }
    let unknown: Vec<&str> = found.iter().filter(|(_, count)| **count == 0).map(|(key, _)| *key).collect();
    if (!allows_unknown && !unknown.is_empty()) || samples.is_empty() {
        let mut named: Vec<String> = unknown.iter().take(NAMED_KEYS).map(|key| format!("`{key}`")).collect();
        if unknown.len() > named.len() {
            named.push(format!("{} more", unknown.len() - named.len()));
        }
        let problem = format!("has keys that no record of job `{}` has: {}", open.job.name, named.join(", "));
        return Err(CtlError::Keys { path: path.to_owned(), problem });
    }
    Ok(RedactedSamples::new(samples))
}

/// Adds the samples of a shard whose records have keys that are looked for. Its first sample has this id.
fn add_samples(index: &dyn ShardIndex, first: u64, found: &mut BTreeMap<&str, u64>, samples: &mut Vec<SampleId>) {
    let mut record = None;
    for sample in 0..index.sample_count() {
        let (number, _) = index.locate(sample);
        let is_wanted = match record {
            Some((before, is_wanted)) if before == number => is_wanted,
            _ => {
                let is_wanted = match found.get_mut(&*index.record(number).key.text()) {
                    Some(count) => {
                        *count += 1;
                        true
                    }
                    None => false,
                };
                record = Some((number, is_wanted));
                is_wanted
            }
        };
        if is_wanted {
            samples.push(SampleId(first + u64::from(sample)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_lines_of_a_file_and_a_file_without_any_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.txt");
        std::fs::write(&path, "b/2\r\na 1\n\n b\n").unwrap();
        assert_eq!(read_keys(&path).unwrap().into_iter().collect::<Vec<_>>(), [" b", "a 1", "b/2"]);
        std::fs::write(&path, "\n").unwrap();
        assert!(read_keys(&path).unwrap_err().to_string().ends_with("keys.txt` has no key"));
    }

    #[test]
    fn the_tables_of_redactions_are_those_of_a_job_file() {
        let redaction = |from, id| Redaction { from, samples: RedactedSamples::new(vec![SampleId(id)]) };
        let text = tables_of(&[redaction(0, 3), redaction(9, 4)]);
        assert_eq!(text, "[[redaction]]\nfrom = 0\nsamples = \"06\"\n\n[[redaction]]\nfrom = 9\nsamples = \"08\"");
    }
}
