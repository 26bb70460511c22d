//! `spdl-ctl completions` and `spdl-ctl man`: completion scripts and man pages, from the same source as `--help`.

use std::{path::PathBuf, process::ExitCode};

use clap::CommandFactory;
use clap_complete::Shell;

use super::{CtlCli, CtlError, CtlResult, output};

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionArgs {
    /// The shell.
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Folder for the pages: `spdl-ctl.1` and one for each subcommand. Created when it does not exist.
    folder: PathBuf,
}

/// Runs `completions`.
pub(crate) fn completions(args: &CompletionArgs) -> CtlResult {
    // Write into memory first: the generator panics when it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut CtlCli::command(), "spdl-ctl", &mut script);
    output::raw(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `man`.
pub(crate) fn man(args: &ManArgs) -> CtlResult {
    let failed = |source| CtlError::WriteFile { path: args.folder.clone(), source };
    std::fs::create_dir_all(&args.folder).map_err(failed)?;
    clap_mangen::generate_to(CtlCli::command(), &args.folder).map_err(failed)?;
    output::outln!("man pages are in {}", args.folder.display())?;
    Ok(ExitCode::SUCCESS)
}
