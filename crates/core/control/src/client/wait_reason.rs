//! Explains why there is no batch, as far as this rank knows.

use std::fmt;

use spdl_insight::Transport;

use super::SessionCore;

/// What the rank is waiting for. Its text goes into the error of a wait that was too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitReason {
    wait: WaitedFor,
    /// For how many milliseconds the coordinator has not answered, and why.
    coordinator_away: Option<(u64, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum WaitedFor {
    /// The rank has not joined a session.
    Join { coordinators: String },
    /// The coordinator knows no worker, or only the lost one.
    Worker { cause: Option<String> },
    /// No home serves the rank.
    Home { cause: Option<String> },
    /// The trainer holds all slots.
    Trainer { slots: usize },
    /// The rank has promised to wait until it knows whether the job changes.
    Change,
    /// A home serves the rank, and has not sent the batch.
    Batch { home: String, transport: Transport },
    /// The session is over.
    Nothing,
}

impl WaitReason {
    /// Returns whether the home may know more about the reason.
    #[must_use]
    pub const fn is_up_to_the_home(&self) -> bool {
        matches!(self.wait, WaitedFor::Batch { .. })
    }
}

impl SessionCore {
    /// Returns what the rank is waiting for at this time.
    #[must_use]
    pub fn wait_reason(&self, now_ms: u64) -> WaitReason {
        let held = self.slots_held();
        let wait = match self.link.attached() {
            _ if self.phase != super::SessionPhase::Running => WaitedFor::Nothing,
            _ if self.session().is_none() => WaitedFor::Join { coordinators: self.join_request.coordinators.clone() },
            _ if self.is_on_hold() => WaitedFor::Change,
            _ if held > 0 && self.is_out_of_slots() => WaitedFor::Trainer { slots: held },
            Some((home, transport)) => WaitedFor::Batch { home: home.name.clone(), transport },
            None if self.link.home.is_none() || self.link.no_worker => {
                WaitedFor::Worker { cause: self.link.cause.clone() }
            }
            None => WaitedFor::Home { cause: self.link.cause.clone() },
        };
        let coordinator_away =
            self.membership.away.as_ref().map(|(since_ms, cause)| (now_ms.saturating_sub(*since_ms), cause.clone()));
        WaitReason { wait, coordinator_away }
    }
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.wait {
            WaitedFor::Join { coordinators } => write!(f, "the rank has not joined at `{coordinators}`")?,
            WaitedFor::Worker { cause } => {
                f.write_str("the coordinator knows no worker that could serve the rank")?;
                if let Some(cause) = cause {
                    write!(f, " after it lost {cause}")?;
                }
            }
            WaitedFor::Home { cause: Some(cause) } => write!(f, "no home serves the rank: {cause}")?,
            WaitedFor::Home { cause: None } => f.write_str("the home has not answered yet")?,
            WaitedFor::Trainer { slots } => {
                write!(f, "the trainer holds batches in all {slots} slots; drop one before taking the next")?;
            }
            WaitedFor::Change => {
                f.write_str("the job is about to change here, and the coordinator has not said yet whether it does")?;
            }
            WaitedFor::Batch { home, transport } => {
                let way = if *transport == Transport::Local { "the local queue" } else { "QUIC" };
                write!(f, "home `{home}` has sent none over {way}")?;
            }
            WaitedFor::Nothing => f.write_str("the session is over")?,
        }
        match &self.coordinator_away {
            Some((away_ms, cause)) => write!(f, "; the coordinator has not answered for {away_ms} ms: {cause}"),
            None => Ok(()),
        }
    }
}
