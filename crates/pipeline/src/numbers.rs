//! The numbers of a pipeline's parts: its stages, its links, and the threads or tasks that take the steps of stages.

use std::{collections::VecDeque, task::Waker, time::Instant};

use spdl_types::{StageStats, histogram::DurationHistogram};

use spdl_accounting::{UnitTimes, with_times};

/// A stage's numbers.
pub(crate) struct StageState {
    pub(crate) name: String,
    pub(crate) kind: StageKind,
    /// Whether the limit can be changed.
    pub(crate) is_pipe: bool,
    /// Number of items that the stage may work on at once: its units.
    pub(crate) limit: usize,
    /// Number of items that may wait in front of the stage, beyond those in progress before it.
    pub(crate) depth: usize,
    /// Number of steps that are being taken.
    pub(crate) running: usize,
    /// Number of items that were taken and are not finished.
    pub(crate) open: usize,
    /// Number of items that have more results and could give one.
    pub(crate) parked: usize,
    /// Number of items whose turn has not come and that could make a result ahead of it.
    pub(crate) ahead: usize,
    /// Whether something is left that is to be passed on when the input ends.
    pub(crate) has_rest: bool,
    /// Whether there is no further input.
    pub(crate) is_exhausted: bool,
    /// Whether a failure has left this stage or a later one, so that no further item is needed.
    pub(crate) is_halted: bool,
    pub(crate) is_finished: bool,
    pub(crate) inputs: Vec<usize>,
    pub(crate) outputs: Vec<usize>,
    pub(crate) reads: Reads,
    /// For a stage that takes results from its inputs in turn: the number of the next input.
    pub(crate) turn: usize,
    /// For a stage that puts the results of branches in order: the items that were dealt to them and have more to give.
    pub(crate) dealt: VecDeque<Dealt>,
    /// For a stage that deals items to branches: the stage that puts their results in order.
    pub(crate) merge: Option<usize>,
    /// For a stage that deals items to branches: the link for which it holds an item.
    pub(crate) target: Option<usize>,
    pub(crate) items: u64,
    pub(crate) bytes: u64,
    pub(crate) failures: u64,
    pub(crate) latency: DurationHistogram,
    pub(crate) times: UnitTimes,
    pub(crate) accounted_until: Instant,
}

/// The kinds of stages that the scheduler distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StageKind {
    Source,
    /// One result per item.
    One,
    /// Any number of results per item: an item may be taken before there is room for a result.
    Many,
    /// Deals items to branches, without an operation. It takes an item before it knows which branch needs room for it.
    Deal,
    /// Collects or passes on items, without an operation.
    Inline,
    Sink,
}

/// The inputs that a stage takes its next message from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// Any, in turn.
    Any,
    /// The input with the branch of the first item of `dealt`. When none is left, the rest that each branch has at its
    /// end, branch by branch.
    Dealt,
}

/// An item that is in a branch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dealt {
    /// The branch: a number of an input of the stage that puts the results in order.
    pub(crate) branch: usize,
    /// Whether its last result is also the last one of an item of the branch around all this.
    pub(crate) is_last: bool,
}

/// A link's numbers.
pub(crate) struct LinkState {
    pub(crate) producer: usize,
    pub(crate) consumer: usize,
    /// Number of slots in use: reserved, filled or ready.
    pub(crate) used: usize,
    pub(crate) ready: usize,
    pub(crate) is_closed: bool,
}

/// The threads or tasks that take the steps of some stages.
#[derive(Default)]
pub(crate) struct Crew {
    /// The stages, nearest to the sink first.
    pub(crate) stages: Vec<usize>,
    /// Number of threads or tasks.
    pub(crate) size: usize,
    /// Whether these are the threads for all operations that compute.
    pub(crate) is_pool: bool,
    /// Number of threads or tasks that wait to be woken.
    pub(crate) waiting: usize,
    /// Number of threads that are asked to wake up and have not yet.
    pub(crate) woken: usize,
    /// Number of threads that look for a step. They find whatever becomes possible, so none needs to be woken.
    pub(crate) searching: usize,
    /// The tasks that wait, by their number; empty for threads.
    pub(crate) wakers: Vec<Option<Waker>>,
}

impl LinkState {
    pub(crate) const fn new(producer: usize) -> Self {
        Self { producer, consumer: usize::MAX, used: 0, ready: 0, is_closed: false }
    }

    /// Returns whether nothing will come any more.
    pub(crate) const fn has_ended(&self) -> bool {
        self.is_closed && self.used == 0
    }
}

impl StageState {
    pub(crate) fn new(name: String, kind: StageKind, limit: usize, depth: usize, now: Instant) -> Self {
        Self {
            name,
            kind,
            is_pipe: false,
            limit,
            depth,
            running: 0,
            open: 0,
            parked: 0,
            ahead: 0,
            has_rest: false,
            is_exhausted: false,
            is_halted: false,
            is_finished: false,
            inputs: Vec::new(),
            outputs: Vec::new(),
            reads: Reads::Any,
            turn: 0,
            dealt: VecDeque::new(),
            merge: None,
            target: None,
            items: 0,
            bytes: 0,
            failures: 0,
            latency: DurationHistogram::default(),
            times: UnitTimes::default(),
            accounted_until: now,
        }
    }

    /// Returns the statistics, with an empty queue.
    pub(crate) fn stats(&self) -> StageStats {
        let stats = StageStats {
            items: self.items,
            bytes: self.bytes,
            failures: self.failures,
            units: self.limit as u64,
            ..StageStats::new(self.name.as_str().into())
        };
        with_times(stats, &self.times, &self.latency)
    }
}
