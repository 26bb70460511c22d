//! The events of a session that its log reports, as data: the shell and the simulator decide what to do with them.

use std::fmt;

use crate::messages::{Refusal, RunName, StartReason, Started};
use spdl_types::SessionId;

/// An event that an operator may have to look at. Its text is the line of the log.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionNote {
    /// The first rank of a session has learnt where the session starts.
    Started {
        /// The session.
        session: SessionId,
        /// Its run.
        run: RunName,
        /// The start position, and why the session starts there.
        started: Started,
    },
    /// The coordinator does not know the rank's session, so the rank joins again.
    SessionForgotten {
        /// The session.
        session: SessionId,
    },
    /// The coordinator refused the rank, and the rank asks again for a while.
    RefusedForNow {
        /// The refusal.
        refusal: Refusal,
        /// For how long the rank asks again.
        retry_for_ms: u64,
    },
    /// The coordinator did not answer. Consecutive failures make one note.
    CoordinatorAway {
        /// Why.
        cause: String,
    },
    /// The coordinator named another home, so the rank leaves its home.
    HomeChanged {
        /// The name of the new home.
        home: String,
    },
    /// The home is shutting down.
    HomeLeaving {
        /// Its name.
        home: String,
    },
    /// The home's socket cannot be used, so the rank connects to the home over QUIC.
    SocketUnusable {
        /// The home's name.
        home: String,
        /// Why.
        cause: String,
    },
    /// The home no longer serves the rank. Consecutive failures make one note.
    HomeLost {
        /// Its name.
        home: String,
        /// Why.
        cause: LinkFailure,
    },
}

/// Why a rank gave up a link to a home. Its text follows the home's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkFailure {
    /// The home broke the protocol.
    Violation(String),
    /// No transport that the rank may use reaches the home.
    NoTransport(String),
    /// The home could not be reached, or the connection broke.
    Broken(String),
    /// The home did not answer in time.
    Silent {
        /// How long the rank waited.
        waited_ms: u64,
    },
    /// The home reported that it cannot serve the rank.
    Fault(String),
}

impl fmt::Display for SessionNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { session, run, started } => {
                let hint = match started.reason {
                    StartReason::Beginning => "; with `resume` as start it continues where its last session ended",
                    _ => "",
                };
                write!(f, "{session} of {run} starts {started}{hint}")
            }
            Self::SessionForgotten { session } => write!(f, "coordinator does not know {session}; joining"),
            Self::RefusedForNow { refusal, retry_for_ms } => {
                write!(f, "{refusal}; asking again for {} s, in case it ends", retry_for_ms.div_ceil(1_000))
            }
            Self::CoordinatorAway { cause } => write!(f, "coordinator does not answer, asking again: {cause}"),
            Self::HomeChanged { home } => write!(f, "moving to home `{home}`"),
            Self::HomeLeaving { home } => write!(f, "home `{home}` is shutting down"),
            Self::SocketUnusable { home, cause } => {
                write!(f, "local queue of home `{home}` cannot be used, taking QUIC: {cause}")
            }
            Self::HomeLost { home, cause } => write!(f, "lost home `{home}`: {cause}"),
        }
    }
}

impl fmt::Display for LinkFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violation(cause) | Self::NoTransport(cause) | Self::Broken(cause) | Self::Fault(cause) => {
                f.write_str(cause)
            }
            Self::Silent { waited_ms } => write!(f, "it did not answer within {waited_ms} ms"),
        }
    }
}
