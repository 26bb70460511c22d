//! `spdl-coord state`: exports the state to a plain file, imports it from one, or creates an empty state. For use after
//! a disk was lost, or to move the state.

use std::{
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use clap::Subcommand;

use crate::{
    shell::StartError,
    state::{Dump, EmbeddedState, EtcdKeys, EtcdState, Gateway, StateLocation, StateStoreError, Timeouts},
};

/// Time limit for an answer of an etcd member.
const ETCD_TIMEOUT: Duration = Duration::from_secs(10);

/// The location of the state.
#[derive(Clone, Debug, clap::Args)]
pub struct StateArgs {
    /// Where the state is, as for the coordinator.
    #[arg(long, env = "SPDL_COORD_STATE", value_name = "DIR|etcd://...", default_value = "spdl-state")]
    pub state: StateLocation,
    /// Directory with ca.pem, and optionally cert.pem and key.pem, for TLS to etcd; without it, plain HTTP.
    #[arg(long, env = "SPDL_COORD_ETCD_CERTS", value_name = "DIR")]
    pub etcd_certs: Option<PathBuf>,
}

/// An action on the state of a coordinator that is not running.
#[derive(Clone, Debug, Subcommand)]
pub enum StateAction {
    /// Writes the whole state to a plain file: jobs, sessions with their positions, bad samples. One JSON object per
    /// line.
    Export {
        #[command(flatten)]
        #[allow(missing_docs)]
        place: StateArgs,
        /// The file; default: standard output.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Replaces the state by such a file, or by the backup.jsonl in a state directory. An existing state is moved aside
    /// in a directory; in etcd it is refused, and no coordinator may lead during the import.
    Import {
        /// The file.
        file: PathBuf,
        #[command(flatten)]
        #[allow(missing_docs)]
        place: StateArgs,
        /// Replaces a state in etcd that is not empty or cannot be read.
        #[arg(long)]
        force: bool,
    },
    /// Creates an empty state, without jobs and sessions, after the state was lost. An existing state is moved aside.
    Create {
        #[command(flatten)]
        #[allow(missing_docs)]
        place: StateArgs,
    },
}

/// Runs the action.
///
/// # Errors
/// [`StartError`].
pub(super) async fn run(action: StateAction) -> Result<(), StartError> {
    match action {
        StateAction::Export { place, out } => {
            let dump = export(&place).await?;
            match out {
                Some(path) => write(&dump, &path)?,
                None => {
                    let failed = |source: io::Error| unwritable("standard output".into(), source);
                    dump.write(io::stdout().lock()).map_err(failed)?;
                }
            }
        }
        StateAction::Import { file, place, force } => import(&place, Dump::read(&file)?.continued(), force).await?,
        StateAction::Create { place } => {
            let folder = folder(&place)?;
            // The sessions of the lost state may still run, so their ids must not be reused.
            let last = Dump::read(&folder.join("backup.jsonl")).unwrap_or_default();
            let mut dump = Dump { owns_ca: last.owns_ca, ..Dump::default() };
            dump.durable.last_session = last.durable.last_session;
            replace(&place, &dump.continued())?;
        }
    }
    Ok(())
}

async fn export(place: &StateArgs) -> Result<Dump, StartError> {
    match &place.state {
        StateLocation::Directory(directory) => Ok(EmbeddedState::export(directory)?),
        StateLocation::Etcd { members, prefix } => {
            let name = place.state.to_string().into();
            let durable = EtcdState::export(gateway(place, members)?, EtcdKeys::new(prefix.clone()), name).await?;
            Ok(Dump { durable, owns_ca: false })
        }
    }
}

fn gateway(place: &StateArgs, members: &[String]) -> Result<Arc<Gateway>, StartError> {
    let timeouts = Timeouts { answer: ETCD_TIMEOUT, commit: ETCD_TIMEOUT };
    Ok(Gateway::new(members, place.etcd_certs.as_deref(), timeouts)?.into())
}

async fn import(place: &StateArgs, dump: Dump, is_forced: bool) -> Result<(), StartError> {
    let StateLocation::Etcd { members, prefix } = &place.state else { return replace(place, &dump) };
    let (name, keys) = (place.state.to_string(), EtcdKeys::new(prefix.clone()));
    let (jobs, sessions) = (dump.durable.jobs.len(), dump.durable.sessions.len());
    EtcdState::import(gateway(place, members)?, keys, name.clone().into(), dump.durable, is_forced).await?;
    let _ = writeln!(io::stdout(), "state `{name}` has {jobs} jobs and {sessions} sessions");
    if dump.owns_ca {
        let hint = "the CA is in the folder `ca` of the directory that was exported; give that folder to all coordinators with `--ca`";
        let _ = writeln!(io::stdout(), "{hint}");
    }
    Ok(())
}

fn folder(place: &StateArgs) -> Result<&PathBuf, StartError> {
    match &place.state {
        StateLocation::Directory(directory) => Ok(directory),
        etcd @ StateLocation::Etcd { .. } => Err(StartError::NotADirectory { state: etcd.to_string() }),
    }
}

fn replace(place: &StateArgs, dump: &Dump) -> Result<(), StartError> {
    let directory = folder(place)?;
    let aside = EmbeddedState::replace(directory, dump)?;
    let (durable, directory) = (&dump.durable, directory.display());
    let (jobs, sessions) = (durable.jobs.len(), durable.sessions.len());
    let _ = writeln!(io::stdout(), "state `{directory}` has {jobs} jobs and {sessions} sessions");
    if let Some(aside) = aside {
        let _ = writeln!(io::stdout(), "what was there is `{}`", aside.display());
    }
    Ok(())
}

fn write(dump: &Dump, path: &std::path::Path) -> Result<(), StateStoreError> {
    crate::state::write_whole(path, |out| dump.write(out)).map_err(|source| unwritable(path.to_owned(), source))
}

fn unwritable(path: PathBuf, source: io::Error) -> StateStoreError {
    StateStoreError::Io { path, action: "written", source: source.into() }
}
