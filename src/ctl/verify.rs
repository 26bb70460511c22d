//! `spdl-ctl verify`: reads a whole dataset and checks every byte, and every picture against its original.

use std::{path::Path, process::ExitCode};

use spdl_shard::{
    dataset::{Against, Source, VerifyOptions, VerifyReport, verify},
    manifest::MANIFEST_NAME,
    store::DatasetStore,
};

use super::{CtlError, Outcome, progress::Progress, report};

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder or URL of the dataset.
    dataset: String,
    /// Compares every record with what it was packed from: a folder with one folder per class, a text file that lists
    /// pictures, or another dataset (its folder or URL). Pictures must have the same coefficients: the same pixels in
    /// every decoder, whatever `--crop-ready` did to them.
    #[arg(long, value_name = "SOURCE")]
    against: Option<String>,
    /// Prints what was found as one line of JSON, and no progress bar.
    #[arg(long)]
    json: bool,
}

/// Runs `verify`; fails when there are faults.
pub(crate) fn run(args: &Args) -> Outcome {
    let found = super::runtime()?.block_on(async {
        let store = DatasetStore::open(&args.dataset)?;
        let against = args.against.as_deref().map(originals).transpose()?;
        let options = VerifyOptions { against, ..VerifyOptions::default() };
        let bar = Progress::of_dataset(args.json, "verifying");
        Ok::<_, CtlError>(verify(&store, &options, &|progress| bar.dataset_at(progress)).await?)
    })?;
    if args.json {
        report::json(&found);
    } else {
        print(&found, args.against.is_some());
    }
    Ok(if found.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a path or URL leads to: a dataset is a folder with a manifest.
fn originals(source: &str) -> Result<Against, CtlError> {
    let path = Path::new(source);
    if source.contains("://") || path.join(MANIFEST_NAME).exists() {
        return Ok(Against::Dataset(DatasetStore::open(source)?));
    }
    Ok(Against::Pictures(Source::of(path)))
}

fn print(found: &VerifyReport, is_compared: bool) {
    for fault in &found.faults {
        let shard = fault.shard.as_ref().map(|shard| format!("shard `{shard}`"));
        let record = fault.record.as_ref().map(|key| format!("record `{key}`"));
        let place: Vec<String> = shard.into_iter().chain(record).collect();
        println!("{}: {}", place.join(", "), fault.problem);
    }
    println!(
        "{} shards, {} records, {} fields, {}: {} faults",
        report::grouped(found.shards),
        report::grouped(found.records),
        report::grouped(found.fields),
        report::bytes(found.bytes),
        found.faults.len()
    );
    if found.crop_ready_pictures > 0 {
        println!(
            "{} crop-ready pictures decode and have their segments where their tables say",
            report::grouped(found.crop_ready_pictures)
        );
    }
    if is_compared {
        println!(
            "{} pictures have the coefficients of their originals, {} other fields are the same, {} originals were left out \
             for want of an annotation",
            report::grouped(found.same_pictures),
            report::grouped(found.same_fields),
            report::grouped(found.left_out),
        );
    }
}
