//! `spdl-ctl job`: submits, shows and removes jobs.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Subcommand;
use spdl_wire::messages::{FromCoordinator, ToCoordinator};

use super::{CtlError, Outcome, coordinator::Connection, job_file, report};

/// Arguments of `job`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Creates a job from a job file; does nothing when the same job is there.
    Submit {
        /// The job file (TOML).
        file: PathBuf,
        #[command(flatten)]
        connection: Connection,
        /// Prints the job as one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Shows a job as it was frozen, as JSON.
    Show {
        /// Its name.
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Removes a job: its positions and its ledger of bad samples go with it.
    Remove {
        /// Its name.
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
}

/// Runs `job`.
pub(crate) fn run(args: Args) -> Outcome {
    super::runtime()?.block_on(async {
        match args.action {
            Action::Submit { file, connection, json } => {
                let name = submit(&connection, &file).await?;
                if json {
                    show(&connection, &name).await?;
                } else {
                    println!("job `{name}` is there");
                }
            }
            Action::Show { name, connection } => show(&connection, &name).await?,
            Action::Remove { name, connection } => {
                connection.ask(&ToCoordinator::RemoveJob { name: name.clone() }).await?;
                println!("job `{name}` is removed");
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Submits a job file; returns the job's name. A relative dataset path was made absolute when it was read: the
/// coordinator and the workers run elsewhere.
pub(crate) async fn submit(connection: &Connection, path: &Path) -> Result<String, CtlError> {
    let file = job_file::read(path)?;
    file.check()?;
    let toml = toml::to_string(&file).expect("a job file serialises");
    connection.ask(&ToCoordinator::SubmitJob { toml, origin: path.display().to_string() }).await?;
    Ok(file.name)
}

async fn show(connection: &Connection, name: &str) -> Result<(), CtlError> {
    if let FromCoordinator::Job(job) = connection.ask(&ToCoordinator::DescribeJob { name: name.to_owned() }).await? {
        report::json(&job);
    }
    Ok(())
}
