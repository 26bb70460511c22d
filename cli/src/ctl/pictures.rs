//! `spdl-ctl pictures`: writes the demo's pictures, to try the other commands with.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::pictures::write_image_folder_while;
use indicatif::ProgressBar;

use super::{CtlError, CtlResult, interrupt::Interrupt, progress};

/// Arguments of `pictures`.
#[derive(Debug, clap::Args)]
pub(crate) struct PicturesArgs {
    /// Folder for the class folders.
    folder: PathBuf,
    /// Number of pictures to make, of about 107 KB each.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Seed of the pictures: the same seed gives the same pictures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Shows no progress bar.
    #[arg(long)]
    quiet: bool,
}

/// Runs `pictures`.
pub(crate) fn run(args: &PicturesArgs) -> CtlResult {
    let bar = progress::samples_bar(args.quiet, args.count, "making pictures");
    write(&args.folder, args.count, args.seed, &bar, &Interrupt::listen()?)?;
    bar.finish();
    Ok(ExitCode::SUCCESS)
}

/// Writes pictures until all are written or the command is interrupted.
pub(crate) fn write(
    folder: &Path,
    count: u64,
    seed: u64,
    bar: &ProgressBar,
    interrupt: &Interrupt,
) -> Result<(), CtlError> {
    let go_on = |_| {
        bar.inc(1);
        !interrupt.is_asked()
    };
    write_image_folder_while(folder, count, seed, go_on).map_err(|source| match source.kind() {
        io::ErrorKind::Interrupted => CtlError::Interrupted,
        _ => CtlError::WriteFile { path: folder.to_owned(), source },
    })
}
