//! Where the coordinator's durable state is kept: jobs, sessions with their acknowledged positions, bad samples.
//!
//! A store only keeps what the core says; it decides nothing. One conformance suite runs on every implementation.

#[cfg(test)]
mod conformance;
mod dump;
mod embedded;
mod etcd;
mod folder;
mod guard;
mod lease_deadline;
mod location;
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
pub use memory::MemoryState;

use crate::core::{Change, Durable, JobRecord};

/// Keeps the durable state.
pub trait StateStore: Send {
    /// All that is kept.
    ///
    /// # Errors
    /// When it cannot be read, or is not what this program wrote.
    fn load(&self) -> Result<Durable, StateStoreError>;

    /// Makes changes durable, in order and all at once: when this returns, they survive a crash, and after a crash on the way
    /// either all are there or none. They depend on each other: a session, and the mark on the one that it supersedes.
    ///
    /// # Errors
    /// When they could not be written: all are then kept, or none. Applying all of them again does no harm.
    fn apply(&mut self, changes: &[Change]) -> Result<(), StateStoreError>;

    /// Whether another coordinator can go on from it at any time: what is not in it may then not be promised to anybody.
    fn is_shared(&self) -> bool {
        false
    }
}

/// Version of what is written. Of the earlier ones, all can be read:
///
/// 1. knew no runs: a session had no `run`, `epochs`, `reason`, `launch`, `is_takeover` or `replaces`, a rank no
///    `since_unix_s`. [`SessionRecord`](crate::core::SessionRecord) says what stands for them.
///
/// What is opened in an earlier one is in this one from then on: an earlier program would take the sessions of all runs of
/// a job for those of one.
const FORMAT: u64 = 2;

/// Whether what has this format can be read.
const fn is_readable(format: u64) -> bool {
    1 <= format && format <= FORMAT
}

/// A job as it was before it was written as JSON.
///
/// # Errors
/// When it does not read back as it was, with the reason.
fn restored(mut record: JobRecord) -> Result<JobRecord, String> {
    record.job.max_bad_fraction = f64::from_bits(record.max_bad_fraction_bits);
    let actual = record.job.fingerprint();
    if actual != record.fingerprint {
        return Err(format!("it was written with fingerprint {} and reads back as {actual}", record.fingerprint));
    }
    Ok(record)
}

/// The state cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateStoreError {
    /// Another coordinator has it.
    #[error("state `{}` is in use by another process; stop that one, or give this one its own directory", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// Another version of this program wrote it.
    #[error("state `{}` has format {actual}; this program reads format {expected}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What it has.
        actual: u64,
        /// What this program reads.
        expected: u64,
    },
    /// A folder that was in use has no database.
    #[error("state folder `{}` was in use, and its `coordinator.redb` is gone", folder.display())]
    Lost {
        /// The folder.
        folder: PathBuf,
    },
    /// A plain file that is not what was written.
    #[error("state file `{}`, line {line}: {cause}", path.display())]
    Dump {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong.
        cause: String,
    },
    /// Something in it does not read back as it was written.
    #[error("state `{}`: {subject} is damaged: {cause}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What.
        subject: String,
        /// How.
        cause: String,
    },
    /// A coordinator leads, whose state would be replaced under it.
    #[error("state `{}` is in use: coordinator `{leader}` leads", path.display())]
    Led {
        /// The place in etcd.
        path: PathBuf,
        /// Its name.
        leader: String,
    },
    /// A state that an import would replace.
    #[error("state `{}` is not empty: it has {jobs} job(s) and {sessions} session(s)", path.display())]
    NotEmpty {
        /// The place in etcd.
        path: PathBuf,
        /// How many jobs it has.
        jobs: usize,
        /// How many sessions.
        sessions: usize,
    },
    /// Another coordinator leads, or may do so.
    #[error("state `{}` is no longer this coordinator's to write: its lease has run out", path.display())]
    LeadershipLost {
        /// The place in etcd.
        path: PathBuf,
    },
    /// The disk, or etcd, does not do what it should.
    #[error("state `{}` cannot be {action}", path.display())]
    Io {
        /// The file, or the place in etcd.
        path: PathBuf,
        /// What was attempted: `opened`, `read`, `written` or `moved`.
        action: &'static str,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl StateStoreError {
    /// What to do about it, where something can be said.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let restore = |folder: &std::path::Path| {
            let folder = folder.display();
            format!(
                "`spdl-coord state import --state {folder} {folder}/backup.jsonl` goes on from the backup, a minute older at \
                 most, or from an export of your own; `spdl-coord state create --state {folder}` begins anew: jobs have to be \
                 submitted again, and trainers start from their own checkpoints. Either moves what is there aside"
            )
        };
        match self {
            Self::Locked { .. } => Some("is a coordinator running already? see --state".to_owned()),
            Self::Led { .. } => Some("stop all coordinators of this state first".to_owned()),
            Self::NotEmpty { .. } => {
                Some("`spdl-coord state export` writes it to a file; `import --force` replaces it".to_owned())
            }
            Self::Damaged { path, .. } if path.to_string_lossy().starts_with("etcd://") => Some(format!(
                "restore etcd from a snapshot of its own, or stop all coordinators and replace the state by an export: \
                 `spdl-coord state import --force --state {} FILE`",
                path.display()
            )),
            Self::Lost { folder } => Some(restore(folder)),
            Self::Damaged { path, .. } => path.parent().map(restore),
            _ => None,
        }
    }

    /// Whether the same may work later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Locked { .. } | Self::Io { .. })
    }
}
