//! The client's session as a state machine: no clock, no I/O.
//!
//! Whoever runs it calls [`SessionCore::handle`] with what happened and [`SessionCore::handle_timeout`] when
//! [`SessionCore::wake_ms`] has come, and after each of them carries out the effects that
//! [`SessionCore::poll_effect`] yields, in order. Times are milliseconds on any clock that does not run backwards.

mod coordinator;
mod flow;
mod link;
mod situation;

use std::collections::{BTreeMap, VecDeque};

use spdl_shard::{Fingerprint, Position, Receipt};
use spdl_wire::messages::{FromCoordinator, Home, NodeId, Session, Start, StartReason, ToCoordinator, Transport};

use crate::ClientError;
use coordinator::Membership;
use flow::Stream;
use link::Link;
pub use situation::Situation;

/// What the rank wants; does not change.
#[derive(Clone, Debug)]
pub struct Intent {
    /// The job's name.
    pub job: String,
    /// The run's name.
    pub run: String,
    /// r.
    pub rank: u32,
    /// W.
    pub world: u32,
    /// B, where it differs from the job's.
    pub global_batch: Option<u32>,
    /// Epochs, where they differ from the run's.
    pub epochs: Option<u64>,
    /// Where to start.
    pub start: Start,
    /// Fingerprint of the job that `start` is a position of.
    pub fingerprint: Option<Fingerprint>,
    /// The launcher's id of this launch.
    pub launch: Option<String>,
    /// Supersedes a living launch of the run.
    pub takeover: bool,
    /// When this process was started, in seconds since 1970.
    pub since_unix_s: u64,
    /// This process's node.
    pub node: NodeId,
    /// Process id and host, for errors.
    pub client: String,
    /// Random for each client.
    pub nonce: u64,
    /// Slots wanted of a home.
    pub slots: u32,
    /// Which ways to a home may be taken.
    pub ways: Ways,
    /// Path of the home's socket as this process sees it, where it is not the one the home gives.
    pub socket: Option<String>,
    /// The coordinator's addresses, for errors.
    pub coordinators: String,
}

/// Which ways to a home may be taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ways {
    /// The local queue where the home is on this node and can be reached by it, QUIC otherwise.
    #[default]
    Auto,
    /// Only the local queue.
    Local,
    /// Only QUIC.
    Quic,
}

/// How long the session waits for what, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long a coordinator may be out of reach before the first join gives up.
    pub join_timeout_ms: u64,
    /// How long a home may take to answer an attach. Default 10,000; raised, a hung home is left later.
    pub attach_timeout_ms: u64,
    /// First pause after a failure, doubled with each in a row. Default 50; raised, a rank waits longer after a short fault.
    pub backoff_min_ms: u64,
    /// Longest pause. Default 2,000; raised, a rank waits longer after a long fault, and knocks less often during it.
    pub backoff_max_ms: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Self { join_timeout_ms: 300_000, attach_timeout_ms: 10_000, backoff_min_ms: 50, backoff_max_ms: 2_000 }
    }
}

/// One attempt to be served by a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// How to reach a home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// Its Unix socket.
    Local {
        /// Path of the socket.
        path: String,
    },
    /// Its QUIC address.
    Quic,
}

impl Way {
    const fn transport(&self) -> Transport {
        match self {
            Self::Local { .. } => Transport::Local,
            Self::Quic => Transport::Quic,
        }
    }
}

/// What the trainer has been handed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Position after the last batch.
    pub position: Position,
    /// Receipt of all batches.
    pub receipt: Receipt,
    /// Milliseconds that it has waited for them, and for the one that is next.
    pub waited_ms: u64,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The coordinator answered what was asked.
    Answered(Box<FromCoordinator>),
    /// It could not be asked, or did not answer.
    Unanswered {
        /// Why.
        cause: String,
    },
    /// The home serves the rank on this link.
    Attached {
        /// The link.
        link: LinkId,
        /// Slots given.
        slots: u32,
    },
    /// The home could not be reached, the link broke, or what came over it made no sense.
    LinkLost {
        /// The link.
        link: LinkId,
        /// Why.
        cause: String,
    },
    /// A slot holds a batch.
    Filled {
        /// The link.
        link: LinkId,
        /// Number of the batch on this link, from 0.
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
    /// The home is going away.
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
        /// Whether another home might.
        is_retryable: bool,
    },
    /// A batch was dropped, by the trainer or by us.
    Freed {
        /// The link that it came over.
        link: LinkId,
        /// Its slot.
        slot: u32,
    },
    /// The trainer took a batch.
    Handed(Progress),
    /// The trainer wants the stream again from here, whatever came of it. The session, its ranks and their positions stay as they are.
    Restart {
        /// The next batch wanted.
        from: Position,
    },
    /// The trainer is done.
    Close,
}

/// What to do about it.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask the coordinator, and report the answer. Only one question is open at a time, a `RankLeave` aside.
    Ask(ToCoordinator),
    /// The rank takes part in this session; comes once, before anything is handed over.
    Joined(Box<Session>, StartReason),
    /// Open a link: reach the home, attach, and report what it says.
    Attach {
        /// The link's name from here on.
        link: LinkId,
        /// The home.
        home: Home,
        /// How.
        way: Way,
        /// The first batch wanted.
        from: Position,
        /// Slots wanted.
        slots: u32,
    },
    /// Close a link, and drop its batches that were not handed over. Nothing more is heard of it but slots that are freed.
    Detach {
        /// The link.
        link: LinkId,
    },
    /// Tell the home that it can fill the slot again.
    Free {
        /// The link.
        link: LinkId,
        /// The slot.
        slot: u32,
    },
    /// The batch is the trainer's next.
    HandOver {
        /// The link it came over.
        link: LinkId,
        /// Its slot.
        slot: u32,
    },
    /// The trainer has had this batch: drop it.
    Discard {
        /// The link it came over.
        link: LinkId,
        /// Its slot.
        slot: u32,
    },
    /// No batch follows.
    End {
        /// Position after the last.
        position: Position,
    },
    /// The session is over; the trainer learns why after the batches that it was handed before.
    Fail(ClientError),
    /// A line for the log.
    Warn(String),
}

/// Whether more is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// All batches are handed over; beats go on until the trainer closes.
    Ended,
    /// Failed or closed: silent.
    Over,
}

/// The session of one rank.
#[derive(Debug)]
pub struct SessionCore {
    intent: Intent,
    timing: Timing,
    phase: Phase,
    membership: Membership,
    /// Set by the first join.
    stream: Option<Stream>,
    link: Link,
    /// Slots of links that were left, and are not freed yet.
    left_behind: BTreeMap<LinkId, flow::Inflow>,
    progress: Progress,
    effects: VecDeque<Effect>,
}

impl SessionCore {
    /// A rank that wants to take part; asks the coordinator at once.
    #[must_use]
    pub fn new(intent: Intent, timing: Timing, now_ms: u64) -> Self {
        let mut core = Self {
            intent,
            timing,
            phase: Phase::Running,
            membership: Membership::new(now_ms),
            stream: None,
            link: Link::new(now_ms),
            left_behind: BTreeMap::new(),
            progress: Progress::default(),
            effects: VecDeque::new(),
        };
        core.ask();
        core
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now_ms: u64, event: Event) {
        if self.phase == Phase::Over {
            return;
        }
        match event {
            Event::Answered(answer) => self.on_answer(now_ms, *answer),
            Event::Unanswered { cause } => self.on_unanswered(now_ms, cause),
            Event::Handed(progress) => self.progress = progress,
            Event::Restart { from } => self.on_restart(from),
            Event::Close => self.on_close(),
            Event::Freed { link, slot } => self.on_freed(link, slot),
            event => self.on_link_event(now_ms, event),
        }
        self.try_attach(now_ms);
    }

    /// Takes in that time has passed.
    pub fn handle_timeout(&mut self, now_ms: u64) {
        if self.phase == Phase::Over {
            return;
        }
        self.link_timeout(now_ms);
        self.ask_when_due(now_ms);
        self.try_attach(now_ms);
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`SessionCore::handle_timeout`] is wanted next, in milliseconds.
    #[must_use]
    pub fn wake_ms(&self) -> Option<u64> {
        if self.phase == Phase::Over {
            return None;
        }
        [self.membership.wake_ms(), self.link_wake_ms()].into_iter().flatten().min()
    }

    /// The trainer has waited for batches so long by now; what is asked from here on carries it.
    pub const fn waited(&mut self, waited_ms: u64) {
        self.progress.waited_ms = waited_ms;
    }

    /// How long the session waits for what.
    #[must_use]
    pub const fn timing(&self) -> &Timing {
        &self.timing
    }

    /// The session, once the rank takes part in one.
    #[must_use]
    pub fn session(&self) -> Option<&Session> {
        self.membership.session()
    }

    /// Where the next batch starts that is to be handed over: the position after all that came in.
    #[must_use]
    pub fn received(&self) -> Option<Position> {
        self.stream.as_ref().map(|stream| stream.expected)
    }

    /// The home that serves the rank, and how.
    #[must_use]
    pub fn attached(&self) -> Option<(&Home, Transport)> {
        self.link.attached()
    }

    /// The link on which to ask the home why there is no batch.
    #[must_use]
    pub fn attached_link(&self) -> Option<LinkId> {
        self.link.attached_id()
    }

    /// Batches that came in and are not dropped yet, over all links.
    #[must_use]
    pub fn slots_held(&self) -> usize {
        self.link.held() + self.left_behind.values().map(flow::Inflow::held).sum::<usize>()
    }

    fn fail(&mut self, error: ClientError) {
        self.detach();
        self.phase = Phase::Over;
        self.effects.push_back(Effect::Fail(error));
    }

    /// A home is asked for another position as after a fault: over a new link.
    fn on_restart(&mut self, from: Position) {
        let Some(stream) = &mut self.stream else { return };
        stream.expected = from;
        self.progress = Progress { position: from, receipt: Receipt::default(), ..self.progress };
        self.phase = Phase::Running;
        self.detach();
    }

    fn on_close(&mut self) {
        self.detach();
        if let Some(session) = self.membership.session() {
            let leave = ToCoordinator::RankLeave(self.rank_beat(session));
            self.effects.push_back(Effect::Ask(leave));
        }
        self.phase = Phase::Over;
    }

    fn on_freed(&mut self, link: LinkId, slot: u32) {
        if let Some(left) = self.left_behind.get_mut(&link) {
            left.free(slot);
            if left.held() == 0 {
                self.left_behind.remove(&link);
            }
        } else if self.link.free(link, slot) {
            self.effects.push_back(Effect::Free { link, slot });
        }
    }

    /// The `failures`-th pause in a row: doubling, and between half and all of it, by the nonce, so that
    /// ranks that failed together do not come back together.
    fn backoff_ms(&self, failures: u32) -> u64 {
        let Timing { backoff_min_ms, backoff_max_ms, .. } = self.timing;
        let pause = backoff_min_ms.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(backoff_max_ms);
        let mixed = (self.intent.nonce ^ u64::from(failures)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        pause / 2 + mixed % (pause / 2 + 1)
    }
}

#[cfg(test)]
pub(crate) mod tests;
