//! What all processes have: an incarnation number, a host, a clock of their own, and the events held while they are
//! stopped.

use std::collections::VecDeque;

use crate::{dice::Dice, world::Event};

/// A process, independent of its incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    Coordinator(usize),
    Worker(usize),
    Client(usize),
    /// The process that submits and removes jobs.
    Admin,
}

/// The run state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Running {
    Dead,
    Yes,
    /// Stopped by SIGSTOP: events for it are held.
    Stopped,
}

#[derive(Debug)]
pub(crate) struct SimProcess {
    pub(crate) life: u32,
    pub(crate) running: Running,
    pub(crate) host: usize,
    pub(crate) clock: Clock,
    /// When its clock was suspended together with its host.
    pub(crate) suspended_us: Option<u64>,
    /// The events that arrived while it was stopped, in order.
    pub(crate) held: VecDeque<Event>,
}

impl SimProcess {
    pub(crate) fn new(host: usize) -> Self {
        Self {
            life: 0,
            running: Running::Dead,
            host,
            clock: Clock::default(),
            suspended_us: None,
            held: VecDeque::new(),
        }
    }

    /// Starts a new incarnation of the process.
    pub(crate) fn start(&mut self, now_us: u64, drift: u64, dice: &mut Dice) {
        self.life += 1;
        self.running = Running::Yes;
        self.held.clear();
        self.suspended_us = None;
        self.clock = Clock {
            since_us: now_us,
            base_ms: dice.within(0, 100_000),
            permille: 1000 - drift + dice.within(0, 2 * drift),
            is_off: false,
        };
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running == Running::Yes
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.running != Running::Dead
    }
}

/// A clock with a new origin in each incarnation, which runs faster or slower than true time, and steps. The shells use
/// monotonic clocks; the cores nevertheless tolerate small steps back.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    since_us: u64,
    base_ms: u64,
    permille: u64,
    /// Whether it has been suspended or stepped back, unlike the clocks that measure leases.
    pub(crate) is_off: bool,
}

impl Clock {
    pub(crate) fn read_ms(&self, now_us: u64) -> u64 {
        self.base_ms + now_us.saturating_sub(self.since_us) * self.permille / 1_000_000
    }

    /// Returns the true time at which the clock will read `ms`.
    pub(crate) fn true_us(&self, ms: u64) -> u64 {
        let run_ms = ms.saturating_sub(self.base_ms);
        self.since_us + (run_ms * 1_000_000).div_ceil(self.permille)
    }

    pub(crate) fn step(&mut self, ms: u64) {
        self.base_ms += ms;
    }

    pub(crate) fn step_back(&mut self, ms: u64) {
        self.base_ms = self.base_ms.saturating_sub(ms);
        self.is_off = true;
    }

    /// Suspends the clock for this time.
    pub(crate) fn stand_still(&mut self, for_us: u64) {
        self.since_us += for_us;
        self.is_off = true;
    }
}
