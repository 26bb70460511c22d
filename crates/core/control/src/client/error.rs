//! Why a rank cannot take part in its session.

use crate::messages::Refusal;

/// The reason why a rank cannot join its session, or cannot go on in it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
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
}

impl RankError {
    /// Returns a hint for the user on what to do, if there is one.
    #[must_use]
    pub const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Unreachable { .. } => Some(
                "check that `spdl-coord` runs there, that SPDL_COORD names its QUIC (UDP) port, and that SPDL_CERTS \
                 holds a client certificate of its CA",
            ),
            Self::Refused(Refusal::UnknownJob { .. }) => Some("submit the job with `spdl-ctl job submit JOB.toml`"),
            Self::Refused(Refusal::FingerprintDiffers { .. }) => Some(
                "the checkpoint is of another dataset, seed or column list, or of another version of a function; start \
                 without it or use its job",
            ),
            Self::Refused(Refusal::SessionSuperseded { .. }) => {
                Some("another process took this rank: stop one of the two, or restart the whole trainer")
            }
            Self::Refused(Refusal::RankOutOfRange { .. }) => Some("ranks are 0 to world - 1"),
            Self::Refused(Refusal::SessionDisagrees { .. }) => Some(
                "start all ranks of a launch from the same checkpoint and with the same sizes, and no other launch of \
                 this run beside it",
            ),
            Self::Refused(Refusal::RunInUse { .. }) => Some(
                "end that launch, give this one its own run (`run=`, SPDL_RUN), or end the other by taking over \
                 from it (`takeover=True`, SPDL_TAKEOVER=1)",
            ),
            Self::Refused(Refusal::RunFinished { .. }) => {
                Some("start again at the beginning, or give more epochs to go on with (`epochs=`, SPDL_EPOCHS)")
            }
            Self::Refused(Refusal::SessionOutdated { .. }) => Some(
                "end the other ranks and start the trainer again, with `resume` or from a checkpoint: it goes by the job as it is now, \
                 which `spdl-ctl job show` prints",
            ),
            Self::Refused(Refusal::StartOutOfRange { .. }) => {
                Some("a start is `beginning`, `resume`, an epoch, EPOCH:OFFSET, or the state of a checkpoint")
            }
            _ => None,
        }
    }
}
