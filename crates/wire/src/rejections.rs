//! Counts the peers that a server rejects. Any host can send packets at any rate, so only some rejections are logged.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{
    log_limit::{LOG_PERIOD, LogLimit},
    quic::QuicError,
};

/// Why a peer is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionCause {
    /// It sent something that is no handshake or no request, or did not finish it in time.
    Noise,
    /// Its certificate is of another cluster, has expired or names no role.
    Certificate,
    /// Its role, or its user on the Unix socket, may not connect.
    Role,
    /// It sent a wrong token over HTTP.
    Token,
    /// There are too many connections.
    Room,
}

impl RejectionCause {
    const ALL: [Self; 5] = [Self::Noise, Self::Certificate, Self::Role, Self::Token, Self::Room];

    const fn name(self) -> &'static str {
        match self {
            Self::Noise => "noise",
            Self::Certificate => "certificate",
            Self::Role => "role",
            Self::Token => "token",
            Self::Room => "room",
        }
    }
}

impl From<&QuicError> for RejectionCause {
    fn from(error: &QuicError) -> Self {
        match error {
            QuicError::TheirCluster { .. } | QuicError::OurCluster { .. } | QuicError::Certificate { .. } => {
                Self::Certificate
            }
            QuicError::RoleNotAllowed { .. } | QuicError::WrongRole { .. } => Self::Role,
            _ => Self::Noise,
        }
    }
}

/// The rejected peers since the start, by cause.
#[derive(Debug)]
pub struct Rejections {
    counts: [AtomicU64; RejectionCause::ALL.len()],
    limits: [LogLimit; RejectionCause::ALL.len()],
}

impl Default for Rejections {
    fn default() -> Self {
        Self { counts: Default::default(), limits: RejectionCause::ALL.map(|_| LogLimit::new(LOG_PERIOD)) }
    }
}

impl Rejections {
    /// Counts a rejected peer, and logs `text` unless another one of this cause was logged in the last 30 s.
    pub fn note(&self, cause: RejectionCause, text: impl FnOnce() -> String) {
        if let Some(more) = self.count(cause) {
            tracing::warn!("{}{more}", text());
        }
    }

    /// Counts a rejected peer. Returns the end of its log line if it is to be logged.
    fn count(&self, cause: RejectionCause) -> Option<String> {
        self.counts[cause as usize].fetch_add(1, Relaxed);
        self.limits[cause as usize].admit_text()
    }

    /// Returns the name of each cause and how many peers were rejected for it.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        RejectionCause::ALL.into_iter().map(|cause| (cause.name(), self.counts[cause as usize].load(Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rejection_is_counted_and_one_of_each_cause_is_logged() {
        let rejections = Rejections::default();
        let causes = [RejectionCause::Noise, RejectionCause::Noise, RejectionCause::Room];
        assert_eq!(causes.map(|cause| rejections.count(cause).is_some()), [true, false, true]);
        let counts: Vec<_> = rejections.counts().collect();
        assert_eq!(counts, [("noise", 2), ("certificate", 0), ("role", 0), ("token", 0), ("room", 1)]);
    }
}
