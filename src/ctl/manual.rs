//! `spdl-ctl completions` and `spdl-ctl man`: what a shell and `man` know of this program, from the same source as `--help`.

use std::{path::PathBuf, process::ExitCode};

use clap::CommandFactory;
use clap_complete::Shell;

use super::{CtlCli, CtlError, Outcome, output};

/// Arguments of `completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionArgs {
    /// The shell.
    shell: Shell,
}

/// Arguments of `man`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Folder for the pages, `spdl-ctl.1` and one for each subcommand. Made when it is not there.
    folder: PathBuf,
}

/// Runs `completions`.
pub(crate) fn completions(args: &CompletionArgs) -> Outcome {
    // Into memory first: the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut CtlCli::command(), "spdl-ctl", &mut script);
    output::raw(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `man`.
pub(crate) fn man(args: &ManArgs) -> Outcome {
    let failed = |source| CtlError::WriteFile { path: args.folder.clone(), source };
    std::fs::create_dir_all(&args.folder).map_err(failed)?;
    clap_mangen::generate_to(CtlCli::command(), &args.folder).map_err(failed)?;
    output::outln!("man pages are in {}", args.folder.display())?;
    Ok(ExitCode::SUCCESS)
}
