//! What can go wrong for a trainer, in words it can act on.

use spdl_wire::{layout::LayoutError, messages::Refusal};

use crate::{ColumnError, StateError, device::DeviceError};

/// An error of the loader. Texts name their subject; [`ClientError::hint`] says what to do where that is known.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A setting that is missing or makes no sense.
    #[error("setting `{name}` {problem}")]
    Setting {
        /// The variable, as `SPDL_JOB`.
        name: &'static str,
        /// What is wrong with it and what would be right.
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
        /// For how long, in milliseconds.
        waited_ms: u64,
        /// Why the last attempt failed.
        cause: String,
    },
    /// The coordinator does not let this rank take part, or not any longer.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The session that the coordinator describes is not the one this rank takes part in.
    #[error("session of job `{job}` has {field} {theirs}; rank {rank} goes by {ours}")]
    SessionDiffers {
        /// The job's name.
        job: String,
        /// The rank.
        rank: u32,
        /// What differs.
        field: &'static str,
        /// The coordinator's value.
        theirs: String,
        /// This rank's value.
        ours: String,
    },
    /// The home says that no worker can serve this rank.
    #[error("home `{home}`: {message}")]
    Fault {
        /// The home's name.
        home: String,
        /// Its words.
        message: String,
    },
    /// No batch arrived in time. The next call goes on waiting for the same batch.
    #[error("rank {rank} has waited {waited_ms} ms for a batch at {position}: {explanation}")]
    Timeout {
        /// The rank.
        rank: u32,
        /// For how long, in milliseconds.
        waited_ms: u64,
        /// The position that is waited for.
        position: spdl_shard::Position,
        /// Who waits for what.
        explanation: String,
    },
    /// A slot does not hold a batch of this job.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A column was asked for that is not there, or not of that type.
    #[error(transparent)]
    Column(#[from] ColumnError),
    /// A device cannot hold the batches.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A state that cannot be started from.
    #[error(transparent)]
    State(#[from] StateError),
    /// The pipeline of an in-process loader failed.
    #[error("{message}")]
    Pipeline {
        /// What failed, with the thing named.
        message: String,
    },
    /// A blocking call inside an async runtime would stop that runtime's thread.
    #[error("a blocking loader was used inside an async runtime")]
    InsideRuntime,
    /// The system did not give what the loader needs.
    #[error("cannot {action}: {cause}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The system's words.
        cause: String,
    },
    /// The loader was closed, or has returned an error that ends it.
    #[error("the loader is closed")]
    Closed,
}

impl ClientError {
    /// Whether the same call may do better a little later, on the same loader.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    /// What to do about it, where that is known: a line for people.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Device(error) => error.hint(),
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
