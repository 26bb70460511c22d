//! What all processes have: a life, a host, a clock of their own, and what reaches them while they are stopped.

use std::collections::VecDeque;

use crate::{dice::Dice, world::Event};

/// A process, whichever of its lives it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    Coordinator(usize),
    Worker(usize),
    Client(usize),
    /// Who submits jobs and removes them.
    Admin,
}

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Running {
    Dead,
    Yes,
    /// It got SIGSTOP: what reaches it waits.
    Stopped,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) life: u32,
    pub(crate) running: Running,
    pub(crate) host: usize,
    pub(crate) clock: Clock,
    /// Since when its clock stands still with its host.
    pub(crate) suspended_us: Option<u64>,
    /// What reached it while it was stopped, in order.
    pub(crate) held: VecDeque<Event>,
}

impl Process {
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

    /// Begins another life.
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

/// A clock: another origin in each life, faster or slower than true time, and with steps. Those of the shells are monotonic;
/// the cores bear with little steps back all the same.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    since_us: u64,
    base_ms: u64,
    permille: u64,
    /// It has stood still or stepped back, as the clocks that leases are counted by do not.
    pub(crate) is_off: bool,
}

impl Clock {
    pub(crate) fn read_ms(&self, now_us: u64) -> u64 {
        self.base_ms + now_us.saturating_sub(self.since_us) * self.permille / 1_000_000
    }

    /// When it will read so much.
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

    /// It has stood still for so long.
    pub(crate) fn stand_still(&mut self, for_us: u64) {
        self.since_us += for_us;
        self.is_off = true;
    }
}
