//! `spdl-ctl unpack`: writes the records of a dataset back as files.

use std::{path::PathBuf, process::ExitCode};

use spdl_dataset::unpack_until;
use spdl_shard::store::DatasetStore;

use super::{CtlError, CtlResult, interrupt, output::outln, progress::ProgressLine, report};

/// Arguments of `unpack`.
#[derive(Debug, clap::Args)]
pub(crate) struct UnpackArgs {
    /// Folder or URL of the dataset.
    dataset: String,
    /// Folder for the files, named `KEY.FIELD`. It must be empty, or is created. Crop-ready pictures lose their restart
    /// markers and keep their coefficients; most become the same bytes that were packed. Scalable pictures become the files
    /// that were packed, bit for bit.
    target: PathBuf,
    /// Prints the report as one line of JSON, and no progress bar.
    #[arg(long)]
    json: bool,
}

/// Runs `unpack`.
pub(crate) fn run(args: &UnpackArgs) -> CtlResult {
    spdl_process::allocator::return_large_buffers();
    let done = interrupt::run(|mut interrupt| async move {
        let store = DatasetStore::open(&args.dataset)?;
        let bar = ProgressLine::of_dataset(args.json, "unpacking");
        let on_progress = |progress| bar.dataset_at(progress);
        Ok::<_, CtlError>(unpack_until(&store, &args.target, &on_progress, interrupt.asked()).await?)
    })?;
    if args.json {
        report::json(&done)?;
    } else {
        outln!(
            "{}: {} of {}, {}; {} crop-ready, {} scalable",
            done.target,
            report::count(done.files, "file", "files"),
            report::count(done.records, "record", "records"),
            report::bytes(done.bytes),
            report::count(done.pictures_without_markers, "picture was", "pictures were"),
            report::grouped(done.restored_pictures),
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
