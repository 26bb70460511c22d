//! `spdl-ctl merge`: makes one dataset of the parts that `pack --part` has packed.

use std::process::ExitCode;

use spdl_dataset::merge;
use spdl_shard::store::DatasetStore;
use spdl_store::StoreOptions;

use super::{CtlResult, pack, runtime};

/// Arguments of `merge`.
#[derive(Debug, clap::Args)]
pub(crate) struct MergeArgs {
    /// Folder or URL of the dataset, in which `pack --part` has packed all parts.
    dataset: String,
    /// Prints the report as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `merge`.
pub(crate) fn run(args: &MergeArgs) -> CtlResult {
    let store = DatasetStore::open_with(&args.dataset, &StoreOptions::from_env())?;
    let report = runtime()?.block_on(merge(&store))?;
    pack::print(&report, args.json)?;
    Ok(ExitCode::SUCCESS)
}
