//! What the scheduler of a pipeline knows: per stage what waits, what runs and for what time; per link how full it is. Plain
//! data without locks, threads or a clock: the time is set by the caller.

use std::{
    task::Waker,
    time::{Duration, Instant},
};

use spdl_core::{histogram::DurationHistogram, messages::StageStats};

use crate::stats::{StageWaits, nanoseconds};

/// All numbers of a running pipeline, under its one lock.
pub(crate) struct State {
    pub(crate) stages: Vec<StageState>,
    pub(crate) links: Vec<LinkState>,
    pub(crate) crews: Vec<Crew>,
    /// The stages that run at once, under the lock, on the thread that changed their links.
    pub(crate) inline: Vec<usize>,
    /// The latest time that the state was locked at.
    pub(crate) now: Instant,
    /// Whether a source has ended, so that stages may.
    is_closing: bool,
    /// Whether the last item was delivered, the pipeline failed or it was stopped. No step is taken after that.
    pub(crate) has_ended: bool,
}

/// A stage's numbers.
pub(crate) struct StageState {
    pub(crate) name: String,
    pub(crate) kind: Kind,
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
    /// Whether something is left that is to be passed on when the input ends.
    pub(crate) has_rest: bool,
    /// Whether there is no further input.
    pub(crate) is_exhausted: bool,
    /// Whether a failure has left the stage or one behind it, so that no further item is needed.
    is_halted: bool,
    is_finished: bool,
    pub(crate) inputs: Vec<usize>,
    pub(crate) output: Option<usize>,
    pub(crate) items: u64,
    bytes: u64,
    failures: u64,
    latency: DurationHistogram,
    busy: Duration,
    waits: StageWaits,
    accounted_until: Instant,
}

/// The kinds of stages that the scheduler tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Source,
    /// One result per item.
    One,
    /// Any number of results per item: an item may be taken before there is room for a result.
    Many,
    /// Collects or passes on items, without an operation.
    Inline,
    Sink,
}

/// A link's numbers.
pub(crate) struct LinkState {
    pub(crate) producer: usize,
    pub(crate) consumer: usize,
    /// Number of slots in use: reserved, filled or ready.
    used: usize,
    pub(crate) ready: usize,
    is_closed: bool,
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
    pub(crate) fn new(name: String, kind: Kind, limit: usize, depth: usize, now: Instant) -> Self {
        Self {
            name,
            kind,
            is_pipe: false,
            limit,
            depth,
            running: 0,
            open: 0,
            parked: 0,
            has_rest: false,
            is_exhausted: false,
            is_halted: false,
            is_finished: false,
            inputs: Vec::new(),
            output: None,
            items: 0,
            bytes: 0,
            failures: 0,
            latency: DurationHistogram::default(),
            busy: Duration::ZERO,
            waits: StageWaits::default(),
            accounted_until: now,
        }
    }

    pub(crate) fn stats(&self) -> StageStats {
        let [p50_ns, p90_ns, p99_ns] = self.latency.quantiles([0.5, 0.9, 0.99]).map(nanoseconds);
        StageStats {
            items: self.items,
            bytes: self.bytes,
            failures: self.failures,
            busy_ns: nanoseconds(self.busy),
            p50_ns,
            p90_ns,
            p99_ns,
            ..StageStats::new(self.name.as_str().into())
        }
    }
}

impl State {
    pub(crate) fn new(stages: Vec<StageState>, links: Vec<LinkState>, now: Instant) -> Self {
        let (crews, inline) = (Vec::new(), Vec::new());
        Self { stages, links, crews, inline, now, is_closing: false, has_ended: false }
    }

    /// Counts the time of a stage up to now. Its numbers and those of its links must not have changed since the last call.
    fn account(&mut self, stage: usize) {
        let elapsed = self.now.saturating_duration_since(self.stages[stage].accounted_until);
        if elapsed.is_zero() || self.has_ended {
            return;
        }
        let has_room = self.has_room(stage);
        let ready = self.ready(stage);
        let stage = &mut self.stages[stage];
        stage.accounted_until = self.now;
        let times = |count: usize| elapsed * u32::try_from(count).unwrap_or(u32::MAX);
        let idle = stage.limit.max(stage.open).saturating_sub(stage.running);
        stage.busy += times(stage.running);
        if stage.kind == Kind::Sink && ready > 0 || !has_room {
            stage.waits.output += times(idle);
        } else {
            let held_back = idle.min(ready + stage.parked);
            stage.waits.throttled += times(held_back);
            stage.waits.input += times(idle - held_back);
        }
    }

    /// Counts the times of all stages up to now.
    pub(crate) fn account_all(&mut self) {
        (0..self.stages.len()).for_each(|stage| self.account(stage));
    }

    pub(crate) fn waits(&self) -> impl Iterator<Item = StageWaits> {
        let stages = 0..self.stages.len();
        stages.map(|stage| StageWaits { queue_depth: self.ready(stage) as u64, ..self.stages[stage].waits })
    }

    /// Changes a stage's numbers, with the time before the change accounted for.
    pub(crate) fn change(&mut self, stage: usize) -> &mut StageState {
        self.account(stage);
        &mut self.stages[stage]
    }

    /// Sets the numbers of a link.
    pub(crate) fn link_changed(&mut self, link: usize, used: usize, ready: usize) {
        let LinkState { producer, consumer, .. } = self.links[link];
        self.account(producer);
        self.account(consumer);
        let link = &mut self.links[link];
        (link.used, link.ready) = (used, ready);
    }

    /// Counts an item's end: its bytes, or `None` if it failed.
    pub(crate) fn count(&mut self, stage: usize, bytes: Option<u64>, busy: Duration) {
        let stage = &mut self.stages[stage];
        match bytes {
            None => stage.failures += 1,
            Some(bytes) => {
                stage.items += 1;
                stage.bytes += bytes;
                stage.latency.record(busy);
            }
        }
    }

    /// Returns whether there is room for a result of the stage.
    pub(crate) fn has_room(&self, stage: usize) -> bool {
        self.stages[stage].output.is_none_or(|link| {
            let link = &self.links[link];
            link.used < self.stages[link.consumer].depth + self.stages[link.producer].limit
        })
    }

    fn ready(&self, stage: usize) -> usize {
        self.stages[stage].inputs.iter().map(|link| self.links[*link].ready).sum()
    }

    fn inputs_have_ended(&self, stage: usize) -> bool {
        self.stages[stage].inputs.iter().all(|link| self.links[*link].has_ended())
    }

    /// Returns whether a step of the stage can be taken now.
    pub(crate) fn is_runnable(&self, at: usize) -> bool {
        let stage = &self.stages[at];
        if stage.is_halted || stage.is_finished {
            return false;
        }
        let has_room = self.has_room(at);
        if stage.kind == Kind::Source {
            return has_room && stage.running == 0 && !stage.is_exhausted;
        }
        let can_start = stage.open < stage.limit && (has_room || stage.kind == Kind::Many);
        stage.parked > 0 && has_room
            || can_start && self.ready(at) > 0
            || stage.has_rest && has_room && self.inputs_have_ended(at)
    }

    /// Returns the stage nearest to the sink that a crew can take a step of.
    pub(crate) fn runnable_in(&self, crew: usize) -> Option<usize> {
        self.crews[crew].stages.iter().copied().find(|stage| self.is_runnable(*stage))
    }

    /// Returns whether a thread of the crew has to be woken: a step can be taken, and none looks for one.
    pub(crate) fn needs_waking(&self, at: usize) -> bool {
        let crew = &self.crews[at];
        crew.waiting > 0 && crew.woken == 0 && crew.searching == 0 && self.runnable_in(at).is_some()
    }

    /// Sets the number of units of a pipe.
    pub(crate) fn set_concurrency(&mut self, stage: usize, concurrency: usize) {
        self.account_all();
        self.stages[stage].limit = concurrency;
        self.stages[stage].depth = concurrency;
    }

    /// Lets a task of a stage wait to be woken.
    pub(crate) fn task_sleeps(&mut self, stage: usize, number: usize, waker: Waker) {
        let crew = self.crew_of(stage);
        if crew.wakers.len() <= number {
            crew.wakers.resize(number + 1, None);
        }
        crew.wakers[number] = Some(waker);
        crew.waiting += 1;
    }

    /// Records that a task does not wait any more.
    pub(crate) fn task_wakes(&mut self, stage: usize, number: usize) {
        let crew = self.crew_of(stage);
        match crew.wakers[number].take() {
            Some(_) => crew.waiting -= 1,
            None => crew.woken = crew.woken.saturating_sub(1),
        }
    }

    fn crew_of(&mut self, stage: usize) -> &mut Crew {
        let crew = self.crews.iter_mut().find(|crew| crew.stages.contains(&stage));
        crew.expect("a stage with tasks has a crew")
    }

    /// Ends a source: it has no further item.
    pub(crate) fn exhaust(&mut self, stage: usize) {
        self.stages[stage].is_exhausted = true;
        self.is_closing = true;
    }

    /// Takes no more steps of `stage` and those before it: a failure has left it.
    pub(crate) fn halt(&mut self, stage: usize) {
        if !std::mem::replace(&mut self.stages[stage].is_halted, true) {
            for at in 0..self.stages[stage].inputs.len() {
                let link = self.stages[stage].inputs[at];
                self.halt(self.links[link].producer);
            }
        }
    }

    /// Finishes the stages that nothing can come out of any more. Returns whether there was one.
    pub(crate) fn finish_stages(&mut self) -> bool {
        let mut any = false;
        for at in 0..if self.is_closing { self.stages.len() } else { 0 } {
            let stage = &self.stages[at];
            let is_idle = stage.running == 0 && stage.open == 0 && !stage.has_rest;
            let has_input = if stage.kind == Kind::Source { !stage.is_exhausted } else { !self.inputs_have_ended(at) };
            if stage.is_finished || !is_idle || has_input {
                continue;
            }
            any = true;
            self.stages[at].is_finished = true;
            match self.stages[at].output {
                Some(link) => self.links[link].is_closed = true,
                None => self.end(),
            }
        }
        any
    }

    /// Ends the pipeline: no further step is taken.
    pub(crate) fn end(&mut self) {
        self.account_all();
        self.has_ended = true;
    }
}
