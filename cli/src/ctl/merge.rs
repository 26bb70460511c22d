//! `spdl-ctl merge`: makes one dataset of the parts that `pack --part` or `tokenize --part` has made.

use std::{num::NonZeroUsize, process::ExitCode, thread};

use spdl_dataset::{merge, merge_tokens};
use spdl_shard::store::DatasetStore;
use spdl_store::StoreOptions;

use super::{CtlResult, pack, runtime, tokenize};

/// Arguments of `merge`.
#[derive(Debug, clap::Args)]
pub(crate) struct MergeArgs {
    /// Folder or URL of the dataset, in which `pack --part` or `tokenize --part` has made all parts.
    dataset: String,
    /// Prints the report as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `merge`.
pub(crate) fn run(args: &MergeArgs) -> CtlResult {
    let store = DatasetStore::open_with(&args.dataset, &StoreOptions::from_env())?;
    let (runtime, threads) = (runtime()?, thread::available_parallelism().map_or(1, NonZeroUsize::get));
    if let Some(report) = runtime.block_on(merge_tokens(&store, threads))? {
        tokenize::print(&report, args.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = runtime.block_on(merge(&store))?;
    pack::print(&report, args.json)?;
    Ok(ExitCode::SUCCESS)
}
