//! The errors of the client, in words that a trainer's owner can act on.

use spdl_wire::{layout::LayoutError, messages::Refusal};

use crate::{ColumnError, StateError};

/// An error of the loader. The texts name their subject; [`ClientError::hint`] gives a remedy where one is known.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A setting is missing or invalid.
    #[error("setting `{name}` {problem}")]
    Setting {
        /// The environment variable, such as `SPDL_JOB`.
        name: &'static str,
        /// What is wrong with it, and what would be valid.
        problem: String,
    },
    /// The certificate, the key or the cluster's CA cannot be used.
    #[error("certificates in `{folder}`: {cause}")]
    Certificates {
        /// The folder.
        folder: String,
        /// What is wrong.
        cause: String,
    },
    /// No coordinator let the rank join in time.
    #[error("no coordinator let rank {rank} join at `{coordinators}` within {waited_ms} ms: {cause}")]
    Unreachable {
        /// The addresses that were tried.
        coordinators: String,
        /// The rank.
        rank: u32,
        /// How long the client tried, in milliseconds.
        waited_ms: u64,
        /// Why the last attempt failed.
        cause: String,
    },
    /// The coordinator refuses this rank, or no longer accepts it.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The coordinator's description of the session contradicts what this rank asked for or has joined.
    #[error("session of job `{job}` has {field} {theirs}; rank {rank} goes by {ours}")]
    SessionDiffers {
        /// The job's name.
        job: String,
        /// The rank.
        rank: u32,
        /// The field that differs.
        field: &'static str,
        /// The coordinator's value.
        theirs: String,
        /// This rank's value.
        ours: String,
    },
    /// The home reports that no worker can serve this rank.
    #[error("home `{home}`: {message}")]
    Fault {
        /// The home's name.
        home: String,
        /// The home's message.
        message: String,
    },
    /// No batch arrived in time. The next call waits for the same batch.
    #[error("rank {rank} has waited {waited_ms} ms for a batch at {position}: {explanation}")]
    Timeout {
        /// The rank.
        rank: u32,
        /// How long the trainer has waited, in milliseconds.
        waited_ms: u64,
        /// The position of the missing batch.
        position: spdl_shard::Position,
        /// Which part of the system is waiting for what.
        explanation: String,
    },
    /// A slot does not hold a batch of this job.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The column does not exist, or has another type.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// The state cannot be used as a start.
    #[error(transparent)]
    State(#[from] StateError),
    /// The pipeline of an in-process loader failed.
    #[error("{message}")]
    Pipeline {
        /// What failed, naming the file, sample or setting.
        message: String,
    },
    /// A blocking call inside an async runtime, where it would stop the runtime's thread.
    #[error("a blocking loader was used inside an async runtime")]
    InsideRuntime,
    /// The operating system refused what the loader needs.
    #[error("cannot {action}: {cause}")]
    System {
        /// The action that failed.
        action: &'static str,
        /// The operating system's message.
        cause: String,
    },
    /// The loader was closed, or has returned an error that ended it.
    #[error("the loader is closed")]
    Closed,
}

impl ClientError {
    /// Returns whether the same call on the same loader may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    /// Returns a line for people that says what to do, where that is known.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable { .. } => Some(
                "check that `spdl-coord` runs there, that SPDL_COORD names its QUIC (UDP) port, and that SPDL_CERTS \
                 holds a client certificate of its CA",
            ),
            Self::Certificates { .. } => {
                Some("make ca.pem, cert.pem and key.pem with `spdl-ctl cert --role client` and name their folder")
            }
            Self::Refused(Refusal::UnknownJob { .. }) => Some("submit the job with `spdl-ctl job submit JOB.toml`"),
            Self::Refused(Refusal::FingerprintDiffers { .. }) => {
                Some("the checkpoint is of another dataset, seed or column list; start without it or use its job")
            }
            Self::Refused(Refusal::SessionSuperseded { .. }) => {
                Some("another process took this rank: stop one of the two, or restart the whole trainer")
            }
            Self::Refused(Refusal::RankOutOfRange { .. }) => Some("ranks are 0 to world - 1"),
            Self::Refused(Refusal::SessionDisagrees { .. }) => Some(
                "start all ranks of a launch from the same checkpoint and with the same sizes, and no other launch of \
                 this run beside it",
            ),
            Self::Refused(Refusal::RunInUse { .. }) => Some(
                "end that launch, give this one a run of its own (`run=`, SPDL_RUN), or end the other by taking over \
                 from it (`takeover=True`, SPDL_TAKEOVER=1)",
            ),
            Self::Refused(Refusal::RunFinished { .. }) => {
                Some("start again at the beginning, or give more epochs to go on with (`epochs=`, SPDL_EPOCHS)")
            }
            Self::Refused(Refusal::StartOutOfRange { .. }) => {
                Some("a start is `beginning`, `resume`, an epoch, EPOCH:OFFSET, or the state of a checkpoint")
            }
            Self::Timeout { .. } => Some("`spdl-ctl status` shows every stage; SPDL_TIMEOUT_S sets how long is waited"),
            Self::InsideRuntime => Some("use the async loader there, or call from a thread outside the runtime"),
            _ => None,
        }
    }
}
