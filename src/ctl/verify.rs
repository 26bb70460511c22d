//! `spdl-ctl verify`: reads a whole dataset and checks every byte.

use std::process::ExitCode;

use spdl_shard::{
    dataset::{VerifyOptions, verify},
    store::DatasetStore,
};

use super::{CtlError, Outcome, progress::Progress, report};

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder or URL of the dataset.
    dataset: String,
    /// Prints what was found as one line of JSON, and no progress bar.
    #[arg(long)]
    json: bool,
}

/// Runs `verify`; fails when there are faults.
pub(crate) fn run(args: &Args) -> Outcome {
    let found = super::runtime()?.block_on(async {
        let store = DatasetStore::open(&args.dataset)?;
        let bar = Progress::of_dataset(args.json, "verifying");
        Ok::<_, CtlError>(verify(&store, &VerifyOptions::default(), &|progress| bar.dataset_at(progress)).await?)
    })?;
    if args.json {
        report::json(&found);
    } else {
        for fault in &found.faults {
            let record = fault.record.as_ref().map(|key| format!(", record `{key}`")).unwrap_or_default();
            println!("shard `{}`{record}: {}", fault.shard, fault.problem);
        }
        println!(
            "{} shards, {} records, {} fields, {}: {} faults",
            report::grouped(found.shards),
            report::grouped(found.records),
            report::grouped(found.fields),
            report::bytes(found.bytes),
            found.faults.len()
        );
    }
    Ok(if found.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
