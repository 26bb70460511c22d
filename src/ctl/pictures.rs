//! `spdl-ctl pictures`: writes the demo's pictures, for trying the other commands.

use std::{path::PathBuf, process::ExitCode};

use super::{CtlError, Outcome, progress};

/// Arguments of `pictures`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder for the class folders.
    folder: PathBuf,
    /// Pictures to make, of about 107 KB each.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// The same seed gives the same pictures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// No progress bar.
    #[arg(long)]
    quiet: bool,
}

/// Runs `pictures`.
pub(crate) fn run(args: &Args) -> Outcome {
    let bar = progress::samples_bar(args.quiet, args.count, "making pictures");
    spdl_cluster::pictures::write_image_folder(&args.folder, args.count, args.seed, |_| bar.inc(1))
        .map_err(|source| CtlError::WriteFile { path: args.folder.clone(), source })?;
    bar.finish();
    Ok(ExitCode::SUCCESS)
}
