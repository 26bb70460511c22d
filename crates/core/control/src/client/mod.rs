//! The client's session as a state machine, without a clock or I/O.
//!
//! The driver calls [`SessionCore::handle`] for each event and [`SessionCore::handle_timeout`] at the time
//! [`SessionCore::wake_ms`]. After each call it carries out, in order, the effects that [`SessionCore::poll_effect`]
//! returns. Times are in milliseconds of any monotonic clock.

mod coordinator;
mod error;
pub mod group;
mod home_link;
mod note;
mod receive_window;
mod wait_reason;

use std::{
    collections::{BTreeMap, VecDeque},
    str::FromStr,
    time::Duration,
};

use crate::messages::{FromCoordinator, Home, JobHold, RankHeartbeat, Session, Start, StartReason, ToCoordinator};
use spdl_insight::{ReceiveStats, Transport};
use spdl_order::Receipt;
use spdl_types::{Fingerprint, NodeId, Position, backoff::Backoff, mix::splitmix64};

use coordinator::Membership;
pub use error::RankError;
use home_link::HomeLink;
pub use note::{LinkFailure, SessionNote};
use receive_window::ExpectedStream;
pub use wait_reason::WaitReason;

/// A rank's request to join, with its settings. It does not change during a session.
#[derive(Clone, Debug)]
pub struct JoinRequest {
    /// The job's name.
    pub job: String,
    /// The run's name.
    pub run: String,
    /// The rank.
    pub rank: u32,
    /// The world size.
    pub world: u32,
    /// The size of the global batch, when it differs from the job's.
    pub global_batch: Option<u32>,
    /// The number of epochs, when it differs from the run's.
    pub epochs: Option<u64>,
    /// The position to start at.
    pub start: Start,
    /// The fingerprint of the job that `start` is a position of.
    pub fingerprint: Option<Fingerprint>,
    /// The launcher's id of this launch.
    pub launch: Option<String>,
    /// Whether to supersede a live launch of the run.
    pub takeover: bool,
    /// When this process was started, in seconds since 1970.
    pub since_unix_s: u64,
    /// This process's node.
    pub node: NodeId,
    /// This process's id and host, for error texts.
    pub client: String,
    /// A random number of this client, by which the coordinator distinguishes a repeated join from a restart.
    pub nonce: u64,
    /// The number of slots requested from a home.
    pub slots: u32,
    /// The transports that may be used.
    pub transports: AllowedTransports,
    /// Path of the home's socket as this process sees it, when it differs from the path that the home announces.
    pub socket: Option<String>,
    /// The coordinators' addresses, for error texts.
    pub coordinators: String,
}

/// The transports that may be used to reach a home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllowedTransports {
    /// The local queue when the home is on this node and its socket can be reached, QUIC otherwise.
    #[default]
    Auto,
    /// Only the local queue.
    Local,
    /// Only QUIC.
    Quic,
}

/// A text is not the name of allowed transports.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is `{0}`, not auto, local or quic")]
pub struct ParseTransportsError(String);

impl FromStr for AllowedTransports {
    type Err = ParseTransportsError;

    fn from_str(text: &str) -> Result<Self, ParseTransportsError> {
        match text {
            "auto" => Ok(Self::Auto),
            "local" => Ok(Self::Local),
            "quic" => Ok(Self::Quic),
            other => Err(ParseTransportsError(other.to_owned())),
        }
    }
}

/// The timeouts and pauses of a session, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long the first join is repeated while no coordinator answers, before it fails.
    pub join_timeout_ms: u64,
    /// How long a home may take to answer an attach. Default 10,000. A higher value leaves a hung home later.
    pub attach_timeout_ms: u64,
    /// First pause after a failure, doubled with each consecutive failure. Default 50. A higher value delays recovery
    /// from a short fault.
    pub backoff_min_ms: u64,
    /// Longest pause. Default 2,000. A higher value delays recovery from a long fault, and retries less often during
    /// it.
    pub backoff_max_ms: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Self { join_timeout_ms: 300_000, attach_timeout_ms: 10_000, backoff_min_ms: 50, backoff_max_ms: 2_000 }
    }
}

/// Identifies one attempt to be served by a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// The transport and address with which to reach a home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HomeTransport {
    /// The home's Unix socket.
    Local {
        /// Path of the socket.
        path: String,
    },
    /// The home's QUIC address.
    Quic,
}

impl HomeTransport {
    const fn transport(&self) -> Transport {
        match self {
            Self::Local { .. } => Transport::Local,
            Self::Quic => Transport::Quic,
        }
    }
}

/// What the trainer has received so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Position after the last batch.
    pub position: Position,
    /// Receipt of all batches.
    pub receipt: Receipt,
    /// Milliseconds that the trainer has waited for them and for the next batch.
    pub waited_ms: u64,
}

/// An input of [`SessionCore`].
#[derive(Clone, Debug, PartialEq)]
pub enum SessionEvent {
    /// The coordinator answered the open request.
    Answered(Box<FromCoordinator>),
    /// The coordinator could not be reached, or did not answer.
    Unanswered {
        /// Why.
        cause: String,
    },
    /// The home serves the rank on this link.
    Attached {
        /// The link.
        link: LinkId,
        /// Number of slots that the home provides.
        slots: u32,
    },
    /// The home could not be reached, the link broke, or a message on it was invalid.
    LinkLost {
        /// The link.
        link: LinkId,
        /// Why.
        cause: String,
    },
    /// The home filled a slot with a batch.
    Filled {
        /// The link.
        link: LinkId,
        /// Number of the batch on this link, counted from 0.
        sequence: u64,
        /// The slot.
        slot: u32,
        /// Position of its global batch's first sample.
        from: Position,
        /// Position after its global batch.
        next: Position,
    },
    /// All epochs are delivered.
    End {
        /// The link.
        link: LinkId,
        /// Number of batches on this link.
        sequence: u64,
        /// Position after the last.
        position: Position,
    },
    /// The home is shutting down.
    Leaving {
        /// The link.
        link: LinkId,
    },
    /// The home cannot serve the rank.
    Fault {
        /// The link.
        link: LinkId,
        /// Why.
        message: String,
        /// Whether another home may be able to serve the rank.
        is_retryable: bool,
    },
    /// A batch was dropped, by the trainer or by this client.
    Freed {
        /// The link that it came over.
        link: LinkId,
        /// Its slot.
        slot: u32,
    },
    /// The trainer took a batch.
    Delivered(Progress),
    /// The trainer restarts the stream at a position, whatever it has received. The session, its ranks and their
    /// positions at the coordinator stay as they are.
    Restart {
        /// Position of the next batch.
        from: Position,
    },
    /// A process that does not answer may still read slots of this link, which must not be filled again: leave it, and attach
    /// again.
    Renew {
        /// The link.
        link: LinkId,
    },
    /// The trainer closes the session.
    Close,
}

/// An output of [`SessionCore`]: an action for the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionEffect {
    /// Send the request to the coordinator, and report its answer. Only one request is open at a time, except for a
    /// `RankLeave`.
    Ask(ToCoordinator),
    /// The rank is in this session. Comes once, before any batch is delivered.
    Joined(Box<Session>, StartReason),
    /// The session's job has changed, from a position on that the trainer has not reached. Comes before any batch past it.
    JobChanged(Box<Session>),
    /// Open a link: connect to the home, attach, and report its messages as events.
    Attach {
        /// The id of the new link.
        link: LinkId,
        /// The home.
        home: Home,
        /// The transport and address.
        way: HomeTransport,
        /// Position of the first batch to send.
        from: Position,
        /// Number of slots to request.
        slots: u32,
    },
    /// Close a link, and drop its batches that were not delivered. After this, the only events of the link are freed
    /// slots.
    Detach {
        /// The link.
        link: LinkId,
    },
    /// Tell the home that it may fill the slot again.
    Free {
        /// The link.
        link: LinkId,
        /// The slot.
        slot: u32,
    },
    /// Hand the batch to the trainer as its next one.
    HandOver {
        /// The link it came over.
        link: LinkId,
        /// Its slot.
        slot: u32,
    },
    /// Drop a batch that the trainer has already had.
    Discard {
        /// The link it came over.
        link: LinkId,
        /// Its slot.
        slot: u32,
    },
    /// Tell the trainer that all epochs are delivered.
    End {
        /// Position after the last.
        position: Position,
    },
    /// The session has failed. The trainer gets the error after the batches that were delivered before.
    Fail(RankError),
    /// Report this in the log, as a warning.
    Log(SessionNote),
}

/// Whether the session has more batches to deliver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionPhase {
    Running,
    /// All batches are delivered; heartbeats go on until the trainer closes the session.
    Ended,
    /// Failed or closed: sends nothing.
    Over,
}

/// The session of one rank, as a state machine.
#[derive(Debug)]
pub struct SessionCore {
    join_request: JoinRequest,
    timing: Timing,
    phase: SessionPhase,
    membership: Membership,
    /// Set by the first join.
    stream: Option<ExpectedStream>,
    /// The change of the job that the rank has promised to wait for.
    hold: Option<JobHold>,
    link: HomeLink,
    /// Links that were left while the trainer still held some of their slots.
    left_behind: BTreeMap<LinkId, receive_window::ReceiveWindow>,
    progress: Progress,
    received: ReceiveStats,
    effects: VecDeque<SessionEffect>,
}

impl SessionCore {
    /// Creates the session of a rank, whose first effect is to ask the coordinator to join.
    #[must_use]
    pub fn new(join_request: JoinRequest, timing: Timing, now_ms: u64) -> Self {
        let mut core = Self {
            join_request,
            timing,
            phase: SessionPhase::Running,
            membership: Membership::new(now_ms),
            stream: None,
            hold: None,
            link: HomeLink::new(now_ms),
            left_behind: BTreeMap::new(),
            progress: Progress::default(),
            received: ReceiveStats::default(),
            effects: VecDeque::new(),
        };
        core.ask();
        core
    }

    /// Processes an event.
    pub fn handle(&mut self, now_ms: u64, event: SessionEvent) {
        if self.phase == SessionPhase::Over {
            return;
        }
        match event {
            SessionEvent::Answered(answer) => self.on_answer(now_ms, *answer),
            SessionEvent::Unanswered { cause } => self.on_unanswered(now_ms, cause),
            SessionEvent::Delivered(progress) => self.progress = progress,
            SessionEvent::Restart { from } => self.on_restart(from),
            SessionEvent::Close => self.on_close(),
            SessionEvent::Freed { link, slot } => self.on_freed(link, slot),
            event => self.on_link_event(now_ms, event),
        }
        self.try_attach(now_ms);
    }

    /// Processes the passing of time.
    pub fn handle_timeout(&mut self, now_ms: u64) {
        if self.phase == SessionPhase::Over {
            return;
        }
        self.link_timeout(now_ms);
        self.ask_when_due(now_ms);
        self.try_attach(now_ms);
    }

    /// Returns the next effect to carry out.
    pub fn poll_effect(&mut self) -> Option<SessionEffect> {
        self.effects.pop_front()
    }

    /// Returns the time of the next call of [`SessionCore::handle_timeout`], in milliseconds.
    #[must_use]
    pub fn wake_ms(&self) -> Option<u64> {
        if self.phase == SessionPhase::Over {
            return None;
        }
        [self.membership.wake_ms(), self.link_wake_ms()].into_iter().flatten().min()
    }

    /// Sets the total time that the trainer has waited for batches, which the following requests report.
    pub const fn waited(&mut self, waited_ms: u64) {
        self.progress.waited_ms = waited_ms;
    }

    /// Returns the timeouts of the session.
    #[must_use]
    pub const fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Returns the session, once the rank has joined it.
    #[must_use]
    pub fn session(&self) -> Option<&Session> {
        self.membership.session()
    }

    /// Returns where the next batch to deliver starts: the position after all batches received.
    #[must_use]
    pub fn received(&self) -> Option<Position> {
        self.stream.as_ref().map(|stream| stream.expected)
    }

    /// Returns the position up to which the trainer knows the stream.
    fn handed(&self) -> Position {
        self.stream.as_ref().map_or(self.progress.position, ExpectedStream::handed)
    }

    /// Returns the home that serves the rank, and the transport.
    #[must_use]
    pub fn attached(&self) -> Option<(&Home, Transport)> {
        self.link.attached()
    }

    /// Returns the link of the home that serves the rank, on which it can be asked why there is no batch.
    #[must_use]
    pub fn attached_link(&self) -> Option<LinkId> {
        self.link.attached_id()
    }

    /// Returns the number of batches that were received and not yet dropped, over all links.
    #[must_use]
    pub fn slots_held(&self) -> usize {
        self.link.held() + self.left_behind.values().map(receive_window::ReceiveWindow::held).sum::<usize>()
    }

    /// Returns whether the next batch has to wait for a change of the job.
    fn is_on_hold(&self) -> bool {
        self.stream.as_ref().is_some_and(ExpectedStream::is_on_hold)
    }

    fn fail(&mut self, error: RankError) {
        self.detach();
        self.phase = SessionPhase::Over;
        self.effects.push_back(SessionEffect::Fail(error));
    }

    /// Restarts the stream at `from` by leaving the link: as after a fault, a new link asks for the new position.
    fn on_restart(&mut self, from: Position) {
        let Some(stream) = &mut self.stream else { return };
        stream.restart(from);
        self.progress = Progress { position: from, receipt: Receipt::default(), ..self.progress };
        self.phase = SessionPhase::Running;
        self.detach();
    }

    fn on_close(&mut self) {
        self.detach();
        if let Some(session) = self.membership.session() {
            // A rank that has left may go on where its batches ended, also if the end is moved.
            let handed = self.received().unwrap_or(self.progress.position);
            let leave = RankHeartbeat { handed, ..self.rank_heartbeat(session) };
            self.effects.push_back(SessionEffect::Ask(ToCoordinator::RankLeave(leave)));
        }
        self.phase = SessionPhase::Over;
    }

    fn on_freed(&mut self, link: LinkId, slot: u32) {
        if let Some(left) = self.left_behind.get_mut(&link) {
            left.free(slot);
            if left.held() == 0 {
                self.left_behind.remove(&link);
            }
        } else if self.link.free(link, slot) {
            self.effects.push_back(SessionEffect::Free { link, slot });
        }
    }

    /// Returns the pause after `failures` consecutive failures. The pause doubles each time; the nonce picks a value
    /// between half of it and all of it, so that ranks that failed together do not retry together.
    fn backoff_ms(&self, failures: u32) -> u64 {
        let Timing { backoff_min_ms, backoff_max_ms, .. } = self.timing;
        let backoff = Backoff::new(Duration::from_millis(backoff_min_ms), Duration::from_millis(backoff_max_ms));
        let random = splitmix64(self.join_request.nonce ^ u64::from(failures)) >> 32;
        let pause = backoff.equal_jitter(failures, random as f64 / (1_u64 << 32) as f64);
        u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)
    }
}

#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;
