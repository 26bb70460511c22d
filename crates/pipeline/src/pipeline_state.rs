//! The state of a pipeline's scheduler: for each stage, what waits, what runs, and where the time goes; for each link,
//! how full it is. Plain data without locks, threads or a clock: the caller sets the time.

use std::{
    any::Any,
    task::Waker,
    time::{Duration, Instant},
};

use spdl_accounting::UnitState;
use spdl_types::StageStats;

use crate::numbers::{Crew, LinkState, Reads, StageKind, StageState};

/// All numbers of a running pipeline, under its one lock.
pub(crate) struct PipelineState {
    pub(crate) stages: Vec<StageState>,
    pub(crate) links: Vec<LinkState>,
    pub(crate) crews: Vec<Crew>,
    /// The stages that run at once, under the lock, on the thread that changed their links.
    pub(crate) inline: Vec<usize>,
    /// The latest time that the state was locked at.
    pub(crate) now: Instant,
    /// Whether a source has ended, so that stages may end, too.
    is_closing: bool,
    /// Values that stages took and do not pass on. They are dropped without the lock, as that may run code of the
    /// user's.
    pub(crate) discarded: Vec<Box<dyn Any + Send>>,
    /// Whether the last item was delivered, the pipeline failed or it was stopped. No step is taken after that.
    pub(crate) has_ended: bool,
}

/// What the end of an item counts as.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    /// A result of this number of bytes.
    Item(u64),
    Failure,
    /// The item was left out.
    Nothing,
}

impl PipelineState {
    pub(crate) fn new(stages: Vec<StageState>, links: Vec<LinkState>, now: Instant) -> Self {
        let (crews, inline) = (Vec::new(), Vec::new());
        let discarded = Vec::new();
        Self { stages, links, crews, inline, now, is_closing: false, discarded, has_ended: false }
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
        let idle = stage.limit.max(stage.open).saturating_sub(stage.running);
        stage.times.add(UnitState::Busy, elapsed, stage.running);
        if stage.kind == StageKind::Sink && ready > 0 || !has_room {
            stage.times.add(UnitState::Output, elapsed, idle);
        } else {
            let held_back = idle.min(ready + stage.parked + stage.ahead);
            stage.times.add(UnitState::Throttled, elapsed, held_back);
            stage.times.add(UnitState::Input, elapsed, idle - held_back);
        }
    }

    /// Counts the times of all stages up to now.
    pub(crate) fn account_all(&mut self) {
        (0..self.stages.len()).for_each(|stage| self.account(stage));
    }

    /// Returns the statistics of all stages up to the last time that they were accounted for.
    pub(crate) fn stats(&self) -> Vec<StageStats> {
        let with_queue = |(at, stage): (usize, &StageState)| {
            let queue_depth = self.queued(at) as u64;
            StageStats { queue_depth, ..stage.stats() }
        };
        self.stages.iter().enumerate().map(with_queue).collect()
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

    /// Counts an item's end.
    pub(crate) fn count(&mut self, stage: usize, count: Count, busy: Duration) {
        let stage = &mut self.stages[stage];
        match count {
            Count::Nothing => {}
            Count::Failure => stage.failures += 1,
            Count::Item(bytes) => {
                stage.items += 1;
                stage.bytes += bytes;
                stage.latency.record(busy);
            }
        }
    }

    /// Returns whether there is room for a result of the stage. A stage that deals items needs room for the item that it holds.
    pub(crate) fn has_room(&self, stage: usize) -> bool {
        let StageState { kind, outputs, target, .. } = &self.stages[stage];
        match kind {
            StageKind::Deal => target.is_none_or(|link| self.link_has_room(link)),
            _ => outputs.iter().all(|link| self.link_has_room(*link)),
        }
    }

    pub(crate) fn link_has_room(&self, link: usize) -> bool {
        self.links[link].used < self.capacity(link)
    }

    /// Returns the number of slots of a link.
    pub(crate) fn capacity(&self, link: usize) -> usize {
        let link = &self.links[link];
        self.stages[link.consumer].depth + self.stages[link.producer].limit
    }

    /// Returns the number of messages that the stage could take.
    fn ready(&self, stage: usize) -> usize {
        let StageState { inputs, reads, .. } = &self.stages[stage];
        let ready = |link: &usize| self.links[*link].ready;
        match reads {
            Reads::Any => inputs.iter().map(ready).sum(),
            Reads::Dealt => self.next_dealt(stage).map_or(0, |input| ready(&inputs[input])),
        }
    }

    /// Returns the number of messages in front of the stage.
    fn queued(&self, stage: usize) -> usize {
        self.stages[stage].inputs.iter().map(|link| self.links[*link].ready).sum()
    }

    fn next_dealt(&self, stage: usize) -> Option<usize> {
        let StageState { inputs, dealt, .. } = &self.stages[stage];
        let dealt = dealt.front().map(|dealt| dealt.branch);
        dealt.or_else(|| inputs.iter().position(|link| !self.links[*link].has_ended()))
    }

    /// Returns the number of the input that the stage, which is runnable, takes its next message from.
    pub(crate) fn next_input(&mut self, stage: usize) -> usize {
        if self.stages[stage].reads == Reads::Dealt {
            return self.next_dealt(stage).expect("a stage that is runnable has an input");
        }
        let StageState { inputs, turn, .. } = &self.stages[stage];
        let mut numbers = (0..inputs.len()).map(|number| (turn + number) % inputs.len());
        let next = numbers.find(|number| self.links[inputs[*number]].ready > 0);
        let next = next.expect("a stage that is runnable has a message");
        self.stages[stage].turn = next + 1;
        next
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
        if stage.kind == StageKind::Source {
            return has_room && stage.running == 0 && !stage.is_exhausted;
        }
        let takes_without_room = matches!(stage.kind, StageKind::Many | StageKind::Deal);
        stage.parked > 0 && has_room
            || (has_room || takes_without_room) && self.can_start(at)
            || stage.ahead > 0 && stage.running < stage.limit
            || stage.has_rest && has_room && self.inputs_have_ended(at)
    }

    /// Returns whether the stage may work on another item, and there is one.
    pub(crate) fn can_start(&self, stage: usize) -> bool {
        self.stages[stage].open < self.stages[stage].limit && self.ready(stage) > 0
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

    /// Records that a task of a stage waits to be woken.
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

    pub(crate) fn crew_of(&mut self, stage: usize) -> &mut Crew {
        let crew = self.crews.iter_mut().find(|crew| crew.stages.contains(&stage));
        crew.expect("a stage with tasks has a crew")
    }

    /// Ends a source: it has no further item.
    pub(crate) fn exhaust(&mut self, stage: usize) {
        self.stages[stage].is_exhausted = true;
        self.is_closing = true;
    }

    /// Takes no more steps of `stage` and of the stages before it, because a failure has left it.
    pub(crate) fn halt(&mut self, stage: usize) {
        if !std::mem::replace(&mut self.stages[stage].is_halted, true) {
            for at in 0..self.stages[stage].inputs.len() {
                let link = self.stages[stage].inputs[at];
                self.halt(self.links[link].producer);
            }
        }
    }

    /// Finishes the stages that cannot give any more results. Returns whether there was one.
    pub(crate) fn finish_stages(&mut self) -> bool {
        let mut any = false;
        for at in 0..if self.is_closing { self.stages.len() } else { 0 } {
            let stage = &self.stages[at];
            let is_idle = stage.running == 0 && stage.open == 0 && !stage.has_rest;
            let has_input =
                if stage.kind == StageKind::Source { !stage.is_exhausted } else { !self.inputs_have_ended(at) };
            if stage.is_finished || !is_idle || has_input {
                continue;
            }
            any = true;
            self.stages[at].is_finished = true;
            for output in 0..self.stages[at].outputs.len() {
                let link = self.stages[at].outputs[output];
                self.links[link].is_closed = true;
            }
            if self.stages[at].kind == StageKind::Sink {
                self.end();
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
