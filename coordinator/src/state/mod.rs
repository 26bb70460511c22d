//! Storage of the coordinator's durable state: jobs, sessions with their acknowledged positions, bad samples.
//!
//! A store only keeps what the core passes to it and decides nothing. One conformance suite runs on every
//! implementation.

#[cfg(test)]
mod conformance;
mod dump;
mod embedded;
mod etcd;
mod folder;
mod guard;
mod lease_deadline;
mod location;
#[cfg(test)]
mod memory;
mod tables;

use std::path::PathBuf;

pub use dump::Dump;
pub use embedded::EmbeddedState;
pub use etcd::EtcdError;
pub(crate) use etcd::{Committed, Condition, EtcdKeys, EtcdState, Gateway, Granted, Timeouts, TxnOp};
pub(crate) use folder::write_whole;
pub use lease_deadline::LeaseDeadline;
pub use location::{LocationError, StateLocation};

use spdl_control::coordinator::{Change, Durable, JobRecord};

/// A store of the durable state.
pub trait StateStore: Send {
    /// Returns the whole stored state.
    ///
    /// # Errors
    /// Fails when the state cannot be read, or was not written by this program.
    fn load(&self) -> Result<Durable, StateStoreError>;

    /// Makes changes durable, in order and atomically: when this returns, they survive a crash; after a crash during
    /// the call either all of them are stored or none. Changes depend on each other, for example a session and the mark
    /// on the session that it supersedes.
    ///
    /// # Errors
    /// Fails when the changes could not be written: then either all are stored or none. Applying all of them again has
    /// no further effect.
    fn apply(&mut self, changes: &[Change]) -> Result<(), StateStoreError>;

    /// Returns whether another coordinator can continue from this state at any time. If so, no answer may promise what
    /// is not stored yet.
    fn is_shared(&self) -> bool {
        false
    }
}

/// The version of the stored format. All earlier versions can be read:
///
/// 1. had no runs: a session had no `run`, `epochs`, `reason`, `launch`, `is_takeover` or `replaces`, a rank no
///    `since_unix_s`. [`SessionRecord`](spdl_control::coordinator::SessionRecord) documents the defaults.
///
/// A state of an earlier version is raised to this one when it is opened: an earlier program would treat the sessions
/// of all runs of a job as those of one run.
const FORMAT: u64 = 2;

/// Returns whether this program can read the format.
const fn is_readable(format: u64) -> bool {
    1 <= format && format <= FORMAT
}

/// Restores the fields of a job that JSON does not preserve, and checks its fingerprint.
///
/// # Errors
/// Fails with the reason when the job does not read back unchanged.
fn restored(mut record: JobRecord) -> Result<JobRecord, String> {
    record.job.max_bad_fraction = f64::from_bits(record.max_bad_fraction_bits);
    let actual = record.job.fingerprint();
    if actual != record.fingerprint {
        return Err(format!("it was written with fingerprint {} and reads back as {actual}", record.fingerprint));
    }
    Ok(record)
}

/// The reason why the state cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum StateStoreError {
    /// Another process holds the lock.
    #[error("state `{}` is in use by another process; stop that one, or give this one its own directory", path.display())]
    Locked { path: PathBuf },
    /// Another version of this program wrote the state.
    #[error("state `{}` has format {actual}; this program reads format {expected}", path.display())]
    Format { path: PathBuf, actual: u64, expected: u64 },
    /// A directory that was in use has no database.
    #[error("state folder `{}` was in use, and its `coordinator.redb` is missing", folder.display())]
    Lost { folder: PathBuf },
    /// A dump file is not as it was written.
    #[error("state file `{}`, line {line}: {cause}", path.display())]
    Dump { path: PathBuf, line: usize, cause: String },
    /// A record does not read back as it was written.
    #[error("state `{}`: {subject} is damaged: {cause}", path.display())]
    Damaged { path: PathBuf, subject: String, cause: String },
    /// A coordinator leads, and the import would replace its state while it runs.
    #[error("state `{}` is in use: coordinator `{leader}` leads", path.display())]
    Led { path: PathBuf, leader: String },
    /// The import would replace an existing state.
    #[error("state `{}` is not empty: it has {jobs} job(s) and {sessions} session(s)", path.display())]
    NotEmpty { path: PathBuf, jobs: usize, sessions: usize },
    /// Another coordinator leads, or may lead.
    #[error("state `{}` can no longer be written by this coordinator: its lease has expired", path.display())]
    LeadershipLost { path: PathBuf },
    /// An operation on the disk, or on etcd, failed.
    #[error("state `{}` cannot be {action}", path.display())]
    Io { path: PathBuf, action: &'static str, source: Box<dyn std::error::Error + Send + Sync> },
}

impl StateStoreError {
    /// Returns what the user can do about the error, if there is anything to suggest.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let restore = |folder: &std::path::Path| {
            let folder = folder.display();
            format!(
                "`spdl-coord state import --state {folder} {folder}/backup.jsonl` restores the backup, which is at most a minute \
                 older, or an export of your own; `spdl-coord state create --state {folder}` creates an empty state: jobs have to be \
                 submitted again, and trainers start from their own checkpoints. Both move the existing files aside"
            )
        };
        match self {
            Self::Locked { .. } => Some("is a coordinator running already? see --state".to_owned()),
            Self::Led { .. } => Some("stop all coordinators of this state first".to_owned()),
            Self::NotEmpty { .. } => {
                Some("`spdl-coord state export` writes it to a file; `import --force` replaces it".to_owned())
            }
            Self::Damaged { path, .. } if path.to_string_lossy().starts_with("etcd://") => Some(format!(
                "restore etcd from one of its snapshots, or stop all coordinators and replace the state by an export: \
                 `spdl-coord state import --force --state {} FILE`",
                path.display()
            )),
            Self::Lost { folder } => Some(restore(folder)),
            Self::Damaged { path, .. } => path.parent().map(restore),
            _ => None,
        }
    }

    /// Returns whether a retry may succeed.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Locked { .. } | Self::Io { .. })
    }
}
