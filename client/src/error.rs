//! The errors of the client, in words that a trainer's owner can act on.

use spdl_control::{client::RankError, messages::Refusal};
use spdl_job::layout::LayoutError;

use crate::{ColumnError, StateError};

/// An error of the loader. The texts name their subject; [`ClientError::hint`] gives a remedy where one is known.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum ClientError {
    /// A setting is missing or invalid.
    #[error("setting `{name}` {problem}")]
    Setting { name: &'static str, problem: String },
    /// The certificate, the key or the cluster's CA cannot be used.
    #[error("certificates in `{folder}`: {cause}")]
    Certificates { folder: String, cause: String },
    /// The rank cannot take part in its session.
    #[error(transparent)]
    Rank(#[from] RankError),
    /// The process cannot be a member of the group that shares its rank, or cannot be one any longer.
    #[error("member {member} of the {members} of rank {rank}: {problem}")]
    Group { rank: u32, member: u32, members: u32, problem: String },
    /// No batch arrived in time. The next call waits for the same batch.
    #[error("rank {rank} has waited {waited_ms} ms for a batch at {position}: {explanation}")]
    Timeout { rank: u32, waited_ms: u64, position: spdl_types::Position, explanation: String },
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
    Pipeline { message: String },
    /// A blocking call inside an async runtime, where it would stop the runtime's thread.
    #[error("a blocking loader was used inside an async runtime")]
    InsideRuntime,
    /// The operating system refused what the loader needs.
    #[error("cannot {action}: {cause}")]
    System { action: &'static str, cause: String },
    /// What limits the rank cannot be found out now. The loader goes on.
    #[error("what limits the rank is not known: {cause}")]
    Undiagnosed { cause: String },
    /// The names of the job's classes cannot be found out now.
    #[error("the names of the classes are not known: {cause}")]
    ClassesUnknown { cause: String },
    /// The loader was closed, or has returned an error that ended it.
    #[error("the loader is closed")]
    Closed,
}

impl From<Refusal> for ClientError {
    fn from(refusal: Refusal) -> Self {
        Self::Rank(refusal.into())
    }
}

impl ClientError {
    /// Returns whether the same call on the same loader may succeed later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Undiagnosed { .. } | Self::ClassesUnknown { .. })
    }

    /// Returns a hint for the user on what to do, if there is one.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Rank(error) => error.hint(),
            Self::Certificates { .. } => {
                Some("make ca.pem, cert.pem and key.pem with `spdl-ctl cert --role client` and name their folder")
            }
            Self::Timeout { .. } => Some("`spdl-ctl status` shows every stage; SPDL_TIMEOUT_S sets how long is waited"),
            Self::Group { .. } => Some(
                "the members of a group run on one node with the same rank, world and start; when one is lost, restart all of them from \
                 one checkpoint",
            ),
            Self::InsideRuntime => Some("use the async loader there, or call from a thread outside the runtime"),
            _ => None,
        }
    }
}
